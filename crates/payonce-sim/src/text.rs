//! Small texts that both platforms need.
//!
//! Here: random letters, Beijing times, yuan amounts, percent-encoding. Not here: any field name or key.

use jiff::{Timestamp, civil::DateTime, tz::Offset};
use rand::Rng;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Seconds since 1970 by this machine's clock; 0 on a machine whose clock stands before that.
#[must_use]
pub fn now_unix() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The same moment on a clock in Beijing. China has had one zone without summer time since 1991, so a fixed offset is exact.
fn beijing(unix: i64) -> DateTime {
    let moment = Timestamp::from_second(unix).unwrap_or(Timestamp::UNIX_EPOCH);
    Offset::constant(8).to_datetime(moment)
}

/// `2026-01-02T03:04:06+08:00`, as WeChat Pay writes times.
#[must_use]
pub fn beijing_rfc3339(unix: i64) -> String {
    format!("{}+08:00", beijing(unix))
}

/// `2026-01-02 03:04:06`, as Alipay writes times.
#[must_use]
pub fn beijing_plain(unix: i64) -> String {
    beijing(unix).to_string().replace('T', " ")
}

/// Fen as yuan text with two decimals, without passing through a float: 1230 is `12.30`.
#[must_use]
pub fn yuan(fen: i64) -> String {
    let sign = if fen < 0 { "-" } else { "" };
    let fen = fen.unsigned_abs();
    format!("{sign}{}.{:02}", fen / 100, fen % 100)
}

/// `count` random characters out of `alphabet`, which must be ASCII and not empty.
fn pick(rng: &mut impl Rng, count: usize, alphabet: &[u8]) -> String {
    (0..count).map(|_| char::from(alphabet[rng.random_range(0..alphabet.len())])).collect()
}

/// Random letters and digits: a nonce, an APIv3 key.
#[must_use]
pub fn letters(rng: &mut impl Rng, count: usize) -> String {
    pick(rng, count, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
}

/// Random upper-case hexadecimal digits: a certificate's serial number.
#[must_use]
pub fn hex_upper(rng: &mut impl Rng, count: usize) -> String {
    pick(rng, count, b"0123456789ABCDEF")
}

/// Random decimal digits.
#[must_use]
pub fn digits(rng: &mut impl Rng, count: usize) -> String {
    pick(rng, count, b"0123456789")
}

/// `count` decimal digits (at most 30) that depend on `name` alone: numbers a platform would give, the same in every run.
#[must_use]
pub fn digits_of(name: &str, count: usize) -> String {
    let number = Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).as_u128();
    let text = format!("{number:039}");
    // The last digits: the first ones are nearly constant.
    text[text.len() - count.min(30)..].to_owned()
}

/// A lower-case UUID of version 5 that depends on `name` alone, as WeChat Pay's notification ids look.
#[must_use]
pub fn uuid_of(name: &[u8]) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name).to_string()
}

/// Percent-encodes for `application/x-www-form-urlencoded`: a blank becomes `+`, what is not unreserved `%XX`.
pub fn form_encode(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            // Writing into a String cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

/// Undoes [`form_encode`]; what is not a valid escape stays as it is.
#[must_use]
pub fn form_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| after.get(..2)).flatten();
        let value =
            escaped.and_then(|two| std::str::from_utf8(two).ok()).and_then(|two| u8::from_str_radix(two, 16).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = &after[2..];
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_beijing_times() {
        assert_eq!(beijing_rfc3339(1_767_294_247), "2026-01-02T03:04:07+08:00");
        assert_eq!(beijing_plain(1_767_294_247), "2026-01-02 03:04:07");
        assert_eq!(beijing_plain(1_767_196_800), "2026-01-01 00:00:00");
    }

    #[test]
    fn yuan_has_two_decimals() {
        for (fen, text) in [(0, "0.00"), (1, "0.01"), (10, "0.10"), (1230, "12.30"), (10_000_000_000, "100000000.00")] {
            assert_eq!(yuan(fen), text);
        }
        assert_eq!(yuan(-5), "-0.05");
    }

    #[test]
    fn form_encoding_round_trips() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        form_encode(&bytes, &mut text);
        assert_eq!(form_decode(text.as_bytes()), bytes);
        assert_eq!(form_decode(b"a%2"), b"a%2");
        assert_eq!(form_decode(b"a%zzb"), b"a%zzb");
    }

    #[test]
    fn named_digits_repeat() {
        assert_eq!(digits_of("a", 15), digits_of("a", 15));
        assert_ne!(digits_of("a", 15), digits_of("b", 15));
        assert_eq!(digits_of("a", 28).len(), 28);
    }
}
