//! How many callbacks per second one writer books, by batch size: no HTTP, no crypto.
//!
//! Here: SQLite with `synchronous = FULL`, orders registered beforehand, evidence of 1.5 kB and two effects
//! per callback. Not here: the whole way of a callback (`cargo xtask bench`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops when it cannot go on")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use payonce::{
    apply::{Batch, Delivery},
    ids::{AccountName, Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    money::Money,
    notice::{Fact, Notice, Source},
    order::{Attempt, AttemptState, Number, Order, OrderId, OrderStatus},
    rules::{EffectRule, Event, Rules},
    store::{
        Database, Engine, Evidence, Ledger, Store,
        sqlite::{Sqlite, SqliteOptions},
    },
    time::Micros,
};

fn number(index: usize) -> Number {
    let out_trade_no = OutTradeNo::new(format!("PO20260102{index:010}")).unwrap();
    Number { merchant: Merchant::of("WXPAY", "1900000001").unwrap(), out_trade_no }
}

fn order(index: usize) -> Order {
    Order {
        id: OrderId { shop: Shop::default_shop(), order_no: OrderNo::new(format!("PO20260102{index:010}")).unwrap() },
        kind: OrderKind::new("goods").unwrap(),
        money: Money::cny(100).unwrap(),
        status: OrderStatus::Pending,
        paid: 0,
        refunded: 0,
        unapplied: 0,
        version: 0,
        closed_at: None,
        paid_at: None,
        created_at: Micros::now(),
        meta: r#"{"sku":"S1"}"#.to_owned(),
    }
}

fn attempt(index: usize) -> Attempt {
    Attempt {
        number: number(index),
        order: Some(order(index).id),
        amount: Some(100),
        state: AttemptState::Open,
        closed_at: None,
    }
}

/// Registers in bulk, beside what is measured.
async fn register(options: &SqliteOptions, from: usize, to: usize) {
    let mut connection = <Sqlite as Engine>::connect(options).await.unwrap();
    connection.begin().await.unwrap();
    connection.insert_attempts(&(from..to).map(attempt).collect::<Vec<_>>()).await.unwrap();
    connection.insert_orders(&(from..to).map(order).collect::<Vec<_>>()).await.unwrap();
    connection.commit().await.unwrap();
}

fn delivery(index: usize, account: &AccountName, body: &[u8]) -> Delivery {
    let number = number(index);
    let notice = Notice {
        merchant: number.merchant,
        account: account.clone(),
        out_trade_no: number.out_trade_no,
        fact: Fact::Payment,
        trade_no: Some(TradeNo::new(format!("42000000002026{index:014}")).unwrap()),
        money: Some(Money::cny(100).unwrap()),
        occurred_at: Some(Micros::now()),
        source: Source::Callback,
        channel_data: serde_json::json!({"payer_total": 90, "trade_type": "JSAPI"}).as_object().unwrap().clone(),
    };
    let evidence = Evidence {
        id: uuid::Uuid::now_v7().to_string(),
        account: account.clone(),
        received_at: Micros::now(),
        headers: "x".repeat(600),
        body: body.to_vec(),
        body_hash: "0".repeat(64),
        verdict: "booked".to_owned(),
        key_id: Some("PUB_KEY_ID_0117000000000000".to_owned()),
    };
    Delivery { notices: vec![notice], evidence: Some(evidence), keep: false }
}

/// Processor time of this process, user and system, in ticks: steadier than the wall on a shared machine.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split(' ').skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { path: folder.path().join("payonce.db") };
    let rule = |name: &str| EffectRule {
        on: Event::OrderPaid,
        when_kind: None,
        name: name.to_owned(),
        sink: "log".to_owned(),
        after: None,
        delay: Duration::ZERO,
        retry: Vec::new(),
        statement: None,
    };
    let rules = Rules { effects: vec![rule("ship"), rule("points")], ..Rules::default() };
    Database::<Sqlite>::migrate(&options).await.unwrap();
    let database = Database::<Sqlite>::open(options.clone(), Arc::new(rules)).await.unwrap();
    let account = AccountName::new("a").unwrap();
    let body = "b".repeat(1000).into_bytes();
    println!("batch   unique/s   cpu us   repeated/s   cpu us");
    let mut next = 0;
    // `cargo bench -p payonce --bench apply -- 128` measures one size.
    let only: Option<usize> = std::env::args().nth(1).and_then(|size| size.parse().ok());
    for size in [1, 8, 32, 128, 512].into_iter().filter(|size| only.is_none_or(|only| only == *size)) {
        let rounds = (40_000 / size).clamp(20, 2_000);
        let from = next;
        next += rounds * size;
        register(&options, from, next).await;
        let mut rates = Vec::new();
        for _ in 0..2 {
            let (start, cpu) = (Instant::now(), cpu_ticks());
            for round in 0..rounds {
                let first = from + round * size;
                let deliveries = (first..first + size).map(|index| delivery(index, &account, &body)).collect();
                let _committed = database.book(&Batch::of(deliveries, Micros::now())).await.unwrap();
            }
            let callbacks = (rounds * size) as f64;
            // A tick is 10 ms.
            rates.push((callbacks / start.elapsed().as_secs_f64(), (cpu_ticks() - cpu) as f64 * 10_000.0 / callbacks));
        }
        let [(unique, unique_cpu), (repeated, repeated_cpu)] = rates[..] else { unreachable!() };
        println!("{size:>5} {unique:>10.0} {unique_cpu:>8.1} {repeated:>12.0} {repeated_cpu:>8.1}");
    }
}
