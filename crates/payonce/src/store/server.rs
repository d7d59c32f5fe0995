//! What the engines that are reached over a network have in common.
//!
//! Here: where they are, whose clock counts, and the bound on every wait for them. Not here: SQL.

use std::{fmt, future::Future, time::Duration};

use crate::{
    error::Error,
    store::{About, Engine},
};

/// Where a database server is.
#[derive(Clone)]
pub struct ServerOptions {
    /// `postgres://user:password@host:port/database`, or `mysql://…`.
    pub url: String,
    /// Whose clock decides what is due.
    pub clock: Clock,
}

impl ServerOptions {
    /// With the server's clock.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), clock: Clock::Server }
    }
}

/// The URL has a password in it.
impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Whose clock decides what is due and which lease has run out.
///
/// Every such instant reaches the store together with its caller's "now". Several machines share a server,
/// and one whose clock is ahead must not steal the others' leases, so the server takes the instants relative
/// to that "now" and puts them on its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's, for everybody alike.
    #[default]
    Server,
    /// The caller's, taken as it is: for simulated time, where all callers share one clock.
    Caller,
}

/// An engine that is reached over a network.
pub trait Server: Engine<Options = ServerOptions> {
    /// Reads what it is, and how far its tables are. Changes nothing.
    fn about(&mut self) -> impl Future<Output = Result<About, Error>> + Send;
}

/// How long to wait for a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);

/// How long to wait for one statement. The server gives up earlier (4 s); this is for a server, or a network,
/// that has gone silent.
pub(crate) const ANSWER: Duration = Duration::from_secs(6);

/// An idle connection older than this is not trusted: a firewall on the way may have forgotten it.
pub(crate) const TRUSTED_IDLE: Duration = Duration::from_secs(60);

/// Waits for the server so long and no longer. After a time-out nothing is known of the connection's state,
/// so the error says that it is lost.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| Error::from(error).during(what)),
        Err(_) => Err(Error::lost(format!("{what}: no answer within {limit:?}"))),
    }
}
