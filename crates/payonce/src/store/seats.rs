//! Connections between uses.
//!
//! Here: how many there may be, a fair queue for them, and which of them is still to be trusted. Not here: what is done
//! with one (`database`).
//!
//! A connection is taken out while it is used and put back only after a clean end: a future that is dropped half-way, or
//! an error in the middle, drops the connection with whatever was open on it.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{error::Error, store::Engine};

/// Connections of one kind.
pub(super) struct Seats<E> {
    turns: Semaphore,
    free: Mutex<Vec<Seated<E>>>,
}

/// A connection that nobody uses.
struct Seated<E> {
    connection: E,
    /// Since when commits have followed each other without a break.
    busy_since: Instant,
    idle_since: Instant,
}

/// A connection in use.
pub(super) struct InUse<'a, E> {
    pub(super) connection: E,
    busy_since: Instant,
    seats: &'a Seats<E>,
    _turn: SemaphorePermit<'a>,
}

impl<E: Engine> Seats<E> {
    /// At most so many at once.
    pub(super) const fn new(count: usize) -> Self {
        Self { turns: Semaphore::const_new(count), free: Mutex::new(Vec::new()) }
    }

    /// Waits for a turn; whoever came first has it first. Connects if no connection is left that can be trusted.
    pub(super) async fn take<F: Future<Output = Result<E, Error>>>(
        &self,
        connect: impl FnOnce() -> F,
    ) -> Result<InUse<'_, E>, Error> {
        let turn = self.turns.acquire().await.map_err(|_| Error::permanent("the database was closed"))?;
        let seated = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // One that sat for too long may be dead without knowing.
        let is_trusted = |seated: &Seated<E>| E::TRUSTED_IDLE.is_none_or(|limit| seated.idle_since.elapsed() < limit);
        let Some(seated) = seated.filter(is_trusted) else {
            let connection = connect().await?;
            return Ok(InUse { connection, busy_since: Instant::now(), seats: self, _turn: turn });
        };
        let busy_since = match E::BREATHER {
            Some((_, rest)) if seated.idle_since.elapsed() >= rest => Instant::now(),
            Some((busy, rest)) if seated.busy_since.elapsed() >= busy => {
                tokio::time::sleep(rest).await;
                Instant::now()
            }
            _ => seated.busy_since,
        };
        Ok(InUse { connection: seated.connection, busy_since, seats: self, _turn: turn })
    }
}

impl<E: Engine> InUse<'_, E> {
    /// After a clean end.
    pub(super) fn put_back(self) {
        let Self { connection, busy_since, seats, _turn } = self;
        let seated = Seated { connection, busy_since, idle_since: Instant::now() };
        seats.free.lock().unwrap_or_else(PoisonError::into_inner).push(seated);
    }

    /// After an error: rolls back in so many words (a queued rollback would keep its locks), or drops a
    /// connection of which nothing is known.
    pub(super) async fn undo(mut self, error: &Error) {
        if !error.is_lost() && self.connection.rollback().await.is_ok() {
            self.put_back();
        }
    }
}
