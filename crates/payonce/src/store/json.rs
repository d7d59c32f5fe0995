//! The one bound JSON array of each statement.
//!
//! Here: how rows are spelled for the engines to unfold, with short member names, in one place for all
//! engines. Not here: SQL. Parts that are not known are null.

use std::borrow::Cow;

use serde::Serialize;

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use crate::order::Number;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::own_table::{OwnTable, OwnUpdate};
#[cfg(feature = "mysql")]
use crate::store::OrderUpdate;
use crate::{
    order::{Attempt, Order, OrderId},
    store::{AttemptUpdate, Finished, Held, Repeat},
};

/// Rows are made of texts and integers, so serialising them cannot fail.
fn array<T: Serialize>(rows: impl Iterator<Item = T>) -> String {
    serde_json::to_string(&rows.collect::<Vec<_>>()).unwrap_or_else(|_| "[]".to_owned())
}

/// `[{"m":merchant,"n":out_trade_no}]`
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn numbers(numbers: &[Number]) -> String {
    #[derive(Serialize)]
    struct Row<'a> {
        m: &'a str,
        n: &'a str,
    }
    array(numbers.iter().map(|number| Row { m: number.merchant.as_str(), n: number.out_trade_no.as_str() }))
}

/// `[{"s":shop,"o":order_no}]`
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn order_ids(orders: &[OrderId]) -> String {
    #[derive(Serialize)]
    struct Row<'a> {
        s: &'a str,
        o: &'a str,
    }
    array(orders.iter().map(|id| Row { s: id.shop.as_str(), o: id.order_no.as_str() }))
}

#[derive(Serialize)]
struct AttemptJson<'a> {
    m: &'a str,
    n: &'a str,
    s: Option<&'a str>,
    o: Option<&'a str>,
    a: Option<i64>,
    st: &'static str,
    c: Option<i64>,
    had: Option<&'a str>,
}

fn attempt_row<'a>(attempt: &'a Attempt, had: Option<&'a OrderId>) -> AttemptJson<'a> {
    AttemptJson {
        m: attempt.number.merchant.as_str(),
        n: attempt.number.out_trade_no.as_str(),
        s: attempt.order.as_ref().map(|id| id.shop.as_str()),
        o: attempt.order.as_ref().map(|id| id.order_no.as_str()),
        a: attempt.amount,
        st: attempt.state.as_str(),
        c: attempt.closed_at.map(|at| at.0),
        had: had.map(|id| id.order_no.as_str()),
    }
}

/// Attempts to insert.
pub(crate) fn attempts(attempts: &[Attempt]) -> String {
    array(attempts.iter().map(|attempt| attempt_row(attempt, None)))
}

/// Attempts to update; `had` is the order_no that was read.
pub(crate) fn attempt_updates(updates: &[AttemptUpdate]) -> String {
    array(updates.iter().map(|update| attempt_row(&update.attempt, update.had_order.as_ref())))
}

#[derive(Serialize)]
struct OrderJson<'a> {
    s: &'a str,
    o: &'a str,
    k: &'a str,
    cu: &'a str,
    a: i64,
    st: &'static str,
    p: i64,
    r: i64,
    u: i64,
    v: i64,
    cl: Option<i64>,
    pd: Option<i64>,
    cr: i64,
    me: &'a str,
    st0: &'static str,
    v0: i64,
}

fn order_row<'a>(order: &'a Order, was: (&'static str, i64)) -> OrderJson<'a> {
    OrderJson {
        s: order.id.shop.as_str(),
        o: order.id.order_no.as_str(),
        k: order.kind.as_str(),
        cu: order.money.currency.as_str(),
        a: order.money.amount,
        st: order.status.as_str(),
        p: order.paid,
        r: order.refunded,
        u: order.unapplied,
        v: order.version,
        cl: order.closed_at.map(|at| at.0),
        pd: order.paid_at.map(|at| at.0),
        cr: order.created_at.0,
        me: &order.meta,
        st0: was.0,
        v0: was.1,
    }
}

/// Orders to insert.
pub(crate) fn orders(orders: &[Order]) -> String {
    array(orders.iter().map(|order| order_row(order, (order.status.as_str(), order.version))))
}

/// Orders to update; `st0` and `v0` are what was read.
#[cfg(feature = "mysql")]
pub(crate) fn order_updates(updates: &[OrderUpdate]) -> String {
    array(updates.iter().map(|update| order_row(&update.order, (update.was_status.as_str(), update.was_version))))
}

#[derive(Serialize)]
struct RepeatJson<'a> {
    m: &'a str,
    k: &'a str,
    n: i64,
    at: i64,
    t: Option<&'a str>,
    a: Option<i64>,
    cu: Option<&'a str>,
}

/// Repeats to count, and what they know.
pub(crate) fn repeats(repeats: &[Repeat]) -> String {
    array(repeats.iter().map(|repeat| RepeatJson {
        m: repeat.id.merchant.as_str(),
        k: repeat.id.key.as_str(),
        n: repeat.times,
        at: repeat.last_seen.0,
        t: repeat.fingerprint.trade_no.as_ref().map(|trade_no| trade_no.as_str()),
        a: repeat.fingerprint.money.map(|money| money.amount),
        cu: repeat.fingerprint.money.as_ref().map(|money| money.currency.as_str()),
    }))
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Serialize)]
#[serde(untagged)]
enum TimeJson {
    Number(i64),
    Text(String),
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Serialize)]
struct OwnJson<'a> {
    o: &'a str,
    at: Option<TimeJson>,
    t: Option<&'a str>,
}

/// Rows of the user's own table to change, with the time as its column wants it.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn own_updates(table: &OwnTable, rows: &[OwnUpdate]) -> String {
    let form = table.paid_at.as_ref().map(|(_, form)| *form);
    let time = |at| match form? {
        form if form.is_number() => Some(TimeJson::Number(form.number(at))),
        form => Some(TimeJson::Text(form.text(at))),
    };
    array(rows.iter().map(|row| OwnJson {
        o: row.order_no.as_str(),
        at: row.paid_at.and_then(time),
        t: row.trade_no.as_ref().map(|trade_no| trade_no.as_str()),
    }))
}

#[derive(Serialize)]
struct FinishedJson<'a> {
    e: &'a str,
    st: &'static str,
    du: i64,
    er: Option<Cow<'a, str>>,
}

/// Ends of tries. What a receiver answered may hold a NUL, which not every engine can store.
pub(crate) fn finished(finished: &[Finished]) -> String {
    array(finished.iter().map(|end| FinishedJson {
        e: end.key.as_str(),
        st: end.state.as_str(),
        du: end.due_at.0,
        er: end.error.as_deref().map(|error| match error.contains('\0') {
            true => Cow::Owned(error.replace('\0', "\u{FFFD}")),
            false => Cow::Borrowed(error),
        }),
    }))
}

#[derive(Serialize)]
struct HeldJson<'a> {
    m: &'a str,
    n: &'a str,
    k: &'a str,
    f: &'a str,
    re: &'static str,
    no: String,
    cb: Option<&'a str>,
    se: i64,
    fi: i64,
    la: i64,
}

/// Held notices.
pub(crate) fn held(held: &[Held]) -> String {
    array(held.iter().map(|held| HeldJson {
        m: held.number.merchant.as_str(),
        n: held.number.out_trade_no.as_str(),
        k: held.key.as_str(),
        f: &held.fingerprint,
        re: held.reason.as_str(),
        no: serde_json::to_string(&held.notice).unwrap_or_default(),
        cb: held.callback_id.as_deref(),
        se: held.seen,
        fi: held.first_seen.0,
        la: held.last_seen.0,
    }))
}
