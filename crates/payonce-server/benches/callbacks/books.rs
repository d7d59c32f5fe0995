//! The databases: filled with orders before a run, and audited after it.
//!
//! Here: what each kind of books looks like, how orders get into it quickly, and what must be true in it
//! afterwards. Not here: what is written while callbacks come in (the gateway, or `controls`).

use std::{path::Path, sync::Arc};

use payonce::{
    ids::{Merchant, OrderKind, OrderNo, OutTradeNo, Shop},
    money::Money,
    order::{Number, OrderId},
    register::Registration,
    rules::Rules,
    store::{
        Database, Engine, Store as _,
        sqlite::{Sqlite, SqliteOptions},
    },
    time::Micros,
};
use sqlx::{
    AssertSqlSafe, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use crate::{
    Outcome,
    competitors::Effects,
    presigned::{FEN, Keys, PREFIX, order_no},
};

/// A kind of books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Books {
    /// Nothing is kept.
    None,
    /// payonce's tables in SQLite.
    Payonce,
    /// The tables that one would make by hand, in SQLite.
    Plain,
    /// The same, used without a unique key.
    Look,
}

/// What was sent to one process, and how it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Facts that were acknowledged at least once.
    pub(crate) facts: u64,
    /// Acknowledgements beyond the first of each.
    pub(crate) repeats: u64,
    /// Requests of which nothing is known: failed, or without an answer.
    pub(crate) unknown: u64,
}

/// The tables by hand; what a shop has, and an outbox.
const PLAIN: &str = "
    CREATE TABLE t_order (
        order_no TEXT NOT NULL PRIMARY KEY, amount INTEGER NOT NULL, status TEXT NOT NULL, trade_no TEXT,
        paid_at INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE t_idempotency (idem_key TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE t_order_flow (
        id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, trade_no TEXT NOT NULL, amount INTEGER NOT NULL,
        created_at INTEGER NOT NULL
    );
    CREATE TABLE t_outbox (
        id INTEGER PRIMARY KEY, effect TEXT NOT NULL, order_no TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL, created_at INTEGER NOT NULL
    );
";

impl Books {
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Payonce => "payonce.db",
            Self::Plain | Self::Look => "plain.db",
        }
    }

    /// Makes the database with so many orders that wait to be paid; what it says about its durability.
    pub(crate) async fn prepare(self, path: &Path, orders: usize, keys: &Keys) -> Outcome<Option<String>> {
        match self {
            Self::None => Ok(None),
            Self::Payonce => prepare_payonce(path, orders, keys).await.map(Some),
            // The pool of the naive handler reads its own settings.
            Self::Plain | Self::Look => prepare_plain(path, orders).await.map(|()| None),
        }
    }

    /// Effects that are due and not delivered yet, and those that are done.
    pub(crate) async fn effects(self, path: &Path) -> Outcome<(i64, i64)> {
        let mut connection = open(path).await?;
        let open = number(&mut connection, "SELECT count(*) FROM payonce_effect WHERE done_at IS NULL").await?;
        let all = number(&mut connection, "SELECT count(*) FROM payonce_effect").await?;
        Ok((open, all - open))
    }

    /// What must be true after a run: booked once whatever was acknowledged, and nothing else. Double
    /// shipments, where they are possible.
    pub(crate) async fn audit(self, path: &Path, sent: Sent, effects: Effects) -> Outcome<Option<i64>> {
        let mut connection = match self {
            Self::None => return Ok(None),
            _ => open(path).await?,
        };
        let mut count = async |sql: &'static str| number(&mut connection, sql).await;
        match self {
            Self::None => Ok(None),
            Self::Payonce => {
                let facts = count("SELECT count(*) FROM payonce_idempotency").await?;
                check_facts(facts, sent)?;
                equal("flow rows", count("SELECT count(*) FROM payonce_order_flow").await?, facts)?;
                equal("evidence", count("SELECT count(*) FROM payonce_callback").await?, facts)?;
                equal("paid orders", count("SELECT count(*) FROM payonce_order WHERE status = 'PAID'").await?, facts)?;
                equal("held notices", count("SELECT count(*) FROM payonce_quarantine").await?, 0)?;
                let owed = if effects == Effects::None { 0 } else { 2 * facts };
                equal("effects", count("SELECT count(*) FROM payonce_effect").await?, owed)?;
                let done = if effects == Effects::Delivered { owed } else { 0 };
                equal("effects done", count("SELECT count(*) FROM payonce_effect WHERE state = 'done'").await?, done)?;
                if sent.unknown == 0 {
                    let repeats = count("SELECT coalesce(sum(repeats), 0) FROM payonce_idempotency").await?;
                    equal("repeats counted", repeats, i64::try_from(sent.repeats)?)?;
                }
                Ok(None)
            }
            Self::Plain => {
                let facts = count("SELECT count(*) FROM t_idempotency").await?;
                check_facts(facts, sent)?;
                equal("flow rows", count("SELECT count(*) FROM t_order_flow").await?, facts)?;
                equal("outbox rows", count("SELECT count(*) FROM t_outbox").await?, 2 * facts)?;
                equal("paid orders", count("SELECT count(*) FROM t_order WHERE status = 'PAID'").await?, facts)?;
                Ok(None)
            }
            Self::Look => {
                check_facts(count("SELECT count(*) FROM t_order WHERE status = 'PAID'").await?, sent)?;
                let shipped = "SELECT count(*) - count(DISTINCT order_no) FROM t_outbox WHERE effect = 'ship'";
                Ok(Some(count(shipped).await?))
            }
        }
    }
}

fn check_facts(booked: i64, sent: Sent) -> Outcome<()> {
    let (least, most) = (i64::try_from(sent.facts)?, i64::try_from(sent.facts + sent.unknown)?);
    if (least..=most).contains(&booked) {
        return Ok(());
    }
    Err(format!("{booked} facts are booked; {least} were acknowledged, and {} are unknown", sent.unknown).into())
}

fn equal(what: &str, have: i64, want: i64) -> Outcome<()> {
    if have == want { Ok(()) } else { Err(format!("{what}: {have} instead of {want}").into()) }
}

async fn open(path: &Path) -> Outcome<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(std::time::Duration::from_secs(30));
    Ok(SqliteConnection::connect_with(&options).await?)
}

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Outcome<i64> {
    Ok(sqlx::query(sql).fetch_one(connection).await?.try_get(0)?)
}

/// One order through the front door; the others are copies of its rows, whatever columns those have.
async fn prepare_payonce(path: &Path, orders: usize, keys: &Keys) -> Outcome<String> {
    let options = SqliteOptions { path: path.to_owned() };
    Database::<Sqlite>::migrate(&options).await?;
    let database = Database::<Sqlite>::open(options.clone(), Arc::new(Rules::default())).await?;
    let number = Number { merchant: Merchant::of("WXPAY", &keys.mchid)?, out_trade_no: OutTradeNo::new(order_no(0))? };
    let registration = Registration {
        id: OrderId { shop: Shop::default_shop(), order_no: OrderNo::new(order_no(0))? },
        kind: OrderKind::new("goods")?,
        money: Money::cny(FEN)?,
        attempts: [(number, FEN)].into(),
        meta: r#"{"sku":"S1"}"#.to_owned(),
        now: Micros::now(),
    };
    database.register(&registration).await?.map_err(|refused| refused.to_string())?;
    drop(database);
    // Through the gateway's own way of connecting, so that these are its settings.
    let mut connection = <SqliteConnection as Engine>::connect(&options).await?;
    for table in ["payonce_order", "payonce_attempt"] {
        copy_rows(&mut connection, table, orders).await?;
    }
    let settings = settings(&mut connection).await?;
    fold(connection).await?;
    Ok(settings)
}

async fn copy_rows(connection: &mut SqliteConnection, table: &str, orders: usize) -> Outcome<()> {
    let columns = sqlx::query("SELECT name FROM pragma_table_info(?1)").bind(table.to_owned());
    let columns = columns.fetch_all(&mut *connection).await?;
    let columns = columns.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    let value = |column: &String| match column.as_str() {
        "order_no" | "out_trade_no" => format!("'{PREFIX}' || printf('%08d', n.i)"),
        other => format!("t.{other}"),
    };
    let (names, values) = (columns.join(", "), columns.iter().map(value).collect::<Vec<_>>().join(", "));
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {orders})
         INSERT INTO {table} ({names}) SELECT {values} FROM n CROSS JOIN (SELECT * FROM {table} LIMIT 1) AS t"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

async fn prepare_plain(path: &Path, orders: usize) -> Outcome<()> {
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql(PLAIN).execute(&mut connection).await?;
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {orders})
         INSERT INTO t_order SELECT '{PREFIX}' || printf('%08d', i), {FEN}, 'PENDING', NULL, NULL FROM n"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
    fold(connection).await
}

/// What a connection says about its durability.
pub(crate) async fn settings(connection: &mut SqliteConnection) -> Outcome<String> {
    let mut said = Vec::new();
    for (name, sql) in [
        ("SQLite", "SELECT sqlite_version()"),
        ("journal_mode", "PRAGMA journal_mode"),
        ("synchronous", "PRAGMA synchronous"),
        ("wal_autocheckpoint", "PRAGMA wal_autocheckpoint"),
    ] {
        let row = sqlx::query(sql).fetch_one(&mut *connection).await?;
        let value =
            row.try_get_unchecked::<String, _>(0).or_else(|_| row.try_get::<i64, _>(0).map(|n| n.to_string()))?;
        said.push(format!("{name} {value}"));
    }
    Ok(said.join(", "))
}

/// Everything into the one file, which can be copied then.
async fn fold(mut connection: SqliteConnection) -> Outcome<()> {
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(())
}
