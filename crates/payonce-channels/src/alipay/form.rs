//! `application/x-www-form-urlencoded` to bytes.
//!
//! Here: splitting and percent-decoding once, to bytes, in order, with bounds. Not here: any charset. The
//! usual libraries decode to text and so lose GBK bytes, after which no signature can verify (F015); and
//! they keep one of two equal names, where here both are an error.
//!
//! Splitting by bytes is safe in GBK and GB18030: `&`, `=`, `%` and `+` never occur inside a character.

use std::collections::HashSet;

/// Trade notifications have about 30 parameters.
const MAX_PAIRS: usize = 256;

/// Trade notifications have under 4 KB; `biz_content` of messages may be larger.
const MAX_BYTES: usize = 256 * 1024;

/// Decoded parameters in the order received; no name occurs twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Form {
    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(have, _)| have == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// All parameters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

/// Why a body is no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormError {
    Empty,
    TooLarge,
    /// `%` without two hexadecimal digits.
    Escape,
    /// A name that is empty, or holds `&` or `=` and could pass for two parameters in the signed text.
    Name,
    Duplicate,
}

impl FormError {
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Empty => "the body is empty",
            Self::TooLarge => "more parameters or bytes than any notification has",
            Self::Escape => "a percent sign without two hexadecimal digits",
            Self::Name => "a parameter name that is empty or holds & or =",
            Self::Duplicate => "a parameter that is given twice",
        }
    }
}

/// Splits on `&` and on the first `=`; `+` is a space.
pub(crate) fn parse(body: &[u8]) -> Result<Form, FormError> {
    if body.is_empty() {
        return Err(FormError::Empty);
    }
    if body.len() > MAX_BYTES {
        return Err(FormError::TooLarge);
    }
    let mut pairs = Vec::new();
    for segment in body.split(|&byte| byte == b'&').filter(|segment| !segment.is_empty()) {
        if pairs.len() == MAX_PAIRS {
            return Err(FormError::TooLarge);
        }
        let split = segment.iter().position(|&byte| byte == b'=');
        let (name, value) = split.map_or((segment, &[][..]), |at| (&segment[..at], &segment[at + 1..]));
        let name = decode(name)?;
        if name.is_empty() || name.iter().any(|byte| matches!(byte, b'&' | b'=')) {
            return Err(FormError::Name);
        }
        pairs.push((name, decode(value)?));
    }
    let mut seen = HashSet::with_capacity(pairs.len());
    if !pairs.iter().all(|(name, _)| seen.insert(name.as_slice())) {
        return Err(FormError::Duplicate);
    }
    if pairs.is_empty() { Err(FormError::Empty) } else { Ok(Form { pairs }) }
}

fn decode(text: &[u8]) -> Result<Vec<u8>, FormError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(hex).ok_or(FormError::Escape);
                let high = digit()?;
                (high << 4) | digit()?
            }
            other => other,
        });
    }
    Ok(out)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pair = (Vec<u8>, Vec<u8>);

    fn pairs(body: &[u8]) -> Result<Vec<Pair>, FormError> {
        parse(body).map(|form| form.pairs)
    }

    fn pair(name: &[u8], value: &[u8]) -> Pair {
        (name.to_vec(), value.to_vec())
    }

    #[test]
    fn decodes_once_to_bytes_and_keeps_order() {
        // F008, F015: plus is a space, %2B a plus, %25 is not decoded again, GBK stays GBK.
        let got = pairs(b"b=1+2%2B3&a=%B2%E2%CA%D4&c=k%253Dv&d&e=&f=x=y").unwrap();
        let want = vec![
            pair(b"b", b"1 2+3"),
            pair(b"a", b"\xB2\xE2\xCA\xD4"),
            pair(b"c", b"k%3Dv"),
            pair(b"d", b""),
            pair(b"e", b""),
            pair(b"f", b"x=y"),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn refuses_what_could_be_read_in_two_ways() {
        let table: [(&[u8], FormError); 9] = [
            (b"", FormError::Empty),
            (b"&&", FormError::Empty),
            (b"a=1&a=1", FormError::Duplicate),
            (b"a=1&%61=2", FormError::Duplicate),
            (b"a=%", FormError::Escape),
            (b"a=%4", FormError::Escape),
            (b"a=%zz", FormError::Escape),
            (b"=1", FormError::Name),
            (b"subject%3Dx%26total_amount=9", FormError::Name),
        ];
        for (body, want) in table {
            assert_eq!(pairs(body), Err(want), "{}", String::from_utf8_lossy(body));
        }
        let many = (0..=MAX_PAIRS).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(pairs(many.as_bytes()), Err(FormError::TooLarge));
        assert_eq!(pairs(&vec![b'a'; MAX_BYTES + 1]), Err(FormError::TooLarge));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&body);
        }

        #[test]
        fn what_was_encoded_is_read_back(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..10)) {
            let body = values.iter().enumerate().map(|(n, value)| {
                format!("k{n}={}", value.iter().map(|byte| format!("%{byte:02x}")).collect::<String>())
            }).collect::<Vec<_>>().join("&");
            let got: Vec<_> = pairs(body.as_bytes()).unwrap().into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(got, values);
        }
    }
}
