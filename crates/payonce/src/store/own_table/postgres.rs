//! The user's own table in PostgreSQL: in payonce's database, in any schema of it.
//!
//! Here: the verbs. Not here: the statements' texts (`own_table`).

use sqlx::{
    AssertSqlSafe, Encode, PgConnection, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, types::Oid},
};

use super::{Dialect, OwnColumn, OwnSchema, OwnTables, new_word, read, statements, statuses, update, waiting};
use crate::{
    error::Error,
    ids::{Merchant, OrderNo},
    order::Number,
    own_table::{OwnChange, OwnRow, OwnTable, OwnUpdate, Word},
    store::{
        json,
        rows::{self, Cells},
        server::{ANSWER, within},
    },
};

const DIALECT: Dialect = Dialect::Postgres;

type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

async fn fetch(connection: &mut PgConnection, what: &str, query: Query<'_>) -> Result<Vec<PgRow>, Error> {
    within(ANSWER, what, query.fetch_all(connection)).await
}

/// A text of the type that the server finds out by itself: of an ENUM, too, it is sent as its bytes.
struct Untyped(String);

impl Type<Postgres> for Untyped {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Untyped {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

impl OwnTables for PgConnection {
    async fn own_rows(&mut self, table: &OwnTable, order_nos: &[OrderNo], lock: bool) -> Result<Vec<OwnRow>, Error> {
        let numbers: Vec<String> = order_nos.iter().map(|number| number.as_str().to_owned()).collect();
        let query = sqlx::query(AssertSqlSafe(read(table, DIALECT, 1, lock))).bind(numbers);
        fetch(self, "read your orders", query).await?.iter().map(rows::own_row).collect()
    }

    async fn update_own(&mut self, table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> Result<u64, Error> {
        let query = sqlx::query(AssertSqlSafe(update(table, DIALECT, change, rows.len())));
        let query = query.bind(json::own_updates(table, rows));
        let mut query = match new_word(table, change)? {
            Word::Text(text) => query.bind(Untyped(text.clone())),
            Word::Integer(number) => query.bind(*number),
        };
        for word in table.words(change.from) {
            query = query.bind(word.to_string());
        }
        Ok(within(ANSWER, "update your orders", query.execute(self)).await?.rows_affected())
    }

    async fn waiting(&mut self, merchant: &Merchant, after: &str, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = waiting!("", "$1", "$2", "$3");
        let query = sqlx::query(SQL).bind(merchant.as_str().to_owned()).bind(after.to_owned()).bind(limit);
        fetch(self, "look for waiting numbers", query).await?.iter().map(rows::number).collect()
    }

    async fn own_schema(&mut self, table: &OwnTable) -> Result<OwnSchema, Error> {
        const TABLE: &str = "SELECT to_regclass($1)::oid::bigint";
        const COLUMNS: &str = "\
            SELECT a.attname::text, format_type(a.atttypid, NULL),
                   CASE WHEN t.typname = 'citext' THEN 'citext'
                        WHEN NOT coalesce(c.collisdeterministic, true) THEN c.collname::text END,
                   CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod::bigint - 4 END,
                   (SELECT string_agg(e.enumlabel::text, E'\\n' ORDER BY e.enumsortorder)
                    FROM pg_enum AS e WHERE e.enumtypid = a.atttypid)
            FROM pg_attribute AS a
            JOIN pg_type AS t ON t.oid = a.atttypid
            LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
            WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        const UNIQUE: &str = "\
            SELECT count(*) FROM pg_index AS i
            JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1
              AND a.attname = $2";
        const UNLOGGED: &str = "SELECT relpersistence::text FROM pg_class WHERE oid = $1::oid";
        let what = "look at your table";
        let mut name = String::new();
        if let Some(schema) = &table.table.schema {
            name.push_str(&format!("\"{}\".", schema.as_str()));
        }
        name.push_str(&format!("\"{}\"", table.table.table.as_str()));
        let found = fetch(self, what, sqlx::query(TABLE).bind(name)).await?;
        let Some(oid) = found.first().map(|row| row.optional_int(0)).transpose()?.flatten() else {
            return Ok(OwnSchema::default());
        };
        let columns = fetch(self, what, sqlx::query(COLUMNS).bind(oid)).await?;
        let columns = columns.iter().map(|row| {
            let words = row.optional_text(4)?.unwrap_or_default();
            Ok(OwnColumn {
                name: row.text(0)?,
                kind: row.text(1)?,
                folds: row.optional_text(2)?,
                length: row.optional_int(3)?,
                words: words.lines().map(str::to_owned).collect(),
            })
        });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let unique = sqlx::query(UNIQUE).bind(oid).bind(table.order_no.as_str().to_owned());
        let unique = fetch(self, what, unique).await?;
        let persistence = fetch(self, what, sqlx::query(UNLOGGED).bind(oid)).await?;
        let persistence = persistence.first().map(|row| row.text(0)).transpose()?;
        let found = match columns.iter().any(|column| column.name == table.status.as_str()) {
            true => fetch(self, what, sqlx::query(AssertSqlSafe(statuses(table, DIALECT)))).await?,
            false => Vec::new(),
        };
        Ok(OwnSchema {
            columns,
            is_unique: unique.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) > 0,
            not_transactional: persistence.filter(|word| word == "u").map(|_| "UNLOGGED".to_owned()),
            statuses: found.iter().map(rows::own_status).collect::<Result<_, _>>()?,
            statements: statements(table, DIALECT),
        })
    }
}
