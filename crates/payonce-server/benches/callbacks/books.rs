//! The books: filled with orders before a run, and audited after it.
//!
//! Here: what each kind of books looks like on each engine, how orders get into it quickly, and what must be true in
//! it afterwards. Not here: what is written while callbacks come in (the gateway, `controls`, `benches/foreign`), and
//! where databases come from (`servers`).

use std::{collections::HashSet, fs, ops::Range, path::Path};

use payonce::store::sqlite::SqliteOptions;
use sqlx::SqliteConnection;

use crate::{
    Outcome,
    child::Running,
    competitors::{self, Effects, TOKEN},
    engines::{Connection, Database, Engine},
    presigned::{ACCOUNT, FEN, Keys, PREFIX, order_no},
    servers,
};

/// A kind of books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Books {
    /// Nothing is kept.
    None,
    /// payonce's tables.
    Payonce,
    /// The tables that one would make by hand.
    Plain,
    /// The same, but effects are jobs of graphile-worker, executed into `effects.log`.
    Jobs,
    /// The tables by hand, used without their unique key.
    Look,
}

/// What was sent to one process, and how it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Facts that were in the books before.
    pub(crate) before: u64,
    /// Facts that were acknowledged at least once.
    pub(crate) facts: u64,
    /// Acknowledgements beyond the first of each.
    pub(crate) repeats: u64,
    /// Requests of which nothing is known: failed, or without an answer.
    pub(crate) unknown: u64,
}

/// What the books hold after a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Audit {
    /// Booked facts.
    pub(crate) facts: i64,
    /// Effects owed for them, each counted once.
    pub(crate) effects: i64,
    /// Shipments beyond the first of an order, where they are possible.
    pub(crate) double_shipments: Option<i64>,
}

/// What a shop has, and an outbox. Texts of keys, and the column that numbers itself, are the engine's.
fn plain(engine: Engine) -> String {
    let (key, text, id, end) = match engine {
        Engine::Sqlite => ("TEXT", "TEXT", "INTEGER PRIMARY KEY", ""),
        Engine::Postgres => ("text", "text", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", ""),
        Engine::Mariadb => (
            "VARCHAR(96)",
            "TEXT",
            "BIGINT AUTO_INCREMENT PRIMARY KEY",
            " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        ),
    };
    let keyed = if engine == Engine::Sqlite { " WITHOUT ROWID" } else { end };
    format!(
        "CREATE TABLE t_order (
            order_no {key} NOT NULL PRIMARY KEY, amount BIGINT NOT NULL, status {key} NOT NULL, trade_no {key},
            paid_at BIGINT
        ){keyed};
        CREATE TABLE t_idempotency (idem_key {key} NOT NULL PRIMARY KEY, created_at BIGINT NOT NULL){keyed};
        CREATE TABLE t_order_flow (
            id {id}, order_no {key} NOT NULL, trade_no {key} NOT NULL, amount BIGINT NOT NULL,
            created_at BIGINT NOT NULL
        ){end};
        CREATE TABLE t_outbox (
            id {id}, effect {key} NOT NULL, order_no {key} NOT NULL, payload {text} NOT NULL, state {key} NOT NULL,
            created_at BIGINT NOT NULL
        ){end};"
    )
}

impl Books {
    /// Whose tables they are: what a copy is taken of.
    pub(crate) const fn tables(self) -> Self {
        match self {
            Self::None | Self::Payonce => self,
            Self::Plain | Self::Jobs | Self::Look => Self::Plain,
        }
    }

    /// Makes the tables in an empty database, with so many orders that wait to be paid.
    pub(crate) async fn prepare(self, database: &Database, orders: usize, folder: &Path, keys: &Keys) -> Outcome<()> {
        match self.tables() {
            Self::Payonce => prepare_payonce(database, orders, folder, keys).await?,
            Self::Plain => prepare_plain(database, orders).await?,
            _ => return Ok(()),
        }
        settle(database).await
    }

    /// What the settings are that decide about durability, where the competitor does not say so itself.
    pub(crate) async fn settings(self, database: &Database) -> Outcome<Option<String>> {
        if self != Self::Payonce {
            return Ok(None);
        }
        let mut connection = match database.engine {
            Engine::Sqlite => gateway_session(database).await?,
            Engine::Postgres | Engine::Mariadb => database.open().await?,
        };
        let said = connection.settings().await?;
        connection.close().await?;
        Ok(Some(said))
    }

    /// Effects that are owed and not delivered yet.
    pub(crate) async fn open_effects(self, connection: &mut Connection) -> Outcome<i64> {
        match self {
            Self::Jobs => connection.number("SELECT count(*) FROM graphile_worker._private_jobs").await,
            // Both conditions, so that every engine has an index for it.
            _ => {
                let open = "SELECT count(*) FROM payonce_effect \
                            WHERE done_at IS NULL AND state IN ('ready', 'leased')";
                connection.number(open).await
            }
        }
    }

    /// Effects that are delivered.
    pub(crate) async fn done_effects(self, connection: &mut Connection, folder: &Path) -> Outcome<i64> {
        match self {
            Self::Jobs => Ok(i64::try_from(executed(folder).0)?),
            _ => connection.number("SELECT count(*) FROM payonce_effect WHERE state = 'done'").await,
        }
    }

    /// What must be true after a run: booked once whatever was acknowledged, and nothing else; as many effects as
    /// the facts owe.
    pub(crate) async fn audit(
        self,
        database: &Database,
        folder: &Path,
        sent: Sent,
        effects: Effects,
    ) -> Outcome<Audit> {
        if self == Self::None {
            return Ok(Audit::default());
        }
        let mut connection = database.open().await?;
        let done = match self {
            Self::Payonce => audit_payonce(&mut connection, sent, effects).await,
            Self::Plain | Self::Jobs => audit_plain(&mut connection, sent, self, folder).await,
            Self::Look | Self::None => audit_look(&mut connection, sent).await,
        };
        connection.close().await?;
        done
    }
}

async fn audit_payonce(connection: &mut Connection, sent: Sent, effects: Effects) -> Outcome<Audit> {
    let facts = connection.number("SELECT count(*) FROM payonce_idempotency").await?;
    check_facts(facts, sent)?;
    let owed = if effects == Effects::None { 0 } else { 2 * facts };
    let done = if effects == Effects::Delivered { owed } else { 0 };
    for (what, query, want) in [
        ("flow rows", "SELECT count(*) FROM payonce_order_flow", facts),
        ("evidence", "SELECT count(*) FROM payonce_callback", facts),
        ("paid orders", "SELECT count(*) FROM payonce_order WHERE status = 'PAID'", facts),
        ("held notices", "SELECT count(*) FROM payonce_quarantine", 0),
        ("effects", "SELECT count(*) FROM payonce_effect", owed),
        ("effects done", "SELECT count(*) FROM payonce_effect WHERE state = 'done'", done),
    ] {
        equal(what, connection.number(query).await?, want)?;
    }
    if sent.unknown == 0 {
        let repeats = connection.number("SELECT coalesce(sum(repeats), 0) FROM payonce_idempotency").await?;
        equal("repeats counted", repeats, i64::try_from(sent.repeats)?)?;
    }
    Ok(Audit { facts, effects: owed, double_shipments: None })
}

async fn audit_plain(connection: &mut Connection, sent: Sent, books: Books, folder: &Path) -> Outcome<Audit> {
    let facts = connection.number("SELECT count(*) FROM t_idempotency").await?;
    check_facts(facts, sent)?;
    let stored = if books == Books::Jobs { 0 } else { 2 * facts };
    for (what, query, want) in [
        ("flow rows", "SELECT count(*) FROM t_order_flow", facts),
        ("outbox rows", "SELECT count(*) FROM t_outbox", stored),
        ("paid orders", "SELECT count(*) FROM t_order WHERE status = 'PAID'", facts),
    ] {
        equal(what, connection.number(query).await?, want)?;
    }
    if books == Books::Jobs {
        equal("jobs left", books.open_effects(connection).await?, 0)?;
        let (lines, distinct) = executed(folder);
        equal("effects executed", i64::try_from(lines)?, 2 * facts)?;
        equal("distinct effects executed", i64::try_from(distinct)?, 2 * facts)?;
    }
    Ok(Audit { facts, effects: 2 * facts, double_shipments: None })
}

/// Only what can be said of wrong books: which orders are paid, and how often goods left too often.
async fn audit_look(connection: &mut Connection, sent: Sent) -> Outcome<Audit> {
    let facts = connection.number("SELECT count(*) FROM t_order WHERE status = 'PAID'").await?;
    check_facts(facts, sent)?;
    let doubles = "SELECT count(*) - count(DISTINCT order_no) FROM t_outbox WHERE effect = 'ship'";
    let double_shipments = Some(connection.number(doubles).await?);
    let effects = connection.number("SELECT count(*) FROM t_outbox").await?;
    Ok(Audit { facts, effects, double_shipments })
}

/// Lines that the second process of `node-graphile-worker` wrote, and how many of them differ.
fn executed(folder: &Path) -> (usize, usize) {
    let text = fs::read_to_string(folder.join("effects.log")).unwrap_or_default();
    (text.lines().count(), text.lines().collect::<HashSet<_>>().len())
}

fn check_facts(booked: i64, sent: Sent) -> Outcome<()> {
    let least = i64::try_from(sent.before + sent.facts)?;
    let most = i64::try_from(sent.before + sent.facts + sent.unknown)?;
    if (least..=most).contains(&booked) {
        return Ok(());
    }
    Err(format!("{booked} facts are booked; {least} were acknowledged, and {} are unknown", sent.unknown).into())
}

fn equal(what: &str, have: i64, want: i64) -> Outcome<()> {
    if have == want { Ok(()) } else { Err(format!("{what}: {have} instead of {want}").into()) }
}

/// A session of the gateway's own making, so that its settings are what the gateway has. The only place where the
/// benchmark knows the store's types.
async fn gateway_session(database: &Database) -> Outcome<Connection> {
    let options = SqliteOptions { path: database.address.clone().into() };
    Ok(Connection::Sqlite(<SqliteConnection as payonce::store::Engine>::connect(&options).await?))
}

/// One order through the front door of the real gateway; the others are copies of its rows, whatever columns those
/// have.
async fn prepare_payonce(database: &Database, orders: usize, folder: &Path, keys: &Keys) -> Outcome<()> {
    migrate(database, folder, keys).await?;
    let running = start_gateway(database, Effects::None, folder, keys)?;
    register(&running, &order_no(0)).await?;
    running.stop()?;
    pend(database, 0, 1..orders).await
}

/// Makes the gateway's tables.
pub(crate) async fn migrate(database: &Database, folder: &Path, keys: &Keys) -> Outcome<()> {
    let migrated = competitors::gateway(database, Effects::None, "warn", folder, keys, "migrate")?.output()?;
    if migrated.status.success() {
        return Ok(());
    }
    Err(format!("payonce migrate: {}", String::from_utf8_lossy(&migrated.stderr)).into())
}

pub(crate) fn start_gateway(database: &Database, effects: Effects, folder: &Path, keys: &Keys) -> Outcome<Running> {
    let serve = competitors::gateway(database, effects, "warn", folder, keys, "serve")?;
    Running::start(serve, &folder.join("log"), true)
}

/// An order that waits to be paid.
pub(crate) async fn register(gateway: &Running, number: &str) -> Outcome<()> {
    let admin = gateway.admin.ok_or("the gateway has no admin address")?;
    let order = serde_json::json!({
        "order_no": number,
        "amount": FEN,
        "meta": { "sku": "S1" },
        "attempts": [{ "account": ACCOUNT, "out_trade_no": number }],
    });
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.post(format!("http://{admin}/api/orders")).bearer_auth(TOKEN).json(&order).send().await?;
    if answer.status().is_success() {
        return Ok(());
    }
    Err(format!("registering an order: {}", answer.text().await?).into())
}

/// More orders like one that waits to be paid.
pub(crate) async fn pend(database: &Database, like: usize, numbers: Range<usize>) -> Outcome<()> {
    let like = order_no(like);
    let mut connection = database.open().await?;
    for (table, column) in [("payonce_order", "order_no"), ("payonce_attempt", "out_trade_no")] {
        let model = format!("SELECT * FROM {table} WHERE {column} = '{like}'");
        copy_rows(&mut connection, table, &model, numbers.clone()).await?;
    }
    connection.close().await
}

async fn copy_rows(connection: &mut Connection, table: &str, model: &str, numbers: Range<usize>) -> Outcome<()> {
    let engine = connection.engine();
    let columns = columns(connection, table).await?;
    let number = engine.numbered(PREFIX, "n.i", 8);
    let value = |column: &String| match column.as_str() {
        "order_no" | "out_trade_no" => number.clone(),
        other => format!("t.{other}"),
    };
    let (names, values) = (columns.join(", "), columns.iter().map(value).collect::<Vec<_>>().join(", "));
    let series = engine.series(numbers.start, numbers.end);
    let sql = format!("INSERT INTO {table} ({names}) SELECT {values} FROM {series} AS n CROSS JOIN ({model}) AS t");
    connection.run(&sql).await
}

/// Names of a table's columns, in their order.
pub(crate) async fn columns(connection: &mut Connection, table: &str) -> Outcome<Vec<String>> {
    let query = match connection.engine() {
        Engine::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
        Engine::Postgres => format!(
            "SELECT column_name::text FROM information_schema.columns
             WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position"
        ),
        Engine::Mariadb => format!("SHOW COLUMNS FROM {table}"),
    };
    connection.texts(&query, 0).await
}

/// After it was filled and before anybody measures.
pub(crate) async fn settle(database: &Database) -> Outcome<()> {
    let mut connection = database.open().await?;
    let tables = tables(&mut connection).await?;
    servers::settle(&mut connection, &tables).await?;
    connection.close().await
}

async fn tables(connection: &mut Connection) -> Outcome<Vec<String>> {
    match connection.engine() {
        Engine::Mariadb => connection.texts("SHOW TABLES", 0).await,
        Engine::Sqlite | Engine::Postgres => Ok(Vec::new()),
    }
}

async fn prepare_plain(database: &Database, orders: usize) -> Outcome<()> {
    let mut connection = database.open().await?;
    connection.run(&plain(database.engine)).await?;
    let number = database.engine.numbered(PREFIX, "n.i", 8);
    let series = database.engine.series(0, orders);
    let sql = format!("INSERT INTO t_order SELECT {number}, {FEN}, 'PENDING', NULL, NULL FROM {series} AS n");
    connection.run(&sql).await?;
    connection.close().await
}
