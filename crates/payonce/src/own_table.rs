//! The user's own order table: which of its columns and words mean what.
//!
//! Here: the mapping as a value, its names checked, and how a row of theirs reads. Not here: the statements
//! (`store/own_table`), what is decided from a row (`apply`), reading a configuration file (the server).
//!
//! Their row is never trusted to be ours: payonce's own order row is the guard, with its version and its sums,
//! and theirs only gets a conditional UPDATE in the same transaction.

use std::{collections::BTreeSet, fmt};

use crate::{
    ids::{Merchant, OrderKind, OrderNo, TradeNo},
    money::{Currency, Money},
    time::Micros,
};

/// A name of a table or column: letters, digits and `_`, as quoted into statements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identifier(Box<str>);

impl Identifier {
    /// The longest that all engines have.
    pub const MAX: usize = 63;

    /// Accepts `[A-Za-z_][A-Za-z0-9_]*`.
    pub fn new(text: &str) -> Result<Self, MappingError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if first && rest && text.len() <= Self::MAX {
            Ok(Self(text.into()))
        } else {
            Err(MappingError("is no name of a table or column: letters, digits and _, at most 63, no digit first"))
        }
    }

    /// The name, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `table` or `schema.table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The schema (in MySQL dialects the database).
    pub schema: Option<Identifier>,
    /// The table.
    pub table: Identifier,
}

impl TableName {
    /// Accepts one or two identifiers with a point between.
    pub fn new(text: &str) -> Result<Self, MappingError> {
        match text.split_once('.') {
            None => Ok(Self { schema: None, table: Identifier::new(text)? }),
            Some((schema, table)) => {
                Ok(Self { schema: Some(Identifier::new(schema)?), table: Identifier::new(table)? })
            }
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", schema.as_str())?;
        }
        f.write_str(self.table.as_str())
    }
}

/// A value of the status column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Of a column of texts, or an ENUM.
    Text(String),
    /// Of a column of integers.
    Integer(i64),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
        }
    }
}

/// What the amount column counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountUnit {
    /// Minor units, whole numbers.
    Fen,
    /// Major units with two decimals, read as text and parsed exactly.
    Yuan,
}

/// How an instant is written into the column of the paid time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// `2026-01-31 12:00:00` by the clocks of Beijing, into a column without a zone.
    DatetimeBeijing,
    /// The same in UTC.
    DatetimeUtc,
    /// An instant: PostgreSQL's `timestamptz`, MySQL's `TIMESTAMP`; a text in UTC in SQLite.
    Timestamp,
    /// Whole seconds since 1970.
    EpochSeconds,
    /// Milliseconds since 1970.
    EpochMillis,
}

impl TimeForm {
    /// Every form, with its word in the configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("datetime_beijing", Self::DatetimeBeijing),
        ("datetime_utc", Self::DatetimeUtc),
        ("timestamp", Self::Timestamp),
        ("epoch_seconds", Self::EpochSeconds),
        ("epoch_millis", Self::EpochMillis),
    ];

    /// Whether it is a number.
    pub const fn is_number(self) -> bool {
        matches!(self, Self::EpochSeconds | Self::EpochMillis)
    }

    /// The number, where it is one.
    pub const fn number(self, at: Micros) -> i64 {
        match self {
            Self::EpochMillis => at.0.div_euclid(1000),
            _ => at.0.div_euclid(1_000_000),
        }
    }

    /// The text, where it is one: whole seconds, because such columns keep no more.
    pub fn text(self, at: Micros) -> String {
        let hours = if self == Self::DatetimeBeijing { 8 } else { 0 };
        let second = at.0.div_euclid(1_000_000);
        jiff::Timestamp::from_second(second)
            .map(|timestamp| jiff::tz::Offset::constant(hours).to_datetime(timestamp))
            .map_or_else(|_| second.to_string(), |datetime| datetime.strftime("%Y-%m-%d %H:%M:%S").to_string())
    }
}

/// Which of the user's columns and words mean what.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnTable {
    /// Their table.
    pub table: TableName,
    /// Its column of what is sent to the platforms as `out_trade_no`.
    pub order_no: Identifier,
    /// The amount to be paid.
    pub amount: Identifier,
    /// What that counts.
    pub amount_unit: AmountUnit,
    /// Where the order stands.
    pub status: Identifier,
    /// The status of orders that can be paid; at least one.
    pub pending: Vec<Word>,
    /// Set when the order is paid.
    pub paid: Word,
    /// The status of orders that ended unpaid; the first one is set when the platforms report so.
    pub closed: Vec<Word>,
    /// Set when nothing of a payment is left; `None`: the status stays.
    pub refunded: Option<Word>,
    /// Where the time of the payment goes.
    pub paid_at: Option<(Identifier, TimeForm)>,
    /// Where the platform's transaction goes.
    pub trade_no: Option<Identifier>,
    /// The kind of these orders, for `when.kind`.
    pub kind: OrderKind,
    /// Their currency.
    pub currency: Currency,
    /// The number spaces of the shop: a notice of one of these may be about a row here.
    pub merchants: BTreeSet<Merchant>,
}

/// Why a mapping cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingError(&'static str);

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MappingError {}

/// What a status of theirs means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnState {
    /// It can be paid.
    Pending,
    /// It is paid.
    Paid,
    /// It ended unpaid.
    Closed,
    /// It was paid, and nothing of that is left.
    Refunded,
    /// Anything else (shipped, done …): theirs alone.
    Other,
}

/// The cells of a row of theirs, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRow {
    /// The order number.
    pub order_no: String,
    /// The amount.
    pub amount: Option<String>,
    /// The status.
    pub status: Option<String>,
    /// The platform's transaction, if a column is mapped.
    pub trade_no: Option<String>,
}

/// What a row of theirs says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnOrder {
    /// Where the order stands for them.
    pub state: OwnState,
    /// Its amount; `None` if the column holds none above zero.
    pub money: Option<Money>,
    /// The transaction that they know of.
    pub trade_no: Option<String>,
    /// payonce had a row of this order before: it was registered, or met, while it could be paid.
    pub is_known: bool,
}

/// One conditional change of rows of theirs, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnChange {
    /// What they must still be.
    pub from: OwnState,
    /// What they become.
    pub to: OwnState,
    /// Whether time and transaction of the payment are written.
    pub with_payment: bool,
}

/// A row to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnUpdate {
    /// The order.
    pub order_no: OrderNo,
    /// When it was paid.
    pub paid_at: Option<Micros>,
    /// By which transaction.
    pub trade_no: Option<TradeNo>,
}

impl OwnTable {
    /// Checks what no single part of a mapping can know.
    pub fn check(&self) -> Result<(), MappingError> {
        if self.pending.is_empty() {
            return Err(MappingError("names no status of orders that can be paid"));
        }
        let mut words: Vec<String> = (self.pending.iter().chain(&self.closed).chain([&self.paid]))
            .chain(&self.refunded)
            .map(Word::to_string)
            .collect();
        words.sort();
        if words.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(MappingError("gives one status two meanings"));
        }
        let mut columns: Vec<String> = self.columns().map(|name| name.as_str().to_ascii_lowercase()).collect();
        columns.sort();
        if columns.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(MappingError("uses one column twice"));
        }
        Ok(())
    }

    /// The mapped columns.
    pub fn columns(&self) -> impl Iterator<Item = &Identifier> {
        [&self.order_no, &self.amount, &self.status]
            .into_iter()
            .chain(self.paid_at.as_ref().map(|(name, _)| name))
            .chain(&self.trade_no)
    }

    /// The words that mean a state.
    pub fn words(&self, state: OwnState) -> &[Word] {
        match state {
            OwnState::Pending => &self.pending,
            OwnState::Paid => std::slice::from_ref(&self.paid),
            OwnState::Closed => &self.closed,
            OwnState::Refunded => self.refunded.as_slice(),
            OwnState::Other => &[],
        }
    }

    /// What a status means; compared byte by byte.
    pub fn state(&self, status: Option<&str>) -> OwnState {
        let Some(status) = status else { return OwnState::Other };
        [OwnState::Pending, OwnState::Paid, OwnState::Closed, OwnState::Refunded]
            .into_iter()
            .find(|state| self.words(*state).iter().any(|word| word.to_string() == status))
            .unwrap_or(OwnState::Other)
    }

    /// An amount of theirs, exactly, or not at all.
    pub fn money(&self, text: &str) -> Option<Money> {
        let digits = match self.amount_unit {
            AmountUnit::Fen => 0,
            AmountUnit::Yuan => 2,
        };
        // A DECIMAL column writes all its decimals: 88.8800 is 88.88, and 88.8801 is nothing that can be paid.
        let text = match text.split_once('.') {
            Some((whole, fraction)) if fraction.len() > digits && !whole.is_empty() => {
                let (kept, rest) = fraction.split_at_checked(digits)?;
                if !rest.bytes().all(|byte| byte == b'0') {
                    return None;
                }
                if kept.is_empty() { whole.to_owned() } else { format!("{whole}.{kept}") }
            }
            _ => text.to_owned(),
        };
        let money = match self.amount_unit {
            AmountUnit::Yuan => Money::from_decimal(&text, self.currency).ok()?,
            AmountUnit::Fen if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Money::from_minor(text.parse().ok()?, self.currency).ok()?
            }
            AmountUnit::Fen => return None,
        };
        (money.amount > 0).then_some(money)
    }

    /// What a row says.
    pub fn read(&self, row: &OwnRow, is_known: bool) -> OwnOrder {
        OwnOrder {
            state: self.state(row.status.as_deref()),
            money: row.amount.as_deref().and_then(|text| self.money(text)),
            trade_no: row.trade_no.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned),
            is_known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn table(amount_unit: AmountUnit) -> OwnTable {
        OwnTable {
            table: TableName::new("shop.t_order").unwrap(),
            order_no: Identifier::new("order_no").unwrap(),
            amount: Identifier::new("amount").unwrap(),
            amount_unit,
            status: Identifier::new("status").unwrap(),
            pending: vec![Word::Text("NEW".into()), Word::Integer(0)],
            paid: Word::Text("PAID".into()),
            closed: vec![Word::Text("CLOSED".into())],
            refunded: None,
            paid_at: None,
            trade_no: None,
            kind: OrderKind::new("goods").unwrap(),
            currency: Currency::CNY,
            merchants: BTreeSet::new(),
        }
    }

    #[test]
    fn names_are_checked() {
        for good in ["t", "_t", "t_order", "T1", "x".repeat(63).as_str()] {
            assert!(Identifier::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1t", "t-1", "t order", "t\"", "t`", "t;", "订单", "t.x", "x".repeat(64).as_str(), "t\0"] {
            assert!(Identifier::new(bad).is_err(), "{bad}");
        }
        assert_eq!(TableName::new("a.b").unwrap().to_string(), "a.b");
        for bad in ["a.b.c", ".b", "a.", "a b"] {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_are_exact_or_nothing() {
        let (fen, yuan) = (table(AmountUnit::Fen), table(AmountUnit::Yuan));
        let of = |table: &OwnTable, text: &str| table.money(text).map(|money| money.amount);
        for (text, as_fen, as_yuan) in [
            ("100", Some(100), Some(10000)),
            ("19.99", None, Some(1999)),
            ("19.9900", None, Some(1999)),
            ("19.9901", None, None),
            ("100.00", Some(100), Some(10000)),
            ("100.0", Some(100), Some(10000)),
            ("100.01", None, Some(10001)),
            ("0", None, None),
            ("0.00", None, None),
            ("-1", None, None),
            ("1e3", None, None),
            ("", None, None),
            ("abc", None, None),
            (" 1", None, None),
            ("1.", None, None),
            (".5000", None, None),
            ("1.五五五", None, None),
            ("99999999999999999999", None, None),
        ] {
            assert_eq!((of(&fen, text), of(&yuan, text)), (as_fen, as_yuan), "{text:?}");
        }
    }

    #[test]
    fn a_status_means_what_is_mapped_byte_by_byte() {
        let table = table(AmountUnit::Fen);
        for (status, state) in [
            (Some("NEW"), OwnState::Pending),
            (Some("0"), OwnState::Pending),
            (Some("new"), OwnState::Other),
            (Some("NEW "), OwnState::Other),
            (Some("PAID"), OwnState::Paid),
            (Some("CLOSED"), OwnState::Closed),
            (Some("SHIPPED"), OwnState::Other),
            (None, OwnState::Other),
        ] {
            assert_eq!(table.state(status), state, "{status:?}");
        }
    }

    #[test]
    fn a_mapping_has_one_meaning() {
        let good = table(AmountUnit::Fen);
        assert_eq!(good.check(), Ok(()));
        let twice = OwnTable { refunded: Some(Word::Text("0".into())), ..good.clone() };
        assert!(twice.check().unwrap_err().to_string().contains("two meanings"));
        let column = OwnTable { trade_no: Some(Identifier::new("STATUS").unwrap()), ..good.clone() };
        assert!(column.check().unwrap_err().to_string().contains("column twice"));
        assert!(OwnTable { pending: Vec::new(), ..good }.check().is_err());
    }

    #[test]
    fn times_are_written_by_the_clock_that_is_meant() {
        let at = Micros(1_769_832_000_999_999);
        assert_eq!(TimeForm::DatetimeBeijing.text(at), "2026-01-31 12:00:00");
        assert_eq!(TimeForm::DatetimeUtc.text(at), "2026-01-31 04:00:00");
        assert_eq!(
            (TimeForm::EpochSeconds.number(at), TimeForm::EpochMillis.number(at)),
            (1_769_832_000, 1_769_832_000_999)
        );
    }
}
