//! Rows to values, the same for every engine.
//!
//! Here: how a row's cells are read (by index: each statement's column list is the contract), and which
//! values are built of them. Not here: SQL. What is in the tables was checked when it went in; a row that
//! does not read is damage.

use crate::{
    error::Error,
    ids::{AccountName, IdError, Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    key::{EffectKey, Fingerprint, IdemKey},
    money::{Currency, Money},
    order::{Attempt, AttemptState, Number, Order, OrderId, OrderStatus},
    outcome::{Disposition, HoldReason},
    own_table::OwnRow,
    store::{CallbackView, Counts, Effect, EffectState, FlowRow, FlowView, Held, KeyId},
    time::Micros,
};

/// The cells of a row.
pub trait Cells {
    /// A text, or bytes that are UTF-8 (MySQL's keys).
    fn text(&self, index: usize) -> Result<String, Error> {
        self.optional_text(index)?.ok_or_else(|| missing(index))
    }
    /// The same, where it may be NULL.
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error>;
    /// A whole number.
    fn int(&self, index: usize) -> Result<i64, Error> {
        self.optional_int(index)?.ok_or_else(|| missing(index))
    }
    /// The same, where it may be NULL.
    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error>;
    /// Bytes.
    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error>;
}

#[cfg(feature = "sqlite")]
impl Cells for sqlx::sqlite::SqliteRow {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }
}

#[cfg(feature = "sqlite")]
impl Cells for rusqlite::Row<'_> {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        Ok(self.get(index)?)
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        Ok(self.get(index)?)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        Ok(self.get(index)?)
    }
}

#[cfg(feature = "postgres")]
impl Cells for sqlx::postgres::PgRow {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }
}

#[cfg(feature = "mysql")]
impl Cells for sqlx::mysql::MySqlRow {
    /// Keys are VARBINARY there, which the driver does not take for texts: read as bytes, then checked.
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        let bytes: Option<Vec<u8>> = sqlx::Row::try_get_unchecked(self, index)?;
        bytes.map(String::from_utf8).transpose().map_err(|error| damaged(&error))
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        Ok(sqlx::Row::try_get(self, index)?)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        Ok(sqlx::Row::try_get_unchecked(self, index)?)
    }
}

/// A row from a cell on, for statements that answer with two things.
#[cfg(feature = "postgres")]
pub(crate) struct Beyond<'r, R>(pub &'r R, pub usize);

#[cfg(feature = "postgres")]
impl<R: Cells> Cells for Beyond<'_, R> {
    fn optional_text(&self, index: usize) -> Result<Option<String>, Error> {
        self.0.optional_text(self.1 + index)
    }

    fn optional_int(&self, index: usize) -> Result<Option<i64>, Error> {
        self.0.optional_int(self.1 + index)
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Error> {
        self.0.bytes(self.1 + index)
    }
}

fn damaged(error: &dyn std::error::Error) -> Error {
    Error::permanent(format!("a stored row does not read: {error}"))
}

fn missing(index: usize) -> Error {
    Error::permanent(format!("a stored row does not read: column {index} is NULL"))
}

fn text<T>(
    row: &(impl Cells + ?Sized),
    index: usize,
    new: impl FnOnce(String) -> Result<T, IdError>,
) -> Result<T, Error> {
    new(row.text(index)?).map_err(|error| damaged(&error))
}

fn optional<T>(
    row: &(impl Cells + ?Sized),
    index: usize,
    new: impl FnOnce(String) -> Result<T, IdError>,
) -> Result<Option<T>, Error> {
    row.optional_text(index)?.map(new).transpose().map_err(|error| damaged(&error))
}

fn word<T>(row: &(impl Cells + ?Sized), index: usize, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
    let word = row.text(index)?;
    parse(&word).ok_or_else(|| Error::permanent(format!("a stored row does not read: unknown word {word:?}")))
}

fn micros(row: &(impl Cells + ?Sized), index: usize) -> Result<Micros, Error> {
    row.int(index).map(Micros)
}

fn optional_micros(row: &(impl Cells + ?Sized), index: usize) -> Result<Option<Micros>, Error> {
    Ok(row.optional_int(index)?.map(Micros))
}

fn money(row: &(impl Cells + ?Sized), amount: usize, currency: usize) -> Result<Money, Error> {
    let currency = word(row, currency, |word| Currency::parse(word).ok())?;
    Ok(Money { amount: row.int(amount)?, currency })
}

fn order_id(row: &(impl Cells + ?Sized), shop: usize, order_no: usize) -> Result<OrderId, Error> {
    Ok(OrderId { shop: text(row, shop, Shop::new)?, order_no: text(row, order_no, OrderNo::new)? })
}

fn key_id(row: &(impl Cells + ?Sized), merchant: usize, key: usize) -> Result<KeyId, Error> {
    Ok(KeyId { merchant: text(row, merchant, Merchant::new)?, key: IdemKey::from_books(row.text(key)?) })
}

/// `merchant, out_trade_no`
pub(crate) fn number(row: &(impl Cells + ?Sized)) -> Result<Number, Error> {
    Ok(Number { merchant: text(row, 0, Merchant::new)?, out_trade_no: text(row, 1, OutTradeNo::new)? })
}

/// The user's columns: order number, amount, status, transaction.
pub(crate) fn own_row(row: &(impl Cells + ?Sized)) -> Result<OwnRow, Error> {
    Ok(OwnRow {
        order_no: row.optional_text(0)?.unwrap_or_default(),
        amount: row.optional_text(1)?,
        status: row.optional_text(2)?,
        trade_no: row.optional_text(3)?,
    })
}

/// `status, count`
pub(crate) fn own_status(row: &(impl Cells + ?Sized)) -> Result<(Option<String>, i64), Error> {
    Ok((row.optional_text(0)?, row.int(1)?))
}

/// `merchant, out_trade_no, shop, order_no, amount, state, closed_at`
pub(crate) fn attempt(row: &(impl Cells + ?Sized)) -> Result<Attempt, Error> {
    let order = match optional(row, 2, Shop::new)? {
        Some(shop) => Some(OrderId { shop, order_no: text(row, 3, OrderNo::new)? }),
        None => None,
    };
    Ok(Attempt {
        number: number(row)?,
        order,
        amount: row.optional_int(4)?,
        state: word(row, 5, AttemptState::parse)?,
        closed_at: optional_micros(row, 6)?,
    })
}

/// `shop, order_no, kind, currency, amount, status, paid, refunded, unapplied, version, closed_at, paid_at,
/// created_at, meta`
pub(crate) fn order(row: &(impl Cells + ?Sized)) -> Result<Order, Error> {
    Ok(Order {
        id: order_id(row, 0, 1)?,
        kind: text(row, 2, OrderKind::new)?,
        money: money(row, 4, 3)?,
        status: word(row, 5, OrderStatus::parse)?,
        paid: row.int(6)?,
        refunded: row.int(7)?,
        unapplied: row.int(8)?,
        version: row.int(9)?,
        closed_at: optional_micros(row, 10)?,
        paid_at: optional_micros(row, 11)?,
        created_at: micros(row, 12)?,
        meta: row.text(13)?,
    })
}

/// `merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id, seen, first_seen, last_seen`
pub(crate) fn held(row: &(impl Cells + ?Sized)) -> Result<Held, Error> {
    Ok(Held {
        number: number(row)?,
        key: IdemKey::from_books(row.text(2)?),
        fingerprint: row.text(3)?,
        reason: word(row, 4, HoldReason::parse)?,
        notice: serde_json::from_str(&row.text(5)?)
            .map_err(|error| Error::permanent(format!("a held notice does not read: {error}")))?,
        callback_id: row.optional_text(6)?,
        seen: row.int(7)?,
        first_seen: micros(row, 8)?,
        last_seen: micros(row, 9)?,
    })
}

/// `merchant, idem_key, trade_no, amount, currency`
pub(crate) fn booked(row: &(impl Cells + ?Sized)) -> Result<(KeyId, Fingerprint), Error> {
    let money = match row.optional_int(3)? {
        Some(_) => Some(money(row, 3, 4)?),
        None => None,
    };
    Ok((key_id(row, 0, 1)?, Fingerprint { trade_no: optional(row, 2, TradeNo::new)?, money }))
}

/// `merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount, currency, trade_no,
/// full_refund, account, callback_id, occurred_at, booked_at`
pub(crate) fn flow(row: &(impl Cells + ?Sized)) -> Result<FlowRow, Error> {
    Ok(FlowRow {
        number: number(row)?,
        key: IdemKey::from_books(row.text(2)?),
        kind: row.text(3)?,
        disposition: word(row, 4, Disposition::parse)?,
        order: order_id(row, 5, 6)?,
        money: money(row, 7, 8)?,
        trade_no: optional(row, 9, TradeNo::new)?,
        full_refund: row.int(10)? != 0,
        account: text(row, 11, AccountName::new)?,
        callback_id: row.optional_text(12)?,
        occurred_at: optional_micros(row, 13)?,
        booked_at: micros(row, 14)?,
    })
}

/// The columns of [`flow`], then `source, repeats`.
pub(crate) fn flow_view(row: &(impl Cells + ?Sized)) -> Result<FlowView, Error> {
    Ok(FlowView { row: flow(row)?, source: row.text(15)?, repeats: row.int(16)? })
}

/// `effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries, due_at,
/// last_error, created_at, done_at`
pub(crate) fn effect(row: &(impl Cells + ?Sized)) -> Result<Effect, Error> {
    Ok(Effect {
        key: EffectKey::from_books(row.text(0)?),
        fact: key_id(row, 1, 2)?,
        order: order_id(row, 3, 4)?,
        event: row.text(5)?,
        name: row.text(6)?,
        sink: row.text(7)?,
        payload: row.text(8)?,
        state: word(row, 9, EffectState::parse)?,
        after: row.optional_text(10)?.map(EffectKey::from_books),
        tries: row.int(11)?,
        due_at: micros(row, 12)?,
        last_error: row.optional_text(13)?,
        created_at: micros(row, 14)?,
        done_at: optional_micros(row, 15)?,
    })
}

/// `id, account, received_at, verdict, key_id, length(body)`
pub(crate) fn callback_view(row: &(impl Cells + ?Sized)) -> Result<CallbackView, Error> {
    Ok(CallbackView {
        id: row.text(0)?,
        account: row.text(1)?,
        received_at: micros(row, 2)?,
        verdict: row.text(3)?,
        key_id: row.optional_text(4)?,
        body_bytes: row.int(5)?,
    })
}

/// The gauges in the order of [`Counts`].
pub(crate) fn counts(row: &(impl Cells + ?Sized)) -> Result<Counts, Error> {
    Ok(Counts {
        held: row.int(0)?,
        effects_ready: row.int(1)?,
        effects_leased: row.int(2)?,
        effects_dead: row.int(3)?,
        oldest_due: optional_micros(row, 4)?,
        callbacks_unbelieved: row.int(5)?,
    })
}
