//! The file and the environment as one tree, in which every value remembers where it came from.
//!
//! Here: reading TOML with positions, and laying `PAYONCE__SECTION__KEY` over it. Not here: what any of it
//! means (the readers).

use std::{ffi::OsString, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use zeroize::Zeroizing;

use super::fault::{Place, Report, Show, quote};

/// What variables of ours begin with.
pub(super) const PREFIX: &str = "PAYONCE__";

/// A value and its place.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
    /// The variable as it was given, for keys that want a text where TOML sees a number.
    pub(super) raw: Option<Zeroizing<String>>,
}

/// A value.
#[derive(Clone)]
pub(super) enum Value {
    Text(Zeroizing<String>),
    Integer(i64),
    Flag(bool),
    List(Vec<Node>),
    Table(Vec<Member>),
    /// A number with a point, a date, or an integer too large.
    Other(&'static str),
}

impl Value {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a section",
            Self::Other(kind) => kind,
        }
    }
}

/// A key and what it is set to.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

/// Reads the report's text. `None`: it is no TOML, and the report says where.
pub(super) fn read(report: &mut Report) -> Option<Vec<Member>> {
    /// Whoever has mended five can run it again; more are mostly echoes of the first.
    const AT_MOST: usize = 5;
    let (table, errors) = DeTable::parse_recoverable(report.text());
    if !errors.is_empty() {
        for error in errors.iter().take(AT_MOST) {
            report.syntax(error.span().unwrap_or(0..0), error.message());
        }
        return None;
    }
    let mut values = Vec::new();
    let members = members(table.into_inner(), &mut values);
    report.set_values(values);
    Some(members)
}

fn members(table: DeTable<'_>, values: &mut Vec<Range<usize>>) -> Vec<Member> {
    table
        .into_iter()
        .map(|(key, value)| {
            let place = Place::Span(key.span());
            Member { name: key.into_inner().into_owned(), place, node: node(value, values) }
        })
        .collect()
}

fn node(value: Spanned<DeValue<'_>>, values: &mut Vec<Range<usize>>) -> Node {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(Zeroizing::new(text.into_owned())),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or(Value::Other("a number that is too large"), Value::Integer),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Float(_) => Value::Other("a number with a point"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(items) => Value::List(items.into_iter().map(|item| node(item, values)).collect()),
        DeValue::Table(table) => Value::Table(members(table, values)),
    };
    if !matches!(value, Value::List(_) | Value::Table(_)) {
        values.push(span.clone());
    }
    Node { value, place: Place::Span(span), raw: None }
}

/// Lays the variables over the tree, in the order of their names.
pub(super) fn overlay(root: &mut Vec<Member>, report: &Report, variables: &[(OsString, OsString)]) {
    let mut ours: Vec<(String, &OsString)> = variables
        .iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    ours.sort();
    for (name, value) in ours {
        let place = Place::Env(name.clone());
        let path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_lowercase).collect();
        if path.iter().any(String::is_empty) || path.len() < 2 && path[0] != "effects" {
            let todo = "write PAYONCE__SECTION__KEY, with two underscores between the parts";
            report.fault(&place, Show::Masked, "names no section and key", todo);
            continue;
        }
        let Some(value) = value.to_str() else {
            report.fault(&place, Show::Masked, "is not UTF-8", "set it again");
            continue;
        };
        match set(root, &path, &place, from_variable(value, &place)) {
            Ok(()) => {}
            Err(InTheWay::Value(name)) => {
                let what = format!("sets something inside of {}, which is a value of its own", quote(&name));
                report.fault(&place, Show::Masked, what, "shorten the name of the variable");
            }
            Err(InTheWay::NoItem(name)) => {
                let what = format!("names an item of {} that is not there", quote(&name));
                let todo = "name one that the file has; they are counted from 0";
                report.fault(&place, Show::Masked, what, todo);
            }
        }
    }
}

/// A TOML value, or else the text itself.
fn from_variable(text: &str, place: &Place) -> Node {
    let mut node = match DeValue::parse(text) {
        Ok(value) => node(value, &mut Vec::new()),
        Err(_) => Node { value: Value::Text(Zeroizing::new(text.to_owned())), place: place.clone(), raw: None },
    };
    relocate(&mut node, place);
    if !matches!(node.value, Value::Text(_)) {
        node.raw = Some(Zeroizing::new(text.to_owned()));
    }
    node
}

fn relocate(node: &mut Node, place: &Place) {
    node.place = place.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| relocate(item, place)),
        Value::Table(members) => members.iter_mut().for_each(|member| {
            member.place = place.clone();
            relocate(&mut member.node, place);
        }),
        _ => {}
    }
}

/// Why a value cannot be set, with the name of what stands there instead.
enum InTheWay {
    Value(String),
    NoItem(String),
}

/// Sets a value, and makes the sections on the way to it.
fn set(members: &mut Vec<Member>, path: &[String], place: &Place, value: Node) -> Result<(), InTheWay> {
    let [first, rest @ ..] = path else { return Ok(()) };
    let same = |name: &str| name.to_lowercase().replace('-', "_") == *first;
    let at = members.iter().position(|member| same(&member.name)).unwrap_or_else(|| {
        let node = Node { value: Value::Table(Vec::new()), place: place.clone(), raw: None };
        members.push(Member { name: first.clone(), place: place.clone(), node });
        members.len() - 1
    });
    let member = &mut members[at];
    if rest.is_empty() {
        member.node = value;
        member.place = place.clone();
        return Ok(());
    }
    match &mut member.node.value {
        Value::Table(inner) => set(inner, rest, place, value),
        Value::List(items) => set_item(&member.name, items, rest, place, value),
        _ => Err(InTheWay::Value(member.name.clone())),
    }
}

/// `PAYONCE__EFFECTS__0__SINK`: an item by its number, from 0.
fn set_item(name: &str, items: &mut [Node], path: &[String], place: &Place, value: Node) -> Result<(), InTheWay> {
    let [index, rest @ ..] = path else { return Ok(()) };
    let item = index.parse::<usize>().ok().and_then(|index| items.get_mut(index));
    let item = item.ok_or_else(|| InTheWay::NoItem(name.to_owned()))?;
    if rest.is_empty() {
        *item = value;
        return Ok(());
    }
    match &mut item.value {
        Value::Table(inner) => set(inner, rest, place, value),
        _ => Err(InTheWay::Value(name.to_owned())),
    }
}
