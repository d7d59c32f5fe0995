//! `decide`: what one fact means for one order. A pure function: no I/O, no clock, table-tested.
//!
//! Where the shop's own table has a row of the order, that row is part of the question: it says whether the shop
//! closed the order, or saw to a payment itself, before payonce knew of it. `own_change` is its answer there.
//!
//! Here: the table of design section 7.1. Not here: whether the fact is booked already (`plan`, with the
//! keys), or how anything is written.

use crate::{
    ids::{Merchant, TradeNo},
    key::IdemKey,
    money::Money,
    notice::{Fact, Notice},
    order::{Attempt, AttemptState, Number, Order, OrderStatus, Payment, Sums},
    outcome::{Disposition, HoldReason},
    own_table::{OwnChange, OwnOrder, OwnState, OwnTable},
    rules::{Event, LatePolicy},
    time::Micros,
};

/// An order, its numbers, and the payments booked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The order.
    pub order: Order,
    /// Its attempts, as far as they were read: those of the batch, and all of them if one is reported closed.
    pub attempts: Vec<Attempt>,
    /// Its booked payments.
    pub payments: Vec<Payment>,
    /// What the shop's own table says of it, if it has a row there.
    pub own: Option<OwnOrder>,
}

impl Case {
    /// Books a refund against the payment it is of; that payment's disposition, if it is here.
    pub(crate) fn give_back(
        &mut self,
        merchant: &Merchant,
        trade_no: Option<&TradeNo>,
        amount: i64,
        full: bool,
    ) -> Option<Disposition> {
        let payment = self
            .payments
            .iter_mut()
            .find(|payment| payment.number.merchant == *merchant && payment.trade_no.as_ref() == trade_no)?;
        payment.refunds = payment.refunds.saturating_add(amount);
        payment.fully_returned |= full;
        Some(payment.disposition)
    }

    fn sums(&self) -> Sums {
        Sums::of(&self.payments, self.order.money.currency)
    }

    /// What a payment of this transaction meets, as the order's row and the shop's own say.
    fn stance(&self, trade_no: Option<&TradeNo>, late: LatePolicy) -> Stance {
        let closed = if late == LatePolicy::Refund { Stance::Ended } else { Stance::Open };
        match self.order.status {
            OrderStatus::Refunded => return Stance::Ended,
            OrderStatus::Closed => return closed,
            OrderStatus::Pending | OrderStatus::Paid | OrderStatus::PartiallyRefunded => {}
        }
        let Some(own) = self.own.as_ref().filter(|_| self.order.paid_at.is_none()) else { return Stance::Open };
        if own.state == OwnState::Closed {
            return closed;
        }
        // With a payment that was ours to see to the order is ours to follow, whatever they made of it.
        let is_ours = self.payments.iter().any(|payment| payment.disposition == Disposition::Fits);
        if own.state == OwnState::Pending || is_ours {
            return Stance::Open;
        }
        let theirs = own.trade_no.as_deref();
        let is_same = theirs.is_some() && theirs == trade_no.map(TradeNo::as_str);
        match own.state {
            _ if is_same => Stance::SeenTo,
            OwnState::Refunded => Stance::Ended,
            _ if theirs.is_some() => Stance::PaidByAnother,
            OwnState::Other if own.is_known => Stance::Open,
            _ => Stance::SeenTo,
        }
    }
}

/// What a payment meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stance {
    /// An order that payments count for.
    Open,
    /// One that ended.
    Ended,
    /// One that the shop itself marked as paid, as far as is known by this payment.
    SeenTo,
    /// One that the shop itself marked as paid by another transaction.
    PaidByAnother,
}

/// What is to become of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It is booked; the case has moved on.
    Book(Booking),
    /// It waits.
    Hold(HoldReason),
}

/// How a fact is booked.
#[derive(Clone, Debug, PartialEq)]
pub struct Booking {
    /// How it stands to the order.
    pub disposition: Disposition,
    /// The amount of its ledger row; zero where no money moves.
    pub money: Money,
    /// What it gives rise to, each with the amount it is about.
    pub events: Vec<(Event, i64)>,
}

/// Decides about a fact that is not booked under `key` yet, and moves the case on if it is to be booked.
pub fn decide(case: &mut Case, notice: &Notice, key: &IdemKey, late: LatePolicy, now: Micros) -> Decision {
    match &notice.fact {
        Fact::Payment => decide_payment(case, notice, key, late, now),
        Fact::Refund { full, .. } => decide_refund(case, notice, *full, now),
        Fact::RefundAbnormal { .. } | Fact::RefundClosed { .. } => Decision::Book(noted(case, notice.money)),
        Fact::Closed => decide_closed(case, notice, now),
    }
}

fn noted(case: &Case, money: Option<Money>) -> Booking {
    let nothing = Money { amount: 0, currency: case.order.money.currency };
    Booking { disposition: Disposition::Noted, money: money.unwrap_or(nothing), events: Vec::new() }
}

fn decide_payment(case: &mut Case, notice: &Notice, key: &IdemKey, late: LatePolicy, now: Micros) -> Decision {
    let number = Number { merchant: notice.merchant.clone(), out_trade_no: notice.out_trade_no.clone() };
    // A payment without an amount is not made by any channel; nothing can be said about it.
    let Some(money) = notice.money else { return Decision::Hold(HoldReason::AmountUnknown) };
    let expected = case.attempts.iter().find(|attempt| attempt.number == number).and_then(|attempt| attempt.amount);
    let stance = case.stance(notice.trade_no.as_ref(), late);
    let was_paid = case.order.paid_at.is_some();
    // Their row may say another amount by now; once the order is paid that is their affair.
    let differs = !was_paid && case.own.as_ref().is_some_and(|own| own.money != Some(case.order.money));
    let disposition = if expected != Some(money.amount) || money.currency != case.order.money.currency || differs {
        Disposition::Mismatched
    } else {
        match stance {
            Stance::Open => Disposition::Fits,
            Stance::SeenTo => Disposition::Adopted,
            Stance::Ended | Stance::PaidByAnother => Disposition::Late,
        }
    };
    if stance == Stance::Ended && !was_paid && disposition == Disposition::Late {
        // Closed by them: our row learns it now.
        case.order.closed_at.get_or_insert(now);
    }
    case.payments.push(Payment {
        number,
        key: key.clone(),
        trade_no: notice.trade_no.clone(),
        money,
        disposition,
        refunds: 0,
        fully_returned: false,
    });
    let sums = case.sums();
    case.order.follow(sums, now);
    let mut events = Vec::new();
    match disposition {
        Disposition::Mismatched => events.push((Event::PaymentMismatched, money.amount)),
        Disposition::Late if stance == Stance::PaidByAnother => events.push((Event::PaymentSurplus, money.amount)),
        Disposition::Late => events.push((Event::PaymentLate, money.amount)),
        Disposition::Fits | Disposition::Adopted | Disposition::Noted => {
            if !was_paid && case.order.paid_at.is_some() && disposition != Disposition::Adopted {
                events.push((Event::OrderPaid, case.order.money.amount));
            }
            let over = sums.net - case.order.money.amount;
            if over > 0 {
                events.push((Event::PaymentSurplus, over.min(money.amount)));
            }
        }
    }
    Decision::Book(Booking { disposition, money, events })
}

fn decide_refund(case: &mut Case, notice: &Notice, full: bool, now: Micros) -> Decision {
    let payment = case
        .payments
        .iter()
        .find(|payment| payment.number.merchant == notice.merchant && payment.trade_no == notice.trade_no);
    let (Some(payment), Some(_)) = (payment, &notice.trade_no) else {
        return Decision::Hold(HoldReason::AwaitingPayment);
    };
    let money = match notice.money {
        Some(money) => money,
        // Nothing is left of the payment, so whatever this refund's own amount was, the rest is gone with it.
        None if full => Money { amount: payment.left(), currency: payment.money.currency },
        None => return Decision::Hold(HoldReason::AmountUnknown),
    };
    let before = case.sums().net.min(case.order.money.amount);
    let disposition =
        case.give_back(&notice.merchant, notice.trade_no.as_ref(), money.amount, full).unwrap_or(Disposition::Noted);
    let sums = case.sums();
    case.order.follow(sums, now);
    let lowered = before - sums.net.min(case.order.money.amount);
    let events = if lowered > 0 { vec![(Event::OrderRefunded, lowered)] } else { Vec::new() };
    Decision::Book(Booking { disposition, money, events })
}

fn decide_closed(case: &mut Case, notice: &Notice, now: Micros) -> Decision {
    let is_it = |number: &Number| number.merchant == notice.merchant && number.out_trade_no == notice.out_trade_no;
    if case.payments.iter().any(|payment| is_it(&payment.number) && payment.left() > 0) {
        return Decision::Hold(HoldReason::ClosedButPaid);
    }
    for attempt in &mut case.attempts {
        if is_it(&attempt.number) && attempt.state == AttemptState::Open {
            attempt.state = AttemptState::Closed;
            attempt.closed_at = Some(notice.occurred_at.unwrap_or(now));
        }
    }
    let all_closed = case.attempts.iter().all(|attempt| attempt.state == AttemptState::Closed);
    if all_closed && case.order.closed_at.is_none() && case.order.paid_at.is_none() {
        case.order.closed_at = Some(notice.occurred_at.unwrap_or(now));
    }
    let sums = case.sums();
    case.order.follow(sums, now);
    Decision::Book(noted(case, None))
}

/// What becomes of the shop's own row of an order that was `before` and is `after` what was booked.
///
/// Only from a state that is theirs to give to us: pending, and what we set ourselves. Anything else stays.
pub(crate) fn own_change(table: &OwnTable, before: &Order, after: &Case) -> Option<OwnChange> {
    let own = after.own.as_ref()?;
    let has = |state| !table.words(state).is_empty();
    let is_paid_now = before.paid_at.is_none() && after.order.paid_at.is_some();
    let counts = matches!(after.order.status, OrderStatus::Paid | OrderStatus::PartiallyRefunded);
    let is_back = after.order.status == OrderStatus::Refunded;
    let (to, with_payment) = match own.state {
        OwnState::Pending if counts => (OwnState::Paid, true),
        OwnState::Pending if is_back && has(OwnState::Refunded) => (OwnState::Refunded, true),
        OwnState::Pending if is_back => (OwnState::Paid, true),
        OwnState::Pending if after.order.status == OrderStatus::Closed && has(OwnState::Closed) => {
            (OwnState::Closed, false)
        }
        // The policy `reopen`.
        OwnState::Closed if is_paid_now && counts => (OwnState::Paid, true),
        OwnState::Paid if is_back && has(OwnState::Refunded) => (OwnState::Refunded, false),
        _ => return None,
    };
    Some(OwnChange { from: own.state, to, with_payment })
}
