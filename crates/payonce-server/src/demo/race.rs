//! The race that payonce is there to end, rerun on this machine without payonce.
//!
//! Here: the two ways in which a handler can ask "is it paid already?", each on connections of their own, all
//! released at one barrier, and the shipments counted. Not here: anything of the gateway.
//!
//! How it is done: a small SQLite file with one row per order; each callback has a connection and a task of its own.
//! "Look, then update" reads the status and, if it is PENDING, writes PAID and a shipment in one transaction.
//! "Conditional" writes first, `… WHERE id = ? AND status = 'PENDING'`, and ships only if that changed a row.
//! Nothing is slowed down and no pause is put between look and update; transactions queue for the writer, as they
//! would for a row's lock.

use std::{path::Path, sync::Arc, time::Duration};

use serde::Serialize;
use sqlx::{
    Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::{
    sync::{Barrier, Mutex},
    task::JoinSet,
};

use super::{Result, Scene, Watch};

/// Callbacks at once.
pub(super) const AT_ONCE: [usize; 4] = [2, 5, 10, 20];
/// Orders for each way and number.
pub(super) const ROUNDS: usize = 20;

/// What came of so many callbacks at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Race {
    /// Callbacks at once.
    pub(crate) at_once: usize,
    /// Orders; as many shipments are right.
    pub(crate) rounds: usize,
    /// By look-then-update.
    pub(crate) look_then_update: Shipments,
    /// By conditional UPDATE.
    pub(crate) conditional: Shipments,
}

/// Shipments counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Shipments {
    /// Of all orders.
    pub(crate) total: i64,
    /// Of the order with the most.
    pub(crate) worst: i64,
    /// Of the order with the fewest.
    pub(crate) fewest: i64,
}

#[derive(Clone, Copy)]
enum Way {
    LookThenUpdate,
    Conditional,
}

pub(super) async fn run(path: &Path, watch: &Watch<'_>) -> Result<Vec<Race>> {
    watch(Scene::Race, 0);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(10));
    let mut first = SqliteConnection::connect_with(&options).await?;
    for table in ["CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)", "CREATE TABLE shipment (id INTEGER)"] {
        sqlx::query(table).execute(&mut first).await?;
    }
    let mut connections = Vec::new();
    for _ in 0..AT_ONCE[AT_ONCE.len() - 1] {
        connections.push(Arc::new(Mutex::new(SqliteConnection::connect_with(&options).await?)));
    }
    let mut races = Vec::new();
    let mut id = 0;
    for at_once in AT_ONCE {
        let mut ways = [Shipments::default(); 2];
        for (way, shipments) in [Way::LookThenUpdate, Way::Conditional].into_iter().zip(&mut ways) {
            for round in 0..ROUNDS {
                id += 1;
                let shipped = one(&mut first, &connections[..at_once], way, id).await?;
                shipments.total += shipped;
                shipments.worst = shipments.worst.max(shipped);
                shipments.fewest = if round == 0 { shipped } else { shipments.fewest.min(shipped) };
                watch(Scene::Race, 1);
            }
        }
        let [look_then_update, conditional] = ways;
        races.push(Race { at_once, rounds: ROUNDS, look_then_update, conditional });
    }
    Ok(races)
}

/// One order, paid by as many callbacks as there are connections; how often it is shipped.
async fn one(
    first: &mut SqliteConnection,
    connections: &[Arc<Mutex<SqliteConnection>>],
    way: Way,
    id: i64,
) -> Result<i64> {
    sqlx::query("INSERT INTO orders VALUES (?, 'PENDING')").bind(id).execute(&mut *first).await?;
    let (barrier, writer) = (Arc::new(Barrier::new(connections.len())), Arc::new(Mutex::new(())));
    let mut callbacks = JoinSet::new();
    for connection in connections {
        let (connection, barrier, writer) = (Arc::clone(connection), Arc::clone(&barrier), Arc::clone(&writer));
        callbacks.spawn(async move {
            let mut connection = connection.lock().await;
            barrier.wait().await;
            match way {
                Way::LookThenUpdate => look_then_update(&mut connection, &writer, id).await,
                Way::Conditional => conditional(&mut connection, &writer, id).await,
            }
        });
    }
    while let Some(ended) = callbacks.join_next().await {
        ended??;
    }
    Ok(sqlx::query_scalar("SELECT count(*) FROM shipment WHERE id = ?").bind(id).fetch_one(first).await?)
}

async fn look_then_update(connection: &mut SqliteConnection, writer: &Mutex<()>, id: i64) -> sqlx::Result<()> {
    let status: String =
        sqlx::query_scalar("SELECT status FROM orders WHERE id = ?").bind(id).fetch_one(&mut *connection).await?;
    if status != "PENDING" {
        return Ok(());
    }
    let _queue = writer.lock().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("UPDATE orders SET status = 'PAID' WHERE id = ?").bind(id).execute(&mut *transaction).await?;
    sqlx::query("INSERT INTO shipment VALUES (?)").bind(id).execute(&mut *transaction).await?;
    transaction.commit().await
}

async fn conditional(connection: &mut SqliteConnection, writer: &Mutex<()>, id: i64) -> sqlx::Result<()> {
    const UPDATE: &str = "UPDATE orders SET status = 'PAID' WHERE id = ? AND status = 'PENDING'";
    let _queue = writer.lock().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if sqlx::query(UPDATE).bind(id).execute(&mut *transaction).await?.rows_affected() == 1 {
        sqlx::query("INSERT INTO shipment VALUES (?)").bind(id).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
