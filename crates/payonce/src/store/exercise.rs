//! The suite that every store must pass: the definition of the seam.
//!
//! Here: what must be true of bookings, registrations and effects, told once and run on every engine, each
//! case on a database of its own (see [`crate::exercise`]). Not here: tests of a pure rule (`decide`), or
//! of one engine's ways. A failed case panics, like any test.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use crate::{
    apply::{Batch, Delivery, Repeats},
    notice::Notice,
    order::{Number, OrderStatus},
    outcome::{Disposition, HoldReason, Outcome},
    register::{Refused, Registered},
    rules::{LatePolicy, Rules},
    store::{Database, EffectFilter, EffectState, Engine, Finished, Lease, OrderView, Store},
    time::Micros,
};

mod arbiter;
mod fault;
mod outbox;
mod own_table;
mod story;

pub use arbiter::*;
use fault::Faulty;
pub use outbox::*;
pub use own_table::*;
pub use story::{Story, evidence, refund, rules};

/// One test per case and engine: `exercise!(SqliteConnection, options_for_a_fresh_database)`, where the
/// second is an async function from the case's name to the engine's options.
#[macro_export]
macro_rules! exercise {
    ($engine:ty, $options:path) => {
        $crate::exercise!(@cases $engine, $options,
            a_payment_is_booked_once_however_often,
            copies_in_one_batch_are_one_fact,
            numbers_are_compared_byte_by_byte,
            an_unknown_order_waits_and_registration_releases_it,
            registering_again_is_a_repeat_or_refused,
            money_that_does_not_fit_is_booked_beside_the_order,
            a_second_transaction_under_one_number_is_real_money,
            two_channels_for_one_order_pay_it_once,
            the_same_number_at_two_merchants_is_two_facts,
            money_for_an_ended_order_is_late_or_reopens_it,
            refunds_find_their_payment_in_any_order,
            two_partial_refunds_are_two_facts,
            a_refund_of_unknown_amount_waits,
            a_closing_never_unpays,
            a_contradiction_waits_for_a_person,
            a_failure_at_any_statement_leaves_nothing,
            a_stale_reading_loses,
            one_poisoned_fact_fails_alone,
            bytes_and_texts_come_back_as_they_went_in,
            unbelieved_bytes_are_kept_once_and_capped,
            any_order_of_arrival_ends_the_same,
            migrating_again_changes_nothing,
            an_effect_is_claimed_by_one_and_recorded_by_its_holder,
            an_effect_waits_for_the_one_before_it,
            a_dead_effect_is_retried_with_its_key_and_payload,
            a_statement_runs_exactly_once_even_after_a_stolen_lease,
            a_statement_that_hits_other_rows_than_expected_is_undone,
            effects_are_selected_by_state_never_by_a_watermark,
            their_order_is_paid_with_ours,
            another_amount_than_theirs_touches_nothing,
            a_status_of_their_own_is_left_alone,
            their_commit_between_is_seen,
            their_closed_order_is_late_or_reopens,
            an_order_paid_before_is_adopted,
            a_row_that_comes_later_is_found,
            a_collation_that_folds_pays_no_other_order,
            a_failure_leaves_both_tables_untouched,
            refunds_and_closings_reach_their_row,
            registration_and_their_row_agree,
            integers_are_mapped_like_texts,
            without_a_unique_index_only_the_exact_row_is_paid,
            their_table_is_described,
            an_enum_and_an_instant_are_written,
            their_program_works_in_the_same_rows,
            a_taken_key_is_a_conflict,
            a_stale_condition_affects_no_row,
            a_stale_hold_loses,
            a_ghost_is_released_as_a_repeat,
            the_sweeper_books_what_waits_for_something_present,
            one_callback_with_several_facts,
        );
    };
    (@cases $engine:ty, $options:path, $($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            $crate::store::exercise::$case::<$engine>($options(stringify!($case)).await).await;
        }
    )*};
}

/// A database with two effects on `order.paid` and one on everything else.
async fn open<E: Engine>(options: E::Options) -> Story<E> {
    open_with(options, rules()).await
}

async fn open_with<E: Engine>(options: E::Options, rules: Rules) -> Story<E> {
    Database::<E>::migrate(&options).await.unwrap();
    let database = Database::<E>::open(options.clone(), Arc::new(rules.clone())).await.unwrap();
    Story::new(database, options, rules)
}

/// F038 F044 F045 F051: repeats of every sort are one booking.
pub async fn a_payment_is_booked_once_however_often<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    for _ in 0..20 {
        assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Repeated);
    }
    story.database.flush().await.unwrap();
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.order.paid, view.order.version), (OrderStatus::Paid, 100, 1));
    assert_eq!(view.flow.len(), 1);
    assert_eq!((view.flow[0].repeats, view.flow[0].source.as_str()), (20, "callback"));
    assert_eq!(keys(&view), ["default:O1:order-paid:points", "default:O1:order-paid:ship"]);
    assert_eq!(view.callbacks.len(), 1, "the bytes of the first copy");
    assert_eq!(view.order.paid_at, Some(view.flow[0].row.booked_at));
}

/// Equal key and fingerprint merge in memory; the first copy is Applied, the others Repeated.
pub async fn copies_in_one_batch_are_one_fact<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let deliveries = (0..50).map(|_| story.delivery(story.payment("O1", "T1", 100))).collect();
    let outcomes = story.book(deliveries).await;
    let applied = outcomes.iter().flatten().filter(|outcome| matches!(outcome, Outcome::Applied(_))).count();
    assert_eq!((applied, outcomes.len()), (1, 50));
    assert_eq!(outcomes.iter().flatten().filter(|outcome| **outcome == Outcome::Repeated).count(), 49);
    let view = story.view("O1").await;
    assert_eq!((view.flow.len(), view.flow[0].repeats, view.effects.len()), (1, 49, 2));
}

/// `O1a`, `O1A`, `O1a ` and CJK are four numbers.
pub async fn numbers_are_compared_byte_by_byte<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let numbers = ["O1a", "O1A", "O1a ", "订单1", "订单２", "O%1", "O:1"];
    for number in numbers {
        story.register(number, 100).await;
    }
    for (index, number) in numbers.iter().enumerate() {
        assert_eq!(
            story.pay(number, &format!("T{index}"), 100).await,
            Outcome::Applied(Disposition::Fits),
            "{number:?}"
        );
    }
    for number in numbers {
        let view = story.view(number).await;
        assert_eq!((view.order.status, view.flow.len()), (OrderStatus::Paid, 1), "{number:?}");
    }
}

/// The callback overtakes the shop's own commit: held with its bytes, refused for the grace time, then
/// acknowledged; registration books it, and nothing is left for the sweeper.
pub async fn an_unknown_order_waits_and_registration_releases_it<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let first = story.now();
    let held = story.pay("O1", "T1", 100).await;
    assert_eq!(held, Outcome::Held { reason: HoldReason::UnknownOrder, first_seen: first });
    let grace = Duration::from_secs(600);
    assert!(!held.is_acknowledged(first.plus(Duration::from_secs(599)), grace));
    story.later(Duration::from_secs(5));
    assert_eq!(story.pay("O1", "T1", 100).await, held, "first_seen stays");
    assert_eq!(story.database.counts().await.unwrap().held, 1);
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 0);

    story.register("O1", 100).await;
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.flow.len(), view.held.len()), (OrderStatus::Paid, 1, 0));
    assert_eq!(view.callbacks.len(), 1, "the bytes kept with the hold stand behind the booking");
    assert_eq!(view.flow[0].repeats, 1);
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Repeated);
    assert_eq!(story.database.counts().await.unwrap().held, 0);
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 0);
}

/// Registration is read, decide, write like any fact.
pub async fn registering_again_is_a_repeat_or_refused<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let one = story.registration("O1", 100);
    assert_eq!(story.database.register(&one).await.unwrap(), Ok(Registered::Created));
    assert_eq!(story.database.register(&one).await.unwrap(), Ok(Registered::Repeated));
    let other_amount = story.registration("O1", 101);
    assert_eq!(story.database.register(&other_amount).await.unwrap(), Err(Refused::AmountDiffers(one.money)));
    let mut other_kind = one.clone();
    other_kind.kind = crate::ids::OrderKind::new("recharge").unwrap();
    assert!(matches!(story.database.register(&other_kind).await.unwrap(), Err(Refused::KindDiffers(_))));
    let mut thief = story.registration("O2", 100);
    thief.attempts = one.attempts.clone();
    assert!(matches!(story.database.register(&thief).await.unwrap(), Err(Refused::NumberTaken(..))));
    assert!(story.database.order(&thief.id.shop, &thief.id.order_no).await.unwrap().is_none(), "nothing is half-done");
    let mut more = one.clone();
    more.attempts
        .insert(Number { out_trade_no: crate::ids::OutTradeNo::new("O1-2").unwrap(), ..story.number("O1") }, 100);
    assert_eq!(story.database.register(&more).await.unwrap(), Ok(Registered::Extended));
    let mut cheaper = one.clone();
    cheaper.attempts.values_mut().for_each(|amount| *amount = 1);
    assert!(matches!(story.database.register(&cheaper).await.unwrap(), Err(Refused::AttemptAmountDiffers(_, 100))));
    let mut none = story.registration("O3", 100);
    none.attempts.clear();
    assert_eq!(story.database.register(&none).await.unwrap(), Err(Refused::NoNumber));
    assert_eq!(story.view("O1").await.attempts.len(), 3);
}

/// F073 F068: signed only means that the platform sent it.
pub async fn money_that_does_not_fit_is_booked_beside_the_order<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 99_900).await;
    assert_eq!(story.pay("O1", "T1", 1).await, Outcome::Applied(Disposition::Mismatched));
    let mut dollars = story.payment("O1", "T2", 99_900);
    dollars.money = dollars
        .money
        .map(|money| crate::money::Money { currency: crate::money::Currency::parse("USD").unwrap(), ..money });
    assert_eq!(story.book_one(dollars).await, Outcome::Applied(Disposition::Mismatched));
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.order.paid, view.order.unapplied), (OrderStatus::Pending, 0, 1));
    assert_eq!((view.flow.len(), view.effects.len()), (2, 2), "booked and announced, both");
    assert!(view.effects.iter().all(|effect| effect.event == "payment.mismatched"));
    assert_eq!(story.pay("O1", "T1", 1).await, Outcome::Repeated);
    assert_eq!(story.pay("O1", "T3", 99_900).await, Outcome::Applied(Disposition::Fits), "the right money still pays");
    assert_eq!(story.view("O1").await.order.status, OrderStatus::Paid);
}

/// Two good transactions under one number are two payments; each has a key of its own, and the second is surplus.
pub async fn a_second_transaction_under_one_number_is_real_money<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    assert_eq!(story.pay("O1", "T2", 100).await, Outcome::Applied(Disposition::Fits));
    assert_eq!(story.pay("O1", "T2", 100).await, Outcome::Repeated);
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Repeated);
    let view = story.view("O1").await;
    assert_eq!((view.order.paid, view.order.status, view.flow.len()), (200, OrderStatus::Paid, 2));
    let surplus: Vec<&str> = events(&view, "payment.surplus");
    assert_eq!(surplus, ["WXPAY%3A1900000001:WXPAY%3AO1%3APAY%3AT2:note"]);
    assert_eq!(events(&view, "order.paid").len(), 2, "shipped once, points once");
}

/// F043: the buyer opens two sheets for one order and pays both.
pub async fn two_channels_for_one_order_pay_it_once<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let second = story.on_second_channel(story.payment("O1", "A1", 100));
    let outcomes = story.book(vec![story.delivery(story.payment("O1", "T1", 100)), story.delivery(second)]).await;
    assert_eq!(outcomes, vec![vec![Outcome::Applied(Disposition::Fits)]; 2], "both arrived, both are acknowledged");
    let view = story.view("O1").await;
    assert_eq!((view.order.paid, view.order.status), (200, OrderStatus::Paid));
    assert_eq!(events(&view, "order.paid").len(), 2);
    assert_eq!(events(&view, "payment.surplus").len(), 1, "one of them is announced");
}

/// F078: numbers are unique per merchant only.
pub async fn the_same_number_at_two_merchants_is_two_facts<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let mut here = story.registration("O1", 100);
    here.attempts.retain(|number, _| number.merchant.channel() == "WXPAY");
    let mut there = story.registration("O2", 100);
    there.attempts = [(story.on_second_channel(story.payment("O1", "x", 1)), 100)]
        .map(|(notice, amount)| (Number { merchant: notice.merchant, out_trade_no: notice.out_trade_no }, amount))
        .into();
    assert_eq!(story.database.register(&here).await.unwrap(), Ok(Registered::Created));
    assert_eq!(story.database.register(&there).await.unwrap(), Ok(Registered::Created));
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    let other = story.on_second_channel(story.payment("O1", "T1", 100));
    assert_eq!(story.book_one(other).await, Outcome::Applied(Disposition::Fits));
    assert_eq!(story.view("O1").await.order.status, OrderStatus::Paid);
    assert_eq!(story.view("O2").await.order.status, OrderStatus::Paid);
}

/// F113: money for an order that was closed is recorded, announced, and by policy reopens it.
pub async fn money_for_an_ended_order_is_late_or_reopens_it<E: Engine>(options: E::Options) {
    for (policy, disposition, status) in [
        (LatePolicy::Refund, Disposition::Late, OrderStatus::Closed),
        (LatePolicy::Reopen, Disposition::Fits, OrderStatus::Paid),
    ] {
        let story = open_with::<E>(options.clone(), Rules { late: policy, ..rules() }).await;
        let order = format!("O-{policy:?}");
        story.register(&order, 100).await;
        assert_eq!(story.book_one(story.closed(&order)).await, Outcome::Applied(Disposition::Noted));
        assert_eq!(story.view(&order).await.order.status, OrderStatus::Pending, "the other number can still be paid");
        let second = story.on_second_channel(story.closed(&order));
        assert_eq!(story.book_one(second).await, Outcome::Applied(Disposition::Noted));
        assert_eq!(story.view(&order).await.order.status, OrderStatus::Closed);
        let trade = format!("T-{policy:?}");
        assert_eq!(story.pay(&order, &trade, 100).await, Outcome::Applied(disposition));
        assert_eq!(story.pay(&order, &trade, 100).await, Outcome::Repeated);
        let view = story.view(&order).await;
        assert_eq!(view.order.status, status);
        assert_eq!(view.order.paid + view.order.unapplied, 100, "the money is in the books");
        assert_eq!(events(&view, "payment.late").len(), usize::from(policy == LatePolicy::Refund));
        assert_eq!(events(&view, "order.paid").len(), if policy == LatePolicy::Refund { 0 } else { 2 });
    }
}

/// F035: the refund's notice is here before the payment's.
pub async fn refunds_find_their_payment_in_any_order<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let held = story.book_one(refund(story.payment("O1", "T1", 40), "R1")).await;
    assert!(matches!(held, Outcome::Held { reason: HoldReason::AwaitingPayment, .. }), "{held:?}");
    assert_eq!(story.view("O1").await.order.version, 1, "a hold writes what it read");
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    let view = story.view("O1").await;
    assert_eq!((view.order.paid, view.order.refunded), (100, 40));
    assert_eq!((view.order.status, view.held.len()), (OrderStatus::PartiallyRefunded, 0));
    assert_eq!((events(&view, "order.paid").len(), events(&view, "order.refunded").len()), (2, 1));
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 40), "R1")).await, Outcome::Repeated);
    assert_eq!(story.database.counts().await.unwrap().held, 0);
}

/// F047 F089: a second partial refund is no repeat of the first, and the refund of a surplus leaves the order paid.
pub async fn two_partial_refunds_are_two_facts<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.pay("O1", "T1", 100).await;
    story.pay("O1", "T2", 100).await;
    assert_eq!(story.book_one(refund(story.payment("O1", "T2", 100), "R0")).await, Outcome::Applied(Disposition::Fits));
    let view = story.view("O1").await;
    assert_eq!((view.order.status, events(&view, "order.refunded").len()), (OrderStatus::Paid, 0));
    for (number, refunded, status) in [
        ("R1", 130, OrderStatus::PartiallyRefunded),
        ("R2", 160, OrderStatus::PartiallyRefunded),
        ("R3", 190, OrderStatus::PartiallyRefunded),
    ] {
        assert_eq!(
            story.book_one(refund(story.payment("O1", "T1", 30), number)).await,
            Outcome::Applied(Disposition::Fits)
        );
        assert_eq!(story.book_one(refund(story.payment("O1", "T1", 30), number)).await, Outcome::Repeated);
        let view = story.view("O1").await;
        assert_eq!((view.order.refunded, view.order.status), (refunded, status), "{number}");
    }
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 30), "R4")).await, Outcome::Applied(Disposition::Fits));
    let view = story.view("O1").await;
    assert_eq!((view.order.refunded, view.order.status), (200, OrderStatus::Refunded), "never more than was paid");
    assert_eq!(events(&view, "order.refunded").len(), 4);
    assert_eq!(
        story.pay("O1", "T9", 100).await,
        Outcome::Applied(Disposition::Late),
        "it does not come back by itself"
    );
}

/// A refund whose own amount the platform does not say is never guessed.
pub async fn a_refund_of_unknown_amount_waits<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.pay("O1", "T1", 100).await;
    let mut unknown = refund(story.payment("O1", "T1", 1), "R1");
    unknown.money = None;
    let held = story.book_one(unknown.clone()).await;
    assert!(matches!(held, Outcome::Held { reason: HoldReason::AmountUnknown, .. }), "{held:?}");
    assert_eq!(story.view("O1").await.order.refunded, 0);
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 70), "R1")).await, Outcome::Applied(Disposition::Fits));
    let view = story.view("O1").await;
    assert_eq!((view.order.refunded, view.held.len()), (70, 0), "the hold went when its key was booked");
    assert_eq!(story.book_one(unknown).await, Outcome::Repeated);
}

/// F033 F046 F088: a late word about an earlier attempt unpays nothing, and waiting states use up no key.
pub async fn a_closing_never_unpays<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let mut order = story.registration("O1", 100);
    order
        .attempts
        .insert(Number { out_trade_no: crate::ids::OutTradeNo::new("O1-A").unwrap(), ..story.number("O1") }, 100);
    story.database.register(&order).await.unwrap().unwrap();
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    let mut earlier = story.closed("O1");
    earlier.out_trade_no = crate::ids::OutTradeNo::new("O1-A").unwrap();
    assert_eq!(story.book_one(earlier.clone()).await, Outcome::Applied(Disposition::Noted));
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Repeated);
    assert_eq!(story.book_one(earlier).await, Outcome::Repeated);
    let held = story.book_one(story.closed("O1")).await;
    assert!(matches!(held, Outcome::Held { reason: HoldReason::ClosedButPaid, .. }), "{held:?}");
    let view = story.view("O1").await;
    assert_eq!((view.order.status, events(&view, "order.paid").len()), (OrderStatus::Paid, 2));
    let closed: Vec<&str> =
        view.attempts.iter().filter(|a| a.closed_at.is_some()).map(|a| a.number.out_trade_no.as_str()).collect();
    assert_eq!(closed, ["O1-A"]);
}

/// The same transaction with another amount: neither is believed over the other.
pub async fn a_contradiction_waits_for_a_person<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    story.pay("O1", "T1", 100).await;
    for _ in 0..2 {
        let held = story.pay("O1", "T1", 99).await;
        assert!(matches!(held, Outcome::Held { reason: HoldReason::Contradiction, .. }), "{held:?}");
    }
    let view = story.view("O1").await;
    assert_eq!((view.order.paid, view.flow.len(), view.held.len()), (100, 1, 1));
    assert_eq!(view.held[0].seen, 2);
    // Both in one batch: the first books, the second contradicts it.
    story.register("O2", 100).await;
    let both = vec![story.delivery(story.payment("O2", "T2", 100)), story.delivery(story.payment("O2", "T2", 99))];
    let outcomes = story.book(both).await;
    assert_eq!(outcomes.iter().flatten().filter(|outcome| matches!(outcome, Outcome::Applied(_))).count(), 1);
    assert_eq!(story.view("O2").await.held.len(), 1);
}

/// F057 F063: whichever statement fails, nothing is left of the try, and the next delivery books.
pub async fn a_failure_at_any_statement_leaves_nothing<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let mut failures = 0;
    for statement in 0.. {
        let order = format!("O{statement}");
        let trade = format!("T{statement}");
        story.register(&order, 100).await;
        let batch = Batch::of(vec![story.delivery(story.payment(&order, &trade, 100))], story.now());
        let mut connection = Faulty::new(E::connect(&story.options).await.unwrap(), statement);
        let booked = connection.book(&batch, &story.rules).await;
        drop(connection);
        let view = story.view(&order).await;
        if booked.is_ok() {
            assert_eq!((view.flow.len(), view.effects.len()), (1, 2));
            break;
        }
        failures += 1;
        assert_eq!((view.order.status, view.order.version), (OrderStatus::Pending, 0), "statement {statement}");
        assert!(view.flow.is_empty() && view.effects.is_empty() && view.callbacks.is_empty(), "statement {statement}");
        assert_eq!(story.pay(&order, &trade, 100).await, Outcome::Applied(Disposition::Fits));
        assert_eq!(story.view(&order).await.effects.len(), 2);
    }
    assert!(failures >= 7, "only {failures} statements were failed");
}

/// The unique index and the conditional UPDATE make it right, without any lock: what was read before
/// another's commit cannot be written after it.
pub async fn a_stale_reading_loses<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    story.register("O1", 100).await;
    let batch = Batch::of(vec![story.delivery(story.payment("O1", "T1", 100))], story.now());
    let mut connection = E::connect(&story.options).await.unwrap();
    connection.begin().await.unwrap();
    let stale = crate::apply::read_plan(&mut connection, &batch, &story.rules).await.unwrap();
    connection.rollback().await.unwrap();
    assert_eq!(story.pay("O1", "T1", 100).await, Outcome::Applied(Disposition::Fits));
    connection.begin().await.unwrap();
    let lost = crate::apply::write(&mut connection, &batch, stale, Repeats::CountNow).await;
    assert!(lost.is_err_and(|error| error.is_conflict()), "the winner's row was overwritten");
    connection.rollback().await.unwrap();
    let view = story.view("O1").await;
    assert_eq!((view.order.version, view.flow.len(), view.effects.len()), (1, 1, 2));
}

/// A fact that cannot be booked (its effect's key is taken by something else) fails alone.
pub async fn one_poisoned_fact_fails_alone<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let orders: Vec<String> = (0..20).map(|index| format!("O{index}")).collect();
    for order in &orders {
        story.register(order, 100).await;
    }
    story.owe(story.foreign_effect("default:O7:order-paid:ship")).await;
    let deliveries =
        orders.iter().map(|order| story.delivery(story.payment(order, &format!("T-{order}"), 100))).collect();
    let outcomes = story.book(deliveries).await;
    for (order, outcome) in orders.iter().zip(&outcomes) {
        let want = if order == "O7" { Outcome::Undecided } else { Outcome::Applied(Disposition::Fits) };
        assert_eq!(outcome, &[want], "{order}");
        let flow = story.view(order).await.flow.len();
        assert_eq!(flow, usize::from(order != "O7"), "{order}");
    }
}

/// F019: emoji, quotes, NUL and bytes that are no text.
pub async fn bytes_and_texts_come_back_as_they_went_in<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    for (index, body) in
        [&b"{\"attach\":\"\xF0\x9F\x8E\x81\xF0\xA0\xAE\xB7\"}"[..], b"\0\x01\xFF\xFE\xD6", b"", b"'\"\\"]
            .iter()
            .enumerate()
    {
        let order = format!("O{index}");
        let mut registration = story.registration(&order, 100);
        registration.meta =
            serde_json::json!({"sku": "'; DROP TABLE payonce_order; --", "gift": "🎁𠮷", "n": "a\"b\\c"}).to_string();
        story.database.register(&registration).await.unwrap().unwrap();
        let mut delivery = story.delivery(story.payment(&order, &format!("T{index}"), 100));
        delivery.evidence.as_mut().unwrap().body = body.to_vec();
        let id = delivery.evidence.as_ref().unwrap().id.clone();
        story.book(vec![delivery]).await;
        let view = story.view(&order).await;
        assert_eq!(view.order.meta, registration.meta);
        let payload: serde_json::Value = serde_json::from_str(&view.effects[0].payload).unwrap();
        assert_eq!(payload["meta"]["gift"], "🎁𠮷");
        assert_eq!(story.body_of(&id).await, *body);
    }
}

/// Signed messages that no fact stands for: once per body, and only so many an hour.
pub async fn unbelieved_bytes_are_kept_once_and_capped<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let unbelieved = |hash: &str| {
        let mut evidence = evidence(&story.account(), story.now());
        evidence.verdict = "undecryptable".to_owned();
        evidence.body_hash = hash.to_owned();
        Delivery { notices: Vec::new(), evidence: Some(evidence), keep: true }
    };
    let same = (0..5).map(|_| unbelieved("a")).collect();
    assert_eq!(story.book(same).await, vec![Vec::<Outcome>::new(); 5]);
    assert_eq!(story.count_callbacks().await, 1);
    let many = (0..crate::apply::UNBELIEVED_PER_HOUR + 50).map(|index| unbelieved(&format!("h{index}"))).collect();
    story.book(many).await;
    assert_eq!(story.count_callbacks().await, crate::apply::UNBELIEVED_PER_HOUR);
}

/// F034: final state is a function of the set of facts, not of order, repetition or batching.
pub async fn any_order_of_arrival_ends_the_same<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let mut seen: Option<(OrderStatus, i64, i64, Vec<String>, usize)> = None;
    for round in 0..24_u64 {
        let order = format!("O{round:02}");
        let payment = story.payment(&order, &format!("T{round:02}"), 100);
        let mut facts = vec![
            payment.clone(),
            refund(
                Notice { money: payment.money.map(|m| crate::money::Money { amount: 30, ..m }), ..payment.clone() },
                "R1",
            ),
            refund(
                Notice { money: payment.money.map(|m| crate::money::Money { amount: 20, ..m }), ..payment.clone() },
                "R2",
            ),
            Notice { source: crate::notice::Source::Query, ..payment.clone() },
        ];
        facts.extend(facts.clone());
        story::shuffle(&mut facts, round);
        let registered_at = (round % 9) as usize;
        for (index, chunk) in facts.chunks(1 + (round % 3) as usize).enumerate() {
            if index == registered_at {
                story.register(&order, 100).await;
            }
            story.book(chunk.iter().map(|notice| story.delivery(notice.clone())).collect()).await;
        }
        story.register(&order, 100).await;
        let view = story.view(&order).await;
        let mut effects: Vec<String> =
            keys(&view).iter().map(|key| key.replace(&order, "O").replace(&format!("T{round:02}"), "T")).collect();
        effects.sort();
        let end = (view.order.status, view.order.paid, view.order.refunded, effects, view.held.len());
        assert_eq!(seen.get_or_insert_with(|| end.clone()), &end, "round {round}");
    }
    let (status, paid, refunded, effects, held) = seen.unwrap();
    assert_eq!((status, paid, refunded, held), (OrderStatus::PartiallyRefunded, 100, 50, 0));
    assert_eq!(effects.len(), 4, "{effects:?}");
    assert_eq!(story.database.counts().await.unwrap().held, 0);
}

/// Migrations have a table of their own, and run once.
pub async fn migrating_again_changes_nothing<E: Engine>(options: E::Options) {
    assert!(!Database::<E>::migrate(&options).await.unwrap().is_empty());
    assert_eq!(Database::<E>::migrate(&options).await.unwrap(), Vec::<i64>::new());
    let database = Database::<E>::open(options, Arc::new(Rules::default())).await.unwrap();
    assert_eq!(database.doubts().await.unwrap(), Vec::<String>::new(), "the settings are durable");
    assert_eq!(database.counts().await.unwrap(), crate::store::Counts::default());
}

fn keys(view: &OrderView) -> Vec<&str> {
    let mut keys: Vec<&str> = view.effects.iter().map(|effect| effect.key.as_str()).collect();
    keys.sort_unstable();
    keys
}

fn events<'a>(view: &'a OrderView, event: &str) -> Vec<&'a str> {
    view.effects.iter().filter(|effect| effect.event == event).map(|effect| effect.key.as_str()).collect()
}
