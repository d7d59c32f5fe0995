//! One section while it is read: keys are taken out by name and type, and what is left over is unknown.
//!
//! Here: types, ranges, required keys, secrets in files, and the messages about all these. A fault is
//! reported and the default taken, so that reading goes on and finds the next one. Not here: what a key is
//! for (the readers), how keys go together (`checks`).

use std::{
    fs,
    io::Read,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use payonce::own_table::Word;
use zeroize::Zeroizing;

use super::{
    fault::{Place, Report, Show, quote},
    secret::Secret,
    tree::{Member, Node, Value},
    words,
};

/// A value and where it was given.
#[derive(Clone, Debug)]
pub(super) struct Told<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// A section that is being read.
pub(super) struct Section<'a> {
    pub(super) report: &'a Report,
    /// `[accounts.wx]`, for messages.
    pub(super) label: String,
    /// `accounts.*`, for the list of known keys.
    pattern: String,
    pub(super) place: Place,
    members: Vec<Member>,
    asked: Vec<&'static str>,
    /// Keys that stood here when reading began.
    given: Vec<String>,
}

impl<'a> Section<'a> {
    pub(super) fn root(report: &'a Report, members: Vec<Member>) -> Self {
        let given = Vec::new();
        let (label, pattern) = (String::new(), String::new());
        Self { report, label, pattern, place: Place::File, members, asked: Vec::new(), given }
    }

    /// Whether the key, or the same as a file, was given at all, rightly or wrongly.
    pub(super) fn was_given(&self, key: &str) -> bool {
        self.given.iter().any(|given| given.strip_suffix("_file").unwrap_or(given) == key)
    }

    fn take(&mut self, key: &'static str) -> Option<Member> {
        self.asked.push(key);
        self.report.know(if self.pattern.is_empty() { key.to_owned() } else { format!("{}.{key}", self.pattern) });
        let at = self.members.iter().position(|member| member.name == key)?;
        Some(self.members.swap_remove(at))
    }

    fn wrong_type(&self, key: &str, node: &Node, wanted: &str, example: &str) {
        let what = format!("`{key}` must be {wanted}, not {}", node.value.kind());
        self.report.fault(&node.place, Show::Masked, what, format!("write {key} = {example}"));
    }

    /// A text as given; of a variable the raw text, so that merchant numbers need no quotes there.
    fn as_text(&self, key: &str, node: &Node) -> Option<Zeroizing<String>> {
        match (&node.value, &node.raw) {
            (Value::Text(text), _) => Some(text.clone()),
            (Value::Integer(_) | Value::Flag(_) | Value::Other(_), Some(raw)) => Some(raw.clone()),
            _ => {
                self.wrong_type(key, node, "a text", "\"…\"");
                None
            }
        }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Told<String>> {
        let member = self.take(key)?;
        let text = self.as_text(key, &member.node)?;
        if text.trim().is_empty() {
            let todo = format!("give it a value, or remove `{key}`");
            self.report.fault(&member.node.place, Show::Masked, format!("`{key}` is empty"), todo);
            return None;
        }
        Some(Told { value: text.to_string(), place: member.node.place })
    }

    pub(super) fn required(&mut self, key: &'static str, todo: &str) -> Option<Told<String>> {
        let given = self.members.iter().any(|member| member.name == key);
        let told = self.text(key);
        if !given {
            self.missing(key, todo);
        }
        told
    }

    pub(super) fn missing(&self, key: &str, todo: &str) {
        self.report.fault(&self.place, Show::Masked, format!("`{key}` is missing in {}", self.label), todo);
    }

    /// A list of texts; one text alone will do.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<Told<String>> {
        let Some(member) = self.take(key) else { return Vec::new() };
        self.items(key, member.node)
            .into_iter()
            .map(|told| Told { value: told.value.to_string(), place: told.place })
            .collect()
    }

    fn items(&self, key: &str, node: Node) -> Vec<Told<Zeroizing<String>>> {
        let items = match node.value {
            Value::List(items) => items,
            _ => vec![node],
        };
        let mut texts = Vec::new();
        let many = items.len() > 1;
        for item in items {
            if many && item.raw.is_none() && !matches!(item.value, Value::Text(_)) {
                let what = format!("`{key}` holds {}, only texts belong there", item.value.kind());
                self.report.fault(&item.place, Show::Masked, what, "put it in quotes");
                continue;
            }
            let Some(text) = self.as_text(key, &item) else { continue };
            if text.trim().is_empty() {
                let todo = "give it a value, or remove it";
                self.report.fault(&item.place, Show::Masked, format!("`{key}` holds an empty text"), todo);
            } else {
                texts.push(Told { value: text, place: item.place });
            }
        }
        texts
    }

    /// Texts and whole numbers in a list; one alone will do.
    pub(super) fn words(&mut self, key: &'static str) -> Vec<Told<Word>> {
        let Some(member) = self.take(key) else { return Vec::new() };
        let items = match member.node.value {
            Value::List(items) => items,
            _ => vec![member.node],
        };
        let word = |item: Node| {
            let value = match &item.value {
                Value::Text(text) if !text.trim().is_empty() => Word::Text(text.to_string()),
                Value::Integer(number) => Word::Integer(*number),
                _ => {
                    self.wrong_type(key, &item, "a text or a whole number", "\"…\"");
                    return None;
                }
            };
            Some(Told { value, place: item.place })
        };
        items.into_iter().filter_map(word).collect()
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some(member) = self.take(key) else { return default };
        match member.node.value {
            Value::Flag(flag) => flag,
            _ => {
                self.wrong_type(key, &member.node, "true or false", &default.to_string());
                default
            }
        }
    }

    pub(super) fn optional_flag(&mut self, key: &'static str) -> Option<bool> {
        let given = self.members.iter().any(|member| member.name == key);
        let flag = self.flag(key, false);
        given.then_some(flag)
    }

    pub(super) fn integer(&mut self, key: &'static str, default: i64, range: RangeInclusive<i64>) -> i64 {
        self.optional_integer(key, default, range).unwrap_or(default)
    }

    pub(super) fn optional_integer(
        &mut self,
        key: &'static str,
        example: i64,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let member = self.take(key)?;
        match member.node.value {
            Value::Integer(number) if range.contains(&number) => Some(number),
            Value::Integer(number) => {
                let what = format!("`{key}` is {number}, allowed are {} to {}", range.start(), range.end());
                let todo = format!("write {key} = {example}, or another number in that range");
                self.report.fault(&member.node.place, Show::Plain, what, todo);
                None
            }
            _ => {
                self.wrong_type(key, &member.node, "a whole number", &example.to_string());
                None
            }
        }
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        example: &str,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(told) = self.text(key) else { return default };
        match self.as_duration(key, &told, example) {
            Some(duration) if range.contains(&duration) => duration,
            Some(_) => {
                let (least, most) = (readable(*range.start()), readable(*range.end()));
                let what = format!("`{key}` is {}, allowed are {least} to {most}", quote(&told.value));
                self.report.fault(&told.place, Show::Plain, what, format!("write {key} = \"{example}\""));
                default
            }
            None => default,
        }
    }

    pub(super) fn as_duration(&self, key: &str, told: &Told<String>, example: &str) -> Option<Duration> {
        let duration = words::duration(&told.value);
        if duration.is_none() {
            let what = format!("`{key}`: {} is no duration", quote(&told.value));
            let todo = format!("write a number and a unit (ms, s, m, h, d), for example \"{example}\"");
            self.report.fault(&told.place, Show::Plain, what, todo);
        }
        duration
    }

    pub(super) fn address(&mut self, key: &'static str, default: SocketAddr) -> Told<SocketAddr> {
        let Some(told) = self.text(key) else { return Told { value: default, place: self.place.clone() } };
        let value = told.value.parse().unwrap_or_else(|_| {
            let what = format!("`{key}`: {} is no address", quote(&told.value));
            let todo = format!("write an IP address and a port, for example \"{default}\"");
            self.report.fault(&told.place, Show::Plain, what, todo);
            default
        });
        Told { value, place: told.place }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, default: T, words: &[(&'static str, T)]) -> T {
        self.text(key).and_then(|told| self.as_choice(key, &told, words)).unwrap_or(default)
    }

    pub(super) fn as_choice<T: Copy>(&self, key: &str, told: &Told<String>, words: &[(&'static str, T)]) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == told.value).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let todo = match words::nearest(&told.value, known.iter().copied()) {
                Some(near) => format!("write \"{near}\""),
                None => format!(
                    "write one of {}",
                    known.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
                ),
            };
            let what = format!("`{key}`: {} is not known", quote(&told.value));
            self.report.fault(&told.place, Show::Plain, what, todo);
        }
        found
    }

    /// A secret, given here or in a file. Both is a fault, unless the environment gives one: that one counts.
    pub(super) fn secret(&mut self, key: &'static str, key_file: &'static str) -> Option<Told<Secret>> {
        self.secrets(key, key_file).into_iter().next()
    }

    /// The same where there may be several.
    pub(super) fn secrets(&mut self, key: &'static str, key_file: &'static str) -> Vec<Told<Secret>> {
        let (mut here, mut file) = (self.take(key), self.take(key_file));
        if let (Some(one), Some(other)) = (&here, &file) {
            match (is_env(&one.node.place), is_env(&other.node.place)) {
                (true, false) => file = None,
                (false, true) => here = None,
                _ => {
                    let what = format!("`{key}` and `{key_file}` are both given in {}", self.label);
                    let place = other.place.clone();
                    self.report.fault(&place, Show::Masked, what, "keep one of the two; the file is the better one");
                    file = None;
                }
            }
        }
        match (here, file) {
            (Some(member), _) => self
                .items(key, member.node)
                .into_iter()
                .map(|told| Told {
                    value: Secret::new(told.value.trim(), origin(key, &told.place), None),
                    place: told.place,
                })
                .collect(),
            (None, Some(member)) => self.read_files(key_file, member.node),
            (None, None) => Vec::new(),
        }
    }

    /// Secrets in a list.
    pub(super) fn secret_list(&mut self, key: &'static str) -> Vec<Told<Secret>> {
        let Some(member) = self.take(key) else { return Vec::new() };
        let items = self.items(key, member.node).into_iter();
        items
            .map(|told| Told {
                value: Secret::new(told.value.trim(), origin(key, &told.place), None),
                place: told.place,
            })
            .collect()
    }

    /// Texts of files, named by one path or a list of them.
    pub(super) fn files(&mut self, key: &'static str) -> Vec<Told<Secret>> {
        self.take(key).map(|member| self.read_files(key, member.node)).unwrap_or_default()
    }

    fn read_files(&self, key: &'static str, node: Node) -> Vec<Told<Secret>> {
        self.items(key, node)
            .into_iter()
            .filter_map(|told| {
                let path = self.report.dir().join(told.value.as_str());
                match read_secret(&path) {
                    Ok(text) => Some(Told {
                        value: Secret::new(text.as_str(), origin(key, &told.place), Some(path)),
                        place: told.place,
                    }),
                    Err(why) => {
                        let (named, todo) = if names_a_file(&told.value) {
                            (format!("`{}`", told.value.as_str()), "write the file, or correct its name; it is looked for beside the configuration")
                        } else {
                            ("its value (not shown)".to_owned(), "if this is the secret itself, give it under the key without `_file`; otherwise correct the name")
                        };
                        let what = format!("`{key}`: {named} {why}");
                        self.report.fault(&told.place, Show::Masked, what, todo);
                        None
                    }
                }
            })
            .collect()
    }

    /// The section of this name inside this one.
    pub(super) fn section(&mut self, key: &'static str) -> Self {
        let member = self.take(key);
        let label = format!("[{}{key}]", self.prefix());
        let pattern = self.inner_pattern(key);
        match member {
            None => self.inner(label, pattern, self.place.clone(), Vec::new()),
            Some(Member { place, node, .. }) => match node.value {
                Value::Table(members) => self.inner(label, pattern, place, members),
                _ => {
                    self.wrong_section(key, &node);
                    self.inner(label, pattern, place, Vec::new())
                }
            },
        }
    }

    fn wrong_section(&self, key: &str, node: &Node) {
        let what = format!("`{key}` must be a section, not {}", node.value.kind());
        self.report.fault(
            &node.place,
            Show::Masked,
            what,
            format!("write [{}{key}] and its keys below", self.prefix()),
        );
    }

    fn inner(&self, label: String, pattern: String, place: Place, members: Vec<Member>) -> Self {
        let given = members.iter().map(|member| member.name.clone()).collect();
        Self { report: self.report, label, pattern, place, members, asked: Vec::new(), given }
    }

    fn prefix(&self) -> String {
        let inside = self.label.trim_matches(['[', ']']);
        if inside.is_empty() { String::new() } else { format!("{inside}.") }
    }

    fn inner_pattern(&self, key: &str) -> String {
        if self.pattern.is_empty() { key.to_owned() } else { format!("{}.{key}", self.pattern) }
    }

    /// The sections `[key.NAME]`, by name.
    pub(super) fn named(&mut self, key: &'static str) -> Vec<(Told<String>, Self)> {
        let outer = self.section(key);
        let mut members = outer.members;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let mut found = Vec::new();
        for Member { name, place, node } in members {
            let label = format!("[{key}.{name}]");
            match node.value {
                Value::Table(members) => {
                    let pattern = format!("{key}.*");
                    let section = self.inner(label, pattern, place.clone(), members);
                    found.push((Told { value: name, place }, section));
                }
                _ => {
                    let what = format!("`{name}` stands in [{key}], where only sections [{key}.NAME] belong");
                    let todo = format!("write [{key}.NAME] and its keys below");
                    self.report.fault(&place, Show::Masked, what, todo);
                }
            }
        }
        found
    }

    /// The sections `[[key]]`, in their order.
    pub(super) fn listed(&mut self, key: &'static str) -> Vec<Self> {
        let Some(member) = self.take(key) else { return Vec::new() };
        let Value::List(items) = member.node.value else {
            let what = format!("`{key}` must be a list of sections, not {}", member.node.value.kind());
            self.report.fault(
                &member.place,
                Show::Masked,
                what,
                format!("write [[{key}]] and its keys below, once for each"),
            );
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items {
            match item.value {
                Value::Table(members) => {
                    found.push(self.inner(format!("[[{key}]]"), key.to_owned(), item.place, members));
                }
                _ => {
                    let what = format!("`{key}` holds {}, only sections belong there", item.value.kind());
                    self.report.fault(&item.place, Show::Masked, what, format!("write [[{key}]] and its keys below"));
                }
            }
        }
        found
    }

    /// What nobody asked for is unknown.
    pub(super) fn finish(self) {
        for member in &self.members {
            let known = self.asked.iter().copied();
            let what = if self.label.is_empty() {
                format!("unknown section {}", quote(&member.name))
            } else {
                format!("unknown key {} in {}", quote(&member.name), self.label)
            };
            let todo = match words::nearest(&member.name, known.clone()) {
                Some(near) => format!("write `{near}`"),
                None if self.asked.is_empty() => "remove it; there is nothing to be set here".to_owned(),
                None => format!("remove it; known here: {}", known.collect::<Vec<_>>().join(", ")),
            };
            self.report.fault(&member.place, Show::Masked, what, todo);
        }
    }
}

const fn is_env(place: &Place) -> bool {
    matches!(place, Place::Env(_))
}

fn origin(key: &str, place: &Place) -> String {
    match place {
        Place::Env(name) => name.clone(),
        _ => key.to_owned(),
    }
}

/// Whether a text is surely a path, so that it may be shown; a secret in its place must not be.
fn names_a_file(text: &str) -> bool {
    let plain = text.len() <= 200 && !text.chars().any(|char| char.is_control() || char.is_whitespace());
    let rooted = ["/", "./", "../", "secrets/"].iter().any(|start| text.starts_with(start));
    let extension = Path::new(text).extension().is_some_and(|end| end.len() <= 5);
    plain && !text.starts_with("whsec_") && !text.starts_with("MI") && (rooted || extension || text.len() <= 16)
}

/// The text of a small file, without what editors put around it.
fn read_secret(path: &PathBuf) -> Result<Zeroizing<String>, String> {
    const MAX: u64 = 256 * 1024;
    let file = fs::File::open(path).map_err(|error| format!("cannot be read: {}", reason(&error)))?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {}", reason(&error)))?;
    if bytes.len() as u64 > MAX {
        return Err("is larger than 256 KiB, so it is no key".to_owned());
    }
    let text =
        std::str::from_utf8(&bytes).map_err(|_| "is not text (a certificate must be PEM, not DER)".to_owned())?;
    let text = text.trim_start_matches('\u{FEFF}').trim();
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(Zeroizing::new(text.to_owned()))
}

/// A system's error in a few words.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    }
}

/// A duration as it would be configured.
pub(crate) fn readable(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
    let unit = units.iter().find(|(unit, _)| millis >= *unit && millis.is_multiple_of(*unit));
    unit.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", millis / unit))
}
