//! A past: paid orders and booked facts that are in the gateway's tables before a measurement begins.
//!
//! Here: one order is registered, paid and delivered by the real gateway, and its rows are copied by SQL within the
//! engine, with other numbers. Not here: what is measured on top (`growth`).

use std::{path::Path, sync::Arc, time::Duration};

use payonce_sim::load::{self, Source};

use crate::{
    Outcome,
    books::{self, Books},
    competitors::Effects,
    engines::{Connection, Database, Engine},
    presigned::{Keys, order_no, trade_no},
};

/// What numbers of the past begin with: a year before those that are paid in the measurement.
const ORDERS: &str = "PO20250102030405";
const TRADES: &str = "42000020250102";
const CALLBACKS: &str = "0194241b-7000-7000-8000-";

/// So many in one transaction.
const CHUNK: usize = 100_000;

/// From so many on, the evidence has neither headers nor bodies: they are most of the bytes.
const WITHOUT_BODIES: usize = 2_000_000;

/// Each of the gateway's tables, and how the rows of one order are found in it.
const TABLES: [(&str, &str); 5] = [
    ("payonce_order", "order_no"),
    ("payonce_attempt", "out_trade_no"),
    ("payonce_idempotency", "order_no"),
    ("payonce_order_flow", "out_trade_no"),
    ("payonce_effect", "order_no"),
];

/// Makes the gateway's tables with so many facts of the past, of which the first is that of `callback`, and with so
/// many orders that wait, whose numbers begin at 1.
pub(crate) async fn prepare(
    database: &Database,
    facts: usize,
    orders: usize,
    callback: &[u8],
    folder: &Path,
    keys: &Keys,
) -> Outcome<()> {
    books::migrate(database, folder, keys).await?;
    let gateway = books::start_gateway(database, Effects::Delivered, folder, keys)?;
    for index in [0, 1] {
        books::register(&gateway, &order_no(index)).await?;
    }
    let source = Source::Unique { requests: Arc::new(vec![callback.to_vec()]), from: 0 };
    let answered = load::run(gateway.callbacks, &source, 1, Duration::from_secs(10))?;
    if answered.by_status.get(&204) != Some(&1) {
        return Err(format!("the first callback was answered with {:?}", answered.by_status).into());
    }
    let mut connection = database.open().await?;
    while Books::Payonce.open_effects(&mut connection).await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gateway.stop()?;
    fill(&mut connection, facts).await?;
    connection.close().await?;
    // The past first, as it is in life: the orders that wait are the youngest.
    books::pend(database, 1, 2..orders).await?;
    books::settle(database).await
}

async fn fill(connection: &mut Connection, facts: usize) -> Outcome<()> {
    match connection.engine() {
        // Of this session alone: it measures nothing.
        Engine::Sqlite => connection.run("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144").await?,
        Engine::Postgres => connection.run("SET synchronous_commit = off").await?,
        Engine::Mariadb => {}
    }
    let callback = connection.texts("SELECT id FROM payonce_callback", 0).await?;
    let callback = callback.first().ok_or("no evidence was written")?;
    let tables = TABLES.map(|(table, column)| (table, format!("{column} = '{}'", order_no(0))));
    let evidence = ("payonce_callback", format!("id = '{callback}'"));
    // The first fact is that of the gateway.
    for from in (1..facts).step_by(CHUNK) {
        let to = facts.min(from + CHUNK);
        for (table, is_model) in tables.iter().chain([&evidence]) {
            let columns = books::columns(connection, table).await?;
            let sql = insert(connection.engine(), table, is_model, &columns, facts >= WITHOUT_BODIES, from, to);
            connection.run(&sql).await.map_err(|error| format!("{table}: {error}"))?;
        }
    }
    Ok(())
}

fn insert(
    engine: Engine,
    table: &str,
    is_model: &str,
    columns: &[String],
    is_bare: bool,
    from: usize,
    to: usize,
) -> String {
    let (orders, trades) = (engine.numbered(ORDERS, "n.i", 8), engine.numbered(TRADES, "n.i", 14));
    let callbacks = engine.numbered(CALLBACKS, "n.i", 12);
    let (order_no, trade_no) = (order_no(0), trade_no(0));
    let value = |column: &String| match column.as_str() {
        "order_no" | "out_trade_no" => orders.clone(),
        "trade_no" => trades.clone(),
        // Texts that name the order or its payment somewhere within.
        "idem_key" | "effect_key" | "after" | "payload" => {
            format!("replace(replace(t.{column}, '{order_no}', {orders}), '{trade_no}', {trades})")
        }
        "id" | "callback_id" => callbacks.clone(),
        "headers" | "body" if is_bare => "''".to_owned(),
        other => format!("t.{other}"),
    };
    let values = columns.iter().map(value).collect::<Vec<_>>().join(", ");
    let (names, series) = (columns.join(", "), engine.series(from, to));
    format!(
        "INSERT INTO {table} ({names}) SELECT {values}
         FROM {series} AS n CROSS JOIN (SELECT * FROM {table} WHERE {is_model}) AS t"
    )
}
