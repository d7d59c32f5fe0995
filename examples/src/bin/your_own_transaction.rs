//! A shop that embeds payonce: its own write and the booking of a callback commit together, or neither does.
//!
//! Here: the whole of it in one program that plays the platform to itself with real keys, so that it runs
//! as it stands (`cargo run -p payonce-examples --bin your_own_transaction`). Not here: HTTP; where the
//! comments say "your handler", any framework will do.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::{error::Error, time::Duration};

use payonce::{
    apply::{Batch, Delivery, apply},
    channel::{Callback, Channel},
    ids::{AccountName, Merchant, OrderKind, OrderNo, OutTradeNo, Shop},
    money::Money,
    order::{Number, OrderId},
    outcome::{Disposition, Outcome, Verdict},
    register::{Registration, register_in},
    rules::Rules,
    store::{Engine, sqlite::SqliteOptions},
    time::Micros,
};
use payonce_channels::{keys::PublicKey, wechat};
use payonce_sim::wechat::{Disorder, Wechat as Platform};
use sqlx::{Connection, Row, SqliteConnection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Your database. payonce's tables live in it, beside yours.
    let folder = tempfile::tempdir()?;
    let options = SqliteOptions { path: folder.path().join("shop.db") };
    let mut db = <SqliteConnection as Engine>::connect(&options).await?;
    db.migrate().await?;
    sqlx::query("CREATE TABLE seat (seat_no TEXT PRIMARY KEY, order_no TEXT NOT NULL)").execute(&mut db).await?;

    // Your account at the platform: here a simulated platform with keys made a moment ago.
    let platform = Platform::new("1900000001");
    let channel = wechat::Wechat::new(wechat::Config {
        account: AccountName::new("main")?,
        mchid: platform.mchid.clone(),
        partner: false,
        app_ids: Vec::new(),
        api_v3_keys: vec![platform.api_v3_key.clone()],
        keys: vec![(Some(platform.pub_key_id.clone()), PublicKey::read(&platform.public_key.public_pem())?)],
        window: Duration::from_secs(300),
    })?;
    let rules = Rules::default();

    // 1. When you create the order, register it in the same transaction.
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    let registration = order("T20260102-0001", 12_800, channel.merchant())?;
    register_in(&mut tx, &registration, &rules).await?.map_err(|refused| refused.to_string())?.commit(tx).await?;

    // 2. Your handler gets the callback. The platform sends it three times.
    let paid = platform.payment("T20260102-0001", "4200000000202601020000000001", 12_800);
    let event = platform.notify_payment(&paid);
    for copy in 1..=3 {
        let request = event.send(payonce_sim::text::now_unix(), Disorder::default());
        let callback = Callback {
            headers: request.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
            body: request.body,
        };
        let reply = handle(&mut db, &channel, &rules, &callback).await?;
        println!("copy {copy}: answered {}", reply.status);
    }

    let seats: i64 = sqlx::query("SELECT count(*) FROM seat").fetch_one(&mut db).await?.get(0);
    let facts: i64 = sqlx::query("SELECT count(*) FROM payonce_idempotency").fetch_one(&mut db).await?.get(0);
    println!("seats given: {seats}, facts booked: {facts}");
    if (seats, facts) == (1, 1) { Ok(()) } else { Err("the callback took effect more than once".into()) }
}

fn order(number: &str, fen: i64, merchant: &Merchant) -> Result<Registration, Box<dyn Error>> {
    let number_at_platform = Number { merchant: merchant.clone(), out_trade_no: OutTradeNo::new(number)? };
    Ok(Registration {
        id: OrderId { shop: Shop::default_shop(), order_no: OrderNo::new(number)? },
        kind: OrderKind::new("ticket")?,
        money: Money::cny(fen)?,
        attempts: [(number_at_platform, fen)].into(),
        meta: r#"{"seat":"12F"}"#.to_owned(),
        now: Micros::now(),
    })
}

/// Verify, then one transaction for your write and the booking, then the answer.
async fn handle(
    db: &mut SqliteConnection,
    channel: &wechat::Wechat,
    rules: &Rules,
    callback: &Callback,
) -> Result<payonce::channel::Reply, Box<dyn Error>> {
    let now = Micros::now();
    let belief = match channel.believe(callback, now) {
        Ok(belief) => belief,
        Err(rejection) => {
            return Ok(channel.reply(&Verdict::Refused(payonce::outcome::Refusal::Rejected(rejection.reason))));
        }
    };
    let batch = Batch::of(vec![Delivery { notices: belief.notices, evidence: None, keep: false }], now);
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    let pending = apply(&mut tx, &batch, rules).await?;
    // Yours, once: only the copy that was applied, and whose money fits, gives the seat. An `Err` before
    // `commit` undoes both.
    if matches!(pending.outcomes()[0][..], [Outcome::Applied(Disposition::Fits)]) {
        sqlx::query("INSERT INTO seat VALUES ('12F', 'T20260102-0001')").execute(&mut *tx).await?;
    }
    let committed = pending.commit(tx).await?;
    Ok(channel.reply(&committed.verdict(0, Duration::from_secs(600))))
}
