//! A notice: a believed fact.
//!
//! Here: *what* happened to *which* transaction of *whom*, how much, when, and who told us. Not here: how
//! it came to be believed (`channel`), or what it changes (`apply`). One callback can carry several.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AccountName, IdError, Merchant, OutTradeNo, TradeNo},
    key::{Fingerprint, IdemKey},
    money::Money,
    time::Micros,
};

/// Through which entrance a notice came. It changes nothing about what is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The platform told us.
    Callback,
    /// We asked and got a signed answer.
    Query,
    /// A line of a bill.
    Bill,
    /// A person.
    Operator,
}

impl Source {
    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Callback => "callback",
            Self::Query => "query",
            Self::Bill => "bill",
            Self::Operator => "operator",
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    /// Money arrived for the number.
    Payment,
    /// Money went back.
    Refund {
        /// The shop's number of the refund; `-` where it gave none.
        refund_no: Box<str>,
        /// The platform says that nothing of the payment is left, whatever this refund's own amount is.
        full: bool,
    },
    /// A refund got stuck; the same number may still succeed.
    RefundAbnormal {
        /// The shop's number of the refund.
        refund_no: Box<str>,
    },
    /// A refund will not happen under this number.
    RefundClosed {
        /// The shop's number of the refund.
        refund_no: Box<str>,
    },
    /// The number was closed unpaid.
    Closed,
}

impl Fact {
    /// The TYPE of the key, and its further part if it has one.
    pub fn key_parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Payment => ("PAY", None),
            Self::Refund { refund_no, .. } => ("REFUND", Some(refund_no)),
            Self::RefundAbnormal { refund_no } => ("REFUND_ABNORMAL", Some(refund_no)),
            Self::RefundClosed { refund_no } => ("REFUND_CLOSED", Some(refund_no)),
            Self::Closed => ("CLOSED", None),
        }
    }

    /// The word for the ledger, metrics and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Refund { .. } => "refund",
            Self::RefundAbnormal { .. } => "refund_abnormal",
            Self::RefundClosed { .. } => "refund_closed",
            Self::Closed => "closed",
        }
    }
}

/// A believed fact about one payable number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Channel and owner of the number space, from the account's configuration.
    pub merchant: Merchant,
    /// The account whose keys verified it.
    pub account: AccountName,
    /// The number that the shop sent to the platform.
    pub out_trade_no: OutTradeNo,
    /// What happened.
    pub fact: Fact,
    /// The platform's number of the transaction. Required for payments and refunds, checked by the channel.
    pub trade_no: Option<TradeNo>,
    /// The amount that counts: of the order for a payment, the individual amount for a refund; `None`
    /// where it is not known (a closing; a refund whose own amount the platform does not say).
    pub money: Option<Money>,
    /// When it happened by the platform's clock, where it says so.
    pub occurred_at: Option<Micros>,
    /// Who told us.
    pub source: Source,
    /// What else the channel read, for the shop's own use (`fact.channel_data` of an effect). No part of
    /// any decision, and never a name of the buyer.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub channel_data: serde_json::Map<String, serde_json::Value>,
}

impl Notice {
    /// The name of the fact.
    pub fn key(&self) -> Result<IdemKey, IdError> {
        let (kind, more) = self.fact.key_parts();
        let channel = self.merchant.channel();
        match more {
            None => IdemKey::new(&[channel, self.out_trade_no.as_str(), kind]),
            Some(more) => IdemKey::new(&[channel, self.out_trade_no.as_str(), kind, more]),
        }
    }

    /// What another notice with the same key must agree on.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { trade_no: self.trade_no.clone(), money: self.money }
    }
}
