//! What a batch of facts writes: orders, keys, ledger, effects, evidence, in this order.
//!
//! Here: a statement for each, and a row as its values. Not here: what is written (`apply`), or the other statements
//! (`mysql`).

use sqlx::MySqlConnection;

use super::{Sql, execute, many::Many, query};
use crate::{
    error::Error,
    store::{Effect, Entries, Evidence, FlowRow, KeyRow, OrderUpdate, json},
};

const ORDER: &str = "\
    UPDATE payonce_order
    SET status = ?, paid = ?, refunded = ?, unapplied = ?, version = version + 1, closed_at = ?, paid_at = ?, amount = ?
    WHERE shop = ? AND order_no = ? AND status = ? AND version = ?";

const ORDERS: &str = concat!(
    "UPDATE ",
    array!(
        "s": key, "o": key, "a": int, "st": key, "p": int, "r": int, "u": int, "cl": int, "pd": int, "st0": key,
        "v0": int
    ),
    " STRAIGHT_JOIN payonce_order AS o FORCE INDEX (PRIMARY) ON o.shop = j.s AND o.order_no = j.o
      SET o.status = j.st, o.paid = j.p, o.refunded = j.r, o.unapplied = j.u, o.version = o.version + 1,
          o.closed_at = j.cl, o.paid_at = j.pd, o.amount = j.a
      WHERE o.status = j.st0 AND o.version = j.v0"
);

/// Unfolding an array costs as much as so many statements.
const FEW: usize = 4;

const KEYS: Many = Many::insert(
    "INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source, repeats,
                                      last_seen, created_at) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

const FLOW: Many = Many::insert(
    "INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount,
                                     currency, trade_no, full_refund, account, callback_id, occurred_at,
                                     booked_at) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

const EFFECTS: Many = Many::insert(
    "INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state,
                                 after, tries, due_at, created_at) VALUES ",
    concat!("(?, ?, ?, ?, ?, ?, ?, ?, ?, 'ready', ?, 0, ? + ", shift!("?"), ", ?)"),
);

const EVIDENCE: Many = Many::insert(concat!(evidence!(), " VALUES "), "(?, ?, ?, ?, ?, ?, ?, ?)");

pub(super) async fn book(connection: &mut MySqlConnection, entries: &Entries<'_>) -> Result<u64, Error> {
    let updated = update_orders(connection, entries.orders).await?;
    KEYS.execute(connection, "claim keys", entries.keys, key).await?;
    FLOW.execute(connection, "append to the ledger", entries.flow, flow).await?;
    EFFECTS.execute(connection, "insert effects", entries.effects, effect).await?;
    EVIDENCE.execute(connection, "keep callbacks", entries.evidence, evidence).await?;
    Ok(updated)
}

pub(super) async fn update_orders(connection: &mut MySqlConnection, orders: &[OrderUpdate]) -> Result<u64, Error> {
    const WHAT: &str = "update orders";
    if orders.len() > FEW {
        return execute(connection, WHAT, query(ORDERS).bind(json::order_updates(orders))).await;
    }
    let mut updated = 0;
    for update in orders {
        updated += execute(connection, WHAT, order(query(ORDER), update)).await?;
    }
    Ok(updated)
}

fn order(query: Sql, update: &OrderUpdate) -> Sql {
    let order = &update.order;
    query
        .bind(order.status.as_str())
        .bind(order.paid)
        .bind(order.refunded)
        .bind(order.unapplied)
        .bind(order.closed_at.map(|at| at.0))
        .bind(order.paid_at.map(|at| at.0))
        .bind(order.money.amount)
        .bind(order.id.shop.as_str().as_bytes())
        .bind(order.id.order_no.as_str().as_bytes())
        .bind(update.was_status.as_str().as_bytes())
        .bind(update.was_version)
}

fn key(query: Sql, row: &KeyRow) -> Sql {
    let money = row.fingerprint.money.as_ref();
    query
        .bind(row.id.merchant.as_str())
        .bind(row.id.key.as_str())
        .bind(row.fingerprint.trade_no.as_ref().map(|trade_no| trade_no.as_str()))
        .bind(money.map(|money| money.amount))
        .bind(money.map(|money| money.currency.as_str()))
        .bind(row.order.shop.as_str())
        .bind(row.order.order_no.as_str())
        .bind(row.source.as_str())
        .bind(row.repeats)
        .bind(row.at.0)
        .bind(row.at.0)
}

fn flow(query: Sql, row: &FlowRow) -> Sql {
    query
        .bind(row.number.merchant.as_str())
        .bind(row.number.out_trade_no.as_str())
        .bind(row.key.as_str())
        .bind(row.kind.as_str())
        .bind(row.disposition.as_str())
        .bind(row.order.shop.as_str())
        .bind(row.order.order_no.as_str())
        .bind(row.money.amount)
        .bind(row.money.currency.as_str())
        .bind(row.trade_no.as_ref().map(|trade_no| trade_no.as_str()))
        .bind(i64::from(row.full_refund))
        .bind(row.account.as_str())
        .bind(row.callback_id.as_deref())
        .bind(row.occurred_at.map(|at| at.0))
        .bind(row.booked_at.0)
}

fn effect(query: Sql, effect: &Effect) -> Sql {
    query
        .bind(effect.key.as_str())
        .bind(effect.fact.merchant.as_str())
        .bind(effect.fact.key.as_str())
        .bind(effect.order.shop.as_str())
        .bind(effect.order.order_no.as_str())
        .bind(effect.event.as_str())
        .bind(effect.name.as_str())
        .bind(effect.sink.as_str())
        .bind(effect.payload.as_str())
        .bind(effect.after.as_ref().map(|key| key.as_str()))
        .bind(effect.due_at.0)
        .bind(effect.created_at.0)
        .bind(effect.created_at.0)
}

/// In the order of the columns in `evidence!`.
pub(super) fn evidence(query: Sql, one: &Evidence) -> Sql {
    query
        .bind(one.id.as_str())
        .bind(one.account.as_str())
        .bind(one.received_at.0)
        .bind(one.headers.as_str())
        .bind(one.body.as_slice())
        .bind(one.body_hash.as_str())
        .bind(one.verdict.as_str())
        .bind(one.key_id.as_deref())
}
