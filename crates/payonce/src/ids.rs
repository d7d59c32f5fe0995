//! The names of things, each a type of its own, so that an order number cannot be taken for a trade number.
//!
//! Here: what may be stored as a name at all (length, no control characters), checked once at the edge.
//! Not here: the names of facts (`key`).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError {
    what: &'static str,
    why: String,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.why)
    }
}

impl std::error::Error for IdError {}

impl IdError {
    pub(crate) fn too_long(what: &'static str, bytes: usize, max: usize) -> Self {
        Self { what, why: format!("has {bytes} bytes, at most {max} are allowed") }
    }
}

fn check(what: &'static str, text: &str, max: usize) -> Result<(), IdError> {
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > max {
        return Err(IdError::too_long(what, text.len(), max));
    } else if text.chars().any(char::is_control) {
        "holds a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(IdError { what, why })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident ($what:literal, max $max:literal);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest that can be stored, in bytes.
            pub const MAX: usize = $max;

            /// Accepts 1 to `MAX` bytes without control characters; compared byte by byte.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, IdError> {
                let text = text.into();
                check($what, &text, Self::MAX)?;
                Ok(Self(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }
    )*};
}

ids! {
    /// The configured name of a merchant identity at a channel; the last part of its notify URL.
    AccountName("account", max 64);
    /// The owner of a set of orders; `default` unless configured.
    Shop("shop", max 64);
    /// The shop's own number of an order.
    OrderNo("order_no", max 128);
    /// What sort of order it is (goods, recharge, membership …), in the shop's words.
    OrderKind("kind", max 64);
    /// A payable number: what the shop sent to the platform as `out_trade_no`.
    OutTradeNo("out_trade_no", max 64);
    /// The platform's number of a transaction.
    TradeNo("trade_no", max 64);
    /// Channel and owner of a number space, `CHANNEL:number`, taken from the account and never from the payload.
    Merchant("merchant", max 64);
}

impl Shop {
    /// The shop of whoever configured none.
    pub fn default_shop() -> Self {
        Self("default".into())
    }
}

impl Merchant {
    /// `WXPAY` and `1900000001` make `WXPAY:1900000001`.
    pub fn of(channel: &str, number: &str) -> Result<Self, IdError> {
        Self::new(format!("{channel}:{number}"))
    }

    /// The channel's part.
    pub fn channel(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_at_the_edge() {
        assert!(OrderNo::new("A20260131-0007").is_ok());
        assert!(OrderNo::new("订单 7").is_ok());
        assert_eq!(OrderNo::new("").unwrap_err().to_string(), "order_no is empty");
        assert_eq!(OrderNo::new("a\0b").unwrap_err().to_string(), "order_no holds a control character");
        assert!(OutTradeNo::new("x".repeat(64)).is_ok());
        assert!(OutTradeNo::new("x".repeat(65)).is_err());
        assert_ne!(OrderNo::new("O1a").unwrap(), OrderNo::new("O1A").unwrap());
    }
}
