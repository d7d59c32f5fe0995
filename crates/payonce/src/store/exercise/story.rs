//! The shop, the buyer and the platforms of the exercise, in a few words.
//!
//! Here: what the cases say over and over. Not here: any assertion about a store.

use std::{sync::atomic::AtomicI64, sync::atomic::Ordering, time::Duration};

use crate::{
    apply::{Batch, Delivery},
    ids::{AccountName, Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    key::{EffectKey, IdemKey},
    money::Money,
    notice::{Fact, Notice, Source},
    order::{Number, OrderId},
    outcome::Outcome,
    register::Registration,
    rules::{EffectRule, Event, Rules},
    store::{Database, Effect, EffectState, Engine, Entries, Evidence, KeyId, OrderView, Store},
    time::Micros,
};

/// A shop with two accounts, its database and its clock.
pub struct Story<E: Engine> {
    /// The database under exercise.
    pub database: Database<E>,
    /// For further connections.
    pub options: E::Options,
    /// The configured effects.
    pub rules: Rules,
    now: AtomicI64,
}

/// `ship` and `points` on `order.paid`, `note` on everything else.
pub fn rules() -> Rules {
    let rule = |on, name: &str, after: Option<&str>| EffectRule {
        on,
        when_kind: None,
        name: name.to_owned(),
        sink: "log".to_owned(),
        after: after.map(str::to_owned),
        delay: Duration::ZERO,
        retry: EffectRule::RETRY.to_vec(),
        statement: None,
    };
    let mut effects = vec![rule(Event::OrderPaid, "ship", None), rule(Event::OrderPaid, "points", Some("ship"))];
    effects.extend(
        Event::ALL.into_iter().filter(|event| *event != Event::OrderPaid).map(|event| rule(event, "note", None)),
    );
    Rules { effects, ..Rules::default() }
}

/// A refund of the payment that a notice tells of; its `money` is the refund's.
pub fn refund(payment: Notice, refund_no: &str) -> Notice {
    Notice { fact: Fact::Refund { refund_no: refund_no.into(), full: false }, ..payment }
}

/// Some bytes.
pub fn evidence(account: &AccountName, now: Micros) -> Evidence {
    Evidence {
        id: uuid::Uuid::now_v7().to_string(),
        account: account.clone(),
        received_at: now,
        headers: r#"[["content-type","application/json"]]"#.to_owned(),
        body: b"{\"id\":\"x\"}".to_vec(),
        body_hash: "00".to_owned(),
        verdict: "booked".to_owned(),
        key_id: Some("PUB_KEY_ID_0001".to_owned()),
    }
}

/// A fixed permutation per seed (Fisher-Yates over a small linear congruence: a test needs no more).
pub(super) fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    for index in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(index, (state >> 33) as usize % (index + 1));
    }
}

impl<E: Engine> Story<E> {
    pub(super) fn new(database: Database<E>, options: E::Options, rules: Rules) -> Self {
        Self { database, options, rules, now: AtomicI64::new(1_767_294_247_000_000) }
    }

    pub(super) fn now(&self) -> Micros {
        Micros(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn later(&self, by: Duration) {
        self.now.fetch_add(by.as_micros() as i64, Ordering::Relaxed);
    }

    pub(super) fn account(&self) -> AccountName {
        AccountName::new("shop-a").unwrap()
    }

    pub(super) fn number(&self, order: &str) -> Number {
        Number { merchant: Merchant::of("WXPAY", "1900000001").unwrap(), out_trade_no: OutTradeNo::new(order).unwrap() }
    }

    pub(super) fn order_id(&self, order: &str) -> OrderId {
        OrderId { shop: Shop::default_shop(), order_no: OrderNo::new(order).unwrap() }
    }

    /// An order with one number on each of the two accounts.
    pub(super) fn registration(&self, order: &str, fen: i64) -> Registration {
        let here = self.number(order);
        let there = Number { merchant: Merchant::of("ALIPAY", "2088000000000002").unwrap(), ..here.clone() };
        Registration {
            id: self.order_id(order),
            kind: OrderKind::new("goods").unwrap(),
            money: Money::cny(fen).unwrap(),
            attempts: [(here, fen), (there, fen)].into(),
            meta: r#"{"sku":"S1"}"#.to_owned(),
            now: self.now(),
        }
    }

    pub(super) async fn register(&self, order: &str, fen: i64) {
        self.database.register(&self.registration(order, fen)).await.unwrap().unwrap();
    }

    pub(super) fn payment(&self, order: &str, trade: &str, fen: i64) -> Notice {
        let number = self.number(order);
        Notice {
            merchant: number.merchant,
            account: self.account(),
            out_trade_no: number.out_trade_no,
            fact: Fact::Payment,
            trade_no: Some(TradeNo::new(trade).unwrap()),
            money: Some(Money::cny(fen).unwrap()),
            occurred_at: Some(self.now()),
            source: Source::Callback,
            channel_data: serde_json::Map::new(),
        }
    }

    pub(super) fn closed(&self, order: &str) -> Notice {
        Notice { fact: Fact::Closed, trade_no: None, money: None, ..self.payment(order, "x", 1) }
    }

    pub(super) fn on_second_channel(&self, notice: Notice) -> Notice {
        Notice { merchant: Merchant::of("ALIPAY", "2088000000000002").unwrap(), ..notice }
    }

    pub(super) fn delivery(&self, notice: Notice) -> Delivery {
        let evidence = Some(evidence(&self.account(), self.now()));
        Delivery { notices: vec![notice], evidence, keep: false }
    }

    pub(super) async fn book(&self, deliveries: Vec<Delivery>) -> Vec<Vec<Outcome>> {
        let batch = Batch::of(deliveries, self.now());
        self.database.book(&batch).await.unwrap().outcomes().to_vec()
    }

    pub(super) async fn book_one(&self, notice: Notice) -> Outcome {
        self.book(vec![self.delivery(notice)]).await[0][0]
    }

    pub(super) async fn pay(&self, order: &str, trade: &str, fen: i64) -> Outcome {
        self.book_one(self.payment(order, trade, fen)).await
    }

    pub(super) async fn view(&self, order: &str) -> OrderView {
        let id = self.order_id(order);
        self.database.order(&id.shop, &id.order_no).await.unwrap().unwrap()
    }

    /// Puts an effect among those that are owed.
    pub(super) async fn owe(&self, effect: Effect) {
        let mut connection = E::connect(&self.options).await.unwrap();
        connection.book_entries(&Entries { effects: &[effect], ..Entries::default() }).await.unwrap();
    }

    /// An effect that no booking made.
    pub(super) fn foreign_effect(&self, key: &str) -> Effect {
        Effect {
            key: EffectKey::from_books(key),
            fact: KeyId { merchant: self.number("x").merchant, key: IdemKey::from_books("WXPAY:x:PAY") },
            order: self.order_id("elsewhere"),
            event: "order.paid".to_owned(),
            name: "ship".to_owned(),
            sink: "nowhere".to_owned(),
            payload: "{}".to_owned(),
            state: EffectState::Ready,
            after: None,
            tries: 0,
            due_at: self.now(),
            last_error: None,
            created_at: self.now(),
            done_at: None,
        }
    }

    pub(super) async fn body_of(&self, id: &str) -> Vec<u8> {
        E::connect(&self.options).await.unwrap().callback_body(id).await.unwrap().unwrap()
    }

    pub(super) async fn count_callbacks(&self) -> i64 {
        E::connect(&self.options).await.unwrap().counts().await.unwrap().callbacks_unbelieved
    }
}
