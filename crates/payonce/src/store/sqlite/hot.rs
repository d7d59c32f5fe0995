//! What nearly every batch does, row by row through prepared statements on our own connection.
//!
//! Here: the point reads and the plain writes of the usual batch. They say the same as the statements of the
//! sibling verbs in `sqlite`, without an array that SQLite would have to parse; the exercise runs both ways.
//! Not here: anything that is rare.

use std::collections::BTreeSet;

use rusqlite::{Connection, Statement, params, params_from_iter};

use super::talk::{Cell, Row};
use crate::{
    error::Error,
    key::Fingerprint,
    order::{Number, OrderId},
    store::{KeyId, Look, Usual, rows},
};

/// Any statement; its rows.
pub(super) fn rows(connection: &Connection, sql: &str, values: &[Cell<'_>]) -> Result<Vec<Row>, Error> {
    use rusqlite::types::Value;
    let mut statement = connection.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut found = statement.query(params_from_iter(values))?;
    let mut out = Vec::new();
    while let Some(row) = found.next()? {
        let cell = |index| -> Result<Cell<'static>, rusqlite::Error> {
            Ok(match row.get::<_, Value>(index)? {
                Value::Null => Cell::Null,
                Value::Integer(value) => Cell::Int(value),
                // There is no such column of ours; a user's own may be one, and is read as a text.
                Value::Real(value) => Cell::from(value.to_string()),
                Value::Text(value) => Cell::from(value),
                Value::Blob(value) => Cell::Bytes(value.into()),
            })
        };
        out.push((0..columns).map(cell).collect::<Result<Row, _>>()?);
    }
    Ok(out)
}

/// Any statement; affected rows.
pub(super) fn run(connection: &Connection, sql: &str, values: &[Cell<'_>]) -> Result<u64, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params_from_iter(values))?;
    // A user's own statement may return rows: nobody wants them, and only the last step ends it.
    while found.next()?.is_some() {}
    drop(found);
    Ok(if statement.readonly() { 0 } else { connection.changes() })
}

fn each<T>(
    statement: &mut Statement<'_>,
    values: impl rusqlite::Params,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<T, Error>,
    out: &mut Vec<T>,
) -> Result<(), Error> {
    let mut found = statement.query(values)?;
    while let Some(row) = found.next()? {
        out.push(read(row)?);
    }
    Ok(())
}

pub(super) fn booked(connection: &Connection, keys: &[KeyId]) -> Result<Vec<(KeyId, Fingerprint)>, Error> {
    const SQL: &str = "\
        SELECT merchant, idem_key, trade_no, amount, currency FROM payonce_idempotency
        WHERE merchant = ?1 AND idem_key = ?2";
    let mut statement = connection.prepare_cached(SQL)?;
    let mut out = Vec::with_capacity(keys.len());
    for id in keys {
        each(&mut statement, params![id.merchant.as_str(), id.key.as_str()], |row| rows::booked(row), &mut out)?;
    }
    Ok(out)
}

pub(super) fn look(connection: &Connection, numbers: &[Number], keys: &[KeyId]) -> Result<Look, Error> {
    const ATTEMPT: &str = "\
        SELECT merchant, out_trade_no, shop, order_no, amount, state, closed_at FROM payonce_attempt
        WHERE merchant = ?1 AND out_trade_no = ?2";
    const ORDER: &str = "\
        SELECT shop, order_no, kind, currency, amount, status, paid, refunded, unapplied, version, closed_at, paid_at,
               created_at, meta
        FROM payonce_order WHERE shop = ?1 AND order_no = ?2";
    const HELD: &str = "\
        SELECT merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id, seen, first_seen, last_seen
        FROM payonce_quarantine WHERE merchant = ?1 AND out_trade_no = ?2 AND state = 'held'";
    let mut look = Look::default();
    let mut attempt = connection.prepare_cached(ATTEMPT)?;
    let mut held = connection.prepare_cached(HELD)?;
    for number in numbers {
        let id = || params_of(number);
        each(&mut attempt, id(), |row| rows::attempt(row), &mut look.attempts)?;
        each(&mut held, id(), |row| rows::held(row), &mut look.held)?;
    }
    let orders: BTreeSet<&OrderId> = look.attempts.iter().filter_map(|attempt| attempt.order.as_ref()).collect();
    let mut order = connection.prepare_cached(ORDER)?;
    for id in orders {
        each(&mut order, params![id.shop.as_str(), id.order_no.as_str()], |row| rows::order(row), &mut look.orders)?;
    }
    look.booked = booked(connection, keys)?;
    Ok(look)
}

fn params_of(number: &Number) -> [&str; 2] {
    [number.merchant.as_str(), number.out_trade_no.as_str()]
}

pub(super) fn book_usual(connection: &Connection, usual: &Usual<'_>) -> Result<u64, Error> {
    let affected = update_orders(connection, usual)?;
    claim_keys(connection, usual)?;
    insert_flow(connection, usual)?;
    insert_effects(connection, usual)?;
    keep(connection, usual)?;
    Ok(affected)
}

/// Conditional on status and version as read.
fn update_orders(connection: &Connection, usual: &Usual<'_>) -> Result<u64, Error> {
    const SQL: &str = "\
        UPDATE payonce_order
        SET status = ?3, paid = ?4, refunded = ?5, unapplied = ?6, version = version + 1, closed_at = ?7, paid_at = ?8,
            amount = ?9
        WHERE shop = ?1 AND order_no = ?2 AND status = ?10 AND version = ?11";
    let mut statement = connection.prepare_cached(SQL)?;
    let mut affected = 0;
    for update in usual.orders {
        let order = &update.order;
        affected += statement.execute(params![
            order.id.shop.as_str(),
            order.id.order_no.as_str(),
            order.status.as_str(),
            order.paid,
            order.refunded,
            order.unapplied,
            order.closed_at.map(|at| at.0),
            order.paid_at.map(|at| at.0),
            order.money.amount,
            update.was_status.as_str(),
            update.was_version,
        ])?;
    }
    Ok(affected as u64)
}

/// THE arbiter.
fn claim_keys(connection: &Connection, usual: &Usual<'_>) -> Result<(), Error> {
    const SQL: &str = "\
        INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source, repeats,
                                         last_seen, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)";
    let mut statement = connection.prepare_cached(SQL)?;
    for row in usual.keys {
        let money = row.fingerprint.money.as_ref();
        statement.execute(params![
            row.id.merchant.as_str(),
            row.id.key.as_str(),
            row.fingerprint.trade_no.as_ref().map(|trade_no| trade_no.as_str()),
            money.map(|money| money.amount),
            money.map(|money| money.currency.as_str()),
            row.order.shop.as_str(),
            row.order.order_no.as_str(),
            row.source.as_str(),
            row.repeats,
            row.at.0,
        ])?;
    }
    Ok(())
}

fn insert_flow(connection: &Connection, usual: &Usual<'_>) -> Result<(), Error> {
    const SQL: &str = "\
        INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount,
                                        currency, trade_no, full_refund, account, callback_id, occurred_at, booked_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    let mut statement = connection.prepare_cached(SQL)?;
    for row in usual.flow {
        statement.execute(params![
            row.number.merchant.as_str(),
            row.number.out_trade_no.as_str(),
            row.key.as_str(),
            row.kind,
            row.disposition.as_str(),
            row.order.shop.as_str(),
            row.order.order_no.as_str(),
            row.money.amount,
            row.money.currency.as_str(),
            row.trade_no.as_ref().map(|trade_no| trade_no.as_str()),
            row.full_refund,
            row.account.as_str(),
            row.callback_id,
            row.occurred_at.map(|at| at.0),
            row.booked_at.0,
        ])?;
    }
    Ok(())
}

fn insert_effects(connection: &Connection, usual: &Usual<'_>) -> Result<(), Error> {
    const SQL: &str = "\
        INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state,
                                    after, tries, due_at, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'ready', ?10, 0, ?11, ?12)";
    let mut statement = connection.prepare_cached(SQL)?;
    for effect in usual.effects {
        statement.execute(params![
            effect.key.as_str(),
            effect.fact.merchant.as_str(),
            effect.fact.key.as_str(),
            effect.order.shop.as_str(),
            effect.order.order_no.as_str(),
            effect.event,
            effect.name,
            effect.sink,
            effect.payload,
            effect.after.as_ref().map(|key| key.as_str()),
            effect.due_at.0,
            effect.created_at.0,
        ])?;
    }
    Ok(())
}

fn keep(connection: &Connection, usual: &Usual<'_>) -> Result<(), Error> {
    const SQL: &str = "\
        INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut statement = connection.prepare_cached(SQL)?;
    for one in usual.evidence {
        statement.execute(params![
            one.id,
            one.account.as_str(),
            one.received_at.0,
            one.headers,
            one.body,
            one.body_hash,
            one.verdict,
            one.key_id,
        ])?;
    }
    Ok(())
}
