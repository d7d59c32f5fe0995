//! Seam 1: a channel reads, the centre decides.
//!
//! Here: what a channel is given (bytes, and a clock reading; its keys it holds) and what it gives back (a
//! belief or a rejection; bytes for a verdict). It is never handed an order, so it cannot decide. Not
//! here: any platform's words.

use std::fmt;

use crate::{notice::Notice, outcome::Verdict, time::Micros};

/// Header lines as received, in order, names in any letter case, values as bytes.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(Box<str>, Box<[u8]>)>);

/// Why a header has no usable value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// No such line, or an empty value.
    Missing,
    /// More than one line of the name.
    Duplicate,
    /// Bytes that are not visible ASCII.
    NotText,
}

impl Headers {
    /// Adds a line.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: impl Into<Box<[u8]>>) {
        self.0.push((name.into(), value.into()));
    }

    /// All lines.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The one value of a name, compared without regard to case. The value is not trimmed.
    pub fn one(&self, name: &str) -> Result<&str, HeaderError> {
        let mut values = self.0.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let value = values.next().ok_or(HeaderError::Missing)?;
        if values.next().is_some() {
            return Err(HeaderError::Duplicate);
        }
        let text = std::str::from_utf8(value).map_err(|_| HeaderError::NotText)?;
        if text.is_empty() {
            return Err(HeaderError::Missing);
        }
        if !text.bytes().all(|byte| (0x20..=0x7E).contains(&byte)) {
            return Err(HeaderError::NotText);
        }
        Ok(text)
    }
}

impl<N: Into<Box<str>>, V: Into<Box<[u8]>>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(lines: I) -> Self {
        Self(lines.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Bytes that arrived on a notify URL. Nothing in it is believed yet.
#[derive(Clone, Debug, Default)]
pub struct Callback {
    /// The header lines.
    pub headers: Headers,
    /// The body, exactly as received.
    pub body: Vec<u8>,
}

/// What a platform answered to a query that we (or the shop) sent. Nothing in it is believed yet.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The header lines.
    pub headers: Headers,
    /// The body, exactly as received.
    pub body: Vec<u8>,
}

/// What a channel believes after it verified.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// The facts. Empty if the message says nothing that could be booked.
    pub notices: Vec<Notice>,
    /// Why there are no facts, or that there are some.
    pub bearing: Bearing,
    /// Which configured key verified it.
    pub key_id: String,
    /// Which signing rule matched, in the platform's documentation's words.
    pub rule: &'static str,
}

/// What sort of message it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// It carries facts.
    Facts,
    /// A state that is not final (waiting for the buyer …): nothing to book, and no key used up. The text
    /// is the platform's word for the state.
    NotFinal(Box<str>),
    /// A kind of message that is not booked yet: kept as evidence and acknowledged. The text is the
    /// platform's word for the kind.
    Unsupported(Box<str>),
}

/// Why a message is not believed. A closed table: code, meaning, whether the signature was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A header or parameter that the signature needs is absent, empty, repeated or not text.
    SignatureParts,
    /// The timestamp is no number, or outside the window.
    Timestamp,
    /// No configured key has the serial that the message names.
    UnknownKey,
    /// The signature does not verify.
    Signature,
    /// A signature that the platform made wrong on purpose, to see whether it is verified.
    Probe,
    /// The bytes have not the form of a message of this channel.
    Malformed,
    /// Signed, but for another identity than the account's.
    ForeignIdentity,
    /// Signed, but it cannot be decrypted with the account's key.
    Undecryptable,
    /// Signed, but a field that is required is absent or has no readable value.
    MissingField,
    /// Signed, but its state is a word that we do not know.
    UnknownState,
    /// Signed, but its text could be split in more than one way (a value that hides `&key=`).
    Ambiguous,
}

impl Reason {
    /// Every reason, for the table in the docs.
    pub const ALL: [Self; 11] = [
        Self::SignatureParts,
        Self::Timestamp,
        Self::UnknownKey,
        Self::Signature,
        Self::Probe,
        Self::Malformed,
        Self::ForeignIdentity,
        Self::Undecryptable,
        Self::MissingField,
        Self::UnknownState,
        Self::Ambiguous,
    ];

    /// The code in logs, metrics and docs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::SignatureParts => "signature_parts",
            Self::Timestamp => "timestamp",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Probe => "probe",
            Self::Malformed => "malformed",
            Self::ForeignIdentity => "foreign_identity",
            Self::Undecryptable => "undecryptable",
            Self::MissingField => "missing_field",
            Self::UnknownState => "unknown_state",
            Self::Ambiguous => "ambiguous",
        }
    }

    /// Whether the platform did sign it: then its bytes are kept, and somebody should look.
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            Self::ForeignIdentity | Self::Undecryptable | Self::MissingField | Self::UnknownState | Self::Ambiguous
        )
    }
}

/// A message that is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which row of the table.
    pub reason: Reason,
    /// For the operator: which header, which field, which serial. Never a secret or a name of the buyer.
    pub detail: String,
    /// The key that verified it, where one did.
    pub key_id: Option<String>,
}

impl Rejection {
    /// A rejection before any key verified.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), key_id: None }
    }

    /// The same after `key_id` verified it.
    #[must_use]
    pub fn verified_by(mut self, key_id: &str) -> Self {
        self.key_id = Some(key_id.to_owned());
        self
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.detail)
    }
}

impl std::error::Error for Rejection {}

/// Status, headers and body sent back to the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type`, where there is a body.
    pub content_type: Option<&'static str>,
    /// The exact body.
    pub body: Vec<u8>,
}

/// One account at one platform. Implementations are values: keys in, no network, no clock.
pub trait Channel: Send + Sync {
    /// The channel's word in keys, `WXPAY` for example.
    fn name(&self) -> &'static str;

    /// The scope of this account's numbers.
    fn merchant(&self) -> &crate::ids::Merchant;

    /// Verifies, decrypts and reads a callback. The work on bytes that are not verified is bounded by
    /// their length.
    fn believe(&self, callback: &Callback, now: Micros) -> Result<Belief, Rejection>;

    /// The same for the answer to an order query. Not found, not final and failed answers are beliefs
    /// without facts: they mean unknown, never unpaid.
    fn believe_answer(&self, answer: &Answer, now: Micros) -> Result<Belief, Rejection>;

    /// Spells a verdict.
    fn reply(&self, verdict: &Verdict) -> Reply;
}
