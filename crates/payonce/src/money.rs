//! Money as integer minor units and a currency.
//!
//! Here: exact parsing of the texts platforms send ("88.88" yuan) and the arithmetic that apply needs.
//! Not here: which of a message's amounts counts (the channel knows), or whether an amount fits an
//! order (`apply` decides). No float exists in this crate.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An ISO 4217 code: three capital letters, for example `CNY`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// Renminbi, whose minor unit is the fen (1/100 yuan).
    pub const CNY: Self = Self(*b"CNY");

    /// Reads three capital ASCII letters.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        match text.as_bytes() {
            &[a, b, c] if [a, b, c].iter().all(u8::is_ascii_uppercase) => Ok(Self([a, b, c])),
            _ => Err(MoneyError::Currency),
        }
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("???")
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Currency {
    type Error = MoneyError;
    fn try_from(text: String) -> Result<Self, MoneyError> {
        Self::parse(&text)
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

/// An amount in minor units (fen for `CNY`). Never negative: what flows back is a refund, not a minus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Money {
    /// Minor units, `0..=i64::MAX`.
    pub amount: i64,
    /// Their currency.
    pub currency: Currency,
}

impl Money {
    /// From minor units, as some platforms send them.
    pub fn from_minor(amount: i64, currency: Currency) -> Result<Self, MoneyError> {
        if amount < 0 {
            return Err(MoneyError::Negative);
        }
        Ok(Self { amount, currency })
    }

    /// From fen.
    pub fn cny(fen: i64) -> Result<Self, MoneyError> {
        Self::from_minor(fen, Currency::CNY)
    }

    /// From a decimal text in major units with at most two fraction digits, as others send it:
    /// `19.99` is 1999, `100` is 10000, `1.1` is 110. A sign, an exponent, a blank, a separator,
    /// a third fraction digit, a full-width digit or an overflow is an error; nothing is rounded.
    pub fn from_decimal(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return Err(MoneyError::Decimal),
            Some(parts) => parts,
            None => (text, ""),
        };
        if whole.is_empty() || fraction.len() > 2 {
            return Err(MoneyError::Decimal);
        }
        let mut amount: i64 = 0;
        for digit in whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', 2 - fraction.len())) {
            if !digit.is_ascii_digit() {
                return Err(MoneyError::Decimal);
            }
            amount = amount
                .checked_mul(10)
                .and_then(|ten| ten.checked_add(i64::from(digit - b'0')))
                .ok_or(MoneyError::TooLarge)?;
        }
        Ok(Self { amount, currency })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} {}", self.amount / 100, self.amount % 100, self.currency)
    }
}

/// Why a text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyError {
    /// Not three capital letters.
    Currency,
    /// Not digits with at most two fraction digits.
    Decimal,
    /// More than `i64::MAX` minor units.
    TooLarge,
    /// Below zero.
    Negative,
}

impl fmt::Display for MoneyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Currency => "a currency is three capital letters, for example CNY",
            Self::Decimal => "an amount is digits with at most two decimals, for example 88.88",
            Self::TooLarge => "the amount is larger than can be stored",
            Self::Negative => "an amount cannot be negative",
        })
    }
}

impl std::error::Error for MoneyError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// F071: float and text comparison of money.
    #[test]
    fn decimals_are_exact_or_refused() {
        let table = [
            ("19.99", Ok(1999)),
            ("0.29", Ok(29)),
            ("1.1", Ok(110)),
            ("1.10", Ok(110)),
            ("100", Ok(10000)),
            ("100.00", Ok(10000)),
            ("0.00", Ok(0)),
            ("1000000.00", Ok(100_000_000)),
            ("92233720368547758.07", Ok(i64::MAX)),
            ("92233720368547758.08", Err(MoneyError::TooLarge)),
            ("1e2", Err(MoneyError::Decimal)),
            ("-1.00", Err(MoneyError::Decimal)),
            ("+1.00", Err(MoneyError::Decimal)),
            (" 1.00", Err(MoneyError::Decimal)),
            ("1.00 ", Err(MoneyError::Decimal)),
            ("1.005", Err(MoneyError::Decimal)),
            ("1,000.00", Err(MoneyError::Decimal)),
            ("", Err(MoneyError::Decimal)),
            (".5", Err(MoneyError::Decimal)),
            ("5.", Err(MoneyError::Decimal)),
            ("1.0.0", Err(MoneyError::Decimal)),
            ("９.９９", Err(MoneyError::Decimal)),
        ];
        for (text, want) in table {
            assert_eq!(Money::from_decimal(text, Currency::CNY).map(|money| money.amount), want, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(fen in 0i64..=i64::MAX) {
            let text = format!("{}.{:02}", fen / 100, fen % 100);
            proptest::prop_assert_eq!(Money::from_decimal(&text, Currency::CNY).map(|m| m.amount), Ok(fen));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = Money::from_decimal(&text, Currency::CNY);
        }
    }
}
