//! Whether WeChat Pay signed these bytes, lately.
//!
//! Here: header rules, the time window, the signature over the raw body; and `Verified`, the only thing that
//! later steps take. Not here: the choice of the key by serial (`keys`), anything inside the body.
//! pay.weixin.qq.com/doc/v3/partner/4013059030

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::{
    channel::{Bearing, Belief, HeaderError, Headers, Reason, Rejection},
    notice::Notice,
    time::Micros,
};

use super::keys::TrustedKeys;
use crate::text::quote;

const TIMESTAMP: &str = "Wechatpay-Timestamp";
const NONCE: &str = "Wechatpay-Nonce";
const SIGNATURE: &str = "Wechatpay-Signature";
const SERIAL: &str = "Wechatpay-Serial";
const SIGNATURE_TYPE: &str = "Wechatpay-Signature-Type";

/// The only signature type we know; messages without the header are signed so too (facts 1.1).
pub(super) const ALGORITHM: &str = "WECHATPAY2-SHA256-RSA2048";

/// What begins a signature that is wrong on purpose (签名探测流量, pay.weixin.qq.com/doc/v3/merchant/4013053249).
/// It is verified like any other and fails like any other; only its metric differs.
const PROBE_PREFIX: &str = "WECHATPAY/SIGNTEST/";

/// Captured callbacks have under 1 KB; combined ones with 50 sub orders stay under 64 KB. The server has a
/// smaller limit of its own; this one bounds the work of whoever uses the crate without it.
const MAX_BODY: usize = 1024 * 1024;

/// A body that the platform signed. Only [`verify`] makes one.
pub(super) struct Verified<'a> {
    body: &'a [u8],
    key_id: &'a str,
}

impl<'a> Verified<'a> {
    /// For fuzzing what comes after the signature; no such thing exists outside tests.
    #[cfg(test)]
    pub(super) fn unchecked(body: &'a [u8]) -> Self {
        Self { body, key_id: "none" }
    }

    pub(super) fn body(&self) -> &'a [u8] {
        self.body
    }

    pub(super) fn key_id(&self) -> &'a str {
        self.key_id
    }

    pub(super) fn belief(&self, (notices, bearing): (Vec<Notice>, Bearing)) -> Belief {
        Belief { notices, bearing, key_id: self.key_id.to_owned(), rule: ALGORITHM }
    }
}

/// Checks headers, time and signature, in this order: the documentation asks for the time before the
/// signature, so that old messages cost nothing.
pub(super) fn verify<'a>(
    headers: &Headers,
    body: &'a [u8],
    keys: &'a TrustedKeys,
    window: Duration,
    now: Micros,
) -> Result<Verified<'a>, Rejection> {
    if body.len() > MAX_BODY {
        return Err(Rejection::new(Reason::Malformed, format!("a body of {} bytes", body.len())));
    }
    let timestamp = header(headers, TIMESTAMP)?;
    let nonce = header(headers, NONCE)?;
    let signature = header(headers, SIGNATURE)?;
    let serial = header(headers, SERIAL)?;
    check_type(headers)?;
    check_time(timestamp, window, now)?;

    let trusted = keys.find(serial).ok_or_else(|| {
        Rejection::new(Reason::UnknownKey, format!("{SERIAL}: no key is configured for {}", quote(serial)))
    })?;
    let message = signed_text(timestamp, nonce, body);
    // What cannot be decoded is a wrong signature, no other kind of failure: probes look like that (F005).
    let right = STANDARD.decode(signature).is_ok_and(|signature| trusted.key.verify_sha256(&message, &signature));
    if right { Ok(Verified { body, key_id: &trusted.id }) } else { Err(wrong(signature, &trusted.id)) }
}

/// Three lines, each ended by a line feed, the last one too.
fn signed_text(timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(timestamp.len() + nonce.len() + body.len() + 3);
    for line in [timestamp.as_bytes(), nonce.as_bytes(), body] {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}

fn wrong(signature: &str, key_id: &str) -> Rejection {
    if signature.starts_with(PROBE_PREFIX) {
        Rejection::new(Reason::Probe, "a signature probe of the platform; it will send the message again")
    } else {
        Rejection::new(Reason::Signature, format!("does not verify with {key_id}"))
    }
}

fn header<'h>(headers: &'h Headers, name: &str) -> Result<&'h str, Rejection> {
    headers.one(name).map_err(|error| Rejection::new(Reason::SignatureParts, format!("{name}: {}", why(error))))
}

const fn why(error: HeaderError) -> &'static str {
    match error {
        HeaderError::Missing => "missing or empty",
        HeaderError::Duplicate => "more than one line",
        HeaderError::NotText => "not visible ASCII",
    }
}

fn check_type(headers: &Headers) -> Result<(), Rejection> {
    match headers.one(SIGNATURE_TYPE) {
        Ok(ALGORITHM) | Err(HeaderError::Missing) => Ok(()),
        Ok(other) => Err(Rejection::new(Reason::SignatureParts, format!("{SIGNATURE_TYPE}: {}", quote(other)))),
        Err(error) => Err(Rejection::new(Reason::SignatureParts, format!("{SIGNATURE_TYPE}: {}", why(error)))),
    }
}

/// F106: digits only, both directions, the border included.
fn check_time(timestamp: &str, window: Duration, now: Micros) -> Result<(), Rejection> {
    let refuse =
        |what: &str| Err(Rejection::new(Reason::Timestamp, format!("{TIMESTAMP}: {} {what}", quote(timestamp))));
    if !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return refuse("is no number");
    }
    let Ok(seconds) = timestamp.parse::<i64>() else {
        return refuse("is too large");
    };
    if Micros::from_seconds(seconds).distance(now) > window {
        return refuse(&format!("is more than {} s away from the clock, which shows {now}", window.as_secs()));
    }
    Ok(())
}
