//! The user's own order table: its verbs and its statements.
//!
//! Here: the texts, built of a mapping's checked names, with the quotes of each engine; every value is bound.
//! Running them: `own_table/<engine>.rs`. Not here: what a mapping means (`own_table` above), or any decision.
//!
//! Their collation may fold case or pad, so rows are looked up by their index, and compared again byte by byte.
//! Statuses are compared as texts, whatever the column's type; what is written takes the column's type.

use std::{future::Future, iter::repeat_n};

use crate::{
    error::Error,
    ids::{Merchant, OrderNo},
    order::Number,
    own_table::{Identifier, OwnChange, OwnRow, OwnTable, OwnUpdate, TableName, TimeForm, Word},
};

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;

/// What a transaction offers for rows that are not ours.
pub trait OwnTables: Send {
    /// Reads the rows with these numbers, as the table's collation finds them; `lock`: and locks them, sorted.
    fn own_rows(
        &mut self,
        table: &OwnTable,
        order_nos: &[OrderNo],
        lock: bool,
    ) -> impl Future<Output = Result<Vec<OwnRow>, Error>> + Send;
    /// Changes the rows that have exactly these numbers and still the status that was read; affected rows.
    fn update_own(
        &mut self,
        table: &OwnTable,
        change: OwnChange,
        rows: &[OwnUpdate],
    ) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Numbers of a merchant with notices that wait for an order, sorted, those after `after`.
    fn waiting(
        &mut self,
        merchant: &Merchant,
        after: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<Number>, Error>> + Send;
    /// What is to be known of the table before it is relied on.
    fn own_schema(&mut self, table: &OwnTable) -> impl Future<Output = Result<OwnSchema, Error>> + Send;
}

/// A table of the user's, as the database describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSchema {
    /// Its columns; none: there is no such table.
    pub columns: Vec<OwnColumn>,
    /// The order number alone makes a row unique.
    pub is_unique: bool,
    /// What an UPDATE of it cannot be undone with the transaction; the engine's word.
    pub not_transactional: Option<String>,
    /// Which status how many of some thousand rows have.
    pub statuses: Vec<(Option<String>, i64)>,
    /// The statements that will be run, as the engine gets them.
    pub statements: Vec<String>,
}

/// A column of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnColumn {
    /// Its name.
    pub name: String,
    /// Its type, in small letters, in the engine's words.
    pub kind: String,
    /// Texts that differ only in case or trailing blanks may be equal in it: the collation's name.
    pub folds: Option<String>,
    /// The longest text.
    pub length: Option<i64>,
    /// The words of an ENUM.
    pub words: Vec<String>,
}

/// How an engine quotes names and spells parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "an engine that is not built asks for nothing, and its texts are tested all the same")
)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// Rows looked up or changed by one statement of the MySQL dialects, which compare a table's column with
/// literals only, not with an array's member, by the column's own collation and index.
#[cfg(any(test, feature = "mysql"))]
pub(crate) const AT_ONCE: usize = 32;

/// So many parameters, so that few different statements are prepared.
#[cfg(any(test, feature = "mysql"))]
pub(crate) fn padded(count: usize) -> usize {
    count.next_power_of_two().min(AT_ONCE)
}

impl Dialect {
    fn quote(self, name: &Identifier) -> String {
        match self {
            Self::Mysql => format!("`{}`", name.as_str()),
            Self::Sqlite | Self::Postgres => format!("\"{}\"", name.as_str()),
        }
    }

    fn table(self, name: &TableName) -> String {
        let schema = name.schema.as_ref().map(|schema| self.quote(schema) + ".").unwrap_or_default();
        schema + &self.quote(&name.table)
    }

    fn column(self, name: &Identifier) -> String {
        format!("t.{}", self.quote(name))
    }

    /// A column as text that is compared byte by byte.
    fn text(self, name: &Identifier) -> String {
        let column = self.column(name);
        match self {
            Self::Sqlite => format!("CAST({column} AS TEXT) COLLATE BINARY"),
            Self::Postgres => format!("CAST({column} AS text) COLLATE \"C\""),
            Self::Mysql => format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)"),
        }
    }

    /// The n-th parameter, from 1.
    fn parameter(self, n: usize) -> String {
        match self {
            Self::Sqlite => format!("?{n}"),
            Self::Postgres => format!("${n}"),
            Self::Mysql => "?".to_owned(),
        }
    }
}

fn list(of: impl Iterator<Item = String>) -> String {
    of.collect::<Vec<_>>().join(", ")
}

fn marks(count: usize) -> String {
    list(repeat_n("?".to_owned(), count))
}

/// Reads rows. Bound: the array of numbers (MySQL dialects: `count` numbers).
pub(crate) fn read(table: &OwnTable, dialect: Dialect, count: usize, lock: bool) -> String {
    let absent = || "NULL".to_owned();
    let columns = [Some(&table.order_no), Some(&table.amount), Some(&table.status), table.trade_no.as_ref()];
    let columns = list(columns.into_iter().map(|name| name.map_or_else(absent, |name| dialect.text(name))));
    let key = dialect.column(&table.order_no);
    let wanted = match dialect {
        Dialect::Sqlite => format!("{key} IN (SELECT value FROM json_each(?1))"),
        Dialect::Postgres => format!("{key} = ANY($1)"),
        Dialect::Mysql => format!("{key} IN ({})", marks(count)),
    };
    let lock = match (lock, dialect) {
        (false, _) | (_, Dialect::Sqlite) => "",
        (true, Dialect::Postgres) => " FOR UPDATE OF t",
        (true, Dialect::Mysql) => " FOR UPDATE",
    };
    format!("SELECT {columns} FROM {} AS t WHERE {wanted} ORDER BY {key}{lock}", dialect.table(&table.table))
}

/// Changes rows. Bound, in this order: SQLite and PostgreSQL: the array of rows, the new status, the old ones;
/// MySQL dialects: the new status, number and time of each row, number and transaction of each, the numbers as
/// texts, the numbers as bytes, the old ones.
pub(crate) fn update(table: &OwnTable, dialect: Dialect, change: OwnChange, count: usize) -> String {
    let (key, exact) = (dialect.column(&table.order_no), dialect.text(&table.order_no));
    let set = |name: &Identifier| match dialect {
        // PostgreSQL takes no alias there, SQLite none in its older versions.
        Dialect::Sqlite | Dialect::Postgres => dialect.quote(name),
        Dialect::Mysql => dialect.column(name),
    };
    let mut sets = Vec::new();
    let status = if dialect == Dialect::Mysql { 1 } else { 2 };
    sets.push(format!("{} = {}", set(&table.status), dialect.parameter(status)));
    if let (true, Some((name, form))) = (change.with_payment, &table.paid_at) {
        sets.push(format!("{} = {}", set(name), paid_at(dialect, *form, &exact, count)));
    }
    if let (true, Some(name)) = (change.with_payment, &table.trade_no) {
        let value = member(dialect, "t", &exact, count);
        sets.push(format!("{} = COALESCE({value}, {})", set(name), dialect.column(name)));
    }
    let sets = sets.join(", ");
    let old = table.words(change.from).len();
    let old = list((0..old).map(|index| dialect.parameter(3 + index)));
    let status = dialect.text(&table.status);
    let name = dialect.table(&table.table);
    match dialect {
        Dialect::Sqlite => format!(
            "UPDATE {name} AS t SET {sets} FROM json_each(?1) AS j \
             WHERE {key} = j.value->>'o' AND {exact} = j.value->>'o' AND {status} IN ({old})"
        ),
        Dialect::Postgres => format!(
            "UPDATE {name} AS t SET {sets} FROM jsonb_to_recordset($1::text::jsonb) AS j(o text, at text, t text) \
             WHERE {key} = j.o AND {exact} = j.o AND {status} IN ({old})"
        ),
        Dialect::Mysql => format!(
            "UPDATE {name} AS t SET {sets} WHERE {key} IN ({marks}) AND {exact} IN ({marks}) AND {status} IN ({old})",
            marks = marks(count)
        ),
    }
}

/// A member of the row's entry in the array.
fn member(dialect: Dialect, name: &str, exact: &str, count: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("j.value->>'{name}'"),
        Dialect::Postgres => format!("j.{name}"),
        Dialect::Mysql => format!("CASE {exact}{} END", " WHEN ? THEN ?".repeat(count)),
    }
}

fn paid_at(dialect: Dialect, form: TimeForm, exact: &str, count: usize) -> String {
    let value = member(dialect, "at", exact, count);
    match (dialect, form) {
        (Dialect::Postgres, TimeForm::EpochSeconds | TimeForm::EpochMillis) => format!("CAST({value} AS bigint)"),
        (Dialect::Postgres, TimeForm::Timestamp) => format!("CAST({value} || '+00' AS timestamptz)"),
        (Dialect::Postgres, _) => format!("CAST({value} AS timestamp)"),
        (Dialect::Mysql, TimeForm::Timestamp) => format!("FROM_UNIXTIME({value})"),
        _ => value,
    }
}

/// `waiting`. Bound: the merchant, the number to go on from, the limit.
macro_rules! waiting {
    ($index:literal, $merchant:literal, $after:literal, $limit:literal) => {
        concat!(
            "SELECT DISTINCT q.merchant, q.out_trade_no FROM payonce_quarantine AS q ",
            $index,
            " JOIN payonce_attempt AS a ON a.merchant = q.merchant AND a.out_trade_no = q.out_trade_no
              WHERE q.state = 'held' AND q.reason = 'unknown_order' AND a.order_no IS NULL
                AND q.merchant = ",
            $merchant,
            " AND q.out_trade_no > ",
            $after,
            " ORDER BY q.merchant, q.out_trade_no LIMIT ",
            $limit
        )
    };
}
pub(crate) use waiting;

/// Which status how many rows have, in some thousand of them.
pub(crate) fn statuses(table: &OwnTable, dialect: Dialect) -> String {
    let (status, name) = (dialect.text(&table.status), dialect.table(&table.table));
    format!(
        "SELECT s.status, COUNT(*) FROM (SELECT {status} AS status FROM {name} AS t LIMIT 5000) AS s \
         GROUP BY s.status ORDER BY s.status"
    )
}

/// What will be run, for a person to read.
pub(crate) fn statements(table: &OwnTable, dialect: Dialect) -> Vec<String> {
    use crate::own_table::OwnState::{Closed, Paid, Pending, Refunded};
    let change = |from, to, with_payment| update(table, dialect, OwnChange { from, to, with_payment }, 1);
    let mut all = vec![read(table, dialect, 1, true), change(Pending, Paid, true)];
    if !table.closed.is_empty() {
        all.push(change(Pending, Closed, false));
    }
    if table.refunded.is_some() {
        all.push(change(Paid, Refunded, false));
    }
    all
}

/// The word that a state is written as.
pub(crate) fn new_word(table: &OwnTable, change: OwnChange) -> Result<&Word, Error> {
    let word = table.words(change.to).first();
    word.ok_or_else(|| Error::permanent(format!("the mapping of {} has no word for {:?}", table.table, change.to)))
}
