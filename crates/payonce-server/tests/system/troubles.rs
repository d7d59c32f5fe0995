//! A database that is away, slow or lying, a sink that is slow, senders that hang up: never a false success,
//! never a lost fact, never a second effect.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::support::*;
use payonce_sim::{
    Notification,
    courier::{Courier, HangUp, Plan as Delivery},
    receiver::Behaviour,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

crate::databases::on_each_database!(
    a_database_that_is_away_is_a_5xx,
    no_failing_statement_is_swallowed,
    one_poisoned_fact_fails_alone,
    an_unknown_commit_acknowledges_nobody
);

fn troubled(database: Kind) -> (Arc<Trouble>, Plan) {
    let trouble = Arc::new(Trouble::default());
    let plan = Plan { database, trouble: Some(Arc::clone(&trouble)), ..Plan::default() };
    (trouble, plan)
}

/// F053: the database is away: 5xx in the failing form, and the platform's own schedule brings it in later.
async fn a_database_that_is_away_is_a_5xx(on: Kind) {
    let (trouble, plan) = troubled(on);
    let house = House::with(plan).await;
    let (wx, ali) = (fresh("F053-"), fresh("F053-"));
    house.order(&wx, 100).await;
    house.order(&ali, 100).await;
    trouble.fail_before.store(2, Ordering::SeqCst);
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await, 503);
    ali_refused(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await, 503);
    assert_eq!(house.books().await.of(&wx).await, (0, 0, 0));
    trouble.fail_before.store(2, Ordering::SeqCst);
    let event = wx_paid(&wx, 100);
    let gaps = &event.platform().gaps()[..4];
    let urls = [house.notify_url("wx-main")];
    let campaign = Courier.until_acknowledged(&urls, &event, gaps, 3600, Delivery::default(), |_| {}).await;
    assert!(campaign.acknowledged);
    assert_eq!(campaign.deliveries.len(), 3, "two failures, then success");
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await);
    assert_eq!(house.books().await.of(&wx).await, (1, 1, 2));
    house.effects_taken(4).await;
}

/// F057: each write of the booking in turn fails in the database itself: failing answer, unchanged state, and the
/// next delivery books once.
async fn no_failing_statement_is_swallowed(on: Kind) {
    let house = House::on(on).await;
    let writes = [
        ("UPDATE", "order"),
        ("INSERT", "idempotency"),
        ("INSERT", "order_flow"),
        ("INSERT", "effect"),
        ("INSERT", "callback"),
    ];
    for (effects, (verb, table)) in writes.into_iter().enumerate() {
        let order = fresh("F057-");
        house.order(&order, 100).await;
        let mut books = house.books().await;
        let before = books.rows().await;
        let table = format!("payonce_{table}");
        books.0.break_table(verb, &table, None).await;
        wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await, 503);
        assert_eq!(books.rows().await, before, "{verb} {table}");
        books.0.mend_table(&table).await;
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
        assert_eq!(books.of(&order).await, (1, 1, 2), "{verb} {table}");
        house.effects_taken(2 * (effects + 1)).await;
    }
}

/// F057: one fact whose write fails does not fail the others of its batch.
async fn one_poisoned_fact_fails_alone(on: Kind) {
    let (trouble, plan) = troubled(on);
    let house = House::with(plan).await;
    let orders: Vec<String> = (0..12).map(|_| fresh("POISON-")).collect();
    for order in &orders {
        house.order(order, 100).await;
    }
    let poisoned = &orders[5];
    let mut books = house.books().await;
    books.0.break_table("INSERT", "payonce_order_flow", Some(poisoned)).await;
    // The first holds the database, so that the others become one batch.
    trouble.delay_ms.store(150, Ordering::SeqCst);
    let events: Vec<Arc<dyn Notification>> = orders.iter().map(|order| Arc::new(wx_paid(order, 100)) as _).collect();
    let plan = Delivery { concurrency: 12, barrier: true, ..Delivery::default() };
    let report = Courier.deliver_all(&[house.notify_url("wx-main")], &events, plan, |_, _| {}).await;
    assert_eq!((report.taken, report.refused, report.failed), (11, 1, 0), "{:?}", report.by_status);
    assert_eq!(report.taken_by_event[5], 0);
    for order in orders.iter().filter(|order| *order != poisoned) {
        assert_eq!(books.of(order).await, (1, 1, 2));
    }
    assert_eq!(books.of(poisoned).await, (0, 0, 0));
}

/// F057: a COMMIT whose answer was lost acknowledges nobody; the retry finds it done.
async fn an_unknown_commit_acknowledges_nobody(on: Kind) {
    let (trouble, plan) = troubled(on);
    let house = House::with(plan).await;
    let order = fresh("F057C-");
    house.order(&order, 100).await;
    trouble.fail_after.store(1, Ordering::SeqCst);
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await, 503);
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2), "it was done all the same");
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    house.effects_taken(2).await;
}

/// F059: a shop's service that takes its time holds up no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_sink_holds_up_no_answer() {
    let house = House::start().await;
    let slow = Duration::from_secs(4);
    house.receiver.behave(Behaviour { delay: slow, ..Behaviour::default() });
    let (order, next) = (fresh("F059S-"), fresh("F059S-"));
    house.order(&order, 100).await;
    house.order(&next, 100).await;
    for number in [&order, &order, &next] {
        let started = Instant::now();
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(number, 100))).await);
        assert!(started.elapsed() < slow, "{:?}", started.elapsed());
    }
    house.effects_taken(4).await;
}

/// F059: a database held by somebody else: failure before the platform's deadline; whether it is booked late or
/// not at all, the retry ends in one booking.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_database_is_answered_in_time() {
    let mut plan = Plan::default();
    plan.limits.answer_within = Duration::from_millis(300);
    let house = House::with(plan).await;
    let order = fresh("F059D-");
    house.order(&order, 100).await;
    let mut holder = house.books().await;
    holder.run("BEGIN IMMEDIATE").await;
    let started = Instant::now();
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await, 503);
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(290) && elapsed < Duration::from_secs(4), "{elapsed:?}");
    holder.run("ROLLBACK").await;
    let event = wx_paid(&order, 100);
    let gaps = [Duration::from_millis(300); 10];
    let urls = [house.notify_url("wx-main")];
    let campaign = Courier.until_acknowledged(&urls, &event, &gaps, 1, Delivery::default(), |_| {}).await;
    assert!(campaign.acknowledged);
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    house.effects_taken(2).await;
    assert!(house.metric(&["payonce_callbacks_total", "wx-main", "deadline"]).await >= 1.0);
}

/// F060: senders that hang up at any point cancel nothing and leave nothing half-done.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_up_cancels_nothing() {
    let (trouble, plan) = troubled(Kind::Sqlite);
    let house = House::with(plan).await;
    trouble.delay_ms.store(2, Ordering::SeqCst);
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let rounds = rounds(100) as usize;
    let mut orders = Vec::new();
    for _ in 0..rounds {
        let order = fresh("F060-");
        house.order(&order, 100).await;
        let request = send_wx(&wx_paid(&order, 100));
        let length = request.to_http(&house.notify_url("wx-main")).unwrap().len();
        let hang_up = match rng.random_range(0..3) {
            0 => HangUp::AfterBytes(rng.random_range(1..length)),
            1 => HangUp::AfterRequest(Duration::ZERO),
            _ => HangUp::AfterRequest(Duration::from_micros(rng.random_range(0..6000))),
        };
        Courier.deliver_and_hang_up(&house.notify_url("wx-main"), &request, hang_up).await;
        orders.push(order);
    }
    // None of them half-done: what is paid owes its effects.
    let mut books = house.books().await;
    let half_done = "SELECT count(*) FROM payonce_order AS o WHERE (o.paid_at IS NOT NULL) <> \
                     (SELECT count(*) = 2 FROM payonce_effect AS e WHERE e.order_no = o.order_no)";
    assert_eq!(books.count(half_done).await, 0);
    for order in &orders {
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(order, 100))).await);
        assert_eq!(books.of(order).await, (1, 1, 2), "seed {seed}");
    }
    house.effects_taken(2 * rounds).await;
}

/// F060: a sender that hung up after the request has, all the same, told us: it is booked without any retry.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_hung_up_sender_said_is_booked() {
    let (trouble, plan) = troubled(Kind::Sqlite);
    let house = House::with(plan).await;
    trouble.delay_ms.store(100, Ordering::SeqCst);
    let (first, second) = (fresh("F060B-"), fresh("F060B-"));
    for order in [&first, &second] {
        house.order(order, 100).await;
        // The first is being booked when its sender goes, the second still waits in the queue.
        let hang_up = HangUp::AfterRequest(Duration::from_millis(30));
        Courier.deliver_and_hang_up(&house.notify_url("wx-main"), &send_wx(&wx_paid(order, 100)), hang_up).await;
    }
    house.effects_taken(4).await;
    for order in [&first, &second] {
        assert_eq!(house.show(order).await["status"], "PAID");
    }
}

/// Backpressure: when the queue is full, the answer is a quick failure, and the retry is booked.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_fails_quickly() {
    let (trouble, mut plan) = troubled(Kind::Sqlite);
    (plan.batcher.queue, plan.batcher.batch) = (2, 1);
    let house = House::with(plan).await;
    let orders: Vec<String> = (0..8).map(|_| fresh("FULL-")).collect();
    for order in &orders {
        house.order(order, 100).await;
    }
    trouble.delay_ms.store(400, Ordering::SeqCst);
    let events: Vec<Arc<dyn Notification>> = orders.iter().map(|order| Arc::new(wx_paid(order, 100)) as _).collect();
    let plan = Delivery { concurrency: 8, barrier: true, ..Delivery::default() };
    let report = Courier.deliver_all(&[house.notify_url("wx-main")], &events, plan, |_, _| {}).await;
    assert!(report.taken >= 1 && report.refused >= 4 && report.failed == 0, "{:?}", report.by_status);
    let quickest_refusal =
        report.deliveries.iter().filter(|delivery| delivery.status() == Some(503)).map(|d| d.elapsed).min();
    assert!(quickest_refusal.unwrap() < Duration::from_millis(300), "{quickest_refusal:?}");
    for refused in report.deliveries.iter().filter(|delivery| delivery.status() == Some(503)) {
        wx_refused(refused.outcome.as_ref().unwrap(), 503);
    }
    assert!(house.metric(&["payonce_callbacks_total", "wx-main", "queue_full"]).await >= 4.0);
    trouble.delay_ms.store(0, Ordering::SeqCst);
    for order in &orders {
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(order, 100))).await);
        assert_eq!(house.books().await.of(order).await, (1, 1, 2));
    }
    house.effects_taken(16).await;
}
