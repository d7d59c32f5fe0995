//! The handler by hand on PostgreSQL, the right one and the wrong one.

use std::str::FromStr as _;

use payonce::{notice::Notice, time::Micros};
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{Connection, POOL, Seen, amount, at_once, key, payload, say_durable, trade_no};
use crate::Outcome;

pub(super) async fn pool(url: &str) -> Outcome<PgPool> {
    let options = PgConnectOptions::from_str(url)?.disable_statement_logging();
    // Without asking the server at each turn whether it is still there: a round trip less.
    let pool = PgPoolOptions::new().max_connections(POOL).min_connections(POOL).test_before_acquire(false);
    let pool = pool.connect_with(options).await?;
    say_durable(Connection::Postgres(pool.acquire().await?.detach())).await?;
    Ok(pool)
}

async fn seen(connection: &mut PgConnection, notice: &Notice) -> Result<Seen, sqlx::Error> {
    let look = sqlx::query_as("SELECT status, amount FROM t_order WHERE order_no = $1");
    look.bind(notice.out_trade_no.as_str()).fetch_optional(connection).await
}

/// Looks, then four statements in one transaction.
pub(super) async fn book(pool: &PgPool, notice: &Notice) -> Result<bool, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    if let Some(answer) = at_once(&seen(&mut connection, notice).await?, notice) {
        return Ok(answer);
    }
    let (order_no, trade_no, now) = (notice.out_trade_no.as_str(), trade_no(notice), Micros::now().0);
    let mut transaction = connection.begin().await?;
    let claimed = sqlx::query("INSERT INTO t_idempotency VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(key(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    if claimed.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(true);
    }
    let paid = sqlx::query(
        "UPDATE t_order SET status = 'PAID', trade_no = $2, paid_at = $3 WHERE order_no = $1 AND status = 'PENDING'",
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
    flow_and_outbox(&mut transaction, notice, now).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn flow_and_outbox(connection: &mut PgConnection, notice: &Notice, now: i64) -> Result<(), sqlx::Error> {
    let order_no = notice.out_trade_no.as_str();
    sqlx::query("INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES ($1, $2, $3, $4)")
        .bind(order_no)
        .bind(trade_no(notice))
        .bind(amount(notice))
        .bind(now)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "INSERT INTO t_outbox (effect, order_no, payload, state, created_at)
         VALUES ('ship', $1, $2, 'ready', $3), ('points', $1, $2, 'ready', $3)",
    )
    .bind(order_no)
    .bind(payload(notice))
    .bind(now)
    .execute(connection)
    .await?;
    Ok(())
}

/// Wrong: between the look and the update somebody else looks.
pub(super) async fn look(pool: &PgPool, notice: &Notice) -> Result<bool, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    if let Some(answer) = at_once(&seen(&mut connection, notice).await?, notice) {
        return Ok(answer);
    }
    let now = Micros::now().0;
    let mut transaction = connection.begin().await?;
    sqlx::query("UPDATE t_order SET status = 'PAID', trade_no = $2, paid_at = $3 WHERE order_no = $1")
        .bind(notice.out_trade_no.as_str())
        .bind(trade_no(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    flow_and_outbox(&mut transaction, notice, now).await?;
    transaction.commit().await?;
    Ok(true)
}
