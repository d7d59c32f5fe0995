//! What the database says, read by a connection of the user's own; and the user's table, `stock`.
//!
//! Here: all SQL of the demo but the race's. payonce's tables are only read. Not here: what must be (`report`).

use std::{collections::BTreeMap, path::Path, time::Duration};

use payonce_sim::auditor::{self, EffectRow, EffectState, FlowRow, Kind, OrderRow};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use super::Result;

/// The effect `stock`: one piece less.
pub(super) const TAKE_STOCK: &str = "UPDATE stock SET n = n - 1 WHERE sku = :meta.sku";

/// Pieces of everything before anything is sold.
const PIECES: i64 = 1000;

/// Each order buys a thing of its own, so that what was taken can be told apart.
pub(super) fn sku(order_no: &str) -> String {
    format!("sku-{order_no}")
}

/// Makes the user's table in the gateway's database, with a row for each order that will be.
pub(crate) async fn make_stock(path: &Path) -> Result<()> {
    let mut connection = SqliteConnection::connect_with(&options(path)).await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER NOT NULL)").execute(&mut *transaction).await?;
    for order_no in super::play::order_numbers() {
        let insert = sqlx::query("INSERT INTO stock (sku, n) VALUES (?, ?)").bind(sku(&order_no)).bind(PIECES);
        insert.execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    connection.close().await?;
    Ok(())
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5))
}

/// What is counted about one order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) idempotency_rows: i64,
    pub(super) repeats_counted: i64,
    pub(super) flow_rows: i64,
    pub(super) status: String,
    pub(super) stock_taken: i64,
    /// Keys of the effects that go to the webhook.
    pub(super) webhook_keys: Vec<String>,
}

/// A connection that only reads.
pub(super) struct Books(SqliteConnection);

impl Books {
    pub(super) async fn open(path: &Path) -> Result<Self> {
        Ok(Self(SqliteConnection::connect_with(&options(path).read_only(true)).await?))
    }

    async fn number(&mut self, sql: &'static str, of: &str) -> Result<i64> {
        Ok(sqlx::query(sql).bind(of).fetch_one(&mut self.0).await?.try_get(0)?)
    }

    pub(super) async fn tally(&mut self, order_no: &str) -> Result<Tally> {
        const KEYS: &str = "SELECT count(*) FROM payonce_idempotency WHERE order_no = ?";
        const REPEATS: &str = "SELECT coalesce(sum(repeats), 0) FROM payonce_idempotency WHERE order_no = ?";
        const FLOW: &str = "SELECT count(*) FROM payonce_order_flow WHERE order_no = ?";
        const LEFT: &str = "SELECT n FROM stock WHERE sku = ?";
        const STATUS: &str = "SELECT status FROM payonce_order WHERE order_no = ?";
        const WEBHOOKS: &str = "SELECT effect_key FROM payonce_effect WHERE order_no = ? AND sink = 'shop'";
        let status = sqlx::query_scalar(STATUS).bind(order_no).fetch_optional(&mut self.0).await?;
        Ok(Tally {
            idempotency_rows: self.number(KEYS, order_no).await?,
            repeats_counted: self.number(REPEATS, order_no).await?,
            flow_rows: self.number(FLOW, order_no).await?,
            status: status.unwrap_or_else(|| "-".to_owned()),
            stock_taken: PIECES - self.number(LEFT, &sku(order_no)).await?,
            webhook_keys: sqlx::query_scalar(WEBHOOKS).bind(order_no).fetch_all(&mut self.0).await?,
        })
    }

    /// Effects that are not done.
    pub(super) async fn effects_open(&mut self) -> Result<i64> {
        self.number("SELECT count(*) FROM payonce_effect WHERE state <> ?", "done").await
    }

    /// Effects that go to the webhook.
    pub(super) async fn webhooks_owed(&mut self) -> Result<i64> {
        self.number("SELECT count(*) FROM payonce_effect WHERE sink = ?", "shop").await
    }

    /// Everything, as the auditor wants it; with what the user's service received.
    pub(super) async fn whole(&mut self, received: BTreeMap<String, Vec<Vec<u8>>>) -> Result<auditor::Books> {
        const ORDERS: &str = "SELECT order_no, amount, paid, refunded, unapplied, paid_at IS NOT NULL \
                              FROM payonce_order";
        const FLOW: &str = "SELECT idem_key, kind, order_no, amount FROM payonce_order_flow";
        const HELD: &str = "SELECT idem_key FROM payonce_quarantine WHERE state = 'held'";
        const EFFECTS: &str = "SELECT effect_key, order_no, name, state, sink FROM payonce_effect";
        let mut books = auditor::Books {
            quarantine: sqlx::query_scalar(HELD).fetch_all(&mut self.0).await?,
            received,
            owed_when_paid: ["stock", "ship", "points"].map(str::to_owned).into(),
            delivered_all: true,
            ..auditor::Books::default()
        };
        for row in sqlx::query(ORDERS).fetch_all(&mut self.0).await? {
            books.orders.push(OrderRow {
                order_no: row.try_get(0)?,
                amount: row.try_get(1)?,
                paid: row.try_get(2)?,
                refunded: row.try_get(3)?,
                unapplied: row.try_get(4)?,
                was_paid: row.try_get(5)?,
            });
        }
        for row in sqlx::query(FLOW).fetch_all(&mut self.0).await? {
            let kind = if row.try_get::<&str, _>(1)? == "refund" { Kind::Refund } else { Kind::Payment };
            let (key, order_no, amount) = (row.try_get(0)?, row.try_get(2)?, row.try_get(3)?);
            books.flow.push(FlowRow { key, kind, order_no, amount });
        }
        for row in sqlx::query(EFFECTS).fetch_all(&mut self.0).await? {
            let state = match row.try_get(3)? {
                "done" => EffectState::Done,
                "dead" | "cancelled" => EffectState::Ended,
                _ => EffectState::Open,
            };
            let to_receiver = row.try_get::<&str, _>(4)? == "shop";
            let (key, order_no, name) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            books.effects.push(EffectRow { key, order_no, name, state, to_receiver });
        }
        Ok(books)
    }
}
