//! The user's own table in SQLite: it lives in the same file.
//!
//! Here: the verbs. Not here: the statements' texts (`own_table`).

use sqlx::{AssertSqlSafe, SqliteConnection, sqlite::SqliteRow};

use super::{Dialect, OwnColumn, OwnSchema, OwnTables, new_word, read, statements, statuses, update, waiting};
use crate::{
    error::Error,
    ids::{Merchant, OrderNo},
    order::Number,
    own_table::{OwnChange, OwnRow, OwnTable, OwnUpdate, Word},
    store::{
        json,
        rows::{self, Cells},
    },
};

const DIALECT: Dialect = Dialect::Sqlite;

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

async fn fetch(connection: &mut SqliteConnection, what: &str, query: Query<'_>) -> Result<Vec<SqliteRow>, Error> {
    query.fetch_all(connection).await.map_err(|error| Error::from(error).during(what))
}

fn bind<'q>(query: Query<'q>, word: &Word) -> Query<'q> {
    match word {
        Word::Text(text) => query.bind(text.clone()),
        Word::Integer(number) => query.bind(*number),
    }
}

impl OwnTables for SqliteConnection {
    /// BEGIN IMMEDIATE is lock enough.
    async fn own_rows(&mut self, table: &OwnTable, order_nos: &[OrderNo], lock: bool) -> Result<Vec<OwnRow>, Error> {
        let numbers: Vec<&str> = order_nos.iter().map(OrderNo::as_str).collect();
        let numbers = serde_json::to_string(&numbers).unwrap_or_default();
        let query = sqlx::query(AssertSqlSafe(read(table, DIALECT, 1, lock))).bind(numbers);
        fetch(self, "read your orders", query).await?.iter().map(rows::own_row).collect()
    }

    async fn update_own(&mut self, table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> Result<u64, Error> {
        let query = sqlx::query(AssertSqlSafe(update(table, DIALECT, change, rows.len())));
        let mut query = bind(query.bind(json::own_updates(table, rows)), new_word(table, change)?);
        for word in table.words(change.from) {
            query = query.bind(word.to_string());
        }
        let done = query.execute(self).await.map_err(|error| Error::from(error).during("update your orders"))?;
        Ok(done.rows_affected())
    }

    async fn waiting(&mut self, merchant: &Merchant, after: &str, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = waiting!("INDEXED BY payonce_quarantine_held", "?1", "?2", "?3");
        let query = sqlx::query(SQL).bind(merchant.as_str().to_owned()).bind(after.to_owned()).bind(limit);
        fetch(self, "look for waiting numbers", query).await?.iter().map(rows::number).collect()
    }

    async fn own_schema(&mut self, table: &OwnTable) -> Result<OwnSchema, Error> {
        const COLUMNS: &str = "SELECT name, lower(type) FROM pragma_table_info(?1, ?2)";
        // A unique index of this column alone, whose collation decides what is equal; a primary key that is the
        // rowid has no index.
        const UNIQUE: &str = "\
            SELECT x.coll FROM pragma_index_list(?1, ?2) AS i JOIN pragma_index_xinfo(i.name, ?2) AS x
            WHERE i.\"unique\" = 1 AND i.partial = 0 AND x.key = 1 AND x.name = ?3 COLLATE NOCASE
              AND (SELECT count(*) FROM pragma_index_xinfo(i.name, ?2) AS y WHERE y.key = 1) = 1";
        const COLLATION: &str = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        let what = "look at your table";
        let name = table.table.table.as_str();
        let schema = table.table.schema.as_ref().map_or("main", |schema| schema.as_str());
        let columns = fetch(self, what, sqlx::query(COLUMNS).bind(name).bind(schema)).await?;
        if columns.is_empty() {
            return Ok(OwnSchema::default());
        }
        let order_no = table.order_no.as_str();
        let unique = fetch(self, what, sqlx::query(UNIQUE).bind(name).bind(schema).bind(order_no)).await?;
        let collation = unique.first().map(|row| row.text(0)).transpose()?;
        let text = fetch(self, what, sqlx::query(COLLATION).bind(name)).await?;
        let text = text.first().map(|row| row.optional_text(0)).transpose()?.flatten().unwrap_or_default();
        let folds = match collation {
            Some(collation) if collation != "BINARY" => Some(collation),
            None if text.to_ascii_uppercase().contains("COLLATE NOCASE") => Some("NOCASE".to_owned()),
            _ => None,
        };
        let columns = columns.iter().map(|row| {
            let (name, kind) = (row.text(0)?, row.text(1)?);
            let folds = folds.clone().filter(|_| name.eq_ignore_ascii_case(order_no));
            Ok(OwnColumn { name, kind, folds, length: None, words: Vec::new() })
        });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let has_status = columns.iter().any(|column| column.name.eq_ignore_ascii_case(table.status.as_str()));
        let found = match has_status {
            true => fetch(self, what, sqlx::query(AssertSqlSafe(statuses(table, DIALECT)))).await?,
            false => Vec::new(),
        };
        Ok(OwnSchema {
            columns,
            is_unique: !unique.is_empty(),
            not_transactional: None,
            statuses: found.iter().map(rows::own_status).collect::<Result<_, _>>()?,
            statements: statements(table, DIALECT),
        })
    }
}
