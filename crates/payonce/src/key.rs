//! The names of facts and of effects.
//!
//! Here: how `WXPAY:A20260131-0007:PAY` is spelled, so that it is injective and can be compared byte by
//! byte by any database. Not here: asking whether a key is taken (`apply`, nowhere else).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{ids::IdError, ids::Merchant, ids::OrderNo, ids::OutTradeNo, ids::Shop, ids::TradeNo, money::Money};

/// Writes bytes outside 0x21..=0x7E, `%`, `:` and those in `also` as %XX.
fn escape_into(out: &mut String, part: &str, also: &[u8]) {
    for byte in part.bytes() {
        if !(0x21..=0x7E).contains(&byte) || byte == b'%' || byte == b':' || also.contains(&byte) {
            out.push('%');
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
            }
        } else {
            out.push(char::from(byte));
        }
    }
}

fn join(parts: &[&str], also: &[u8]) -> String {
    let mut out = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(':');
        }
        escape_into(&mut out, part, also);
    }
    out
}

/// The name of a fact, `CHANNEL:number:TYPE`; ASCII, at most 200 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdemKey(Arc<str>);

impl IdemKey {
    /// The longest key that is stored.
    pub const MAX: usize = 200;

    /// Joins the parts with `:`, each escaped. An error if the result is longer than [`Self::MAX`].
    pub fn new(parts: &[&str]) -> Result<Self, IdError> {
        let key = join(parts, b"");
        if key.len() > Self::MAX {
            return Err(IdError::too_long("the key of the fact", key.len(), Self::MAX));
        }
        Ok(Self(key.into()))
    }

    /// The payment under a number.
    pub fn payment(channel: &str, number: &OutTradeNo) -> Result<Self, IdError> {
        Self::new(&[channel, number.as_str(), "PAY"])
    }

    /// A second, different transaction under the same number.
    pub fn other_payment(channel: &str, number: &OutTradeNo, trade_no: &TradeNo) -> Result<Self, IdError> {
        Self::new(&[channel, number.as_str(), "PAY", trade_no.as_str()])
    }

    /// A key as a store gave it back. What is in the books has been checked when it came in.
    pub fn from_books(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an effect: the same for every delivery of it, for ever. ASCII without `.`, at most 400 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKey(Arc<str>);

impl EffectKey {
    /// The longest key that is stored.
    pub const MAX: usize = 400;

    /// Of an effect that an order owes once: `{shop}:{order_no}:order-paid:{name}`, so that the unique key
    /// forbids a second shipment even if a rule were wrong.
    pub fn once_per_order(shop: &Shop, order_no: &OrderNo, event: &str, name: &str) -> Self {
        Self::bounded(&[shop.as_str(), order_no.as_str(), event, name])
    }

    /// Of an effect that one fact owes: `{merchant}:{idem_key}:{name}`.
    pub fn of_fact(merchant: &Merchant, key: &IdemKey, name: &str) -> Self {
        Self::bounded(&[merchant.as_str(), key.as_str(), name])
    }

    /// Escaping can triple a part, so the longest inputs would pass 400: then the tail gives way to a
    /// digest of the whole, which keeps the key injective for all practical purposes.
    fn bounded(parts: &[&str]) -> Self {
        let key = join(parts, b".");
        if key.len() <= Self::MAX {
            return Self(key.into());
        }
        // FNV-1a, 128 bit: no security depends on it, the parts are the shop's own numbers.
        let digest = key.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Self(format!("{}%~{digest:032x}", &key[..Self::MAX - 40]).into())
    }

    /// A key as a store gave it back.
    pub fn from_books(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What two notices with one key must agree on: trade number, amount, currency. Nothing else takes part,
/// so that SUCCESS and FINISHED, GBK and UTF-8, callback and query answer are repeats of each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The platform's transaction number, where known.
    pub trade_no: Option<TradeNo>,
    /// Amount and currency, where known.
    pub money: Option<Money>,
}

/// How two fingerprints of one key compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// They agree in every part that both have.
    Agree,
    /// The same transaction, or one that does not say, with another amount.
    OtherAmount,
    /// Another transaction.
    OtherTrade,
}

impl Fingerprint {
    /// Compares part by part; a part that one side lacks agrees.
    pub fn compare(&self, other: &Self) -> Agreement {
        let differ = |a: bool, b: bool, equal: bool| a && b && !equal;
        if differ(self.trade_no.is_some(), other.trade_no.is_some(), self.trade_no == other.trade_no) {
            Agreement::OtherTrade
        } else if differ(self.money.is_some(), other.money.is_some(), self.money == other.money) {
            Agreement::OtherAmount
        } else {
            Agreement::Agree
        }
    }

    /// As the text under which a held notice is kept: `trade_no|amount|currency`, `-` for what is unknown.
    pub fn as_text(&self) -> String {
        let mut out = String::new();
        match &self.trade_no {
            Some(trade_no) => escape_into(&mut out, trade_no.as_str(), b"|"),
            None => out.push('-'),
        }
        match self.money {
            Some(money) => out.push_str(&format!("|{}|{}", money.amount, money.currency)),
            None => out.push_str("|-|-"),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_spelled_in_ascii_and_escapes_its_border() {
        let key = |number: &str| IdemKey::payment("WXPAY", &OutTradeNo::new(number).unwrap()).unwrap().to_string();
        assert_eq!(key("A20260131-0007"), "WXPAY:A20260131-0007:PAY");
        assert_eq!(key("a:b%c d"), "WXPAY:a%3Ab%25c%20d:PAY");
        assert_eq!(key("订"), "WXPAY:%E8%AE%A2:PAY");
        assert_ne!(key("O1a"), key("O1A"));
    }

    #[test]
    fn an_effect_key_has_no_dot_and_a_bound() {
        let shop = Shop::default_shop();
        let key = EffectKey::once_per_order(&shop, &OrderNo::new("a.b").unwrap(), "order-paid", "ship");
        assert_eq!(key.as_str(), "default:a%2Eb:order-paid:ship");
        let long = EffectKey::once_per_order(&shop, &OrderNo::new("订".repeat(42)).unwrap(), "order-paid", "ship");
        let other = EffectKey::once_per_order(&shop, &OrderNo::new("订".repeat(42)).unwrap(), "order-paid", "shop");
        assert!(long.as_str().len() <= EffectKey::MAX && long != other);
    }

    proptest::proptest! {
        #[test]
        fn different_parts_make_different_keys(a in "[ -~订]{1,12}", b in "[ -~订]{1,12}", c in "[ -~订]{1,12}", d in "[ -~订]{1,12}") {
            let one = IdemKey::new(&[&a, &b]).unwrap();
            let two = IdemKey::new(&[&c, &d]).unwrap();
            proptest::prop_assert_eq!(one == two, a == c && b == d);
        }
    }
}
