//! What the shop expects to be paid, and how far that has come.
//!
//! Here: orders, attempts and the arithmetic by which an order's state follows from its booked payments
//! and refunds, never from the last message. Not here: whether a fact is booked at all (`apply`).

use serde::{Deserialize, Serialize};

use crate::{
    ids::{Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    key::IdemKey,
    money::{Currency, Money},
    outcome::Disposition,
    time::Micros,
};

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    /// Less than its amount has come, and it was never paid.
    Pending,
    /// At least its amount is here.
    Paid,
    /// It was paid, and part of that went back.
    PartiallyRefunded,
    /// It was paid, and nothing of that is left. It does not come back by itself.
    Refunded,
    /// It was closed unpaid. It does not come back by itself.
    Closed,
}

impl OrderStatus {
    /// Every status, for the diagram in the docs.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Paid, Self::PartiallyRefunded, Self::Refunded, Self::Closed];

    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::PartiallyRefunded => "PARTIALLY_REFUNDED",
            Self::Refunded => "REFUNDED",
            Self::Closed => "CLOSED",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// The primary key of an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderId {
    /// The owner.
    pub shop: Shop,
    /// The shop's number.
    pub order_no: OrderNo,
}

/// The primary key of an attempt: a payable number in its scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Number {
    /// Channel and owner of the number space.
    pub merchant: Merchant,
    /// The number.
    pub out_trade_no: OutTradeNo,
}

/// What the shop expects to be paid, and how far that has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Shop and number.
    pub id: OrderId,
    /// What sort of order.
    pub kind: OrderKind,
    /// The amount that makes it paid.
    pub money: Money,
    /// Where it stands.
    pub status: OrderStatus,
    /// Sum of the payments that fit, minor units.
    pub paid: i64,
    /// What of them went back.
    pub refunded: i64,
    /// Money that arrived and does not fit, less what of it went back.
    pub unapplied: i64,
    /// Counts every write; the conditional UPDATE names it.
    pub version: i64,
    /// Set by the shop, or when every attempt has reported closed.
    pub closed_at: Option<Micros>,
    /// Set once, when the amount was first reached.
    pub paid_at: Option<Micros>,
    /// When it was registered.
    pub created_at: Micros,
    /// The shop's own data (a JSON object), handed on with effects.
    pub meta: String,
}

/// Whether a number can still be paid, as far as we were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttemptState {
    /// As far as we know.
    Open,
    /// The platform reported it closed unpaid.
    Closed,
}

impl AttemptState {
    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closed => "CLOSED",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Open, Self::Closed].into_iter().find(|known| known.as_str() == text)
    }
}

/// One payable number: one try to pay an order on one account.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Scope and number.
    pub number: Number,
    /// The order it pays; `None` for a number that a notice named before any registration did.
    pub order: Option<OrderId>,
    /// The frozen amount in minor units of the order's currency; `None` as long as there is no order.
    pub amount: Option<i64>,
    /// Whether it can still be paid.
    pub state: AttemptState,
    /// When the platform reported it closed.
    pub closed_at: Option<Micros>,
}

/// A booked payment with what of it went back.
#[derive(Clone, Debug, PartialEq)]
pub struct Payment {
    /// The number it was paid under.
    pub number: Number,
    /// Its key.
    pub key: IdemKey,
    /// The platform's transaction.
    pub trade_no: Option<TradeNo>,
    /// How much.
    pub money: Money,
    /// Whether it counts for the order.
    pub disposition: Disposition,
    /// Sum of its booked refunds.
    pub refunds: i64,
    /// The platform said that nothing of it is left.
    pub fully_returned: bool,
}

impl Payment {
    /// What of it went back: never more than it was.
    pub fn returned(&self) -> i64 {
        if self.fully_returned { self.money.amount } else { self.refunds.min(self.money.amount) }
    }

    /// What of it is left.
    pub fn left(&self) -> i64 {
        self.money.amount - self.returned()
    }
}

/// The sums that an order's state is a function of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// G: all payments that fit.
    pub gross: i64,
    /// N: what of them is left.
    pub net: i64,
    /// What is left of money in the order's currency that does not fit.
    pub unapplied: i64,
}

impl Sums {
    /// Adds up; saturates, because no sum of real money comes near `i64::MAX`.
    pub fn of(payments: &[Payment], currency: Currency) -> Self {
        let mut sums = Self { gross: 0, net: 0, unapplied: 0 };
        for payment in payments {
            if payment.disposition.counts() {
                sums.gross = sums.gross.saturating_add(payment.money.amount);
                sums.net = sums.net.saturating_add(payment.left());
            } else if payment.money.currency == currency {
                sums.unapplied = sums.unapplied.saturating_add(payment.left());
            }
        }
        sums
    }
}

impl Order {
    /// Brings the order's figures and status up to its booked payments.
    pub fn follow(&mut self, sums: Sums, now: Micros) {
        self.paid = sums.gross;
        self.refunded = sums.gross - sums.net;
        self.unapplied = sums.unapplied;
        if sums.net >= self.money.amount && self.paid_at.is_none() {
            self.paid_at = Some(now);
        }
        self.status = self.status_at(sums.net);
    }

    fn status_at(&self, net: i64) -> OrderStatus {
        let was_paid = self.paid_at.is_some();
        if net >= self.money.amount {
            OrderStatus::Paid
        } else if net > 0 {
            if was_paid { OrderStatus::PartiallyRefunded } else { OrderStatus::Pending }
        } else if was_paid {
            OrderStatus::Refunded
        } else if self.closed_at.is_some() {
            OrderStatus::Closed
        } else {
            OrderStatus::Pending
        }
    }
}
