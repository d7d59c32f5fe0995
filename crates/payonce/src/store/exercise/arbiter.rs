//! Each guard of the books by itself: with the others in place, a guard that is missing would not be missed.
//!
//! Here: the verbs' own promises (a taken key is a conflict, a stale condition affects no row), and the
//! races that only one of them can decide. Not here: what a shop or a buyer would see.

use super::*;
use crate::{
    order::{AttemptState, Order},
    store::{AttemptUpdate, Entries, Held, KeyId, KeyRow, OrderUpdate},
};

/// Whoever inserts second loses, in every table whose key says "once".
pub async fn a_taken_key_is_a_conflict<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.pay("O1", "T1", 100).await;
    let view = story.view("O1").await;
    let payment = story.payment("O1", "T1", 100);
    let key = KeyRow {
        id: KeyId { merchant: payment.merchant.clone(), key: payment.key().unwrap() },
        fingerprint: payment.fingerprint(),
        order: story.order_id("O1"),
        source: payment.source,
        repeats: 0,
        at: story.now(),
    };
    let mut connection = E::connect(&story.options).await.unwrap();
    let keys = Entries { keys: std::slice::from_ref(&key), ..Entries::default() };
    let effects = Entries { effects: &view.effects[..1], ..Entries::default() };
    for (table, again) in [("keys", keys), ("effects", effects), ("orders", keys), ("attempts", keys)] {
        connection.begin().await.unwrap();
        let lost = match table {
            "orders" => connection.insert_orders(std::slice::from_ref(&view.order)).await,
            "attempts" => connection.insert_attempts(&view.attempts[..1]).await,
            _ => connection.book_entries(&again).await.map(drop),
        };
        assert!(lost.as_ref().is_err_and(crate::Error::is_conflict), "{table}: {lost:?}");
        connection.rollback().await.unwrap();
    }
}

/// Affected rows are the verdict of every conditional UPDATE.
pub async fn a_stale_condition_affects_no_row<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let view = story.view("O1").await;
    let mut connection = E::connect(&story.options).await.unwrap();
    let to_be = Order { version: 1, ..view.order.clone() };
    let stale = [
        OrderUpdate { order: to_be.clone(), was_status: OrderStatus::Pending, was_version: 7 },
        OrderUpdate { order: to_be.clone(), was_status: OrderStatus::Closed, was_version: 0 },
    ];
    connection.begin().await.unwrap();
    for update in stale {
        assert_eq!(connection.update_orders(&[update]).await.unwrap(), 0);
    }
    let fresh = OrderUpdate { order: to_be, was_status: OrderStatus::Pending, was_version: 0 };
    assert_eq!(connection.update_orders(std::slice::from_ref(&fresh)).await.unwrap(), 1);
    assert_eq!(connection.update_orders(&[fresh]).await.unwrap(), 0, "its version has moved");
    let mut attempt = view.attempts[0].clone();
    attempt.state = AttemptState::Closed;
    let foreign = AttemptUpdate { attempt: attempt.clone(), had_order: None };
    assert_eq!(connection.update_attempts(&[foreign]).await.unwrap(), 0, "it has an order");
    let ours = AttemptUpdate { attempt, had_order: Some(story.order_id("O1")) };
    assert_eq!(connection.update_attempts(&[ours]).await.unwrap(), 1);
    connection.commit().await.unwrap();
}

/// A hold and what it waits for cannot both commit and never meet: the hold writes what it read.
pub async fn a_stale_hold_loses<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let refund = Batch::of(vec![story.delivery(refund(story.payment("O1", "T1", 40), "R1"))], story.now());
    let mut connection = E::connect(&story.options).await.unwrap();
    connection.begin().await.unwrap();
    let stale = crate::apply::read_plan(&mut connection, &refund, &story.rules).await.unwrap();
    connection.rollback().await.unwrap();
    story.pay("O1", "T1", 100).await;
    connection.begin().await.unwrap();
    let lost = crate::apply::write(&mut connection, &refund, stale, Repeats::CountNow).await;
    assert!(lost.is_err_and(|error| error.is_conflict()), "the hold never met its payment");
    connection.rollback().await.unwrap();
    let booked = story.database.book(&refund).await.unwrap();
    assert_eq!(booked.outcomes(), [[Outcome::Applied(Disposition::Fits)]]);
    assert_eq!(story.database.counts().await.unwrap().held, 0);
}

/// The held row of a fact that is booked (a ghost) ends as a repeat, and blocks nobody.
pub async fn a_ghost_is_released_as_a_repeat<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.pay("O1", "T1", 100).await;
    let ghost = story.payment("O1", "T1", 100);
    let held = Held {
        number: story.number("O1"),
        key: ghost.key().unwrap(),
        fingerprint: ghost.fingerprint().as_text(),
        reason: HoldReason::UnknownOrder,
        notice: ghost,
        callback_id: None,
        seen: 1,
        first_seen: story.now(),
        last_seen: story.now(),
    };
    E::connect(&story.options).await.unwrap().hold(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!(story.database.counts().await.unwrap().held, 1);
    let outcome = story.book_one(refund(story.payment("O1", "T1", 40), "R1")).await;
    assert_eq!(outcome, Outcome::Applied(Disposition::Fits));
    assert_eq!(story.database.counts().await.unwrap().held, 0);
    assert_eq!(story.view("O1").await.flow.len(), 2);
    let mut connection = E::connect(&story.options).await.unwrap();
    assert_eq!(connection.release(&[held], story.now()).await.unwrap(), 0, "released is released");
}

/// What the sweeper is for: a hold whose order is there finds it, and a second look finds nothing.
pub async fn the_sweeper_books_what_waits_for_something_present<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let lost = story.payment("O1", "T1", 100);
    let held = Held {
        number: story.number("O1"),
        key: lost.key().unwrap(),
        fingerprint: lost.fingerprint().as_text(),
        reason: HoldReason::UnknownOrder,
        notice: lost,
        callback_id: None,
        seen: 1,
        first_seen: story.now(),
        last_seen: story.now(),
    };
    E::connect(&story.options).await.unwrap().hold(&[held]).await.unwrap();
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 1);
    assert_eq!(story.view("O1").await.order.status, OrderStatus::Paid);
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 0);
}

/// One callback with facts of two orders keeps its bytes once, and one bad part loses no other.
pub async fn one_callback_with_several_facts<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.register("O2", 100).await;
    let mut delivery = story.delivery(story.payment("O1", "T1", 100));
    delivery.notices.push(story.payment("O2", "T2", 99));
    delivery.notices.push(story.payment("O3", "T3", 100));
    let batch = Batch::of(vec![delivery], story.now());
    let committed = story.database.book(&batch).await.unwrap();
    let words: Vec<&str> = committed.outcomes()[0].iter().map(|outcome| outcome.word()).collect();
    assert_eq!(words, ["applied", "applied_mismatched", "held_unknown_order"]);
    let grace = Duration::from_secs(600);
    assert!(matches!(committed.verdict(0, grace), crate::outcome::Verdict::Refused(_)), "acknowledged only as a whole");
    let (one, two) = (story.view("O1").await, story.view("O2").await);
    assert_eq!((one.callbacks.len(), two.callbacks.len()), (1, 1));
    assert_eq!(one.callbacks[0].id, two.callbacks[0].id);
    story.register("O3", 100).await;
    let committed = story.database.book(&batch).await.unwrap();
    assert_eq!(committed.outcomes()[0], [Outcome::Repeated; 3]);
    assert!(matches!(committed.verdict(0, grace), crate::outcome::Verdict::Acknowledged(_)));
}
