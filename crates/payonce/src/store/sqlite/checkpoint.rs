//! Copies what was committed from the WAL into the file, beside the writer instead of in its way.
//!
//! Here: one thread for each writing connection, with a connection of its own. SQLite would otherwise do it inside
//! of a COMMIT, and whoever waits for that one waits ten times as long. It is help and no duty: if it fails or lags,
//! the writer's own `wal_autocheckpoint` does the rest, and starts the WAL anew. Not here: durability, which is the
//! WAL's alone.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use rusqlite::Connection;

use crate::error::Error;

/// After a commit it looks again this much later: long enough to find several, short beside the time in which a
/// busy writer fills the WAL.
const PACE: Duration = Duration::from_millis(20);

/// Pages in the WAL that are worth a round; below, a quiet gateway would copy each page for itself.
const WORTH: i64 = 800;

#[derive(Debug)]
pub(super) struct Checkpointer {
    commits: Option<SyncSender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(connection: Connection) -> Result<Self, Error> {
        // A hint that is not taken yet says enough.
        let (commits, hints) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("payonce-checkpoint".to_owned())
            .spawn(move || run(&connection, &hints))
            .map_err(|error| Error::permanent(format!("start a thread: {error}")))?;
        Ok(Self { commits: Some(commits), thread: Some(thread) })
    }

    /// Something was committed.
    pub(super) fn hint(&self) {
        if let Some(commits) = &self.commits {
            // Full: a hint is waiting. Ended: the writer helps itself.
            let _ = commits.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    /// Waits, so that the writer is the last to close the file and leaves no WAL behind.
    fn drop(&mut self) {
        drop(self.commits.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, hints: &Receiver<()>) {
    while hints.recv().is_ok() {
        thread::sleep(PACE);
        if let Err(error) = round(connection) {
            tracing::debug!(%error, "no checkpoint this time");
        }
    }
}

fn round(connection: &Connection) -> Result<(), rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
    let mut look = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let (in_wal, copied): (i64, i64) = look.query_row([], read)?;
    if in_wal - copied >= WORTH {
        let mut copy = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        let _: (i64, i64) = copy.query_row([], read)?;
    }
    Ok(())
}
