//! What payonce is compared with, in Rust: this same program as a child of itself.
//!
//! Here: one small server with hyper's http1, keep-alive and the gateway's channel code, and the ways to go on after
//! a signature was right. It has none of the gateway's time limits, metrics and logs, so the ceiling is rather too
//! high than too low. Not here: the books by hand (`controls/{sqlite,postgres,mariadb}`), other people's programs.

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
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tokio::net::TcpListener;

use crate::{
    Outcome,
    books::Books,
    competitors,
    engines::{Connection, Engine},
    presigned::{ACCOUNT, Keys, WINDOW},
};

mod mariadb;
mod postgres;
mod sqlite;

/// Connections of the naive handlers.
const POOL: u32 = 10;

/// How it goes on after the signature was right.
enum Way {
    /// Not at all.
    Ceiling,
    /// Looks, then one transaction.
    Sqlite(SqlitePool),
    Postgres(PgPool),
    Mariadb(MySqlPool),
    /// Looks, and believes what it saw.
    Look(PgPool),
}

struct Control {
    channel: wechat::Wechat,
    way: Way,
}

/// Serves until killed.
pub(crate) fn run(name: &str, folder: &Path, database: &str) -> Outcome<()> {
    let keys: Keys = serde_json::from_slice(&fs::read(folder.join("keys.json"))?)?;
    let competitor = competitors::find(name).ok_or_else(|| format!("there is no control {name}"))?;
    // As the gateway's: one thread per core.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let way = match (competitor.books, competitor.engine) {
            (Books::None, _) => Way::Ceiling,
            (Books::Look, _) => Way::Look(postgres::pool(database).await?),
            (_, Engine::Sqlite) => Way::Sqlite(sqlite::pool(database).await?),
            (_, Engine::Postgres) => Way::Postgres(postgres::pool(database).await?),
            (_, Engine::Mariadb) => Way::Mariadb(mariadb::pool(database).await?),
        };
        let control = Arc::new(Control { channel: channel(&keys)?, way });
        serve(control).await
    })
}

/// Says what a connection of the pool promises.
async fn say_durable(mut connection: Connection) -> Outcome<()> {
    println!("durable {}, pool of {POOL}", connection.settings().await?);
    connection.close().await
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
            Way::Sqlite(pool) => sqlite::book(pool, notice).await,
            Way::Postgres(pool) => postgres::book(pool, notice).await,
            Way::Mariadb(pool) => mariadb::book(pool, notice).await,
            Way::Look(pool) => postgres::look(pool, notice).await,
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

/// The order's status and amount, as found before anything is done.
type Seen = Option<(String, i64)>;

/// What the look alone answers: no to an order that is not there or is of another amount, yes to one that is paid.
/// `None`: go on.
fn at_once(seen: &Seen, notice: &Notice) -> Option<bool> {
    match seen {
        Some((status, due)) if *due == amount(notice) => (status == "PAID").then_some(true),
        _ => Some(false),
    }
}

fn trade_no(notice: &Notice) -> &str {
    notice.trade_no.as_ref().map_or("", |trade_no| trade_no.as_str())
}

fn amount(notice: &Notice) -> i64 {
    notice.money.map_or(0, |money| money.amount)
}

/// What an effect is told.
fn payload(notice: &Notice) -> String {
    let (order_no, trade_no, amount) = (notice.out_trade_no.as_str(), trade_no(notice), amount(notice));
    serde_json::json!({"order_no": order_no, "trade_no": trade_no, "amount": amount}).to_string()
}

/// The name of the fact.
fn key(notice: &Notice) -> String {
    format!("{}:{}", notice.merchant.as_str(), trade_no(notice))
}
