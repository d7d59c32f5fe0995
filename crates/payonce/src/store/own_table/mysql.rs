//! The user's own table in MariaDB, MySQL and OceanBase: in payonce's database, or another of the same server.
//!
//! A column of theirs is compared with literals only, never with a column of a JSON array: between columns of two
//! collations there is no comparison (error 1267), and another column's type would keep their index from being
//! used. So a statement takes so many rows, not all of them.
//!
//! Here: the verbs. Not here: the statements' texts (`own_table`).

use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    AT_ONCE, Dialect, OwnColumn, OwnSchema, OwnTables, new_word, padded, read, statements, statuses, update, waiting,
};
use crate::{
    error::Error,
    ids::{Merchant, OrderNo},
    order::Number,
    own_table::{OwnChange, OwnRow, OwnTable, OwnUpdate, Word},
    store::{
        rows::{self, Cells},
        server::{ANSWER, within},
    },
};

const DIALECT: Dialect = Dialect::Mysql;

type Query<'q> = sqlx::query::Query<'q, MySql, MySqlArguments>;

async fn fetch(connection: &mut MySqlConnection, what: &str, query: Query<'_>) -> Result<Vec<MySqlRow>, Error> {
    within(ANSWER, what, query.fetch_all(connection)).await
}

/// The items, and the last of them so often that the statement is one of a few.
fn filled<T>(items: &[T]) -> impl Iterator<Item = &T> {
    let more = items.last().into_iter().cycle();
    items.iter().chain(more).take(padded(items.len()))
}

fn bind<'q>(query: Query<'q>, word: &Word) -> Query<'q> {
    match word {
        Word::Text(text) => query.bind(text.clone()),
        Word::Integer(number) => query.bind(*number),
    }
}

/// The new status, then what the statement's SETs name for each row.
fn bind_sets<'q>(mut query: Query<'q>, table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> Query<'q> {
    let key = |row: &OwnUpdate| row.order_no.as_str().as_bytes().to_vec();
    if let (true, Some((_, form))) = (change.with_payment, &table.paid_at) {
        for row in filled(rows) {
            query = query.bind(key(row));
            // FROM_UNIXTIME takes seconds, as the epoch's columns do.
            query = match form {
                form if form.is_number() || *form == crate::own_table::TimeForm::Timestamp => {
                    query.bind(row.paid_at.map(|at| form.number(at)))
                }
                form => query.bind(row.paid_at.map(|at| form.text(at))),
            };
        }
    }
    if change.with_payment && table.trade_no.is_some() {
        for row in filled(rows) {
            query = query.bind(key(row)).bind(row.trade_no.as_ref().map(|trade_no| trade_no.as_str().to_owned()));
        }
    }
    query
}

impl OwnTables for MySqlConnection {
    async fn own_rows(&mut self, table: &OwnTable, order_nos: &[OrderNo], lock: bool) -> Result<Vec<OwnRow>, Error> {
        let mut found = Vec::new();
        for some in order_nos.chunks(AT_ONCE) {
            let mut query = sqlx::query(AssertSqlSafe(read(table, DIALECT, padded(some.len()), lock)));
            for number in filled(some) {
                query = query.bind(number.as_str().to_owned());
            }
            let rows = fetch(self, "read your orders", query).await?;
            found.extend(rows.iter().map(rows::own_row).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(found)
    }

    async fn update_own(&mut self, table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> Result<u64, Error> {
        let mut affected = 0;
        for some in rows.chunks(AT_ONCE) {
            let query = sqlx::query(AssertSqlSafe(update(table, DIALECT, change, padded(some.len()))));
            let mut query = bind_sets(bind(query, new_word(table, change)?), table, change, some);
            for row in filled(some) {
                query = query.bind(row.order_no.as_str().to_owned());
            }
            for row in filled(some) {
                query = query.bind(row.order_no.as_str().as_bytes().to_vec());
            }
            for word in table.words(change.from) {
                query = query.bind(word.to_string().into_bytes());
            }
            affected += within(ANSWER, "update your orders", query.execute(&mut *self)).await?.rows_affected();
        }
        Ok(affected)
    }

    async fn waiting(&mut self, merchant: &Merchant, after: &str, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = waiting!("FORCE INDEX (payonce_quarantine_held)", "?", "?", "?");
        let key = |text: &str| text.as_bytes().to_vec();
        let query = sqlx::query(SQL).bind(key(merchant.as_str())).bind(key(after)).bind(limit);
        fetch(self, "look for waiting numbers", query).await?.iter().map(rows::number).collect()
    }

    async fn own_schema(&mut self, table: &OwnTable) -> Result<OwnSchema, Error> {
        // As SIGNED: some servers give lengths as unsigned numbers.
        const COLUMNS: &str = "\
            SELECT column_name, LOWER(data_type),
                   CASE WHEN collation_name NOT LIKE '%nopad_bin' AND collation_name <> 'utf8mb4_0900_bin'
                        THEN collation_name END,
                   CAST(character_maximum_length AS SIGNED), LOWER(column_type) LIKE '%unsigned%', column_type
            FROM information_schema.columns
            WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? ORDER BY ordinal_position";
        const UNIQUE: &str = "\
            SELECT index_name FROM information_schema.statistics
            WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
            GROUP BY index_name
            HAVING MAX(non_unique) = 0 AND COUNT(*) = 1 AND MAX(LOWER(column_name)) = LOWER(?)
               AND MAX(sub_part) IS NULL";
        const ENGINE: &str = "\
            SELECT engine FROM information_schema.tables
            WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
        let what = "look at your table";
        let schema = table.table.schema.as_ref().map(|schema| schema.as_str().to_owned());
        let name = table.table.table.as_str().to_owned();
        let of = |sql: &'static str| sqlx::query(sql).bind(schema.clone()).bind(name.clone());
        let columns = fetch(self, what, of(COLUMNS)).await?;
        if columns.is_empty() {
            return Ok(OwnSchema::default());
        }
        let columns = columns.iter().map(|row| {
            let kind = row.text(1)?;
            let words = if kind == "enum" { labels(&row.text(5)?) } else { Vec::new() };
            let name = row.text(0)?;
            Ok(OwnColumn { name, kind, folds: row.optional_text(2)?, length: row.optional_int(3)?, words })
        });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let unique = fetch(self, what, of(UNIQUE).bind(table.order_no.as_str().to_owned())).await?;
        let engine = fetch(self, what, of(ENGINE)).await?;
        let engine = engine.first().map(|row| row.optional_text(0)).transpose()?.flatten();
        let safe = ["InnoDB", "oceanbase"];
        let has_status = columns.iter().any(|column| column.name.eq_ignore_ascii_case(table.status.as_str()));
        let found = match has_status {
            true => fetch(self, what, sqlx::query(AssertSqlSafe(statuses(table, DIALECT)))).await?,
            false => Vec::new(),
        };
        Ok(OwnSchema {
            columns,
            is_unique: !unique.is_empty(),
            not_transactional: engine.filter(|engine| !safe.iter().any(|safe| safe.eq_ignore_ascii_case(engine))),
            statuses: found.iter().map(rows::own_status).collect::<Result<_, _>>()?,
            statements: statements(table, DIALECT),
        })
    }
}

/// `enum('NEW','PAID')`
fn labels(kind: &str) -> Vec<String> {
    let inside = kind.trim_start_matches("enum(").trim_end_matches(')');
    inside.split(',').map(|label| label.trim_matches('\'').replace("''", "'")).collect()
}
