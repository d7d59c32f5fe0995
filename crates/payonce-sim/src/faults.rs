//! Callbacks that are wrong in exactly one way, and the platform's own oddities that look like faults.
//!
//! Here: two kinds of small pure functions: on an event, where the fault needs other keys or another time and everything
//! else must be signed right; and on a finished request, where the signature must *not* follow the change. Not here: how
//! a receiver should answer; that is the examiner's to know.

use crate::keys::RsaKey;
use crate::message::Request;
use crate::platform::{alipay, wechat};
use crate::text;
use serde_json::Value;

/// With these characters begins a signature that WeChat Pay makes wrong on purpose (签名探测).
pub const PROBE_PREFIX: &str = "WECHATPAY/SIGNTEST/";

/// Signed by somebody else: same serial, another key.
#[must_use]
pub fn forged_wechat(event: &wechat::Event, now: i64, other: &RsaKey) -> Request {
    let mut event = event.clone();
    event.wechat.certificate_key = other.clone();
    event.wechat.public_key = other.clone();
    event.send(now, event.disorder)
}

/// Signed by somebody else.
#[must_use]
pub fn forged_alipay(event: &alipay::Event, now: i64, other: &RsaKey) -> Request {
    let mut event = event.clone();
    event.alipay.key = other.clone();
    event.send(now)
}

/// Signed right, but with a timestamp so many seconds in the past (negative: in the future).
#[must_use]
pub fn stale(event: &wechat::Event, now: i64, seconds: i64) -> Request {
    event.send(now.saturating_sub(seconds), event.disorder)
}

/// Signed right, but encrypted with an APIv3 key that the merchant does not have.
#[must_use]
pub fn undecryptable(event: &wechat::Event, now: i64) -> Request {
    let mut event = event.clone();
    event.wechat.api_v3_key = text::letters(&mut rand::rng(), 32);
    event.send(now, event.disorder)
}

/// Signed right and under a serial that nobody has configured.
#[must_use]
pub fn unknown_serial(event: &wechat::Event, now: i64) -> Request {
    let mut event = event.clone();
    event.wechat.pub_key_id = format!("PUB_KEY_ID_{}", text::digits(&mut rand::rng(), 34));
    event.wechat.serial = text::hex_upper(&mut rand::rng(), 40);
    event.send(now, event.disorder)
}

/// Signed and encrypted right, but the plaintext is not JSON.
#[must_use]
pub fn not_json_inside(event: &wechat::Event, now: i64) -> Request {
    let mut event = event.clone();
    event.plaintext = b"{\"out_trade_no\":".to_vec();
    event.send(now, event.disorder)
}

/// A probe: the request with a signature that begins with [`PROBE_PREFIX`] and is still valid base64.
#[must_use]
pub fn probe(request: &Request) -> Request {
    with_signature(request, |signature| format!("{PROBE_PREFIX}{}", tail(signature, PROBE_PREFIX.len())))
}

/// A probe one character longer, whose signature is no valid base64.
#[must_use]
pub fn probe_undecodable(request: &Request) -> Request {
    with_signature(request, |signature| format!("{PROBE_PREFIX}{}", tail(signature, PROBE_PREFIX.len() - 1)))
}

/// The signature of this request under another one, as if the body had been swapped.
#[must_use]
pub fn swapped_body(request: &Request, other: &Request) -> Request {
    Request { headers: request.headers.clone(), body: other.body.clone() }
}

/// Only the first bytes of the body (the length header agrees with what is left).
#[must_use]
pub fn truncated(request: &Request, keep: usize) -> Request {
    let mut request = request.clone();
    request.body.truncate(keep);
    request
}

/// The body read as JSON and written again, as a proxy or a framework does it; same meaning, other bytes. A body that is
/// not JSON gets a blank at its end.
#[must_use]
pub fn reserialised(request: &Request) -> Request {
    let mut request = request.clone();
    match serde_json::from_slice::<Value>(&request.body).and_then(|value| serde_json::to_vec_pretty(&value)) {
        Ok(bytes) => request.body = bytes,
        Err(_) => request.body.push(b' '),
    }
    request
}

/// Without any header of that name.
#[must_use]
pub fn without_header(request: &Request, name: &str) -> Request {
    let mut request = request.clone();
    request.headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
    request
}

/// With another value in a header.
#[must_use]
pub fn with_header(request: &Request, name: &str, value: &str) -> Request {
    let mut request = request.clone();
    request.set_header(name, value);
    request
}

/// With a header twice: as it was, and once more with `second`.
#[must_use]
pub fn duplicated_header(request: &Request, name: &str, second: &str) -> Request {
    let mut request = request.clone();
    request.headers.push((name.to_owned(), second.to_owned()));
    request
}

/// With the lowest bit of one body byte flipped; `at` counts round and round the body.
#[must_use]
pub fn flipped(request: &Request, at: usize) -> Request {
    let mut request = request.clone();
    if !request.body.is_empty() {
        let at = at % request.body.len();
        request.body[at] ^= 1;
    }
    request
}

/// With every occurrence of a text in the body replaced.
#[must_use]
pub fn replaced(request: &Request, from: &str, to: &str) -> Request {
    let body = String::from_utf8_lossy(&request.body).replace(from, to).into_bytes();
    Request { headers: request.headers.clone(), body }
}

/// An Alipay form with one field changed (or added) after signing. The form must be in UTF-8.
#[must_use]
pub fn tampered_field(request: &Request, name: &str, value: &str) -> Request {
    with_fields(request, |fields| alipay::set(fields, name, value))
}

/// An Alipay form with one field taken out after signing. The form must be in UTF-8.
#[must_use]
pub fn dropped_field(request: &Request, name: &str) -> Request {
    with_fields(request, |fields| alipay::remove(fields, name))
}

/// An Alipay form with a field a second time, which has no defined meaning. The form must be in UTF-8.
#[must_use]
pub fn duplicated_field(request: &Request, name: &str, second: &str) -> Request {
    with_fields(request, |fields| fields.push((name.to_owned(), second.to_owned())))
}

fn with_fields(request: &Request, change: impl FnOnce(&mut alipay::Fields)) -> Request {
    let mut fields = alipay::parse_form(&request.body, alipay::Charset::Utf8);
    change(&mut fields);
    Request { headers: request.headers.clone(), body: alipay::form_body(&fields, alipay::Charset::Utf8) }
}

fn with_signature(request: &Request, change: impl FnOnce(&str) -> String) -> Request {
    let signature = change(request.header("Wechatpay-Signature").unwrap_or_default());
    with_header(request, "Wechatpay-Signature", &signature)
}

fn tail(text: &str, from: usize) -> &str {
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alipay, Wechat};

    fn signed_right(wechat: &Wechat, request: &Request) -> bool {
        let header = |name| request.header(name).unwrap_or_default();
        let text = wechat::signed_text(header("wechatpay-timestamp"), header("wechatpay-nonce"), &request.body);
        wechat.public_key.verify(&text, header("wechatpay-signature"))
    }

    #[test]
    fn wechat_faults_break_what_they_name() {
        let wechat = Wechat::new("1900000001");
        let event = wechat.notify_payment(&wechat.payment("O1", "T1", 100));
        let now = 1_767_294_247;
        let good = event.send(now, event.disorder);
        assert!(signed_right(&wechat, &good));

        assert!(signed_right(&wechat, &stale(&event, now, 301)));
        assert_eq!(stale(&event, now, 301).header("Wechatpay-Timestamp"), Some("1767293946"));
        assert!(signed_right(&wechat, &undecryptable(&event, now)));
        assert!(signed_right(&wechat, &not_json_inside(&event, now)));
        assert!(signed_right(&wechat, &unknown_serial(&event, now)));
        assert_ne!(unknown_serial(&event, now).header("Wechatpay-Serial"), Some(wechat.pub_key_id.as_str()));

        for (name, bad) in [
            ("forged", forged_wechat(&event, now, &RsaKey::generate())),
            ("probe", probe(&good)),
            ("probe_undecodable", probe_undecodable(&good)),
            ("truncated", truncated(&good, 20)),
            ("reserialised", reserialised(&good)),
            ("flipped", flipped(&good, 5000)),
            ("replaced", replaced(&good, "TRANSACTION", "transaction")),
            ("swapped", swapped_body(&good, &event.send(now, event.disorder))),
            ("without", without_header(&good, "wechatpay-nonce")),
        ] {
            assert!(!signed_right(&wechat, &bad), "{name}");
        }
        let lengths = [probe(&good), probe_undecodable(&good)].map(|r| r.header("wechatpay-signature").unwrap().len());
        assert_eq!(lengths, [344, 345]);
        assert!(probe(&good).header("wechatpay-signature").unwrap().starts_with(PROBE_PREFIX));
        assert_eq!(duplicated_header(&good, "Wechatpay-Nonce", "x").headers.len(), good.headers.len() + 1);
    }

    #[test]
    fn alipay_faults_break_what_they_name() {
        let alipay = Alipay::new("2021000000000001", "2088000000000002");
        let event = alipay.notify(alipay.payment("O1", "T1", "12.30"));
        let signed_right = |request: &Request| {
            let fields = alipay::parse_form(&request.body, alipay::Charset::Utf8);
            let text = alipay::signed_text(&fields, alipay::Charset::Utf8, alipay::Signing::V1);
            alipay.key.verify(&text, alipay::get(&fields, "sign").unwrap_or_default())
        };
        let good = event.send(1_767_294_247);
        assert!(signed_right(&good));
        // Not covered by the signature in V1, which is why a receiver pins the algorithm.
        assert!(signed_right(&tampered_field(&good, "sign_type", "RSA")));
        for bad in [
            forged_alipay(&event, 1_767_294_247, &RsaKey::generate()),
            tampered_field(&good, "total_amount", "12.31"),
            dropped_field(&good, "fund_bill_list"),
            duplicated_field(&good, "total_amount", "0.01"),
            truncated(&good, good.body.len() - 3),
        ] {
            assert!(!signed_right(&bad));
        }
    }
}
