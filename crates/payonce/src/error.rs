//! One opaque error with a few predicates.
//!
//! Here: the one list of which database errors are races, and which pass by themselves. Not here: what a
//! caller is told over HTTP (the server).

use std::fmt;

/// What went wrong below `apply`. A repeat or a hold is never an error.
pub struct Error {
    kind: Kind,
    what: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another transaction was first: a new transaction sees what it did.
    Conflict,
    /// It may pass by itself: a lock, a server that is going down.
    Transient,
    /// Nothing is known of the connection any more; on a new one it may pass.
    Lost,
    /// It will not pass by itself.
    Permanent,
}

impl Error {
    pub(crate) fn conflict(what: impl Into<String>) -> Self {
        Self { kind: Kind::Conflict, what: what.into(), source: None }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn lost(what: impl Into<String>) -> Self {
        Self { kind: Kind::Lost, what: what.into(), source: None }
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
        matches!(self.kind, Kind::Conflict | Kind::Transient | Kind::Lost)
    }

    /// The connection is to be dropped, not rolled back: nobody knows what is open on it.
    pub(crate) fn is_lost(&self) -> bool {
        self.kind == Kind::Lost
    }

    /// Says what was being done.
    #[must_use]
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.what = if self.what.is_empty() { what.to_owned() } else { format!("{what}: {}", self.what) };
        self
    }
}

/// SQLite's codes that mean "try again in a new transaction" (sqlite.org/rescode.html): BUSY,
/// `BUSY_RECOVERY`, `BUSY_SNAPSHOT`.
#[cfg(feature = "sqlite")]
const SQLITE: [i32; 3] = [5, 261, 517];

/// And those of a unique index that has the row: `CONSTRAINT_PRIMARYKEY`, `CONSTRAINT_UNIQUE`.
#[cfg(feature = "sqlite")]
const UNIQUE: [i32; 2] = [1555, 2067];

/// PostgreSQL's (postgresql.org/docs/current/errcodes-appendix.html): serialisation failure, deadlock, lock not
/// available, statement cancelled by a time-out, idle in transaction for too long, too many connections, going
/// down or coming up, and read-only, as an old primary is after a failover.
#[cfg(feature = "postgres")]
const POSTGRES: [&str; 10] = ["40001", "40P01", "55P03", "57014", "25P03", "53300", "57P01", "57P02", "57P03", "25006"];

/// MySQL's and MariaDB's (mariadb.com/kb/en/mariadb-error-codes): deadlock, lock wait time-out (which rolls
/// back the statement only, so ROLLBACK is always sent), record changed since last read, auto-increment
/// refused, too many connections, going down, read-only, statement time-out of either, connection killed; and
/// OceanBase's time-out, transaction killed, lock conflict and serialisation failure. And two that say that a table
/// was touched or pushed out of the server's cache under a prepared statement or a snapshot.
#[cfg(feature = "mysql")]
const MYSQL: [u16; 18] =
    [1213, 1205, 1020, 1467, 1040, 1053, 1290, 1792, 1836, 1969, 3024, 1927, 4012, 6002, 6005, 6235, 1615, 1412];

fn is_transient(error: &dyn sqlx::error::DatabaseError) -> bool {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return MYSQL.contains(&error.number());
    }
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return POSTGRES.contains(&error.code());
    }
    #[cfg(feature = "sqlite")]
    if let Some(code) = error.code() {
        return code.parse().is_ok_and(|code| SQLITE.contains(&code));
    }
    let _ = error;
    false
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let kind = match &error {
            sqlx::Error::Database(inner) if inner.is_unique_violation() => Kind::Conflict,
            sqlx::Error::Database(inner) if is_transient(inner.as_ref()) => Kind::Transient,
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => Kind::Lost,
            _ => Kind::Permanent,
        };
        Self { kind, what: String::new(), source: Some(Box::new(error)) }
    }
}

#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error().map(|error| error.extended_code);
        let kind = match code {
            Some(code) if UNIQUE.contains(&code) => Kind::Conflict,
            Some(code) if SQLITE.contains(&code) => Kind::Transient,
            _ => Kind::Permanent,
        };
        Self { kind, what: String::new(), source: Some(Box::new(error)) }
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
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
