//! What is wrong with a configuration, and where.
//!
//! Here: one fault as a person reads it (what, what to do, the line), all of them together, and the
//! masking of that line: of all values on it only the faulty one is ever shown, and that only if it is not
//! meant to be secret. Not here: finding faults (`section`, the readers, `checks`).

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::words;

/// Longer values are not shown: a key in the wrong place must not reach a terminal or a log.
const SHOWN_MAX: usize = 24;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Bytes of the file.
    Span(Range<usize>),
    /// An environment variable.
    Env(String),
    /// The file as a whole.
    File,
}

/// Whether the faulty value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    Plain,
    Masked,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    order: (usize, String),
    /// `payonce.toml:3:1`, or the name of an environment variable.
    pub place: String,
    /// What is wrong, in a sentence without a full stop.
    pub what: String,
    /// What to do about it.
    pub todo: String,
    excerpt: Option<Excerpt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    number: usize,
    text: String,
    column: usize,
    width: usize,
}

impl Fault {
    /// A fault of the file as a whole, or of no file.
    pub fn general(place: impl Into<String>, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { order: (0, String::new()), place: place.into(), what: what.into(), todo: todo.into(), excerpt: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.place, self.what)?;
        if let Some(Excerpt { number, text, column, width }) = &self.excerpt {
            let number = number.to_string();
            let gutter = " ".repeat(number.len());
            writeln!(f, "  {number} | {text}")?;
            writeln!(f, "  {gutter} | {}{}", " ".repeat(*column), "^".repeat((*width).max(1)))?;
        }
        write!(f, "  to do: {}", self.todo)
    }
}

/// Everything that is wrong, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The text that is read, and what was found in it.
pub(super) struct Report {
    name: String,
    /// What files are relative to.
    dir: PathBuf,
    text: Zeroizing<String>,
    /// Where values stand, in order: what is masked.
    values: Vec<Range<usize>>,
    faults: RefCell<Vec<Fault>>,
    known: RefCell<BTreeSet<String>>,
}

impl Report {
    pub(super) fn new(name: String, dir: PathBuf, text: Zeroizing<String>) -> Self {
        Self { name, dir, text, values: Vec::new(), faults: RefCell::default(), known: RefCell::default() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn set_values(&mut self, mut values: Vec<Range<usize>>) {
        values.sort_by_key(|range| range.start);
        self.values = values;
    }

    /// Remembers a key as one that is read, so that a test can hold the manual against it.
    pub(super) fn know(&self, path: String) {
        self.known.borrow_mut().insert(path);
    }

    pub(super) fn count(&self) -> usize {
        self.faults.borrow().len()
    }

    pub(super) fn finish(self) -> (Vec<Fault>, BTreeSet<String>) {
        let mut faults = self.faults.into_inner();
        faults.sort_by(|a, b| a.order.cmp(&b.order));
        faults.dedup();
        (faults, self.known.into_inner())
    }

    /// Something is wrong with a value or key.
    pub(super) fn fault(&self, place: &Place, show: Show, what: impl Into<String>, todo: impl Into<String>) {
        let (order, place, excerpt) = match place {
            Place::File => (0, self.name.clone(), None),
            Place::Env(name) => (usize::MAX, format!("environment variable {name}"), None),
            Place::Span(span) => {
                let (line, column) = self.position(span.start);
                (span.start, format!("{}:{line}:{column}", self.name), self.excerpt(span, show))
            }
        };
        let order = (order, place.clone());
        self.faults.borrow_mut().push(Fault { order, place, what: what.into(), todo: todo.into(), excerpt });
    }

    /// The text is no TOML. Nothing is known about what stands in the line, so only words that are ours are
    /// shown of it.
    pub(super) fn syntax(&self, span: Range<usize>, message: &str) {
        let message = message.trim_end_matches(", expected nothing");
        let todo = if message == "duplicate key" {
            "keep one of the two; the rest is checked after that"
        } else {
            "mend the line (texts stand in quotes, a section is [name]); the rest is checked after that"
        };
        let start = self.floor(span.start);
        let (number, column) = self.position(start);
        let line = &self.text[self.line(start)];
        let text = guarded(line);
        let shown = text.trim_end_matches('…').chars().count();
        let excerpt = Excerpt { number, column: (column - 1).min(shown), width: 1, text };
        let excerpt = (!line.trim().is_empty()).then_some(excerpt);
        let place = format!("{}:{number}:{column}", self.name);
        self.faults.borrow_mut().push(Fault {
            order: (start, place.clone()),
            place,
            what: format!("not TOML: {message}"),
            todo: todo.to_owned(),
            excerpt,
        });
    }

    /// Line and column, both from 1, the column in characters.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.floor(offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }

    fn line(&self, offset: usize) -> Range<usize> {
        let start = self.text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |at| offset + at);
        start..end
    }

    /// The line with its values masked, comments cut off.
    fn excerpt(&self, span: &Range<usize>, show: Show) -> Option<Excerpt> {
        let line = self.line(self.floor(span.start));
        let (number, _) = self.position(span.start);
        let mut text = String::new();
        let mut caret = None;
        let mut at = line.start;
        let mut cut = false;
        let mut push = |text: &mut String, range: Range<usize>, visible: bool| {
            if span.start >= range.start && span.start <= range.end && caret.is_none() {
                let before = if visible { self.text[range.start..span.start].chars().count() } else { 0 };
                caret = Some(text.chars().count() + before);
            }
            text.push_str(if visible { &self.text[range] } else { "…" });
        };
        for value in self.values.iter().filter(|value| value.end > line.start && value.start < line.end) {
            if value.start < at {
                continue;
            }
            let between = at..value.start;
            if let Some(comment) = self.text[between.clone()].find('#') {
                push(&mut text, between.start..between.start + comment, true);
                cut = true;
                break;
            }
            if between.start < between.end && span.start != value.start {
                push(&mut text, between, true);
            } else {
                text.push_str(&self.text[between]);
            }
            let own = value == span && show == Show::Plain && value.end <= line.end;
            let visible = own && self.text[value.clone()].chars().count() <= SHOWN_MAX + 2;
            push(&mut text, value.start..value.end.min(line.end), visible);
            at = value.end.min(line.end);
        }
        if !cut && at < line.end {
            let rest = &self.text[at..line.end];
            let end = at + rest.find('#').unwrap_or(rest.len());
            push(&mut text, at..end, true);
        }
        let text = without_long_words(text.trim_end());
        let column = caret.unwrap_or(0).min(text.chars().count());
        let width = self.text[span.start..span.end.min(line.end).max(span.start)].chars().count();
        let width = width.min(text.chars().count() - column).max(1);
        Some(Excerpt { number, text, column, width })
    }
}

/// Keys and names are shown, but what is longer than any of ours may be a secret that lost its quotes. The
/// length stays, for the caret.
fn without_long_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let part_of_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '+' | '/' | '=');
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|char: char| !part_of_word(char)).unwrap_or(rest.len()).max(first.len_utf8());
        let (word, after) = rest.split_at(end);
        if word.len() > SHOWN_MAX && !words::ALL.contains(&word) {
            out.extend(word.chars().map(|_| '·'));
        } else {
            out.extend(word.chars().map(|char| if char.is_control() { ' ' } else { char }));
        }
        rest = after;
    }
    out
}

/// What may be shown of a line that could not be read: a first word that is ours, or nearly.
fn guarded(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let body = line.trim_start();
    let opening = body.chars().take_while(|char| *char == '[').count();
    let word_end = body[opening..]
        .find(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '-')))
        .map_or(body.len(), |at| at + opening);
    let word = &body[opening..word_end];
    if word.is_empty() || words::nearest(word, words::ALL.iter().copied()).is_none() {
        return "…".to_owned();
    }
    let rest = body[word_end..].trim_end();
    let tail = if rest.is_empty() {
        ""
    } else if rest.trim_start().starts_with('=') {
        " = …"
    } else {
        " …"
    };
    format!("{}{}{tail}", &line[..indent], &body[..word_end])
}

/// A value as a message may quote it.
pub(super) fn quote(text: &str) -> String {
    let short = text.chars().count() <= SHOWN_MAX && !text.chars().any(char::is_control);
    if short { format!("`{text}`") } else { format!("({} characters, not shown)", text.chars().count()) }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("name", &self.name).finish_non_exhaustive()
    }
}
