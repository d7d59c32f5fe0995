//! Texts inside messages: what may be a number of ours, and what may only be shown.
//!
//! Here: mending JSON that a strict reader would refuse because of a character in a field nobody decides by,
//! and the rule for texts that become part of a key. Not here: money and times.

use std::borrow::Cow;

use payonce::channel::{Reason, Rejection};
use serde_json::Value;

/// The longest piece of a message that a rejection's detail or a bearing repeats.
const QUOTE_MAX: usize = 64;

/// Replaces bytes that are no UTF-8 by U+FFFD, and escapes the backslash of `\uD83C` that stands without its
/// other half, so that the field keeps it visibly (F019). Both marks are refused in numbers by [`number`].
pub(crate) fn lenient_json(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let lone = lone_surrogates(text.as_bytes());
    if lone.is_empty() {
        return text;
    }
    let mut mended = String::with_capacity(text.len() + lone.len());
    let mut from = 0;
    for at in lone {
        mended.push_str(&text[from..at]);
        mended.push('\\');
        from = at;
    }
    mended.push_str(&text[from..]);
    Cow::Owned(mended)
}

/// Where the backslashes of lone surrogate escapes stand. Outside strings JSON has no backslash, so there is
/// no need to know where strings begin.
fn lone_surrogates(text: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            at += 1;
            continue;
        }
        match escape_unit(text, at) {
            Some(0xD800..=0xDBFF) => match escape_unit(text, at + 6) {
                Some(0xDC00..=0xDFFF) => at += 12,
                _ => {
                    found.push(at);
                    at += 6;
                }
            },
            Some(0xDC00..=0xDFFF) => {
                found.push(at);
                at += 6;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    found
}

/// The code unit of a `\uXXXX` at this place.
fn escape_unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A text that becomes part of a key: no mark of a mended character in it. Neither platform allows these two
/// in a number; length and control characters are checked by the id types.
pub(crate) fn number<'a>(field: &str, text: &'a str) -> Result<&'a str, Rejection> {
    if text.is_empty() {
        return Err(missing(field));
    }
    if text.contains(['\\', '\u{FFFD}']) {
        return Err(Rejection::new(Reason::MissingField, format!("{field}: holds characters that could not be read")));
    }
    Ok(text)
}

/// The rejection of a message whose required field is absent.
pub(crate) fn missing(field: &str) -> Rejection {
    Rejection::new(Reason::MissingField, format!("{field}: missing"))
}

/// A field's text; `None` if it is absent, null, empty or no string.
pub(crate) fn string(value: &Option<Value>) -> Option<&str> {
    value.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// A piece of a message that may be repeated to the operator: bounded, control characters escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut out: String = text.chars().take(QUOTE_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTE_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F019: an unpaired surrogate in a field that is only shown must not hold up the money.
    #[test]
    fn a_lone_surrogate_stays_visible_and_nothing_else_changes() {
        let table = [
            (r#"{"a":"\ud83c"}"#, r#"{"a":"\\ud83c"}"#),
            (r#"{"a":"\uD83Cx"}"#, r#"{"a":"\\uD83Cx"}"#),
            (r#"{"a":"\udf81"}"#, r#"{"a":"\\udf81"}"#),
            (r#"{"a":"\ud83c\ud83c\udf81"}"#, r#"{"a":"\\ud83c\ud83c\udf81"}"#),
            (r#"{"a":"\ud83c\udf81"}"#, r#"{"a":"\ud83c\udf81"}"#),
            (r#"{"a":"\\ud83c"}"#, r#"{"a":"\\ud83c"}"#),
            (r#"{"a":"\\\ud83c"}"#, r#"{"a":"\\\\ud83c"}"#),
            (r#"{"a":"🎁𠮷\u652f\n"}"#, r#"{"a":"🎁𠮷\u652f\n"}"#),
            (r#"{"a":"\ud8"}"#, r#"{"a":"\ud8"}"#),
        ];
        for (text, want) in table {
            assert_eq!(lenient_json(text.as_bytes()), want, "{text}");
        }
        assert_eq!(lenient_json(b"\"\xFF\""), "\"\u{FFFD}\"");
    }

    #[test]
    fn a_number_holds_no_mended_character() {
        assert_eq!(number("n", "A|-_*1"), Ok("A|-_*1"));
        assert!(number("n", "").is_err());
        assert!(number("n", "A\\ud83c").is_err());
        assert!(number("n", "A\u{FFFD}").is_err());
    }

    /// F027: no control character of a message reaches a log line.
    #[test]
    fn a_quote_is_bounded_and_escaped() {
        assert_eq!(quote("a\r\nb"), "a\\r\\nb");
        assert_eq!(quote(&"x".repeat(100)).chars().count(), 65);
    }
}
