//! What the configuration says about bookings: which effects an event owes, and the few policies.
//!
//! Here: values that `apply` reads. Not here: reading a configuration file (the server), delivering
//! (`worker`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    ids::{Merchant, OrderKind, Shop},
    own_table::OwnTable,
    statement::Statement,
};

/// What a booking can give rise to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The order's amount was reached for the first time.
    OrderPaid,
    /// A refund lowered what counts for the order.
    OrderRefunded,
    /// More is here than the order needs. It announces; whoever gives money back registers the refund first.
    PaymentSurplus,
    /// Money for an order that had ended.
    PaymentLate,
    /// Money of another amount or currency than the attempt's.
    PaymentMismatched,
}

impl Event {
    /// Every event, for the table in the docs.
    pub const ALL: [Self; 5] =
        [Self::OrderPaid, Self::OrderRefunded, Self::PaymentSurplus, Self::PaymentLate, Self::PaymentMismatched];

    /// As configured, stored and delivered.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrderPaid => "order.paid",
            Self::OrderRefunded => "order.refunded",
            Self::PaymentSurplus => "payment.surplus",
            Self::PaymentLate => "payment.late",
            Self::PaymentMismatched => "payment.mismatched",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// One configured effect.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectRule {
    /// The event that owes it.
    pub on: Event,
    /// Only for orders of this kind; `None` for all.
    pub when_kind: Option<OrderKind>,
    /// Its name: part of the effect's key, unique per event.
    pub name: String,
    /// Where it goes: a configured sink, or [`EffectRule::SQL`].
    pub sink: String,
    /// The name of an effect of the same event that must be done first.
    pub after: Option<String>,
    /// How long after the booking it is first due.
    pub delay: Duration,
    /// The waits before each further try; when they are used up, the effect is dead.
    pub retry: Vec<Duration>,
    /// What the sink `sql` runs.
    pub statement: Option<Statement>,
}

impl EffectRule {
    /// The sink of effects that are a statement in the same database.
    pub const SQL: &'static str = "sql";

    /// 1 min, 5 min, 30 min.
    pub const RETRY: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(1800)];
}

/// What becomes of money for an order that was closed unpaid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// It is booked beside the order and announced, for the shop to give back.
    #[default]
    Refund,
    /// It counts, and the order becomes paid.
    Reopen,
}

/// Everything that `apply` is told beside the facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The configured effects.
    pub effects: Vec<EffectRule>,
    /// For payments of closed orders.
    pub late: LatePolicy,
    /// The shops whose orders are rows of a table of their own.
    pub own_tables: BTreeMap<Shop, Arc<OwnTable>>,
}

impl Rules {
    /// The effects that `event` owes for an order of this kind.
    pub fn owed<'a>(&'a self, event: Event, kind: &'a OrderKind) -> impl Iterator<Item = &'a EffectRule> {
        self.effects
            .iter()
            .filter(move |rule| rule.on == event && rule.when_kind.as_ref().is_none_or(|only| only == kind))
    }

    /// The shop whose own table may have a row for a number of this merchant.
    pub fn own_table_of(&self, merchant: &Merchant) -> Option<(&Shop, &Arc<OwnTable>)> {
        self.own_tables.iter().find(|(_, table)| table.merchants.contains(merchant))
    }

    /// The rule of a stored effect, if it is still configured.
    pub fn find(&self, event: &str, name: &str) -> Option<&EffectRule> {
        self.effects.iter().find(|rule| rule.on.as_str() == event && rule.name == name)
    }
}
