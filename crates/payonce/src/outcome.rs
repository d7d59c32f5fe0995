//! What `apply` says about a notice, and whether the platform should try again: one table.
//!
//! Here: outcomes, the acknowledgement table, and the type that makes an acknowledgement impossible
//! before its COMMIT. Not here: how "success" is spelled (a channel's `reply`).

use std::{fmt, time::Duration};

use crate::{channel::Reason, time::Micros};

/// How a booked fact stands to its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It fits and counts.
    Fits,
    /// It fits and counts, but the shop had seen to it before payonce did (its own order table says so): nothing
    /// is owed for it.
    Adopted,
    /// Money of another amount or currency than the attempt's: booked beside the order.
    Mismatched,
    /// Money for an order that had ended: booked beside the order.
    Late,
    /// A fact that moves no money of the order (an abnormal refund, a closing).
    Noted,
}

impl Disposition {
    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Adopted => "adopted",
            Self::Mismatched => "mismatched",
            Self::Late => "late",
            Self::Noted => "noted",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Fits, Self::Adopted, Self::Mismatched, Self::Late, Self::Noted];
        all.into_iter().find(|known| known.as_str() == text)
    }

    /// Whether the money counts for the order.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Fits | Self::Adopted)
    }
}

/// Why a notice cannot be booked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// No order is registered for the number.
    UnknownOrder,
    /// A refund of a payment that is not booked.
    AwaitingPayment,
    /// A refund whose own amount is not known.
    AmountUnknown,
    /// A number that was paid is reported closed unpaid.
    ClosedButPaid,
    /// The key is booked with the same transaction and another amount.
    Contradiction,
}

impl HoldReason {
    /// Every reason, for the table in the docs.
    pub const ALL: [Self; 5] =
        [Self::UnknownOrder, Self::AwaitingPayment, Self::AmountUnknown, Self::ClosedButPaid, Self::Contradiction];

    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownOrder => "unknown_order",
            Self::AwaitingPayment => "awaiting_payment",
            Self::AmountUnknown => "amount_unknown",
            Self::ClosedButPaid => "closed_but_paid",
            Self::Contradiction => "contradiction",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// What `apply` says about a notice. A repeat is a value, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Booked now.
    Applied(Disposition),
    /// Booked before, by an agreeing notice.
    Repeated,
    /// Kept in quarantine.
    Held {
        /// What it waits for.
        reason: HoldReason,
        /// When its first copy came.
        first_seen: Micros,
    },
    /// Deciding about it failed (a bug): nothing was booked or kept for it.
    Undecided,
}

impl Outcome {
    /// The word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied(Disposition::Fits | Disposition::Noted) => "applied",
            Self::Applied(Disposition::Adopted) => "applied_adopted",
            Self::Applied(Disposition::Mismatched) => "applied_mismatched",
            Self::Applied(Disposition::Late) => "applied_late",
            Self::Repeated => "repeated",
            Self::Held { reason, .. } => match reason {
                HoldReason::UnknownOrder => "held_unknown_order",
                HoldReason::AwaitingPayment => "held_awaiting_payment",
                HoldReason::AmountUnknown => "held_amount_unknown",
                HoldReason::ClosedButPaid => "held_closed_but_paid",
                HoldReason::Contradiction => "held_contradiction",
            },
            Self::Undecided => "undecided",
        }
    }

    /// THE acknowledgement table. `true`: the platform may stop.
    ///
    /// Held for an unknown order is refused for `grace` (10 minutes unless configured) after its first
    /// copy, because often the order's own transaction is just not committed; every other hold is
    /// durable, and repeats cannot help it.
    pub fn is_acknowledged(self, now: Micros, grace: Duration) -> bool {
        match self {
            Self::Applied(_) | Self::Repeated => true,
            Self::Held { reason: HoldReason::UnknownOrder, first_seen } => now.since(first_seen) >= grace,
            Self::Held { .. } => true,
            Self::Undecided => false,
        }
    }
}

/// Proof that the facts behind an acknowledgement are durable: only a COMMIT that returned makes one.
#[derive(Debug)]
pub struct Acknowledgement {
    _only_from_a_commit: (),
}

impl Acknowledgement {
    #[cfg(feature = "books")]
    pub(crate) const fn after_commit() -> Self {
        Self { _only_from_a_commit: () }
    }
}

/// What the platform is to be told.
#[derive(Debug)]
pub enum Verdict {
    /// The facts are durable; the platform may stop.
    Acknowledged(Acknowledgement),
    /// The platform should try again.
    Refused(Refusal),
}

/// Why the platform is refused. How each is spelled stands in a channel's `reply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not believed.
    Rejected(Reason),
    /// Believed, and waiting for its order within the grace time.
    NotYet,
    /// The body or the headers are larger than any message of a platform.
    TooLarge,
    /// The queue is full, the database is away, or the deadline is near: not known yet.
    Busy,
    /// A fault of ours.
    Internal,
}

impl Refusal {
    /// The short text for the sender; it tells nothing that a stranger could use.
    pub const fn message(&self) -> &'static str {
        match self {
            Self::Rejected(Reason::SignatureParts | Reason::UnknownKey | Reason::Signature | Reason::Probe) => {
                "signature not accepted"
            }
            Self::Rejected(Reason::Timestamp) => "timestamp not accepted",
            Self::Rejected(Reason::Malformed) => "malformed message",
            Self::Rejected(Reason::ForeignIdentity) => "not addressed to this account",
            Self::Rejected(_) => "message could not be read",
            Self::NotYet => "order not known yet",
            Self::TooLarge => "message too large",
            Self::Busy => "busy, try again",
            Self::Internal => "internal error",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgement_table() {
        let grace = Duration::from_secs(600);
        let now = Micros::from_seconds(10_000);
        let held = |reason, age: i64| Outcome::Held { reason, first_seen: Micros::from_seconds(10_000 - age) };
        let table = [
            (Outcome::Applied(Disposition::Fits), true),
            (Outcome::Applied(Disposition::Mismatched), true),
            (Outcome::Applied(Disposition::Late), true),
            (Outcome::Applied(Disposition::Noted), true),
            (Outcome::Repeated, true),
            (held(HoldReason::UnknownOrder, 0), false),
            (held(HoldReason::UnknownOrder, 599), false),
            (held(HoldReason::UnknownOrder, 600), true),
            (held(HoldReason::AwaitingPayment, 0), true),
            (held(HoldReason::AmountUnknown, 0), true),
            (held(HoldReason::ClosedButPaid, 0), true),
            (held(HoldReason::Contradiction, 0), true),
            (Outcome::Undecided, false),
        ];
        for (outcome, want) in table {
            assert_eq!(outcome.is_acknowledged(now, grace), want, "{outcome:?}");
        }
    }
}
