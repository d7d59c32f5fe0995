//! Every file of `testdata/`: raw HTTP in, what is believed out.
//!
//! `sheet-*` are the vectors of the fact sheets (signed with keys whose private halves were thrown away, each
//! checked there with two independent implementations); `made-*` were signed by `generate`. A file is a
//! request or, beginning with `HTTP/`, an answer: header lines ended by a line feed, an empty line, then the
//! body to the last byte of the file. `made-partner-*` are read as a service provider.
//!
//! After a wanted change: `UPDATE_EXPECT=1 cargo test -p payonce-channels fixtures`, and read the difference.

use std::{fs, path::PathBuf, time::Duration};

use payonce::channel::{Answer, Bearing, Belief, Callback, Channel, Headers, Rejection};
use payonce_channels::{
    alipay::{self, Algorithm, Alipay},
    keys::PublicKey,
    wechat::{self, Wechat},
};
use serde_json::{Value, json};

use crate::support::{self, API_V3_KEY, APP_ID, MCHID, SELLER, SERIAL, account};

const SHEET_SERIAL: &str = "PUB_KEY_ID_0000000000000000000000000001";

pub(crate) fn folder(channel: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(channel)
}

fn key(channel: &str, file: &str) -> PublicKey {
    PublicKey::read(&fs::read_to_string(folder(channel).join(file)).unwrap()).unwrap()
}

fn wechat(name: &str) -> Wechat {
    let partner = name.starts_with("made-partner-");
    Wechat::new(wechat::Config {
        account: account("wx"),
        mchid: if partner { "1900000100" } else { MCHID }.to_owned(),
        partner,
        app_ids: Vec::new(),
        api_v3_keys: vec![API_V3_KEY.to_owned()],
        keys: vec![
            (Some(SHEET_SERIAL.to_owned()), key("wechat", "sheet-public-key.pem")),
            (Some(SERIAL.to_owned()), key("wechat", "made-public-key.pem")),
        ],
        window: Duration::from_secs(300),
    })
    .unwrap()
}

fn alipay() -> Alipay {
    Alipay::new(alipay::Config {
        account: account("ali"),
        app_ids: vec![APP_ID.to_owned()],
        seller_id: SELLER.to_owned(),
        keys: vec![key("alipay", "sheet-public-key.txt"), key("alipay", "made-public-key.txt")],
        algorithm: Algorithm::Rsa2,
    })
    .unwrap()
}

fn run(channel: &dyn Channel, http: &[u8]) -> Result<Belief, Rejection> {
    let end = http.windows(2).position(|pair| pair == b"\n\n").unwrap();
    let mut lines = std::str::from_utf8(&http[..end]).unwrap().lines();
    let first = lines.next().unwrap();
    let body = http[end + 2..].to_vec();
    let headers: Headers = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name, value.as_bytes().to_vec()))
        .collect();
    match first.strip_prefix("HTTP/1.1 ") {
        None => channel.believe(&Callback { headers, body }, support::now()),
        Some(rest) => {
            let status = rest[..3].parse().unwrap();
            channel.believe_answer(&Answer { status, headers, body }, support::now())
        }
    }
}

fn view(result: Result<Belief, Rejection>) -> Value {
    match result {
        Ok(belief) => json!({
            "bearing": match belief.bearing {
                Bearing::Facts => "facts".to_owned(),
                Bearing::NotFinal(word) => format!("not final: {word}"),
                Bearing::Unsupported(kind) => format!("unsupported: {kind}"),
            },
            "key_id": belief.key_id,
            "rule": belief.rule,
            "notices": belief.notices.iter().map(|notice| {
                let mut value = serde_json::to_value(notice).unwrap();
                value["key"] = notice.key().unwrap().to_string().into();
                value
            }).collect::<Vec<_>>(),
        }),
        Err(rejection) => json!({
            "rejection": rejection.reason.code(),
            "detail": rejection.detail,
            "verified_by": rejection.key_id,
        }),
    }
}

fn check(channel_name: &str, build: impl Fn(&str) -> Box<dyn Channel>) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(channel_name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    files.sort();
    assert!(files.len() >= 7, "the fixtures of {channel_name} are gone");
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let got = view(run(&*build(name), &fs::read(&path).unwrap()));
        let expected = path.with_extension("json");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expected, serde_json::to_string_pretty(&got).unwrap() + "\n").unwrap();
        }
        let want: Value =
            serde_json::from_str(&fs::read_to_string(&expected).unwrap_or_else(|_| "null".into())).unwrap();
        if got != want {
            wrong.push(format!("{name}\n got  {got}\n want {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wechat_files() {
    check("wechat", |name| Box::new(wechat(name)));
}

#[test]
fn alipay_files() {
    check("alipay", |_| Box::new(alipay()));
}

/// Vector E of the WeChat sheet is a request; only its signature concerns us, as a check of the key reader.
#[test]
fn sheet_e_verifies() {
    let read = |file: &str| fs::read_to_string(folder("wechat").join(file)).unwrap();
    use base64::Engine as _;
    let signature = base64::engine::general_purpose::STANDARD.decode(read("sheet-e-signature.txt")).unwrap();
    let key = key("wechat", "sheet-public-key.pem");
    let text = read("sheet-e-request.txt");
    assert!(key.verify_sha256(text.as_bytes(), &signature));
    assert!(!key.verify_sha256(text.trim_end_matches('\n').as_bytes(), &signature));
}
