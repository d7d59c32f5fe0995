//! The naive handler on SQLite: right, and what most people would write.

use std::time::Duration;

use payonce::{notice::Notice, time::Micros};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{Connection, POOL, Seen, amount, at_once, key, payload, say_durable, trade_no};
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

async fn seen(pool: &SqlitePool, notice: &Notice) -> Result<Seen, sqlx::Error> {
    let look = sqlx::query_as("SELECT status, amount FROM t_order WHERE order_no = ?1");
    look.bind(notice.out_trade_no.as_str()).fetch_optional(pool).await
}

/// Looks, then five statements in one transaction.
pub(super) async fn book(pool: &SqlitePool, notice: &Notice) -> Result<bool, sqlx::Error> {
    if let Some(answer) = at_once(&seen(pool, notice).await?, notice) {
        return Ok(answer);
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
