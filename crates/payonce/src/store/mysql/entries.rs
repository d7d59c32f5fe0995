//! What a batch of facts writes: orders, keys, ledger, effects, evidence, in this order.
//!
//! Here: one statement for each. Not here: what is written (`apply`), or the other statements (`mysql`).

use sqlx::MySqlConnection;

use super::{execute, query};
use crate::{
    error::Error,
    store::{Entries, Ledger, json},
};

const KEYS: &str = concat!(
    "INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source,
                                      repeats, last_seen, created_at)
     SELECT j.m, j.k, j.t, j.a, j.cu, j.s, j.o, j.so, j.re, j.at, j.at FROM ",
    array!(
        "m": key, "k": key, "t": key, "a": int, "cu": key, "s": key, "o": key, "so": key, "re": int, "at": int
    )
);

const FLOW: &str = concat!(
    "INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no,
                                     amount, currency, trade_no, full_refund, account, callback_id,
                                     occurred_at, booked_at)
     SELECT j.m, j.n, j.k, j.ki, j.d, j.s, j.o, j.a, j.cu, j.t, j.f, j.ac, j.cb, j.oc, j.at FROM ",
    array!(
        "m": key, "n": key, "k": key, "ki": key, "d": key, "s": key, "o": key, "a": int, "cu": key, "t": key,
        "f": int, "ac": key, "cb": key, "oc": int, "at": int
    )
);

const EFFECTS: &str = concat!(
    "INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload,
                                 state, after, tries, due_at, created_at)
     SELECT j.e, j.m, j.k, j.s, j.o, j.ev, j.na, j.si, j.pa, 'ready', j.af, 0, j.du + ",
    shift!("j.cr"),
    ", j.cr FROM ",
    array!(
        "e": long, "m": key, "k": key, "s": key, "o": key, "ev": key, "na": key, "si": key, "pa": text,
        "af": long, "du": int, "cr": int
    )
);

const EVIDENCE: &str = evidence!();

pub(super) async fn book(connection: &mut MySqlConnection, entries: &Entries<'_>) -> Result<u64, Error> {
    let updated = match entries.orders {
        [] => 0,
        orders => connection.update_orders(orders).await?,
    };
    let Entries { keys, flow, effects, evidence, .. } = *entries;
    if !keys.is_empty() {
        execute(connection, "claim keys", query(KEYS).bind(json::key_rows(keys))).await?;
    }
    if !flow.is_empty() {
        execute(connection, "append to the ledger", query(FLOW).bind(json::flow(flow))).await?;
    }
    if !effects.is_empty() {
        execute(connection, "insert effects", query(EFFECTS).bind(json::effects(effects))).await?;
    }
    if !evidence.is_empty() {
        execute(connection, "keep callbacks", query(EVIDENCE).bind(json::evidence(evidence))).await?;
    }
    Ok(updated)
}
