//! A statement that is spelled out for each of its rows.
//!
//! Here: its text, and the sizes in which it is prepared. These engines take JSON apart at a multiple of what the rows
//! themselves cost, so what every batch does is said with bound values; what is rare is one JSON array (`mysql`). Not
//! here: any table.

use std::iter;

use sqlx::{AssertSqlSafe, MySqlConnection, mysql::MySqlRow};

use super::{Sql, execute, fetch};
use crate::error::Error;

/// Its parts; `row` stands there once for each row.
pub(super) struct Many {
    head: &'static str,
    row: &'static str,
    between: &'static str,
    tail: &'static str,
}

/// How many rows one statement takes: few texts to be prepared, and few turns to the server for any number of rows.
const SIZES: [usize; 4] = [64, 16, 4, 1];

impl Many {
    /// `INSERT INTO … VALUES`, and the values of a row.
    pub(super) const fn insert(head: &'static str, row: &'static str) -> Self {
        Self { head, row, between: ", ", tail: "" }
    }

    /// `SELECT … WHERE (`, the key of a row, and the rest. The rows come, and are locked, in the index' order.
    pub(super) const fn select(head: &'static str, row: &'static str, tail: &'static str) -> Self {
        Self { head, row, between: " OR ", tail }
    }

    fn query(&self, rows: usize) -> Sql {
        let mut text = String::with_capacity(self.head.len() + rows * (self.row.len() + 4) + self.tail.len());
        text.push_str(self.head);
        for index in 0..rows {
            text.push_str(if index == 0 { "" } else { self.between });
            text.push_str(self.row);
        }
        text.push_str(self.tail);
        // Made of nothing but our own constants.
        sqlx::query(AssertSqlSafe(text))
    }

    /// Runs it for these rows.
    pub(super) async fn execute<R>(
        &self,
        connection: &mut MySqlConnection,
        what: &str,
        rows: &[R],
        bind: impl Fn(Sql, &R) -> Sql,
    ) -> Result<(), Error> {
        for piece in pieces(rows) {
            execute(connection, what, piece.iter().fold(self.query(piece.len()), &bind)).await?;
        }
        Ok(())
    }

    /// Runs it for these rows; what it found. A row that is asked for twice is found once, so the last one fills up.
    pub(super) async fn fetch<R>(
        &self,
        connection: &mut MySqlConnection,
        what: &str,
        rows: &[R],
        bind: impl Fn(Sql, &R) -> Sql,
    ) -> Result<Vec<MySqlRow>, Error> {
        let mut found = Vec::new();
        for piece in rows.chunks(SIZES[0]) {
            let size = SIZES.into_iter().rfind(|size| *size >= piece.len()).unwrap_or(SIZES[0]);
            let asked = piece.iter().chain(iter::repeat(&piece[piece.len() - 1])).take(size);
            found.extend(fetch(connection, what, asked.fold(self.query(size), &bind)).await?);
        }
        Ok(found)
    }
}

fn pieces<R>(mut rows: &[R]) -> impl Iterator<Item = &[R]> {
    iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (piece, rest) = rows.split_at(size);
        rows = rest;
        Some(piece)
    })
}
