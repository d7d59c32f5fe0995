//! The callbacks: made and signed beforehand, kept in `target/bench` for the next run.
//!
//! Here: keys (made together with the callbacks, and never put anywhere else), order numbers, the file.
//! Signing costs 25 times as much as verifying, so a generator that signed while it sends would measure itself.
//!
//! The timestamps lie ahead of the clock and the receivers are given the widest window there is (an hour in
//! both directions), so that a file is good for more than an hour and a half.

use std::{
    fs,
    io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _},
    path::Path,
    sync::Arc,
};

use payonce_sim::{Wechat, load, text::now_unix, wechat::Disorder};
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// The account's name: the callbacks go to `/notify/wechat`.
pub(crate) const ACCOUNT: &str = "wechat";
/// What each order costs, in fen.
pub(crate) const FEN: i64 = 100;
/// The widest window that can be configured, in seconds.
pub(crate) const WINDOW: i64 = 3600;
/// So far ahead of the clock are the timestamps when they are signed.
const AHEAD: i64 = 3000;
/// Raised when what is in the file changes.
const VERSION: u32 = 1;

/// What a receiver is configured with. The private halves are forgotten as soon as everything is signed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Keys {
    version: u32,
    /// The signed timestamp.
    timestamp: i64,
    pub(crate) mchid: String,
    pub(crate) app_id: String,
    pub(crate) api_v3_key: String,
    pub(crate) public_key_id: String,
    pub(crate) public_key_pem: String,
}

/// Complete HTTP requests, and the keys to believe them with.
pub(crate) struct Callbacks {
    pub(crate) keys: Keys,
    /// For the unique runs.
    pub(crate) unique: Arc<Vec<Vec<u8>>>,
    /// The one that is repeated; of an order of its own.
    pub(crate) repeated: Vec<u8>,
    /// For warming up: the first orders.
    pub(crate) warm_up: Arc<Vec<Vec<u8>>>,
    pub(crate) bytes: usize,
}

impl Callbacks {
    fn new(keys: Keys, mut requests: Vec<Vec<u8>>) -> Outcome<Self> {
        let repeated = requests.pop().ok_or("no callbacks")?;
        Ok(Self { keys, bytes: repeated.len(), repeated, unique: Arc::new(requests), warm_up: Arc::default() })
    }

    /// Takes the first callbacks out for warming up.
    pub(crate) fn set_apart(mut self, warm_up: usize) -> Self {
        let mut all = Arc::unwrap_or_clone(self.unique);
        let rest = all.split_off(warm_up.min(all.len()));
        self.unique = Arc::new(rest);
        self.warm_up = Arc::new(all);
        self
    }

    /// Takes the callback of order 0 away, which is paid beforehand then.
    pub(crate) fn take_first(&mut self) -> Vec<u8> {
        Arc::make_mut(&mut self.warm_up).remove(0)
    }
}

/// The number of an order, and its number on the platform: a time in front, as most shops' numbers have, so
/// that neighbours in time are neighbours in the index.
pub(crate) fn order_no(index: usize) -> String {
    format!("{PREFIX}{index:08}")
}

/// The platform's number of the payment.
pub(crate) fn trade_no(index: usize) -> String {
    format!("42000020260102{index:014}")
}

/// What all order numbers begin with.
pub(crate) const PREFIX: &str = "PO20260102030405";

/// From the file if there is one that will be valid for `seconds`, or else made anew.
pub(crate) fn load_or_sign(home: &Path, count: usize, seconds: f64) -> Outcome<Callbacks> {
    let path = home.join(format!("presigned-{count}.bin"));
    let until = now_unix() + seconds as i64 + 60;
    if let Some(found) = read(&path, count)
        && (found.keys.timestamp - WINDOW..found.keys.timestamp + WINDOW).contains(&until)
    {
        return Ok(found);
    }
    let made = sign(count)?;
    write(&path, &made.0, &made.1)?;
    Callbacks::new(made.0, made.1)
}

fn sign(count: usize) -> Outcome<(Keys, Vec<Vec<u8>>)> {
    let wechat = Wechat::new("1900000001");
    let timestamp = now_unix() + AHEAD;
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let make = |index: usize| {
        let payment = wechat.payment(&order_no(index), &trade_no(index), FEN);
        wechat.notify_payment(&payment).send(timestamp, Disorder::default())
    };
    let progress = |done: usize| {
        if done.is_multiple_of(5_000) || done == count {
            eprint!("\rsigning {done} of {count} callbacks");
        }
    };
    // Nobody looks at the host: the same bytes go to every competitor's port.
    let requests = load::presign(&format!("http://127.0.0.1/notify/{ACCOUNT}"), count, threads, make, progress)?;
    eprintln!();
    let keys = Keys {
        version: VERSION,
        timestamp,
        mchid: wechat.mchid.clone(),
        app_id: wechat.appid.clone(),
        api_v3_key: wechat.api_v3_key.clone(),
        public_key_id: wechat.pub_key_id.clone(),
        public_key_pem: wechat.public_key.public_pem(),
    };
    Ok((keys, requests))
}

/// A line of JSON, then each request after its length.
fn write(path: &Path, keys: &Keys, requests: &[Vec<u8>]) -> Outcome<()> {
    let half_done = path.with_extension("new");
    let mut file = BufWriter::new(fs::File::create(&half_done)?);
    writeln!(file, "{}", serde_json::to_string(keys)?)?;
    for request in requests {
        file.write_all(&u32::try_from(request.len())?.to_le_bytes())?;
        file.write_all(request)?;
    }
    // On the disk now, and not while something is measured.
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    fs::rename(half_done, path)?;
    Ok(())
}

/// `None`: not there, of another version, or cut off.
fn read(path: &Path, count: usize) -> Option<Callbacks> {
    let mut file = BufReader::new(fs::File::open(path).ok()?);
    let mut line = String::new();
    file.read_line(&mut line).ok()?;
    let keys: Keys = serde_json::from_str(&line).ok().filter(|keys: &Keys| keys.version == VERSION)?;
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        let mut length = [0; 4];
        file.read_exact(&mut length).ok()?;
        let mut request = vec![0; u32::from_le_bytes(length) as usize];
        file.read_exact(&mut request).ok()?;
        requests.push(request);
    }
    Callbacks::new(keys, requests).ok()
}
