//! The shops' own order tables: whether the database has what is mapped, and the statements that will be run.
//!
//! Here: the live table held against its mapping. Not here: reading either (`config`, the stores).

use std::sync::Arc;

use payonce::{
    own_table::{AmountUnit, Identifier, OwnState, OwnTable, TimeForm, Word},
    rules::Rules,
    store::{OwnColumn, OwnSchema},
};

use super::Findings;
use crate::config::Config;

/// Transactions of WeChat Pay have up to 32 characters, Alipay's up to 64.
const TRADE_NO: i64 = 32;

/// Looks at each mapped table.
pub(super) async fn examine(findings: &mut Findings, config: &Config) {
    for (shop, table) in &config.order_tables {
        let area = format!("shops.{shop}.order_table");
        if table.merchants.is_empty() {
            let todo = "write an account with this shop, or remove the mapping";
            findings.warning(&area, "no account pays orders of this shop, so the table is never looked at", todo);
        }
        let place = &config.database.place;
        if place.as_file().is_some_and(|path| !path.exists()) {
            let what = format!("the database is not there yet, so {} could not be looked at", table.table);
            findings.warning(&area, what, "put payonce.db where your tables are: `url` in [database]");
            continue;
        }
        let opened = place.door().open(Arc::new(Rules::default())).await;
        let schema = match opened {
            Ok(database) => database.own_schema(table).await.map(|schema| (database.engine(), schema)),
            Err(error) => Err(error),
        };
        match schema {
            Ok((engine, schema)) => judge(findings, &area, table, &schema, engine),
            Err(error) => {
                findings.fault(&area, format!("{} cannot be looked at: {error}", table.table), "see its privileges");
            }
        }
    }
}

/// A column's type, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Text,
    Integer,
    Decimal,
    Float,
    /// Date and time without a zone.
    Datetime,
    /// An instant.
    Timestamp,
    Enum,
    Other,
}

fn sort(column: &OwnColumn, engine: &str) -> Sort {
    let kind = column.kind.as_str();
    let has = |parts: &[&str]| parts.iter().any(|part| kind.contains(part));
    if !column.words.is_empty() {
        Sort::Enum
    } else if has(&["with time zone"]) || engine == "mysql" && kind == "timestamp" {
        if has(&["without time zone"]) { Sort::Datetime } else { Sort::Timestamp }
    } else if has(&["datetime", "timestamp"]) {
        Sort::Datetime
    } else if has(&["char", "text", "clob", "binary"]) {
        Sort::Text
    } else if has(&["int", "serial"]) && !has(&["interval", "point"]) {
        Sort::Integer
    } else if has(&["decimal", "numeric"]) {
        Sort::Decimal
    } else if has(&["float", "double", "real"]) {
        Sort::Float
    } else {
        Sort::Other
    }
}

/// Holds a table against its mapping.
fn judge(findings: &mut Findings, area: &str, table: &OwnTable, schema: &OwnSchema, engine: &str) {
    let before = findings.0.len();
    if schema.columns.is_empty() {
        let what = format!("there is no table {} in payonce's database", table.table);
        let todo = "correct `table`, or let payonce use the database that your tables are in: `url` in [database]";
        findings.fault(area, what, todo);
        return;
    }
    let find = |name: &Identifier| {
        let same = |column: &&OwnColumn| match engine {
            "postgres" => column.name == name.as_str(),
            _ => column.name.eq_ignore_ascii_case(name.as_str()),
        };
        schema.columns.iter().find(same)
    };
    for name in table.columns().filter(|name| find(name).is_none()) {
        let known: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
        let what = format!("{} has no column {}", table.table, name.as_str());
        findings.fault(area, what, format!("correct the name; there are {}", known.join(", ")));
    }
    if let Some(column) = find(&table.order_no) {
        order_no(findings, area, column, schema, engine);
    }
    if let Some(column) = find(&table.amount) {
        amount(findings, area, table.amount_unit, column, engine);
    }
    if let Some(column) = find(&table.status) {
        status(findings, area, table, column, engine);
    }
    if let Some((form, column)) = table.paid_at.as_ref().and_then(|(name, form)| Some((*form, find(name)?))) {
        paid_at(findings, area, form, column, engine);
    }
    if let Some(column) = table.trade_no.as_ref().and_then(find) {
        trade_no(findings, area, column, engine);
    }
    if let Some(word) = &schema.not_transactional {
        let what = format!("{} is {word}: what is written there does not share the fate of the books", table.table);
        findings.fault(area, what, "change the table's engine (InnoDB), or make it LOGGED");
    }
    seen(findings, area, table, schema);
    if findings.0.len() == before {
        findings.ok(area, format!("{} fits its mapping", table.table));
    }
    for statement in &schema.statements {
        findings.ok(area, format!("will be run: {statement}"));
    }
}

fn order_no(findings: &mut Findings, area: &str, column: &OwnColumn, schema: &OwnSchema, engine: &str) {
    let name = &column.name;
    let is_text = sort(column, engine) == Sort::Text && column.kind != "character";
    if !is_text && (engine != "sqlite" || sort(column, engine) != Sort::Other) {
        let what = format!("{name} is {}, out_trade_no is a text", column.kind);
        let todo = "map a VARCHAR column: another type cannot be searched by the text, or not by its index";
        findings.fault(area, what, todo);
    }
    if !schema.is_unique {
        let what = format!(
            "{name} has no unique index of its own: a number might name two orders, and each search reads the table"
        );
        findings.fault(area, what, format!("CREATE UNIQUE INDEX … ON … ({name})"));
    }
    if let Some(collation) = column.folds.as_ref().filter(|collation| !collation.ends_with("_bin")) {
        let what = format!("{name} has the collation {collation}, to which O1a and O1A are one number");
        let todo =
            "payonce compares once more byte by byte, so no other order is paid; a byte-wise collation is better";
        findings.warning(area, what, todo);
    }
}

fn amount(findings: &mut Findings, area: &str, unit: AmountUnit, column: &OwnColumn, engine: &str) {
    let name = &column.name;
    match (sort(column, engine), unit) {
        (Sort::Float, _) => {
            let what = format!("{name} is {}, which cannot hold 0.1 exactly", column.kind);
            findings.warning(area, what, "make it DECIMAL(12, 2), or whole fen");
        }
        (Sort::Decimal, AmountUnit::Fen) => {
            let what = format!("{name} is {}, but amount_unit = \"fen\"", column.kind);
            findings.warning(area, what, "if it holds 19.90, write amount_unit = \"yuan\"");
        }
        (Sort::Integer, AmountUnit::Yuan) => {
            let what = format!("{name} is {}, but amount_unit = \"yuan\"", column.kind);
            findings.warning(area, what, "if it holds 1990, write amount_unit = \"fen\"");
        }
        (Sort::Integer | Sort::Decimal | Sort::Text, _) => {}
        _ => findings.warning(area, format!("{name} is {}, no number", column.kind), "map the amount's column"),
    }
}

fn status(findings: &mut Findings, area: &str, table: &OwnTable, column: &OwnColumn, engine: &str) {
    let states = [OwnState::Pending, OwnState::Paid, OwnState::Closed, OwnState::Refunded];
    let sort = sort(column, engine);
    for word in states.iter().flat_map(|state| table.words(*state)) {
        let bad = match (word, sort) {
            (Word::Text(text), Sort::Enum) => !column.words.contains(text),
            (Word::Text(text), Sort::Text) => column.length.is_some_and(|most| text.chars().count() as i64 > most),
            (Word::Integer(_), Sort::Integer) => false,
            (Word::Integer(_), _) | (Word::Text(_), Sort::Integer) => true,
            (Word::Text(_), _) => false,
        };
        if bad {
            let kind = match column.words.is_empty() {
                true => column.kind.clone(),
                false => format!("an ENUM of {}", column.words.join(", ")),
            };
            let what = format!("{} is {kind}, which cannot hold the status {word:?}", column.name);
            findings.fault(area, what, "texts stand in quotes, integers do not; correct the word");
        }
    }
}

fn paid_at(findings: &mut Findings, area: &str, form: TimeForm, column: &OwnColumn, engine: &str) {
    let sort = sort(column, engine);
    let small = matches!(column.kind.as_str(), "int" | "integer" | "mediumint" | "smallint");
    let good = match form {
        // SQLite keeps what it is given.
        _ if engine == "sqlite" => true,
        TimeForm::DatetimeBeijing | TimeForm::DatetimeUtc => matches!(sort, Sort::Datetime | Sort::Text),
        TimeForm::Timestamp => sort == Sort::Timestamp,
        TimeForm::EpochSeconds => sort == Sort::Integer,
        TimeForm::EpochMillis => sort == Sort::Integer && !small,
    };
    if !good {
        let word = TimeForm::ALL.iter().find(|(_, known)| *known == form).map_or("", |(word, _)| *word);
        let what = format!("{} is {}, which does not fit paid_at_as = \"{word}\"", column.name, column.kind);
        let todo = "a type with a zone wants \"timestamp\", one without \"datetime_beijing\" or \"datetime_utc\", a BIGINT \"epoch_millis\"";
        findings.fault(area, what, todo);
    }
}

fn trade_no(findings: &mut Findings, area: &str, column: &OwnColumn, engine: &str) {
    let is_short = column.length.is_some_and(|most| most < TRADE_NO);
    let is_text = engine == "sqlite" || sort(column, engine) == Sort::Text;
    if is_short || !is_text {
        let length = column.length.map(|most| format!("({most})")).unwrap_or_default();
        let what = format!("{} is {}{length}; a transaction has up to 64 characters", column.name, column.kind);
        findings.fault(area, what, "make it VARCHAR(64): a value that does not fit would fail every booking");
    }
}

/// What the rows say, if there are any.
fn seen(findings: &mut Findings, area: &str, table: &OwnTable, schema: &OwnSchema) {
    let (mut mapped, mut others) = (0, Vec::new());
    for (status, count) in &schema.statuses {
        match table.state(status.as_deref()) {
            OwnState::Other => others.push(format!("{} ({count})", status.as_deref().unwrap_or("NULL"))),
            _ => mapped += count,
        }
    }
    if mapped == 0 && !others.is_empty() {
        let what = format!("none of the mapped statuses occurs; there are {}", others.join(", "));
        findings.warning(area, what, "correct the words: they are compared byte by byte");
    } else if !others.is_empty() {
        findings.ok(area, format!("left alone: {}", others.join(", ")));
    }
}

#[cfg(test)]
mod tests;
