//! The members of an answer's outermost object, as the exact bytes received.
//!
//! Here: a scanner that knows strings, escapes and nesting, and nothing else of JSON. The signature covers
//! the bytes of one member's value, so it must not go through a parser and back. Not here: what the members
//! mean, and whether the values are good JSON: `answer` parses them after the signature was right.
//!
//! Error texts were seen in GBK (facts 6.2), where the second byte of a character can be `\`, `{` or `}`.
//! So in bytes that are no UTF-8, a byte from 0x81 up takes the next one with it; this also holds for the
//! four-byte characters of GB18030, which are two such pairs.

/// A name and a value, as they stand in the bytes. The name's escapes are not resolved: Alipay's names have
/// none, and one that is written in another way is another name.
pub(super) type Member<'a> = (&'a [u8], &'a [u8]);

/// Answers have two or three members.
const MAX_MEMBERS: usize = 32;

/// Why the bytes are no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeError {
    NotAnObject,
    Duplicate,
    TooMany,
}

impl NodeError {
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::NotAnObject => "the answer is no JSON object",
            Self::Duplicate => "a member of the answer is given twice",
            Self::TooMany => "more members than any answer has",
        }
    }
}

/// Splits an object. Anything after it but blanks is an error.
pub(super) fn members(bytes: &[u8]) -> Result<Vec<Member<'_>>, NodeError> {
    let mut scanner = Scanner { bytes, at: 0, pairs: std::str::from_utf8(bytes).is_err() };
    let found = scanner.object().ok_or(NodeError::NotAnObject)?;
    if found.len() > MAX_MEMBERS {
        return Err(NodeError::TooMany);
    }
    let repeated = found.iter().enumerate().any(|(at, (name, _))| found[..at].iter().any(|(have, _)| have == name));
    if repeated { Err(NodeError::Duplicate) } else { Ok(found) }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether bytes from 0x81 up come in pairs.
    pairs: bool,
}

impl<'a> Scanner<'a> {
    fn object(&mut self) -> Option<Vec<Member<'a>>> {
        let mut found = Vec::new();
        self.blanks();
        self.eat(b'{')?;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                found.push(self.member()?);
                match self.next()? {
                    // One too many is enough to know.
                    b',' if found.len() <= MAX_MEMBERS => self.blanks(),
                    b'}' => break,
                    _ => return (found.len() > MAX_MEMBERS).then_some(found),
                }
            }
        }
        self.blanks();
        (self.at == self.bytes.len()).then_some(found)
    }

    fn member(&mut self) -> Option<Member<'a>> {
        let quoted = self.string()?;
        self.blanks();
        self.eat(b':')?;
        self.blanks();
        let value = self.value()?;
        self.blanks();
        Some((&quoted[1..quoted.len() - 1], value))
    }

    /// A string with its quotes, an object or array with its brackets, or a bare word or number.
    fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        match self.peek()? {
            b'"' => return self.string(),
            b'{' | b'[' => self.nested()?,
            _ => {
                while !matches!(
                    self.peek()?,
                    b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'{' | b'[' | b':'
                ) {
                    self.at += 1;
                }
            }
        }
        (self.at > start).then(|| &self.bytes[start..self.at])
    }

    /// Counts brackets instead of calling itself: depth costs no stack.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.eat(b'"')?;
        loop {
            match self.next()? {
                b'"' => return Some(&self.bytes[start..self.at]),
                b'\\' => self.at += 1,
                0x81.. if self.pairs => self.at += 1,
                _ => {}
            }
        }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> Result<Vec<(String, String)>, NodeError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        members(bytes).map(|found| found.into_iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    #[test]
    fn values_are_the_exact_bytes() {
        let table: [(&str, &[(&str, &str)]); 6] = [
            ("{}", &[]),
            (r#"{"a":{"x":"}\"{"},"sign":"s"}"#, &[("a", r#"{"x":"}\"{"}"#), ("sign", r#""s""#)]),
            (" { \"a\" : [1, {\"b\":\"]\"} ] , \"c\" : null } ", &[("a", "[1, {\"b\":\"]\"} ]"), ("c", "null")]),
            (r#"{"sign":"s","a":{}}"#, &[("sign", r#""s""#), ("a", "{}")]),
            (r#"{"a":"\\"}"#, &[("a", r#""\\""#)]),
            (r#"{"a":-1.5e3}"#, &[("a", "-1.5e3")]),
        ];
        for (text, want) in table {
            let want: Vec<_> = want.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(split(text.as_bytes()), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_second_byte_of_gbk_is_no_syntax() {
        // 0x81 0x5C is one character in GBK whose second byte is a backslash, 0x81 0x7D one with a brace.
        let body = b"{\"a\":{\"m\":\"\x81\x5c\",\"n\":\"\x81\x7d\"},\"sign\":\"s\"}";
        let found = members(body).unwrap();
        assert_eq!(found[0].1, b"{\"m\":\"\x81\x5c\",\"n\":\"\x81\x7d\"}");
        assert_eq!(found[1].1, b"\"s\"");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "null",
            "[]",
            "\"\"",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "{\"a\":{]",
            "{a:1}",
            "{\"a\":1 2}",
        ] {
            assert_eq!(split(text.as_bytes()), Err(NodeError::NotAnObject), "{text}");
        }
        assert_eq!(split(br#"{"a":1,"a":2}"#), Err(NodeError::Duplicate));
        let many = (0..100).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",");
        assert_eq!(split(format!("{{{many}}}").as_bytes()), Err(NodeError::TooMany));
    }

    /// F023: depth costs neither stack nor time.
    #[test]
    fn depth_is_counted() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(deep.as_bytes()).unwrap()[0].1.len(), 200_000);
    }
}
