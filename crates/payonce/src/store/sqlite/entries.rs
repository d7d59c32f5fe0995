//! What a batch of facts writes: orders, keys, ledger, effects, evidence, each row by a statement of its own.
//!
//! Here: the statements, and a row as the values of one. Not here: what is written (`apply`), or the other
//! statements (`sqlite`).

use super::Cell;
use crate::store::{Effect, Evidence, FlowRow, KeyRow, OrderUpdate};

pub(super) const ORDERS: &str = "\
    UPDATE payonce_order
    SET status = ?3, paid = ?4, refunded = ?5, unapplied = ?6, version = version + 1, closed_at = ?7,
        paid_at = ?8, amount = ?9
    WHERE shop = ?1 AND order_no = ?2 AND status = ?10 AND version = ?11";

pub(super) fn order(update: &OrderUpdate) -> [Cell<'_>; 11] {
    let order = &update.order;
    [
        order.id.shop.as_str().into(),
        order.id.order_no.as_str().into(),
        order.status.as_str().into(),
        order.paid.into(),
        order.refunded.into(),
        order.unapplied.into(),
        order.closed_at.map(|at| at.0).into(),
        order.paid_at.map(|at| at.0).into(),
        order.money.amount.into(),
        update.was_status.as_str().into(),
        update.was_version.into(),
    ]
}

pub(super) const KEYS: &str = "\
    INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source,
                                     repeats, last_seen, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)";

pub(super) fn key(row: &KeyRow) -> [Cell<'_>; 10] {
    let money = row.fingerprint.money.as_ref();
    [
        row.id.merchant.as_str().into(),
        row.id.key.as_str().into(),
        row.fingerprint.trade_no.as_ref().map(|trade_no| trade_no.as_str()).into(),
        money.map(|money| money.amount).into(),
        money.map(|money| money.currency.as_str()).into(),
        row.order.shop.as_str().into(),
        row.order.order_no.as_str().into(),
        row.source.as_str().into(),
        row.repeats.into(),
        row.at.0.into(),
    ]
}

pub(super) const FLOW: &str = "\
    INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no,
                                    amount, currency, trade_no, full_refund, account, callback_id,
                                    occurred_at, booked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

pub(super) fn flow(row: &FlowRow) -> [Cell<'_>; 15] {
    [
        row.number.merchant.as_str().into(),
        row.number.out_trade_no.as_str().into(),
        row.key.as_str().into(),
        row.kind.as_str().into(),
        row.disposition.as_str().into(),
        row.order.shop.as_str().into(),
        row.order.order_no.as_str().into(),
        row.money.amount.into(),
        row.money.currency.as_str().into(),
        row.trade_no.as_ref().map(|trade_no| trade_no.as_str()).into(),
        i64::from(row.full_refund).into(),
        row.account.as_str().into(),
        row.callback_id.as_deref().into(),
        row.occurred_at.map(|at| at.0).into(),
        row.booked_at.0.into(),
    ]
}

pub(super) const EFFECTS: &str = "\
    INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload,
                                state, after, tries, due_at, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'ready', ?10, 0, ?11, ?12)";

pub(super) fn effect(effect: &Effect) -> [Cell<'_>; 12] {
    [
        effect.key.as_str().into(),
        effect.fact.merchant.as_str().into(),
        effect.fact.key.as_str().into(),
        effect.order.shop.as_str().into(),
        effect.order.order_no.as_str().into(),
        effect.event.as_str().into(),
        effect.name.as_str().into(),
        effect.sink.as_str().into(),
        effect.payload.as_str().into(),
        effect.after.as_ref().map(|key| key.as_str()).into(),
        effect.due_at.0.into(),
        effect.created_at.0.into(),
    ]
}

pub(super) const EVIDENCE: &str = "\
    INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Both ways of keeping a message's bytes name the columns in this order.
pub(super) fn evidence(one: &Evidence) -> [Cell<'_>; 8] {
    [
        one.id.as_str().into(),
        one.account.as_str().into(),
        one.received_at.0.into(),
        one.headers.as_str().into(),
        one.body.as_slice().into(),
        one.body_hash.as_str().into(),
        one.verdict.as_str().into(),
        one.key_id.as_deref().into(),
    ]
}
