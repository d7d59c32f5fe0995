//! The worker: schedule, keys, poison, time limits. The clock is a number; nothing sleeps.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicI64, atomic::Ordering},
    time::Duration,
};

use payonce::{
    rules::{EffectRule, Rules},
    sink::{ClosureSink, DeliveryError, Sink},
    statement::Statement,
    store::{Effect, EffectState, Store},
    time::Micros,
    worker::{Round, Worker, WorkerOptions},
};

use crate::support::{NOW, delivery, fresh, open, payment, registration, rule, view};

/// One clock for this test binary's workers: each test moves on by whole hours, which disturbs no other.
static CLOCK: AtomicI64 = AtomicI64::new(NOW.0);

fn clock() -> Micros {
    Micros(CLOCK.load(Ordering::Relaxed))
}

type Seen = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// A receiver that keeps keys, and fails as it is told.
fn receiver(fails: impl Fn(&Effect) -> bool + Send + Sync + 'static) -> (Arc<dyn Sink>, Seen) {
    let seen = Seen::default();
    let record = seen.clone();
    let sink = ClosureSink::new(move |effect: Effect| {
        record.lock().unwrap().entry(effect.key.to_string()).or_default().push(effect.payload.clone());
        let failed = fails(&effect);
        async move { if failed { Err(DeliveryError("the receiver says no".to_owned())) } else { Ok(()) } }
    });
    (Arc::new(sink), seen)
}

async fn paid(case: &str, effects: Vec<EffectRule>, orders: usize) -> (Arc<dyn Store>, Arc<Rules>) {
    let rules = Arc::new(Rules { effects, ..Rules::default() });
    let store = open(&fresh(case), &rules).await;
    for index in 0..orders {
        let order = format!("O{index}");
        store.register(&registration(&order, 100)).await.unwrap().unwrap();
        let batch = payonce::apply::Batch::of(vec![delivery(payment(&order, &format!("T{index}"), 100))], NOW);
        store.book(&batch).await.unwrap();
    }
    (store, rules)
}

/// F127 F134: it fails to the end of its schedule, goes dead, is retried by hand: one key, one payload.
#[tokio::test]
async fn retries_keep_the_schedule_the_key_and_the_payload() {
    let (store, rules) = paid("schedule", vec![rule("ship", "shop")], 1).await;
    let (sink, seen) = receiver(|_| true);
    let worker = Worker::new(store.clone(), rules, "shop", Some(sink), WorkerOptions::default(), || {
        Micros(NOW.0 + OFFSET.load(Ordering::Relaxed))
    });
    static OFFSET: AtomicI64 = AtomicI64::new(0);
    let mut tries = 0;
    for (wait, last) in [(60, false), (300, false), (1800, false), (0, true)] {
        let round = worker.run_once().await.unwrap();
        tries += 1;
        assert_eq!((round.claimed, round.again, round.dead), (1, usize::from(!last), usize::from(last)), "try {tries}");
        let effect = &view(store.as_ref(), "O0").await.effects[0];
        let due = effect.due_at.since(Micros(NOW.0 + OFFSET.load(Ordering::Relaxed))).as_secs();
        assert!((wait..=wait + wait / 10).contains(&due), "try {tries} is due in {due} s");
        OFFSET.fetch_add((wait as i64 - 1) * 1_000_000, Ordering::Relaxed);
        assert_eq!(worker.run_once().await.unwrap(), Round::default(), "not before its time");
        OFFSET.fetch_add(wait as i64 * 100_000 + 2_000_000, Ordering::Relaxed);
    }
    let key = view(store.as_ref(), "O0").await.effects[0].key.clone();
    assert_eq!(view(store.as_ref(), "O0").await.effects[0].state, EffectState::Dead);
    assert_eq!(store.retry(&key, Micros(NOW.0)).await.unwrap(), 1);
    worker.run_once().await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.keys().collect::<Vec<_>>(), [key.as_str()]);
    assert_eq!(seen[key.as_str()].len(), 5);
    assert!(seen[key.as_str()].windows(2).all(|pair| pair[0] == pair[1]), "byte for byte");
}

/// F129: a row that always fails holds up nobody.
#[tokio::test]
async fn a_poisoned_effect_holds_up_nobody() {
    let (store, rules) = paid("poison", vec![rule("ship", "shop")], 100).await;
    let (sink, seen) = receiver(|effect| effect.order.order_no.as_str() == "O0");
    let worker = Worker::new(store, rules, "shop", Some(sink), WorkerOptions::default(), clock);
    let first = worker.run_once().await.unwrap();
    let second = worker.run_once().await.unwrap();
    assert_eq!((first.done + second.done, first.again + second.again), (99, 1));
    assert_eq!(seen.lock().unwrap().len(), 100);
}

/// F059: a receiver that does not answer costs its own time limit, and its effect is tried again.
#[tokio::test(start_paused = true)]
async fn a_silent_receiver_is_given_up_after_its_time_limit() {
    let (store, rules) = paid("silent", vec![rule("ship", "shop")], 1).await;
    let sink = ClosureSink::new(|_| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok(())
    });
    let worker = Worker::new(store.clone(), rules, "shop", Some(Arc::new(sink)), WorkerOptions::default(), clock);
    let round = worker.run_once().await.unwrap();
    assert_eq!((round.claimed, round.again), (1, 1));
    let effect = &view(store.as_ref(), "O0").await.effects[0];
    assert!(effect.last_error.as_deref().unwrap().contains("no answer within 10s"), "{:?}", effect.last_error);
}

/// One worker per sink: each sees only what is its own.
#[tokio::test]
async fn each_sink_gets_its_own_effects() {
    let (store, rules) = paid("own", vec![rule("ship", "one"), rule("points", "two")], 3).await;
    let (sink, seen) = receiver(|_| false);
    let worker = Worker::new(store, rules, "two", Some(sink), WorkerOptions::default(), clock);
    assert_eq!(worker.run_once().await.unwrap().done, 3);
    assert!(seen.lock().unwrap().keys().all(|key| key.ends_with(":points")));
}

/// Statements: stock is taken once per order, and an effect whose statement fails says why.
#[tokio::test]
async fn statements_run_in_the_transaction_that_marks_them_done() {
    let take = |name: &str, sql: &str| EffectRule {
        statement: Some(Statement::parse(sql, Some(1)).unwrap()),
        ..rule(name, EffectRule::SQL)
    };
    let effects = vec![
        take("stock", "UPDATE stock SET n = n - 1 WHERE sku = :meta.sku"),
        take("none", "UPDATE stock SET n = n - 1 WHERE sku = :order_no"),
    ];
    let rules = Arc::new(Rules { effects, ..Rules::default() });
    let options = fresh("stock");
    let store = open(&options, &rules).await;
    let mut theirs = <sqlx::SqliteConnection as payonce::store::Engine>::connect(&options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER); INSERT INTO stock VALUES ('S1', 10)")
        .execute(&mut theirs)
        .await
        .unwrap();
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    let batch = payonce::apply::Batch::of(vec![delivery(payment("O1", "T1", 100))], NOW);
    for _ in 0..5 {
        store.book(&batch).await.unwrap();
    }
    let worker = Worker::new(store.clone(), rules, EffectRule::SQL, None, WorkerOptions::default(), clock);
    for _ in 0..5 {
        worker.run_once().await.unwrap();
    }
    let left: (i64,) = sqlx::query_as("SELECT n FROM stock").fetch_one(&mut theirs).await.unwrap();
    assert_eq!(left, (9,));
    let effects = view(store.as_ref(), "O1").await.effects;
    let by_name = |name: &str| effects.iter().find(|effect| effect.name == name).unwrap();
    assert_eq!(by_name("stock").state, EffectState::Done);
    assert!(by_name("none").last_error.as_deref().unwrap().contains("affected 0 rows, 1 were expected"));
}

/// F040: a member pays for two months in two orders at once; both count, because the statement adds where the
/// value is and not where it was read, and each order's effect has a key of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_payments_for_one_target_both_count() {
    let extend = EffectRule {
        statement: Some(Statement::parse("UPDATE member SET days = days + 30 WHERE sku = :meta.sku", Some(1)).unwrap()),
        ..rule("extend", EffectRule::SQL)
    };
    let rules = Arc::new(Rules { effects: vec![extend], ..Rules::default() });
    let options = fresh("both");
    let store = open(&options, &rules).await;
    let mut theirs = <sqlx::SqliteConnection as payonce::store::Engine>::connect(&options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE member (sku TEXT PRIMARY KEY, days INTEGER); INSERT INTO member VALUES ('S1', 0)")
        .execute(&mut theirs)
        .await
        .unwrap();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let options = WorkerOptions { claim: 1, ..WorkerOptions::default() };
            Worker::new(store.clone(), rules.clone(), EffectRule::SQL, None, options, clock)
        })
        .collect();
    for order in ["O1", "O2"] {
        store.register(&registration(order, 100)).await.unwrap().unwrap();
        let batch = payonce::apply::Batch::of(vec![delivery(payment(order, &format!("T-{order}"), 100))], NOW);
        store.book(&batch).await.unwrap();
        store.book(&batch).await.unwrap();
    }
    let rounds = futures_util::future::join_all(workers.iter().map(Worker::run_once)).await;
    assert!(rounds.into_iter().all(|round| round.unwrap().done == 1));
    let days: (i64,) = sqlx::query_as("SELECT days FROM member").fetch_one(&mut theirs).await.unwrap();
    assert_eq!(days, (60,));
}

/// A database that goes away says nothing of the statement: it is due again soon, whatever the effect's schedule.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_statement_that_loses_its_database_is_due_soon() {
    use payonce::store::{Database, server::Clock};
    let end_session = EffectRule {
        statement: Some(Statement::parse("SELECT pg_terminate_backend(pg_backend_pid())", None).unwrap()),
        ..rule("stock", EffectRule::SQL)
    };
    let rules = Arc::new(Rules { effects: vec![end_session], ..Rules::default() });
    let options = crate::servers::postgres("PAYONCE_TEST_POSTGRES15", "soon", Clock::Caller).await;
    Database::<sqlx::PgConnection>::migrate(&options).await.unwrap();
    let store = Arc::new(Database::<sqlx::PgConnection>::open(options, rules.clone()).await.unwrap());
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    let batch = payonce::apply::Batch::of(vec![delivery(payment("O1", "T1", 100))], NOW);
    store.book(&batch).await.unwrap();
    let worker = Worker::new(store.clone(), rules, EffectRule::SQL, None, WorkerOptions::default(), || NOW);
    worker.run_once().await.unwrap();
    let effect = view(store.as_ref(), "O1").await.effects.remove(0);
    let wait = effect.due_at.distance(NOW);
    assert_eq!(effect.state, EffectState::Ready, "{:?}", effect.last_error);
    assert!(wait > Duration::ZERO && wait < Duration::from_secs(10), "{wait:?}: {:?}", effect.last_error);
}
