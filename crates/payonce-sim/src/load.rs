//! Callbacks as fast as the receiver takes them, for measuring.
//!
//! Here: requests signed beforehand, because signing costs twenty-five times as much as verifying; what is left is two
//! system calls per request on one thread. Not here: judging (answers are counted by status) and disorder (`courier`).

use crate::message::Request;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long answers may still come in after the end.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// An hour: no answer takes longer than a run and [`LAST_ANSWERS`].
const MICROS_MAX: u64 = 3_600_000_000;

/// What is sent: complete HTTP/1.1 requests.
#[derive(Clone, Debug)]
pub enum Source {
    /// Each request once, beginning at a place in the list; the run ends early when the list does.
    Unique {
        /// The requests.
        requests: Arc<Vec<Vec<u8>>>,
        /// Where to begin: what an earlier run has sent already is left alone.
        from: usize,
    },
    /// The same request again and again.
    Repeated(Vec<u8>),
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests that were answered, whatever the answer.
    pub sent: u64,
    /// Requests taken from the source, answered or not: where the next run should begin.
    pub used: usize,
    /// Answers by status.
    pub by_status: BTreeMap<u16, u64>,
    /// Requests without an answer: the connection broke.
    pub errors: u64,
    /// The first of these, for a message to the operator.
    pub first_error: Option<String>,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Median time from request to answer.
    pub p50: Duration,
    /// 99 of 100 answers came within this.
    pub p99: Duration,
    /// The slowest answer.
    pub max: Duration,
}

impl LoadReport {
    /// Answers per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.sent as f64 / self.seconds } else { 0.0 }
    }
}

/// Sends from `source` to `addr` over `connections` connections for `duration`, on a runtime and thread of its own;
/// blocks until done. From asynchronous code, call it within `spawn_blocking`.
///
/// # Errors
/// When a connection cannot be opened at all, or the system gives no thread.
pub fn run(addr: SocketAddr, source: &Source, connections: usize, duration: Duration) -> io::Result<LoadReport> {
    let source = source.clone();
    // A thread of its own, so that this may be called from within another runtime's blocking thread.
    let thread = std::thread::Builder::new().name("load".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run_all(addr, source, connections.max(1), duration))
    })?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

async fn run_all(addr: SocketAddr, source: Source, connections: usize, duration: Duration) -> io::Result<LoadReport> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(connect(addr).await?);
    }
    let started = Instant::now();
    let shared = Arc::new(Shared { addr, source, next: AtomicUsize::new(0), until: started + duration });
    let mut tasks = tokio::task::JoinSet::new();
    for stream in open {
        tasks.spawn(drive(stream, Arc::clone(&shared)));
    }
    let mut report = LoadReport::default();
    let mut last = started;
    // With fixed bounds: one that grows by itself grows in `record` only and would cut off in `saturating_record`.
    let mut times = Histogram::<u64>::new_with_bounds(1, MICROS_MAX, 3).map_err(io::Error::other)?;
    while let Some(ended) = tasks.join_next().await {
        let counted = ended.map_err(io::Error::other)?;
        for (status, count) in counted.by_status {
            *report.by_status.entry(status).or_default() += count;
        }
        report.errors += counted.errors;
        report.first_error = report.first_error.or(counted.first_error);
        report.sent += counted.micros.len() as u64;
        for micros in counted.micros {
            times.saturating_record(u64::from(micros));
        }
        last = last.max(counted.last);
    }
    report.used = shared.used();
    report.seconds = (last - started).as_secs_f64();
    report.p50 = Duration::from_micros(times.value_at_quantile(0.5));
    report.p99 = Duration::from_micros(times.value_at_quantile(0.99));
    report.max = Duration::from_micros(times.max());
    Ok(report)
}

struct Shared {
    addr: SocketAddr,
    source: Source,
    next: AtomicUsize,
    until: Instant,
}

impl Shared {
    fn take(&self) -> Option<&[u8]> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        match &self.source {
            Source::Unique { requests, from } => requests.get(from + at).map(Vec::as_slice),
            Source::Repeated(request) => Some(request),
        }
    }

    fn used(&self) -> usize {
        let taken = self.next.load(Ordering::Relaxed);
        match &self.source {
            Source::Unique { requests, from } => taken.min(requests.len().saturating_sub(*from)),
            Source::Repeated(_) => taken,
        }
    }
}

/// What one connection counted. Times are kept as numbers, which is less work than a histogram per connection.
struct Counted {
    micros: Vec<u32>,
    by_status: BTreeMap<u16, u64>,
    errors: u64,
    first_error: Option<String>,
    last: Instant,
}

async fn drive(mut stream: TcpStream, shared: Arc<Shared>) -> Counted {
    let now = Instant::now();
    let mut counted =
        Counted { micros: Vec::new(), by_status: BTreeMap::new(), errors: 0, first_error: None, last: now };
    let mut buffer = Vec::with_capacity(4096);
    let mut now = now;
    while now < shared.until {
        let Some(request) = shared.take() else { break };
        let sent = now;
        let patience = shared.until.saturating_duration_since(sent) + LAST_ANSWERS;
        let answer = match timeout(patience, exchange(&mut stream, request, &mut buffer)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        now = Instant::now();
        counted.last = now;
        let reusable = match answer {
            Ok((status, reusable)) => {
                *counted.by_status.entry(status).or_default() += 1;
                counted.micros.push(u32::try_from((now - sent).as_micros()).unwrap_or(u32::MAX));
                reusable
            }
            Err(error) => {
                counted.errors += 1;
                counted.first_error.get_or_insert_with(|| error.to_string());
                false
            }
        };
        if !reusable {
            buffer.clear();
            match connect(shared.addr).await {
                Ok(fresh) => stream = fresh,
                Err(error) => {
                    counted.first_error.get_or_insert_with(|| error.to_string());
                    break;
                }
            }
        }
    }
    counted
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Writes one request and reads one answer: its status, and whether the connection may be used again.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<(u16, bool)> {
    stream.write_all(request).await?;
    loop {
        if let Some((length, status, reusable)) = answer_in(buffer)? {
            // Almost always the whole buffer: nothing is ever sent ahead of a request.
            buffer.drain(..length);
            return Ok((status, reusable));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A complete answer at the beginning of the buffer: its length, its status, and whether the connection goes on.
/// Knows status line and `Content-Length` and no more; a receiver that sends chunks cannot be measured with this.
fn answer_in(buffer: &[u8]) -> io::Result<Option<(usize, u16, bool)>> {
    let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let head = std::str::from_utf8(&buffer[..end]).map_err(|_| bad("the head is not text"))?;
    let status: u16 =
        head.get(9..12).and_then(|digits| digits.parse().ok()).ok_or_else(|| bad("no status in the answer"))?;
    let (mut length, mut reusable) = (0_usize, true);
    for (name, value) in head.split("\r\n").skip(1).filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| bad("Content-Length is not a number"))?;
        } else if name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close") {
            reusable = false;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(bad("the answer is chunked, which the load generator does not read"));
        }
    }
    let total = end + 4 + length;
    Ok((buffer.len() >= total).then_some((total, status, reusable)))
}

/// Makes `count` complete requests for `url` on `threads` threads; `make` gets each one's index and signs it there.
/// `progress` hears how many are done, now and then. Signing takes about 0.4 ms each: mind the receiver's five minutes.
///
/// # Errors
/// When the URL is not of the form `http://host[:port]/path`.
pub fn presign(
    url: &str,
    count: usize,
    threads: usize,
    make: impl Fn(usize) -> Request + Sync,
    progress: impl Fn(usize) + Sync,
) -> Result<Vec<Vec<u8>>, String> {
    presign_each(count, threads, |at| (url.to_owned(), make(at)), progress)
}

/// As [`presign`], with a URL for each request.
///
/// # Errors
/// When a URL is not of the form `http://host[:port]/path`.
pub fn presign_each(
    count: usize,
    threads: usize,
    make: impl Fn(usize) -> (String, Request) + Sync,
    progress: impl Fn(usize) + Sync,
) -> Result<Vec<Vec<u8>>, String> {
    let threads = threads.clamp(1, count.max(1));
    let done = AtomicUsize::new(0);
    let share = |first: usize| -> Result<Vec<Vec<u8>>, String> {
        (first..count)
            .step_by(threads)
            .map(|at| {
                let (url, request) = make(at);
                let bytes = request.to_http(&url)?;
                let so_far = done.fetch_add(1, Ordering::Relaxed) + 1;
                if so_far.is_multiple_of(100) || so_far == count {
                    progress(so_far);
                }
                Ok(bytes)
            })
            .collect()
    };
    let shares = std::thread::scope(|scope| {
        let share = &share;
        let handles: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
    // Index i was made by thread i modulo the number of threads: dealing round puts them in order again.
    Ok((0..count).filter_map(|at| shares[at % threads].next()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::{Behaviour, Receiver};

    fn numbered(at: usize) -> Request {
        Request { headers: vec![("webhook-id".into(), at.to_string())], body: b"x".to_vec() }
    }

    #[test]
    fn presigns_in_order() {
        let heard = AtomicUsize::new(0);
        let requests = presign("http://127.0.0.1:1/x", 205, 3, numbered, |done| {
            heard.fetch_max(done, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(heard.into_inner(), 205);
        assert_eq!(requests.len(), 205);
        for (at, request) in requests.iter().enumerate() {
            let expected =
                format!("POST /x HTTP/1.1\r\nHost: 127.0.0.1:1\r\nwebhook-id: {at}\r\nContent-Length: 1\r\n\r\nx");
            assert_eq!(String::from_utf8_lossy(request), expected);
        }
        assert!(presign("https://x/", 1, 1, numbered, |_| {}).is_err());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sends_each_once_and_repeats() {
        let receiver = Receiver::start(None).await.unwrap();
        receiver.behave(Behaviour { fail_next: 10, ..Behaviour::default() });
        let address = receiver.address();
        let requests = Arc::new(presign(&receiver.url(), 100, 2, numbered, |_| {}).unwrap());
        let unique = Source::Unique { requests, from: 20 };
        let report = tokio::task::spawn_blocking(move || run(address, &unique, 4, Duration::from_secs(10)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((report.sent, report.used, report.errors), (80, 80, 0));
        assert_eq!(report.by_status, BTreeMap::from([(204, 70), (500, 10)]));
        assert!(report.p50 <= report.p99 && report.p99 <= report.max + Duration::from_millis(1));
        assert!(report.rate() > 0.0);
        assert_eq!(receiver.counts().distinct, 80);

        let repeated = Source::Repeated(numbered(7).to_http(&receiver.url()).unwrap());
        receiver.forget();
        let report = tokio::task::spawn_blocking(move || run(address, &repeated, 2, Duration::from_millis(50)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(report.by_status.keys().copied().collect::<Vec<_>>(), [204]);
        assert_eq!(receiver.counts().deliveries as u64, report.sent);
        assert_eq!(receiver.counts().distinct, 1);

        receiver.behave(Behaviour { delay: Duration::from_millis(30), ..Behaviour::default() });
        let slow = Source::Repeated(numbered(8).to_http(&receiver.url()).unwrap());
        let report = tokio::task::spawn_blocking(move || run(address, &slow, 2, Duration::from_millis(50)))
            .await
            .unwrap()
            .unwrap();
        assert!(report.p50 >= Duration::from_millis(30) && report.max >= Duration::from_millis(30), "{report:?}");
    }

    #[test]
    fn reads_answers_bit_by_bit() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nsuccess";
        assert_eq!(answer_in(answer).unwrap(), Some((answer.len(), 200, true)));
        for length in 0..answer.len() {
            assert_eq!(answer_in(&answer[..length]).unwrap(), None);
        }
        assert_eq!(answer_in(b"HTTP/1.1 500 X\r\nConnection: close\r\n\r\n").unwrap(), Some((37, 500, false)));
        assert!(answer_in(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
