//! Two ways to speak to SQLite: a connection of sqlx, which is an embedder's, and a connection of our own.
//!
//! Here: how a statement and its values reach the file, and what comes back. sqlx keeps each connection on a
//! thread of its own, so every statement there and back is two turns of threads; ours computes where it is
//! called, and a statement that is run for many rows is prepared once. Not here: SQL.

use std::borrow::Cow;

use rusqlite::{
    params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
use sqlx::SqliteConnection;

use super::Sqlite;
use crate::{error::Error, store::rows::Cells};

/// A value that goes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(&'a [u8]),
}

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
        Self::Bytes(value)
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

/// One set of values, in the order of the parameters.
pub trait Values: Send {
    /// All of them.
    fn cells(&self) -> &[Cell<'_>];
}

impl<const N: usize> Values for [Cell<'_>; N] {
    fn cells(&self) -> &[Cell<'_>] {
        self
    }
}

impl Values for Vec<Cell<'_>> {
    fn cells(&self) -> &[Cell<'_>] {
        self
    }
}

/// For a statement without parameters: once, with nothing.
pub(crate) const NOTHING: [[Cell<'static>; 0]; 1] = [[]];

/// A connection that takes statements, each once for every set of values.
pub trait Talk: Send + Sized {
    /// Runs a statement; what `read` makes of the rows.
    fn read<V: Values, T: Send>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
        read: impl Fn(&dyn Cells) -> Result<T, Error> + Send,
    ) -> impl Future<Output = Result<Vec<T>, Error>> + Send;
    /// Runs a statement; affected rows.
    fn run<V: Values>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Something was committed.
    fn committed(&self) {}
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn query(sql: &str, values: &[Cell<'_>]) -> Query<'static> {
    // Our own constants, and texts made of a mapping's checked names or of the operator's configuration.
    values.iter().fold(sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())), |query, value| match value {
        Cell::Null => query.bind(None::<String>),
        Cell::Int(value) => query.bind(*value),
        Cell::Text(value) => query.bind(value.clone().into_owned()),
        Cell::Bytes(value) => query.bind(value.to_vec()),
    })
}

impl Talk for SqliteConnection {
    async fn read<V: Values, T: Send>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
        read: impl Fn(&dyn Cells) -> Result<T, Error> + Send,
    ) -> Result<Vec<T>, Error> {
        let mut out = Vec::new();
        for values in each {
            let query = query(sql, values.cells());
            let found = query.fetch_all(&mut *self).await.map_err(|error| Error::from(error).during(what))?;
            for row in &found {
                out.push(read(row)?);
            }
        }
        Ok(out)
    }

    async fn run<V: Values>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
    ) -> Result<u64, Error> {
        let mut affected = 0;
        for values in each {
            let query = query(sql, values.cells());
            let done = query.execute(&mut *self).await.map_err(|error| Error::from(error).during(what))?;
            affected += done.rows_affected();
        }
        Ok(affected)
    }
}

impl Talk for Sqlite {
    async fn read<V: Values, T: Send>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
        read: impl Fn(&dyn Cells) -> Result<T, Error> + Send,
    ) -> Result<Vec<T>, Error> {
        self.read_now(sql, each, read).map_err(|error| error.during(what))
    }

    async fn run<V: Values>(
        &mut self,
        what: &str,
        sql: &str,
        each: impl IntoIterator<Item = V, IntoIter: Send> + Send,
    ) -> Result<u64, Error> {
        self.run_now(sql, each).map_err(|error| error.during(what))
    }

    fn committed(&self) {
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.hint();
        }
    }
}

impl Sqlite {
    fn read_now<V: Values, T>(
        &self,
        sql: &str,
        each: impl IntoIterator<Item = V>,
        read: impl Fn(&dyn Cells) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut out = Vec::new();
        for values in each {
            let mut found = statement.query(params_from_iter(values.cells()))?;
            while let Some(row) = found.next()? {
                out.push(read(row)?);
            }
        }
        Ok(out)
    }

    fn run_now<V: Values>(&self, sql: &str, each: impl IntoIterator<Item = V>) -> Result<u64, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut affected = 0;
        for values in each {
            let mut found = statement.query(params_from_iter(values.cells()))?;
            // A user's own statement may return rows: nobody wants them, and only the last step ends it.
            while found.next()?.is_some() {}
            drop(found);
            if !statement.readonly() {
                affected += self.connection.changes();
            }
        }
        Ok(affected)
    }
}
