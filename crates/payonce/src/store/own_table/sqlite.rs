//! The user's own table in SQLite: it lives in the same file.
//!
//! Here: the verbs. Not here: the statements' texts (`own_table`).

use super::{Dialect, OwnColumn, OwnSchema, OwnTables, new_word, read, statements, statuses, update, waiting};
use crate::{
    error::Error,
    ids::{Merchant, OrderNo},
    order::Number,
    own_table::{OwnChange, OwnRow, OwnTable, OwnUpdate, Word},
    store::{
        json, rows,
        sqlite::{Cell, NOTHING, Talk},
    },
};

const DIALECT: Dialect = Dialect::Sqlite;

impl From<&Word> for Cell<'static> {
    fn from(word: &Word) -> Self {
        match word {
            Word::Text(text) => text.clone().into(),
            Word::Integer(number) => (*number).into(),
        }
    }
}

impl<C: Talk> OwnTables for C {
    /// BEGIN IMMEDIATE is lock enough.
    async fn own_rows(&mut self, table: &OwnTable, order_nos: &[OrderNo], lock: bool) -> Result<Vec<OwnRow>, Error> {
        let numbers: Vec<&str> = order_nos.iter().map(OrderNo::as_str).collect();
        let numbers = serde_json::to_string(&numbers).unwrap_or_default();
        let sql = read(table, DIALECT, 1, lock);
        self.read("read your orders", &sql, [[numbers.into()]], |row| rows::own_row(row)).await
    }

    async fn update_own(&mut self, table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> Result<u64, Error> {
        let mut values = vec![json::own_updates(table, rows).into(), new_word(table, change)?.into()];
        values.extend(table.words(change.from).iter().map(|word| Cell::from(word.to_string())));
        self.run("update your orders", &update(table, DIALECT, change, rows.len()), [values]).await
    }

    async fn waiting(&mut self, merchant: &Merchant, after: &str, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = waiting!("INDEXED BY payonce_quarantine_held", "?1", "?2", "?3");
        let values = [[merchant.as_str().into(), after.into(), limit.into()]];
        self.read("look for waiting numbers", SQL, values, |row| rows::number(row)).await
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
        let columns =
            self.read(what, COLUMNS, [[name.into(), schema.into()]], |row| Ok((row.text(0)?, row.text(1)?))).await?;
        if columns.is_empty() {
            return Ok(OwnSchema::default());
        }
        let order_no = table.order_no.as_str();
        let values = [[name.into(), schema.into(), order_no.into()]];
        let unique = self.read(what, UNIQUE, values, |row| row.text(0)).await?;
        let text = self.read(what, COLLATION, [[name.into()]], |row| row.optional_text(0)).await?;
        let text = text.into_iter().next().flatten().unwrap_or_default();
        let folds = match unique.first().cloned() {
            Some(collation) if collation != "BINARY" => Some(collation),
            None if text.to_ascii_uppercase().contains("COLLATE NOCASE") => Some("NOCASE".to_owned()),
            _ => None,
        };
        let columns = columns.into_iter().map(|(name, kind)| {
            let folds = folds.clone().filter(|_| name.eq_ignore_ascii_case(order_no));
            OwnColumn { name, kind, folds, length: None, words: Vec::new() }
        });
        let columns: Vec<OwnColumn> = columns.collect();
        let has_status = columns.iter().any(|column| column.name.eq_ignore_ascii_case(table.status.as_str()));
        let statuses = match has_status {
            true => self.read(what, &statuses(table, DIALECT), NOTHING, |row| rows::own_status(row)).await?,
            false => Vec::new(),
        };
        Ok(OwnSchema {
            columns,
            is_unique: !unique.is_empty(),
            not_transactional: None,
            statuses,
            statements: statements(table, DIALECT),
        })
    }
}
