//! What payonce is compared with, in Rust: this same program as a child of itself.
//!
//! Here: one small server with hyper's http1, keep-alive and the gateway's channel code, and three ways to go
//! on after a signature was right. It has none of the gateway's time limits, metrics and logs, so the ceiling
//! is rather too high than too low. Not here: other people's programs.

use std::{convert::Infallible, fs, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use payonce::{
    channel::{Callback, Channel, Reply},
    ids::AccountName,
    notice::Notice,
    outcome::{Refusal, Verdict},
    time::Micros,
};
use payonce_channels::{keys::PublicKey, wechat};
use sqlx::{
    Row as _, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::net::TcpListener;

use crate::{
    Outcome,
    books::{self, Books},
    presigned::{ACCOUNT, Keys, WINDOW},
};

/// Connections of the naive handlers.
const POOL: u32 = 10;

/// How it goes on after the signature was right.
enum Way {
    /// Not at all.
    Ceiling,
    /// Looks, then one transaction.
    Naive(SqlitePool),
    /// Looks, and believes what it saw.
    Look(SqlitePool),
}

struct Control {
    channel: wechat::Wechat,
    way: Way,
}

/// Serves until killed.
pub(crate) fn run(name: &str, folder: &Path) -> Outcome<()> {
    let keys: Keys = serde_json::from_slice(&fs::read(folder.join("keys.json"))?)?;
    // As the gateway's: one thread per core.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let way = match name {
            "ceiling" => Way::Ceiling,
            "naive" => Way::Naive(pool(&folder.join(Books::Plain.file())).await?),
            "look-then-update" => Way::Look(pool(&folder.join(Books::Look.file())).await?),
            _ => return Err(format!("there is no control {name}").into()),
        };
        let control = Arc::new(Control { channel: channel(&keys)?, way });
        serve(control).await
    })
}

fn channel(keys: &Keys) -> Outcome<wechat::Wechat> {
    let config = wechat::Config {
        account: AccountName::new(ACCOUNT)?,
        mchid: keys.mchid.clone(),
        partner: false,
        app_ids: vec![keys.app_id.clone()],
        api_v3_keys: vec![keys.api_v3_key.clone()],
        keys: vec![(
            Some(keys.public_key_id.clone()),
            PublicKey::read(&keys.public_key_pem).map_err(|error| error.to_string())?,
        )],
        window: Duration::from_secs(WINDOW.unsigned_abs()),
    };
    wechat::Wechat::new(config).map_err(|error| error.message().into())
}

async fn pool(path: &Path) -> Outcome<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(POOL).min_connections(POOL).connect_with(options).await?;
    let mut connection = pool.acquire().await?;
    println!("durable {}, pool of {POOL}", books::settings(&mut connection).await?);
    drop(connection);
    Ok(pool)
}

async fn serve(control: Arc<Control>) -> Outcome<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("callbacks {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let control = Arc::clone(&control);
                async move { Ok::<_, Infallible>(control.answer(request).await) }
            });
            let mut builder = http1::Builder::new();
            builder.header_read_timeout(None).max_buf_size(64 * 1024);
            // However it ended, the load generator counts what it did not get.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Control {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return self.refuse(Refusal::TooLarge) };
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let callback = Callback { headers, body: body.to_bytes().into() };
        let belief = match self.channel.believe(&callback, Micros::now()) {
            Ok(belief) => belief,
            Err(rejection) => return self.refuse(Refusal::Rejected(rejection.reason)),
        };
        let Some(notice) = belief.notices.first() else { return self.refuse(Refusal::Internal) };
        let booked = match &self.way {
            Way::Ceiling => Ok(true),
            Way::Naive(pool) => naive(pool, notice).await,
            Way::Look(pool) => look(pool, notice).await,
        };
        match booked {
            Ok(true) => {
                let mut response = Response::new(Full::new(Bytes::new()));
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Ok(false) => self.refuse(Refusal::Internal),
            Err(error) => {
                eprintln!("{error}");
                self.refuse(Refusal::Busy)
            }
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response<Full<Bytes>> {
        let Reply { status, content_type, body } = self.channel.reply(&Verdict::Refused(refusal));
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(content_type) = content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
        }
        response
    }
}

/// What the order says before anything is done: `None` if there is none, or its amount is another.
async fn status_of(pool: &SqlitePool, notice: &Notice) -> Result<Option<String>, sqlx::Error> {
    let row = sqlx::query("SELECT status, amount FROM t_order WHERE order_no = ?1")
        .bind(notice.out_trade_no.as_str())
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let amount: i64 = row.try_get(1)?;
    let fits = notice.money.is_some_and(|money| money.amount == amount);
    if fits { row.try_get(0).map(Some) } else { Ok(None) }
}

fn trade_no(notice: &Notice) -> &str {
    notice.trade_no.as_ref().map_or("", |trade_no| trade_no.as_str())
}

/// Right, and what most people would write: look, then five statements in one transaction.
async fn naive(pool: &SqlitePool, notice: &Notice) -> Result<bool, sqlx::Error> {
    match status_of(pool, notice).await?.as_deref() {
        None => return Ok(false),
        Some("PAID") => return Ok(true),
        Some(_) => {}
    }
    let (order_no, trade_no, now) = (notice.out_trade_no.as_str(), trade_no(notice), Micros::now().0);
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let key = format!("{}:{trade_no}", notice.merchant.as_str());
    let claimed = sqlx::query("INSERT INTO t_idempotency VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(key)
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
    flow_and_outbox(&mut transaction, notice, now).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn flow_and_outbox(
    transaction: &mut sqlx::SqliteConnection,
    notice: &Notice,
    now: i64,
) -> Result<(), sqlx::Error> {
    let (order_no, trade_no) = (notice.out_trade_no.as_str(), trade_no(notice));
    let amount = notice.money.map_or(0, |money| money.amount);
    sqlx::query("INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES (?1, ?2, ?3, ?4)")
        .bind(order_no)
        .bind(trade_no)
        .bind(amount)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    for effect in ["ship", "points"] {
        let payload = serde_json::json!({"order_no": order_no, "trade_no": trade_no, "amount": amount}).to_string();
        sqlx::query(
            "INSERT INTO t_outbox (effect, order_no, payload, state, created_at) VALUES (?1, ?2, ?3, 'ready', ?4)",
        )
        .bind(effect)
        .bind(order_no)
        .bind(payload)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    }
    Ok(())
}

/// Wrong: between the look and the update somebody else looks.
async fn look(pool: &SqlitePool, notice: &Notice) -> Result<bool, sqlx::Error> {
    match status_of(pool, notice).await?.as_deref() {
        None => return Ok(false),
        Some("PAID") => return Ok(true),
        Some(_) => {}
    }
    let now = Micros::now().0;
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("UPDATE t_order SET status = 'PAID', trade_no = ?2, paid_at = ?3 WHERE order_no = ?1")
        .bind(notice.out_trade_no.as_str())
        .bind(trade_no(notice))
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    flow_and_outbox(&mut transaction, notice, now).await?;
    transaction.commit().await?;
    Ok(true)
}
