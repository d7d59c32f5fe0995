//! A Rust file as the rules see it: what is code, what is text in quotes, what is comment, what is test.
//!
//! Here: a small lexer, just enough for the rules, and no parser. Not here: any rule. Bytes that are not of
//! the asked kind become blanks, so that lines and columns stay where they were.

/// A file in its views.
pub(super) struct Source {
    /// Comments, strings and characters are blanks.
    pub(super) code: String,
    /// The string literals with the lines where they begin.
    pub(super) strings: Vec<(usize, String)>,
    /// Which lines (from 0) belong to tests.
    pub(super) is_test: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// From 0, of the word `fn`: attributes and docs before it do not count.
    pub(super) first_line: usize,
    pub(super) lines: usize,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let (code, strings) = split(text);
        let is_test = test_lines(&code);
        Self { code, strings, is_test }
    }

    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test.get(line).copied().unwrap_or(false)
    }

    /// Functions in order; those within others are listed too.
    pub(super) fn functions(&self) -> Vec<Function> {
        let bytes = self.code.as_bytes();
        let mut functions = Vec::new();
        for at in words(&self.code, "fn") {
            let rest = self.code[at + 2..].trim_start();
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // `fn(u8) -> u8` is a type, and `fn $name` belongs to a macro.
            if name.is_empty() {
                continue;
            }
            if let Some((open, close)) = body(bytes, at) {
                let first_line = line_of(bytes, at);
                functions.push(Function { name, first_line, lines: line_of(bytes, close) - first_line + 1 });
                debug_assert!(open < close);
            }
        }
        functions
    }
}

/// The byte positions of a whole word.
pub(super) fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let starts_as_word = word.bytes().next().is_some_and(is_part);
    let ends_as_word = word.bytes().last().is_some_and(is_part);
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + word.len()).copied();
        !(starts_as_word && before.is_some_and(is_part) || ends_as_word && after.is_some_and(is_part))
    })
}

/// The line (from 0) of a byte position.
pub(super) fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|&&byte| byte == b'\n').count()
}

/// Code with everything else blanked, and the strings.
fn split(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut strings = Vec::new();
    let mut line = 0;
    let mut at = 0;
    while at < bytes.len() {
        let (end, string) = other_than_code(bytes, at).unwrap_or((at + 1, None));
        if let Some((from, to)) = string {
            strings.push((line, String::from_utf8_lossy(&bytes[from..to]).into_owned()));
        }
        let is_code = end == at + 1;
        for &byte in &bytes[at..end] {
            line += usize::from(byte == b'\n');
            code.push(if is_code || byte == b'\n' { byte } else { b' ' });
        }
        at = end;
    }
    (String::from_utf8_lossy(&code).into_owned(), strings)
}

/// Where a comment, string or character that begins here ends, and what is between a string's quotes.
fn other_than_code(bytes: &[u8], at: usize) -> Option<(usize, Option<(usize, usize)>)> {
    let rest = &bytes[at..];
    let before_is_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        return Some((at + end, None));
    }
    if rest.starts_with(b"/*") {
        return Some((at + block_comment(rest), None));
    }
    if rest[0] == b'"' {
        let end = quoted(rest, b'"');
        return Some((at + end, Some((at + 1, at + end - 1))));
    }
    if rest[0] == b'r' && !before_is_word || rest.starts_with(b"br") || rest.starts_with(b"cr") {
        let prefix = if rest[0] == b'r' { 1 } else { 2 };
        let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
        if rest.get(prefix + hashes) == Some(&b'"') {
            let open = prefix + hashes + 1;
            let mark = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let length = rest[open..].windows(mark.len()).position(|window| window == mark);
            let close = open + length.unwrap_or(rest.len() - open);
            return Some(((at + close + mark.len()).min(bytes.len()), Some((at + open, at + close))));
        }
    }
    if rest[0] == b'\'' {
        // `'a` is a lifetime, `'a'` and `'\n'` are characters.
        let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
            .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
            .ok()
            .and_then(|text| text.chars().next())
            .map_or(1, char::len_utf8);
        if rest.get(1) == Some(&b'\\') || rest.get(1 + width) == Some(&b'\'') {
            return Some((at + quoted(rest, b'\''), None));
        }
    }
    None
}

/// The length of a quoted text with escapes, quotes included.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a block comment; they nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The braces of the item that begins here; `None` if it ends in a semicolon.
fn body(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut open = None;
    for (at, &byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 && open.is_none() => return None,
            b'{' => {
                open = open.or(Some((at, depth)));
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if let Some((begin, outer)) = open
                    && depth == outer
                {
                    // Braces inside a signature (const generics) are not the body.
                    if outer == 0 {
                        return Some((begin, at));
                    }
                    open = None;
                }
            }
            _ => {}
        }
    }
    None
}

/// Marks the items that stand behind `#[test]`, `#[cfg(test)]` and the like, attributes included.
fn test_lines(code: &str) -> Vec<bool> {
    let bytes = code.as_bytes();
    let mut is_test = vec![false; line_of(bytes, bytes.len()) + 1];
    if code.contains("#![cfg(test)]") {
        is_test.fill(true);
        return is_test;
    }
    for (at, _) in code.match_indices("#[") {
        let attribute: String = code[at + 2..].chars().take_while(|c| *c != '\n').filter(|c| *c != ' ').collect();
        let marks = ["test]", "cfg(test)", "cfg(all(test", "cfg(any(test", "tokio::test"];
        if !marks.iter().any(|mark| attribute.starts_with(mark)) {
            continue;
        }
        let item = after_attributes(bytes, at);
        let end = body(bytes, item)
            .map(|(_, close)| close)
            .or_else(|| bytes[item..].iter().position(|&byte| byte == b';').map(|offset| item + offset))
            .unwrap_or(item);
        let (first, last) = (line_of(bytes, at), line_of(bytes, end));
        is_test[first..=last].fill(true);
    }
    is_test
}

/// The position behind the attributes that begin here.
fn after_attributes(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if !bytes[at..].starts_with(b"#[") {
            return at;
        }
        let mut depth = 0_usize;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'[' => depth += 1,
                b']' if depth == 1 => break,
                b']' => depth -= 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text =
            "let a = \"x // \\\" y\"; // async\n/* a /* b */ c */ let b: &'a str = r#\"q \"z\"#; let c = '\"'; d('é')";
        let source = Source::new(text);
        let code: String = source.code.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, "let a = ; let b: &'a str = ; let c = ; d( )");
        assert_eq!(source.strings, [(0, "x // \\\" y".to_owned()), (1, "q \"z".to_owned())]);
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text = "#[inline]\n/// d\npub fn a<T>(x: [u8; 2]) -> T\nwhere\n    T: X,\n{\n    {}\n}\ntype F = fn(u8);\nfn b();\nfn c() {}\n";
        let have = Source::new(text).functions();
        let names: Vec<_> = have.iter().map(|f| (f.name.as_str(), f.first_line, f.lines)).collect();
        assert_eq!(names, [("a", 2, 6), ("c", 10, 1)]);
    }

    #[test]
    fn items_of_tests_are_marked() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}\n#[tokio::test]\nasync fn f() {\n}\n";
        let source = Source::new(text);
        let marked: Vec<usize> = (0..13).filter(|&line| source.is_test(line)).collect();
        assert_eq!(marked, [1, 2, 3, 4, 5, 7, 8, 10, 11, 12]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("async asyncx xasync async", "async").collect::<Vec<_>>(), [0, 20]);
        assert_eq!(words("a.unwrap() unwrap()", ".unwrap()").count(), 1);
    }
}
