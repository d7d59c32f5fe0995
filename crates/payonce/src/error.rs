//! One opaque error with a few predicates.
//!
//! Here: the one list of which database errors are races, and which pass by themselves. Not here: what a
//! caller is told over HTTP (the server).

use std::fmt;

/// What went wrong below `apply`. A repeat or a hold is never an error.
pub struct Error {
    kind: Kind,
    what: String,
    source: Option<sqlx::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another transaction was first: a new transaction sees what it did.
    Conflict,
    /// It may pass by itself: a lock, a lost connection.
    Transient,
    /// It will not pass by itself.
    Permanent,
}

impl Error {
    pub(crate) fn conflict(what: impl Into<String>) -> Self {
        Self { kind: Kind::Conflict, what: what.into(), source: None }
    }

    pub(crate) fn permanent(what: impl Into<String>) -> Self {
        Self { kind: Kind::Permanent, what: what.into(), source: None }
    }

    /// Another transaction was first. Whoever owns the transaction rolls it back and starts a new one;
    /// inside the same transaction nothing may be tried again.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    /// A new try, in a new transaction or on a new connection, may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Conflict | Kind::Transient)
    }

    /// Says what was being done.
    #[must_use]
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.what = if self.what.is_empty() { what.to_owned() } else { format!("{what}: {}", self.what) };
        self
    }
}

/// Vendor codes that mean "try again in a new transaction" (SQLite: sqlite.org/rescode.html).
const SQLITE_BUSY: [&str; 3] = ["5", "261", "517"];

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let kind = match &error {
            sqlx::Error::Database(inner) if inner.is_unique_violation() => Kind::Conflict,
            sqlx::Error::Database(inner) if inner.code().is_some_and(|code| SQLITE_BUSY.contains(&code.as_ref())) => {
                Kind::Transient
            }
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => Kind::Transient,
            _ => Kind::Permanent,
        };
        Self { kind, what: String::new(), source: Some(error) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.what, &self.source) {
            (what, None) => f.write_str(what),
            (what, Some(source)) if what.is_empty() => source.fmt(f),
            (what, Some(source)) => write!(f, "{what}: {source}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
