//! What the tests of this crate say over and over.

use std::{sync::Arc, time::Duration};

use payonce::{
    apply::Delivery,
    ids::{AccountName, Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    money::Money,
    notice::{Fact, Notice, Source},
    order::{Number, OrderId},
    register::Registration,
    rules::{EffectRule, Event, Rules},
    store::{
        Database, OrderView, Store,
        sqlite::{Sqlite, SqliteOptions},
    },
    time::Micros,
};

pub(crate) const NOW: Micros = Micros(1_767_294_247_000_000);

pub(crate) fn now() -> Micros {
    NOW
}

pub(crate) fn fresh(case: &str) -> SqliteOptions {
    let folder = tempfile::Builder::new().prefix(case).tempdir().unwrap().keep();
    SqliteOptions { path: folder.join("payonce.db") }
}

pub(crate) async fn open(options: &SqliteOptions, rules: &Arc<Rules>) -> Arc<Database<Sqlite>> {
    Database::<Sqlite>::migrate(options).await.unwrap();
    Arc::new(Database::open(options.clone(), rules.clone()).await.unwrap())
}

pub(crate) fn rule(name: &str, sink: &str) -> EffectRule {
    EffectRule {
        on: Event::OrderPaid,
        when_kind: None,
        name: name.to_owned(),
        sink: sink.to_owned(),
        after: None,
        delay: Duration::ZERO,
        retry: EffectRule::RETRY.to_vec(),
        statement: None,
    }
}

pub(crate) fn number(order: &str) -> Number {
    Number { merchant: Merchant::of("WXPAY", "1900000001").unwrap(), out_trade_no: OutTradeNo::new(order).unwrap() }
}

pub(crate) fn registration(order: &str, fen: i64) -> Registration {
    Registration {
        id: OrderId { shop: Shop::default_shop(), order_no: OrderNo::new(order).unwrap() },
        kind: OrderKind::new("goods").unwrap(),
        money: Money::cny(fen).unwrap(),
        attempts: [(number(order), fen)].into(),
        meta: r#"{"sku":"S1"}"#.to_owned(),
        now: NOW,
    }
}

pub(crate) fn payment(order: &str, trade: &str, fen: i64) -> Notice {
    let number = number(order);
    Notice {
        merchant: number.merchant,
        account: AccountName::new("a").unwrap(),
        out_trade_no: number.out_trade_no,
        fact: Fact::Payment,
        trade_no: Some(TradeNo::new(trade).unwrap()),
        money: Some(Money::cny(fen).unwrap()),
        occurred_at: Some(NOW),
        source: Source::Callback,
        channel_data: serde_json::Map::new(),
    }
}

pub(crate) fn delivery(notice: Notice) -> Delivery {
    Delivery { notices: vec![notice], evidence: None, keep: false }
}

pub(crate) async fn view(store: &dyn Store, order: &str) -> OrderView {
    store.order(&Shop::default_shop(), &OrderNo::new(order).unwrap()).await.unwrap().unwrap()
}
