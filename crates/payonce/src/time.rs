//! Instants as whole microseconds since 1970-01-01T00:00:00Z.
//!
//! Here: the one type in which times are kept, compared and printed. Not here: a clock; whoever needs
//! the present is handed it. Times without a zone are the channel's business (both platforms write
//! Beijing time).

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    /// From whole seconds; saturates instead of overflowing.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// The present by this machine's clock. Library code does not call it; the edges do.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_microsecond())
    }

    /// This instant plus a duration; saturates.
    pub const fn plus(self, duration: Duration) -> Self {
        let micros = duration.as_micros();
        Self(self.0.saturating_add(if micros > i64::MAX as u128 { i64::MAX } else { micros as i64 }))
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(if micros < 0 { 0 } else { micros as u64 })
    }

    /// The distance between two instants, whichever is first.
    pub const fn distance(self, other: Self) -> Duration {
        Duration::from_micros(self.0.abs_diff(other.0))
    }
}

impl From<jiff::Timestamp> for Micros {
    fn from(timestamp: jiff::Timestamp) -> Self {
        Self(timestamp.as_microsecond())
    }
}

/// RFC 3339 in UTC, for example `2026-01-02T03:04:05.000006Z`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => timestamp.fmt(f),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}
