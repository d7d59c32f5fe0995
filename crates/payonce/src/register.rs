//! Registration: the shop says what it expects to be paid, and under which numbers.
//!
//! Here: read, decide, write, like any fact, and the booking of what waited for this order, in the same
//! transaction. Not here: which accounts a shop may be paid on (the server's configuration).

use std::{collections::BTreeMap, fmt};

use sqlx::Transaction;

use crate::{
    apply::{self, Batch, Digest, Pending, Repeats},
    error::Error,
    ids::OrderKind,
    money::Money,
    order::{Attempt, AttemptState, Number, Order, OrderId, OrderStatus},
    rules::Rules,
    store::{AttemptUpdate, Ledger, OrderUpdate},
    time::Micros,
};

/// An order as the shop hands it in.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Shop and number.
    pub id: OrderId,
    /// What sort of order.
    pub kind: OrderKind,
    /// The amount that makes it paid; above zero.
    pub money: Money,
    /// Its payable numbers, at least one, with the amount that each was created for.
    pub attempts: BTreeMap<Number, i64>,
    /// The shop's own data, a JSON object.
    pub meta: String,
    /// The present.
    pub now: Micros,
}

/// How it went. The same order again is a repeat, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The order is new.
    Created,
    /// It was there, and got further numbers.
    Extended,
    /// It was there, just so.
    Repeated,
}

/// Why an order is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is registered with another amount or currency.
    AmountDiffers(Money),
    /// It is registered as another kind.
    KindDiffers(OrderKind),
    /// A number belongs to another order.
    NumberTaken(Number, OrderId),
    /// A number is registered for this order with another amount.
    AttemptAmountDiffers(Number, i64),
    /// It has ended, so it gets no further numbers.
    Ended(OrderStatus),
    /// It names no number.
    NoNumber,
    /// The shop's own table has it with another amount, or with none that can be read.
    OrderTableDiffers(Option<Money>),
}

impl Refused {
    /// The code in answers and docs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::AmountDiffers(_) => "order_amount_differs",
            Self::KindDiffers(_) => "order_kind_differs",
            Self::NumberTaken(..) => "number_taken",
            Self::AttemptAmountDiffers(..) => "attempt_amount_differs",
            Self::Ended(_) => "order_ended",
            Self::NoNumber => "no_number",
            Self::OrderTableDiffers(_) => "order_table_differs",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AmountDiffers(have) => write!(f, "the order is registered with {have}"),
            Self::KindDiffers(have) => write!(f, "the order is registered as kind {have}"),
            Self::NumberTaken(number, by) => {
                write!(f, "number {} belongs to order {} of shop {}", number.out_trade_no, by.order_no, by.shop)
            }
            Self::AttemptAmountDiffers(number, have) => {
                write!(f, "number {} is registered with amount {have}", number.out_trade_no)
            }
            Self::Ended(status) => write!(f, "the order is {}; it gets no further numbers", status.as_str()),
            Self::NoNumber => f.write_str("the order names no payable number"),
            Self::OrderTableDiffers(Some(have)) => write!(f, "the shop's own table has the order with {have}"),
            Self::OrderTableDiffers(None) => {
                f.write_str("the shop's own table has the order without a readable amount")
            }
        }
    }
}

/// Registers in the caller's own transaction, so that their order and its registration commit together.
///
/// What waited for the order is booked with it. Like [`apply::apply`] it never starts over: an error with
/// [`Error::is_conflict`] asks the caller for a new transaction.
pub async fn register_in<DB>(
    transaction: &mut Transaction<'_, DB>,
    registration: &Registration,
    rules: &Rules,
) -> Result<Result<Pending, Refused>, Error>
where
    DB: sqlx::Database,
    DB::Connection: Ledger,
{
    let registered = register(&mut **transaction, registration, rules).await.map_err(|(error, _)| error)?;
    Ok(registered.map(|(_, pending)| pending))
}

/// What registering does to the tables.
struct Steps {
    registered: Registered,
    new_order: Option<Order>,
    bumped: Option<OrderUpdate>,
    new_attempts: Vec<Attempt>,
    filled: Vec<AttemptUpdate>,
}

/// Registers into an open transaction.
pub(crate) async fn register<L: Ledger>(
    ledger: &mut L,
    registration: &Registration,
    rules: &Rules,
) -> Result<Result<(Registered, Pending), Refused>, (Error, Digest)> {
    let first = |error| (error, 0);
    let numbers: Vec<Number> = registration.attempts.keys().cloned().collect();
    if numbers.is_empty() {
        return Ok(Err(Refused::NoNumber));
    }
    let (attempts, orders) = ledger.lock_numbers(&numbers).await.map_err(first)?;
    let order = match orders.into_iter().find(|order| order.id == registration.id) {
        Some(order) => Some(order),
        None => ledger.lock_orders(std::slice::from_ref(&registration.id)).await.map_err(first)?.pop(),
    };
    let steps = match plan(registration, order, &attempts) {
        Ok(steps) => steps,
        Err(refused) => return Ok(Err(refused)),
    };
    if let (true, Some(table)) = (steps.new_order.is_some(), rules.own_tables.get(&registration.id.shop)) {
        // Not registered yet there: their row is looked for again when money comes.
        let order_no = std::slice::from_ref(&registration.id.order_no);
        let rows = apply::own::read(ledger, table, order_no, true).await.map_err(first)?;
        if let Some(row) = rows.into_values().next().filter(|row| row.money != Some(registration.money)) {
            return Ok(Err(Refused::OrderTableDiffers(row.money)));
        }
    }
    let waits = !steps.filled.is_empty();
    let registered = steps.registered;
    write(ledger, steps).await.map_err(first)?;
    // Only a number that a notice named first can have something waiting.
    let touched = if waits { numbers } else { Vec::new() };
    let batch = Batch { deliveries: Vec::new(), touched, now: registration.now };
    let pending = apply::book(ledger, &batch, rules, Repeats::CountNow).await?;
    Ok(Ok((registered, pending)))
}

fn plan(registration: &Registration, order: Option<Order>, attempts: &[Attempt]) -> Result<Steps, Refused> {
    let is_new = order.is_none();
    if let Some(order) = &order {
        if order.money != registration.money {
            return Err(Refused::AmountDiffers(order.money));
        }
        if order.kind != registration.kind {
            return Err(Refused::KindDiffers(order.kind.clone()));
        }
    }
    let rows: BTreeMap<&Number, &Attempt> = attempts.iter().map(|attempt| (&attempt.number, attempt)).collect();
    let (mut new_attempts, mut filled) = (Vec::new(), Vec::new());
    for (number, &amount) in &registration.attempts {
        let to_be = |state, closed_at| Attempt {
            number: number.clone(),
            order: Some(registration.id.clone()),
            amount: Some(amount),
            state,
            closed_at,
        };
        match rows.get(number) {
            None => new_attempts.push(to_be(AttemptState::Open, None)),
            Some(row) => match &row.order {
                None => filled.push(AttemptUpdate { attempt: to_be(row.state, row.closed_at), had_order: None }),
                Some(by) if *by != registration.id => {
                    return Err(Refused::NumberTaken(number.clone(), by.clone()));
                }
                Some(_) if row.amount != Some(amount) => {
                    return Err(Refused::AttemptAmountDiffers(number.clone(), row.amount.unwrap_or_default()));
                }
                Some(_) => {}
            },
        }
    }
    let grows = !new_attempts.is_empty() || !filled.is_empty();
    let bumped = match order {
        Some(order) if grows => {
            if matches!(order.status, OrderStatus::Closed | OrderStatus::Refunded) {
                return Err(Refused::Ended(order.status));
            }
            let (was_status, was_version) = (order.status, order.version);
            Some(OrderUpdate { order: Order { version: was_version + 1, ..order }, was_status, was_version })
        }
        _ => None,
    };
    let registered = match (is_new, grows) {
        (true, _) => Registered::Created,
        (false, true) => Registered::Extended,
        (false, false) => Registered::Repeated,
    };
    let new_order = is_new.then(|| Order {
        id: registration.id.clone(),
        kind: registration.kind.clone(),
        money: registration.money,
        status: OrderStatus::Pending,
        paid: 0,
        refunded: 0,
        unapplied: 0,
        version: 0,
        closed_at: None,
        paid_at: None,
        created_at: registration.now,
        meta: registration.meta.clone(),
    });
    Ok(Steps { registered, new_order, bumped, new_attempts, filled })
}

async fn write<L: Ledger>(ledger: &mut L, steps: Steps) -> Result<(), Error> {
    if !steps.new_attempts.is_empty() {
        ledger.insert_attempts(&steps.new_attempts).await?;
    }
    if !steps.filled.is_empty() {
        apply::judge("attempts", ledger.update_attempts(&steps.filled).await?, steps.filled.len())?;
    }
    if let Some(order) = steps.new_order {
        ledger.insert_orders(&[order]).await?;
    }
    if let Some(update) = steps.bumped {
        apply::judge("orders", ledger.update_orders(&[update]).await?, 1)?;
    }
    Ok(())
}
