//! The temper of SQLite: opening, migrating, doubts.
//!
//! Here: what every connection is set to, ours and sqlx's. Not here: the verbs (`sqlite`).

use std::time::Duration;

use sqlx::{
    ConnectOptions as _, Connection as _, SqlSafeStr as _, SqliteConnection,
    migrate::{Migrate as _, Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{NOTHING, Sqlite, SqliteOptions, Talk, checkpoint::Checkpointer};
use crate::{error::Error, store::Engine};

/// Another process may hold the file for this long before a write gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// Two processes that make one file at the same time: while one switches it to WAL or makes the tables, SQLite refuses
/// the other at once, whatever its time-out. It looks again so often.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A callback's evidence is about 2.5 kB: a page of 4 KiB takes one, a page of 8 KiB takes three. Larger pages cost
/// more where neighbours in time are not neighbours in the tables. A file that is there keeps its size.
const PAGE_BYTES: u32 = 8192;

/// What every connection is set to. A checkpoint runs in the committing thread: at the default of 1000 pages a full
/// batch meets one every few commits, and the same hot pages are copied each time; 32 MiB of WAL copy them once.
const SETTINGS: [(&str, &str); 3] =
    [("cache_size", "-65536"), ("wal_autocheckpoint", "4000"), ("mmap_size", "268435456")];

const SYNCHRONOUS: &str = "PRAGMA synchronous";

const READ_ONLY: &str = "PRAGMA query_only = 1";

const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "books", include_str!("../../../migrations/sqlite/0001_books.sql"))];

impl Engine for Sqlite {
    type Options = SqliteOptions;
    const NAME: &'static str = "sqlite";
    const BREATHER: Option<(Duration, Duration)> = Some((Duration::from_millis(50), Duration::from_millis(1)));
    const WRITERS: usize = 1;
    const READS_BEFORE_DURABLE: bool = false;
    const TRUSTED_IDLE: Option<Duration> = None;
    const COMPUTES: bool = true;

    async fn connect(options: &SqliteOptions) -> Result<Self, Error> {
        let what = "open the database";
        let connection = open(options).map_err(|error| error.during(what))?;
        let beside = open(options).map_err(|error| error.during(what))?;
        Ok(Self { checkpointer: Some(Checkpointer::start(beside)?), connection })
    }

    async fn connect_reader(options: &SqliteOptions) -> Result<Self, Error> {
        let connection = open(options).map_err(|error| error.during("open the database"))?;
        let mut reader = Self { checkpointer: None, connection };
        reader.run("open for reading", READ_ONLY, NOTHING).await?;
        Ok(reader)
    }

    /// Through sqlx, whose migrator wants a connection of its own.
    async fn migrate(&mut self) -> Result<Vec<i64>, Error> {
        let path = self.connection.path().ok_or_else(|| Error::permanent("migrate: the database has no path"))?;
        let mut connection = <SqliteConnection as Engine>::connect(&SqliteOptions { path: path.into() }).await?;
        let applied = <SqliteConnection as Engine>::migrate(&mut connection).await?;
        connection.close().await.map_err(|error| Error::from(error).during("close the database"))?;
        Ok(applied)
    }

    async fn doubts(&mut self) -> Result<Vec<String>, Error> {
        Ok(doubts(&self.read("read settings", SYNCHRONOUS, NOTHING, |row| row.int(0)).await?))
    }
}

/// A connection of sqlx does the same, and each of its statements is two turns of threads. It is what an embedder's
/// transaction is on; the exercise runs on it too.
impl Engine for SqliteConnection {
    type Options = SqliteOptions;
    const NAME: &'static str = Sqlite::NAME;
    const BREATHER: Option<(Duration, Duration)> = Sqlite::BREATHER;
    const WRITERS: usize = 1;
    const READS_BEFORE_DURABLE: bool = Sqlite::READS_BEFORE_DURABLE;
    const TRUSTED_IDLE: Option<Duration> = Sqlite::TRUSTED_IDLE;
    const COMPUTES: bool = false;

    async fn connect(options: &SqliteOptions) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(&options.path)
            .create_if_missing(true)
            .page_size(PAGE_BYTES)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        let options = SETTINGS.into_iter().fold(options, |options, (name, value)| options.pragma(name, value));
        let mut looks = 0;
        loop {
            match Self::connect_with(&options).await.map_err(|error| Error::from(error).during("open the database")) {
                Err(error) if error.is_transient() && looks < LOOKS => tokio::time::sleep(BETWEEN_LOOKS).await,
                done => return done,
            }
            looks += 1;
        }
    }

    async fn connect_reader(options: &SqliteOptions) -> Result<Self, Error> {
        let mut connection = <Self as Engine>::connect(options).await?;
        connection.run("open for reading", READ_ONLY, NOTHING).await?;
        Ok(connection)
    }

    async fn migrate(&mut self) -> Result<Vec<i64>, Error> {
        const TABLE: &str = "payonce_migrations";
        let failed = |error: sqlx::migrate::MigrateError| Error::permanent(format!("migrate: {error}"));
        let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(TABLE);
        self.ensure_migrations_table(TABLE).await.map_err(failed)?;
        let before = self.list_applied_migrations(TABLE).await.map_err(failed)?;
        // Two processes that start at once both find the tables missing, and the second is refused by the first's:
        // when it looks again, it sees what was done.
        let mut looks = 0;
        while let Err(error) = migrator.run_direct(None, self, false).await {
            looks += 1;
            if looks == LOOKS {
                return Err(failed(error));
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let known: Vec<i64> = before.iter().map(|applied| applied.version).collect();
        Ok(MIGRATIONS.iter().map(|&(version, ..)| version).filter(|version| !known.contains(version)).collect())
    }

    async fn doubts(&mut self) -> Result<Vec<String>, Error> {
        Ok(doubts(&self.read("read settings", SYNCHRONOUS, NOTHING, |row| row.int(0)).await?))
    }
}

/// By what a connection says of itself.
fn doubts(synchronous: &[i64]) -> Vec<String> {
    let level = synchronous.first().copied().unwrap_or(0);
    if level >= 2 {
        return Vec::new();
    }
    vec![format!("SQLite: synchronous = {level}; below FULL (2) the last commits can be lost with the power")]
}

fn open(options: &SqliteOptions) -> Result<rusqlite::Connection, Error> {
    // Each of our statements has its place in the cache.
    const STATEMENTS: usize = 128;
    let connection = rusqlite::Connection::open(&options.path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mut looks = 0;
    while let Err(error) = connection.pragma_update(None, "journal_mode", "wal") {
        let error = Error::from(error);
        if !error.is_transient() || looks == LOOKS {
            return Err(error);
        }
        looks += 1;
        std::thread::sleep(BETWEEN_LOOKS);
    }
    connection.pragma_update(None, "synchronous", "full")?;
    for (name, value) in SETTINGS {
        connection.pragma_update(None, name, value)?;
    }
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
