//! What a batch of facts writes, as one statement: orders, keys, ledger, effects, evidence.
//!
//! Here: its text and its values, an array for each column, which unfold at a fraction of what JSON costs. One
//! statement instead of five saves four turns to the server and back, which is most of what a lone callback waits for.
//! Not here: what is written (`apply`), or the other statements (`postgres`).

use super::Sql;
use crate::store::{Effect, Evidence, FlowRow, KeyRow, OrderUpdate};

/// Rows as a column.
fn column<'a, R, T>(rows: &'a [R], cell: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(cell).collect()
}

/// The conditional UPDATE. Rows are found one after the other (see `each`), by their place: their locks hold them there.
macro_rules! update_orders {
    () => {
        concat!(
            "UPDATE payonce_order AS o
             SET status = j.st, paid = j.p, refunded = j.r, unapplied = j.u, version = o.version + 1,
                 closed_at = j.cl, paid_at = j.pd, amount = j.a
             FROM (SELECT j.*, x.at
                   FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
                               $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[])
                     AS j(s, o, a, st, p, r, u, cl, pd, st0, v0)",
            each!(payonce_order as x, "ctid AS at", "shop = j.s AND order_no = j.o", "OFFSET 0"),
            ") AS j WHERE o.ctid = j.at AND o.status = j.st0 AND o.version = j.v0"
        )
    };
}

pub(super) const UPDATE_ORDERS: &str = update_orders!();

pub(super) const BOOK: &str = concat!(
    "WITH o AS (",
    update_orders!(),
    " RETURNING 1), k AS (
        INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source,
                                         repeats, last_seen, created_at)
        SELECT m, k, t, a, cu, s, o, so, re, at, at
        FROM unnest($12::text[], $13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[], $18::text[],
                    $19::text[], $20::bigint[], $21::bigint[]) AS j(m, k, t, a, cu, s, o, so, re, at)
    ), f AS (
        INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount,
                                        currency, trade_no, full_refund, account, callback_id, occurred_at, booked_at)
        SELECT * FROM unnest($22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[],
                             $29::bigint[], $30::text[], $31::text[], $32::bigint[], $33::text[], $34::text[],
                             $35::bigint[], $36::bigint[])
    ), e AS (
        INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state,
                                    after, tries, due_at, created_at)
        SELECT e, m, k, s, o, ev, na, si, pa, 'ready', af, 0, du + ",
    shift!("cr"),
    ", cr
        FROM unnest($37::text[], $38::text[], $39::text[], $40::text[], $41::text[], $42::text[], $43::text[],
                    $44::text[], $45::text[], $46::text[], $47::bigint[], $48::bigint[])
          AS j(e, m, k, s, o, ev, na, si, pa, af, du, cr)
    ), c AS (
        INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
        SELECT * FROM unnest($49::text[], $50::text[], $51::bigint[], $52::text[], $53::bytea[], $54::text[],
                             $55::text[], $56::text[])
    ) SELECT count(*) FROM o"
);

pub(super) fn bind_orders(query: Sql, orders: &[OrderUpdate]) -> Sql {
    query
        .bind(column(orders, |update| update.order.id.shop.as_str()))
        .bind(column(orders, |update| update.order.id.order_no.as_str()))
        .bind(column(orders, |update| update.order.money.amount))
        .bind(column(orders, |update| update.order.status.as_str()))
        .bind(column(orders, |update| update.order.paid))
        .bind(column(orders, |update| update.order.refunded))
        .bind(column(orders, |update| update.order.unapplied))
        .bind(column(orders, |update| update.order.closed_at.map(|at| at.0)))
        .bind(column(orders, |update| update.order.paid_at.map(|at| at.0)))
        .bind(column(orders, |update| update.was_status.as_str()))
        .bind(column(orders, |update| update.was_version))
}

pub(super) fn bind_keys(query: Sql, keys: &[KeyRow]) -> Sql {
    query
        .bind(column(keys, |row| row.id.merchant.as_str()))
        .bind(column(keys, |row| row.id.key.as_str()))
        .bind(column(keys, |row| row.fingerprint.trade_no.as_ref().map(|trade_no| trade_no.as_str())))
        .bind(column(keys, |row| row.fingerprint.money.map(|money| money.amount)))
        .bind(column(keys, |row| row.fingerprint.money.as_ref().map(|money| money.currency.as_str())))
        .bind(column(keys, |row| row.order.shop.as_str()))
        .bind(column(keys, |row| row.order.order_no.as_str()))
        .bind(column(keys, |row| row.source.as_str()))
        .bind(column(keys, |row| row.repeats))
        .bind(column(keys, |row| row.at.0))
}

pub(super) fn bind_flow(query: Sql, rows: &[FlowRow]) -> Sql {
    query
        .bind(column(rows, |row| row.number.merchant.as_str()))
        .bind(column(rows, |row| row.number.out_trade_no.as_str()))
        .bind(column(rows, |row| row.key.as_str()))
        .bind(column(rows, |row| row.kind.as_str()))
        .bind(column(rows, |row| row.disposition.as_str()))
        .bind(column(rows, |row| row.order.shop.as_str()))
        .bind(column(rows, |row| row.order.order_no.as_str()))
        .bind(column(rows, |row| row.money.amount))
        .bind(column(rows, |row| row.money.currency.as_str()))
        .bind(column(rows, |row| row.trade_no.as_ref().map(|trade_no| trade_no.as_str())))
        .bind(column(rows, |row| i64::from(row.full_refund)))
        .bind(column(rows, |row| row.account.as_str()))
        .bind(column(rows, |row| row.callback_id.as_deref()))
        .bind(column(rows, |row| row.occurred_at.map(|at| at.0)))
        .bind(column(rows, |row| row.booked_at.0))
}

pub(super) fn bind_effects(query: Sql, effects: &[Effect]) -> Sql {
    query
        .bind(column(effects, |effect| effect.key.as_str()))
        .bind(column(effects, |effect| effect.fact.merchant.as_str()))
        .bind(column(effects, |effect| effect.fact.key.as_str()))
        .bind(column(effects, |effect| effect.order.shop.as_str()))
        .bind(column(effects, |effect| effect.order.order_no.as_str()))
        .bind(column(effects, |effect| effect.event.as_str()))
        .bind(column(effects, |effect| effect.name.as_str()))
        .bind(column(effects, |effect| effect.sink.as_str()))
        .bind(column(effects, |effect| effect.payload.as_str()))
        .bind(column(effects, |effect| effect.after.as_ref().map(|key| key.as_str())))
        .bind(column(effects, |effect| effect.due_at.0))
        .bind(column(effects, |effect| effect.created_at.0))
}

pub(super) fn bind_evidence(query: Sql, evidence: &[Evidence]) -> Sql {
    query
        .bind(column(evidence, |one| one.id.as_str()))
        .bind(column(evidence, |one| one.account.as_str()))
        .bind(column(evidence, |one| one.received_at.0))
        .bind(column(evidence, |one| one.headers.as_str()))
        .bind(column(evidence, |one| one.body.as_slice()))
        .bind(column(evidence, |one| one.body_hash.as_str()))
        .bind(column(evidence, |one| one.verdict.as_str()))
        .bind(column(evidence, |one| one.key_id.as_deref()))
}
