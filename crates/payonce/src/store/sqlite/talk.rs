//! Two ways to speak to SQLite: a connection of sqlx, which is an embedder's, and a connection of our own.
//!
//! Here: how a statement and its values reach the file, and what comes back. sqlx keeps each connection on a
//! thread of its own, so every statement there and back is two turns of threads; ours computes where it is
//! called, and the hot verbs run a prepared statement row by row (`hot`). Not here: SQL.

use std::borrow::Cow;

use rusqlite::types::{ToSqlOutput, ValueRef};
use sqlx::{SqliteConnection, TypeInfo as _, ValueRef as _};

use super::{Sqlite, hot};
use crate::{
    error::Error,
    key::Fingerprint,
    order::Number,
    store::{KeyId, Look, Usual, book_usual_in_steps, look_in_steps, rows::Cells},
};

/// A value that goes in, or came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// What a statement gave back, cell by cell.
pub(crate) type Row = Vec<Cell<'static>>;

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<String> for Cell<'_> {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}

impl<'a> From<&'a [u8]> for Cell<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(value))
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl rusqlite::ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

fn other_kind(index: usize) -> Error {
    Error::permanent(format!("a stored row does not read: column {index} is missing or of another kind"))
}

impl Cells for Row {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        match self.get(index) {
            Some(Cell::Text(text)) => Ok(Some(text.clone().into_owned())),
            Some(Cell::Null) => Ok(None),
            _ => Err(other_kind(index)),
        }
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        match self.get(index) {
            Some(Cell::Int(value)) => Ok(Some(*value)),
            Some(Cell::Null) => Ok(None),
            _ => Err(other_kind(index)),
        }
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        match self.get(index) {
            Some(Cell::Bytes(bytes)) => Ok(bytes.clone().into_owned()),
            Some(Cell::Text(text)) => Ok(text.as_bytes().to_vec()),
            _ => Err(other_kind(index)),
        }
    }
}

/// Read where it lies, without a copy of the cells that are not wanted.
impl Cells for rusqlite::Row<'_> {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        Ok(self.get(index)?)
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        Ok(self.get(index)?)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        Ok(self.get(index)?)
    }
}

/// A connection that takes statements.
pub trait Talk: Send + Sized {
    /// Runs a statement; its rows.
    fn rows(
        &mut self,
        what: &str,
        sql: &str,
        values: &[Cell<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;
    /// Runs a statement; affected rows.
    fn run(&mut self, what: &str, sql: &str, values: &[Cell<'_>]) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Something was committed.
    fn committed(&self) {}

    /// The ledger's verb of this name, for a connection that has its own way.
    fn look(&mut self, numbers: &[Number], keys: &[KeyId]) -> impl Future<Output = Result<Look, Error>> + Send {
        look_in_steps(self, numbers, keys)
    }
    /// The same.
    fn book_usual(&mut self, rows: &Usual<'_>) -> impl Future<Output = Result<u64, Error>> + Send {
        book_usual_in_steps(self, rows)
    }
    /// The same.
    fn booked(&mut self, keys: &[KeyId]) -> impl Future<Output = Result<Vec<(KeyId, Fingerprint)>, Error>> + Send {
        super::booked_by_array(self, keys)
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn query(sql: &str, values: &[Cell<'_>]) -> Query<'static> {
    // Our own constants, and texts made of a mapping's checked names or of the operator's configuration.
    values.iter().fold(sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())), |query, value| match value {
        Cell::Null => query.bind(None::<String>),
        Cell::Int(value) => query.bind(*value),
        Cell::Text(value) => query.bind(value.clone().into_owned()),
        Cell::Bytes(value) => query.bind(value.clone().into_owned()),
    })
}

fn row(row: &sqlx::sqlite::SqliteRow) -> Result<Row, Error> {
    use sqlx::Row as _;
    let cell = |index| -> Result<Cell<'static>, sqlx::Error> {
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Cell::Null);
        }
        Ok(match raw.type_info().name() {
            "INTEGER" | "BOOLEAN" => Cell::Int(row.try_get_unchecked(index)?),
            "BLOB" => Cell::Bytes(Cow::Owned(row.try_get_unchecked(index)?)),
            _ => Cell::Text(Cow::Owned(row.try_get_unchecked(index)?)),
        })
    };
    (0..row.len()).map(cell).collect::<Result<Row, _>>().map_err(Error::from)
}

impl Talk for SqliteConnection {
    async fn rows(&mut self, what: &str, sql: &str, values: &[Cell<'_>]) -> Result<Vec<Row>, Error> {
        let found = query(sql, values).fetch_all(self).await.map_err(|error| Error::from(error).during(what))?;
        found.iter().map(row).collect()
    }

    async fn run(&mut self, what: &str, sql: &str, values: &[Cell<'_>]) -> Result<u64, Error> {
        let done = query(sql, values).execute(self).await.map_err(|error| Error::from(error).during(what))?;
        Ok(done.rows_affected())
    }
}

impl Talk for Sqlite {
    async fn rows(&mut self, what: &str, sql: &str, values: &[Cell<'_>]) -> Result<Vec<Row>, Error> {
        hot::rows(&self.connection, sql, values).map_err(|error| error.during(what))
    }

    async fn run(&mut self, what: &str, sql: &str, values: &[Cell<'_>]) -> Result<u64, Error> {
        hot::run(&self.connection, sql, values).map_err(|error| error.during(what))
    }

    fn committed(&self) {
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.hint();
        }
    }

    async fn look(&mut self, numbers: &[Number], keys: &[KeyId]) -> Result<Look, Error> {
        hot::look(&self.connection, numbers, keys).map_err(|error| error.during("look"))
    }

    async fn book_usual(&mut self, rows: &Usual<'_>) -> Result<u64, Error> {
        hot::book_usual(&self.connection, rows).map_err(|error| error.during("book"))
    }

    async fn booked(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Fingerprint)>, Error> {
        hot::booked(&self.connection, keys).map_err(|error| error.during("read keys"))
    }
}
