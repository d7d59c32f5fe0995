//! A session on MariaDB, MySQL or OceanBase: how it is opened, what it may wait for, its tables, its doubts.
//!
//! Here: settings. READ COMMITTED and strict mode are set by ourselves, whatever the server's defaults; its
//! time-outs are shorter than our callers' patience. Not here: the statements of the books (`mysql`).

use std::{str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions, Connection, MySqlConnection, SqlSafeStr,
    migrate::{Migrate, Migration, MigrationType, Migrator},
    mysql::MySqlConnectOptions,
};

use super::{execute, fetch, query, say};
use crate::{
    error::Error,
    store::{
        About, Engine, Ledger,
        rows::Cells,
        server::{ANSWER, CONNECT, Clock, Server, ServerOptions, TRUSTED_IDLE, within},
    },
};

const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "books", include_str!("../../../migrations/mysql/0001_books.sql"))];

/// Of every session of ours.
const SETTINGS: &str = "\
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
                innodb_lock_wait_timeout = 3";

/// Which of the servers it is, and time-outs that only one of them has: as we work, and as we migrate.
struct Dialect {
    product: &'static str,
    bounded: &'static str,
    patient: &'static str,
    /// How often to try a migration again: OceanBase may show one session's tables and commits to another a
    /// little late, although that other waited for the lock.
    tries: u32,
    /// Statements kept prepared; what is beyond is prepared anew each time. OceanBase gives a session 50 open cursors
    /// (error 5930 for more).
    statements: usize,
}

const MARIADB: Dialect = Dialect {
    product: "MariaDB",
    bounded: "SET SESSION max_statement_time = 4, idle_write_transaction_timeout = 5",
    patient: "SET SESSION max_statement_time = 0, idle_write_transaction_timeout = 0",
    tries: 1,
    statements: 200,
};

/// It bounds neither writes nor idle transactions.
const MYSQL: Dialect = Dialect {
    product: "MySQL",
    bounded: "SET SESSION max_execution_time = 4000",
    patient: "SET SESSION max_execution_time = 0",
    tries: 1,
    statements: 200,
};

const OCEANBASE: Dialect = Dialect {
    product: "OceanBase",
    bounded: "SET SESSION ob_query_timeout = 4000000, ob_trx_lock_timeout = 3000000, ob_trx_idle_timeout = 5000000",
    patient: "SET SESSION ob_query_timeout = 3600000000, ob_trx_idle_timeout = 3600000000",
    tries: 50,
    statements: STATEMENTS,
};

async fn version(connection: &mut MySqlConnection) -> Result<String, Error> {
    let found = fetch(connection, "read the version", query("SELECT VERSION()")).await?;
    Ok(found.first().map(|row| row.text(0)).transpose()?.unwrap_or_default())
}

async fn dialect(connection: &mut MySqlConnection) -> Result<Dialect, Error> {
    Ok(match version(connection).await?.as_str() {
        version if version.contains("MariaDB") => MARIADB,
        version if version.contains("OceanBase") => OCEANBASE,
        _ => MYSQL,
    })
}

/// Statements kept prepared before it is known which server it is; a connection says so when it begins.
const STATEMENTS: usize = 45;

async fn open(options: &ServerOptions) -> Result<MySqlConnection, Error> {
    let what = "open the database";
    let connect = MySqlConnectOptions::from_str(&options.url)
        .map_err(|error| Error::from(error).during(what))?
        .pipes_as_concat(false)
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging();
    let mut connection = within(CONNECT, what, connect.connect()).await?;
    let Dialect { bounded, statements, .. } = dialect(&mut connection).await?;
    if statements > STATEMENTS {
        within(CONNECT, what, connection.close()).await?;
        connection = within(CONNECT, what, connect.statement_cache_capacity(statements).connect()).await?;
    }
    say(&mut connection, what, SETTINGS).await?;
    say(&mut connection, what, bounded).await?;
    if options.clock == Clock::Caller {
        say(&mut connection, what, "SET @payonce_shift = 0").await?;
    }
    Ok(connection)
}

/// One gateway at a time brings the tables up to date. sqlx asks for its lock "for ever" by a negative
/// time-out, which MariaDB takes for none at all, and does not look at the answer.
async fn lock(connection: &mut MySqlConnection) -> Result<(), Error> {
    const SQL: &str = "SELECT GET_LOCK(CONCAT('payonce:', MD5(DATABASE())), 1)";
    const SECONDS: u32 = 600;
    for _ in 0..SECONDS {
        let found = fetch(connection, "migrate", query(SQL)).await?;
        if found.first().map(|row| row.optional_int(0)).transpose()?.flatten() == Some(1) {
            return Ok(());
        }
    }
    Err(Error::permanent("migrate: another gateway has been at it for ten minutes"))
}

async fn unlock(connection: &mut MySqlConnection) -> Result<(), Error> {
    const SQL: &str = "SELECT RELEASE_LOCK(CONCAT('payonce:', MD5(DATABASE())))";
    execute(connection, "migrate", query(SQL)).await.map(drop)
}

/// Under the lock; the migrations that had been applied before.
async fn bring_up_to_date(connection: &mut MySqlConnection) -> Result<Vec<i64>, Error> {
    const TABLE: &str = "payonce_migrations";
    let failed = |error: sqlx::migrate::MigrateError| Error::permanent(format!("migrate: {error}"));
    let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator.set_locking(false);
    connection.ensure_migrations_table(TABLE).await.map_err(failed)?;
    // DDL commits by itself, so a migration can break off half-way. Its statements may be run again, and nobody
    // else is at it.
    say(connection, "migrate", "DELETE FROM payonce_migrations WHERE success = FALSE").await?;
    let before = connection.list_applied_migrations(TABLE).await.map_err(failed)?;
    migrator.run_direct(None, connection, false).await.map_err(failed)?;
    Ok(before.iter().map(|applied| applied.version).collect())
}

/// What a server's settings mean for an acknowledgement; `value` gives a global variable, if it has it.
fn doubts_of(value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is = |name: &str, words: &[&str]| {
        value(name).is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
    };
    let has_binlog = is("log_bin", &["ON", "1"]);
    let mut doubts = Vec::new();
    if let Some(level) = value("innodb_flush_log_at_trx_commit").filter(|level| level != "1") {
        doubts.push(format!(
            "MySQL: innodb_flush_log_at_trx_commit = {level}; the last second's commits can be lost with the power. \
             Set it to 1 in the server's configuration and restart"
        ));
    }
    if let Some(every) = value("sync_binlog").filter(|every| has_binlog && every != "1") {
        doubts.push(format!(
            "MySQL: sync_binlog = {every} with a binary log; after a power failure the log lacks commits, and a \
             replica never gets them. Set it to 1"
        ));
    }
    if has_binlog && is("binlog_format", &["STATEMENT"]) {
        doubts.push(
            "MySQL: binlog_format = STATEMENT; InnoDB refuses to write at READ COMMITTED then (error 1665). Set it to \
             ROW"
            .to_owned(),
        );
    }
    if is("wsrep_on", &["ON", "1"]) {
        doubts.push(
            "MariaDB: Galera (wsrep_on) is not tried; let every gateway write to the same node, because a row is \
             seen on the others later than it is acknowledged"
                .to_owned(),
        );
    }
    if let Some(engine) = value("default_storage_engine").filter(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
        doubts.push(format!(
            "MySQL: default_storage_engine = {engine}; payonce's tables name InnoDB, but yours in the same \
             transaction may not roll back. Set it to InnoDB"
        ));
    }
    doubts
}

impl Engine for MySqlConnection {
    type Options = ServerOptions;
    const NAME: &'static str = "mysql";
    const BREATHER: Option<(Duration, Duration)> = None;
    const WRITERS: usize = 2;
    const READS_BEFORE_DURABLE: bool = true;
    const TRUSTED_IDLE: Option<Duration> = Some(TRUSTED_IDLE);
    const COMPUTES: bool = false;

    async fn connect(options: &ServerOptions) -> Result<Self, Error> {
        open(options).await
    }

    async fn connect_reader(options: &ServerOptions) -> Result<Self, Error> {
        let mut connection = open(options).await?;
        say(&mut connection, "open for reading", "SET SESSION TRANSACTION READ ONLY").await?;
        Ok(connection)
    }

    async fn migrate(&mut self) -> Result<Vec<i64>, Error> {
        let dialect = dialect(self).await?;
        say(self, "migrate", dialect.patient).await?;
        lock(self).await?;
        let mut tries = 1;
        let before = loop {
            match bring_up_to_date(self).await {
                Ok(before) => break before,
                Err(error) if tries >= dialect.tries => return Err(error),
                Err(_) => {
                    Ledger::rollback(self).await?;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            tries += 1;
        };
        unlock(self).await?;
        say(self, "migrate", dialect.bounded).await?;
        Ok(MIGRATIONS.iter().map(|&(version, ..)| version).filter(|version| !before.contains(version)).collect())
    }

    async fn doubts(&mut self) -> Result<Vec<String>, Error> {
        const SQL: &str = "\
            SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
                                                          'binlog_format', 'wsrep_on', 'default_storage_engine')";
        let found = within(ANSWER, "read settings", sqlx::raw_sql(SQL).fetch_all(self)).await?;
        let settings = found.iter().map(|row| Ok((row.text(0)?, row.text(1)?))).collect::<Result<Vec<_>, Error>>()?;
        Ok(doubts_of(|name| settings.iter().find(|(have, _)| have == name).map(|(_, value)| value.clone())))
    }
}

impl Server for MySqlConnection {
    async fn about(&mut self) -> Result<About, Error> {
        const SQL: &str = "\
            SELECT COUNT(*) FROM information_schema.tables
            WHERE table_schema = DATABASE() AND table_name = 'payonce_migrations'";
        const APPLIED: &str = "SELECT version FROM payonce_migrations WHERE success ORDER BY version";
        let found = fetch(self, "read migrations", query(SQL)).await?;
        let is_there = found.first().map(|row| row.int(0)).transpose()? == Some(1);
        let applied = if is_there { fetch(self, "read migrations", query(APPLIED)).await? } else { Vec::new() };
        Ok(About {
            product: dialect(self).await?.product,
            version: version(self).await?,
            applied: applied.iter().map(|row| row.int(0)).collect::<Result<_, Error>>()?,
            known: MIGRATIONS.iter().map(|&(version, ..)| version).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_commits_are_told() {
        let of = |settings: &[(&str, &str)]| {
            doubts_of(|name| settings.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned()))
        };
        let good = [("innodb_flush_log_at_trx_commit", "1"), ("log_bin", "OFF"), ("sync_binlog", "0")];
        assert_eq!(of(&good), Vec::<String>::new());
        let bad = [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("sync_binlog", "0"),
            ("binlog_format", "STATEMENT"),
            ("wsrep_on", "ON"),
            ("default_storage_engine", "MyISAM"),
        ];
        let told = of(&bad);
        assert_eq!(told.len(), 5, "{told:?}");
        for ((name, _), told) in bad.iter().filter(|(name, _)| *name != "log_bin").zip(&told) {
            assert!(told.contains(name), "{told}");
        }
    }
}
