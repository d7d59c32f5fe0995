//! The handler by hand on MariaDB.

use std::str::FromStr as _;

use payonce::{notice::Notice, time::Micros};
use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, MySqlConnection, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use super::{Connection, POOL, Seen, amount, at_once, key, payload, say_durable, trade_no};
use crate::Outcome;

pub(super) async fn pool(url: &str) -> Outcome<MySqlPool> {
    let options = MySqlConnectOptions::from_str(url)?.disable_statement_logging();
    let pool = MySqlPoolOptions::new()
        .max_connections(POOL)
        .min_connections(POOL)
        // A round trip less, and without the gap locks that REPEATABLE READ would take.
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async {
                connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.map(drop)
            })
        })
        .connect_with(options)
        .await?;
    say_durable(Connection::Mariadb(pool.acquire().await?.detach())).await?;
    Ok(pool)
}

async fn seen(connection: &mut MySqlConnection, notice: &Notice) -> Result<Seen, sqlx::Error> {
    let look = sqlx::query_as("SELECT status, amount FROM t_order WHERE order_no = ?");
    look.bind(notice.out_trade_no.as_str()).fetch_optional(connection).await
}

/// Looks, then four statements in one transaction.
pub(super) async fn book(pool: &MySqlPool, notice: &Notice) -> Result<bool, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    if let Some(answer) = at_once(&seen(&mut connection, notice).await?, notice) {
        return Ok(answer);
    }
    let (order_no, trade_no, now) = (notice.out_trade_no.as_str(), trade_no(notice), Micros::now().0);
    let mut transaction = connection.begin().await?;
    let claimed = sqlx::query("INSERT IGNORE INTO t_idempotency VALUES (?, ?)")
        .bind(key(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    if claimed.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(true);
    }
    let paid = sqlx::query(
        "UPDATE t_order SET status = 'PAID', trade_no = ?, paid_at = ? WHERE order_no = ? AND status = 'PENDING'",
    )
    .bind(trade_no)
    .bind(now)
    .bind(order_no)
    .execute(&mut *transaction)
    .await?;
    if paid.rows_affected() != 1 {
        transaction.rollback().await?;
        return Ok(false);
    }
    sqlx::query("INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES (?, ?, ?, ?)")
        .bind(order_no)
        .bind(trade_no)
        .bind(amount(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    let payload = payload(notice);
    sqlx::query(
        "INSERT INTO t_outbox (effect, order_no, payload, state, created_at)
         VALUES ('ship', ?, ?, 'ready', ?), ('points', ?, ?, 'ready', ?)",
    )
    .bind(order_no)
    .bind(&payload)
    .bind(now)
    .bind(order_no)
    .bind(&payload)
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(true)
}
