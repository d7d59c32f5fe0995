//! The naive handler on SQLite: right, and what most people would write.

use std::time::Duration;

use payonce::{notice::Notice, time::Micros};
use sqlx::{
    Row as _, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{Connection, POOL, amount, key, payload, say_durable, trade_no};
use crate::Outcome;

pub(super) async fn pool(path: &str) -> Outcome<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(POOL).min_connections(POOL).connect_with(options).await?;
    say_durable(Connection::Sqlite(pool.acquire().await?.detach())).await?;
    Ok(pool)
}

/// What the order says before anything is done: `None` if there is none, or its amount is another.
async fn status_of(pool: &SqlitePool, notice: &Notice) -> Result<Option<String>, sqlx::Error> {
    let row = sqlx::query("SELECT status, amount FROM t_order WHERE order_no = ?1")
        .bind(notice.out_trade_no.as_str())
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    if row.try_get::<i64, _>(1)? == amount(notice) { row.try_get(0).map(Some) } else { Ok(None) }
}

/// Looks, then five statements in one transaction.
pub(super) async fn book(pool: &SqlitePool, notice: &Notice) -> Result<bool, sqlx::Error> {
    match status_of(pool, notice).await?.as_deref() {
        None => return Ok(false),
        Some("PAID") => return Ok(true),
        Some(_) => {}
    }
    let (order_no, trade_no, now) = (notice.out_trade_no.as_str(), trade_no(notice), Micros::now().0);
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let claimed = sqlx::query("INSERT INTO t_idempotency VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(key(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    if claimed.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(true);
    }
    let paid = sqlx::query(
        "UPDATE t_order SET status = 'PAID', trade_no = ?2, paid_at = ?3 WHERE order_no = ?1 AND status = 'PENDING'",
    )
    .bind(order_no)
    .bind(trade_no)
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    if paid.rows_affected() != 1 {
        transaction.rollback().await?;
        return Ok(false);
    }
    sqlx::query("INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES (?1, ?2, ?3, ?4)")
        .bind(order_no)
        .bind(trade_no)
        .bind(amount(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    for effect in ["ship", "points"] {
        sqlx::query(
            "INSERT INTO t_outbox (effect, order_no, payload, state, created_at) VALUES (?1, ?2, ?3, 'ready', ?4)",
        )
        .bind(effect)
        .bind(order_no)
        .bind(payload(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(true)
}
