//! A session on PostgreSQL: how it is opened, what it may wait for, its tables, its doubts.
//!
//! Here: settings. READ COMMITTED and a durable commit are set by ourselves, whatever the role's defaults;
//! the server's time-outs are shorter than our callers' patience, so that a gateway that froze holds nobody
//! up. Not here: the statements of the books (`postgres`).

use std::{str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions, PgConnection, SqlSafeStr,
    migrate::{Migrate, Migration, MigrationType, Migrator},
    postgres::PgConnectOptions,
};

use super::{execute, fetch, query};
use crate::{
    error::Error,
    store::{
        About, Engine,
        rows::Cells,
        server::{CONNECT, Clock, Server, ServerOptions, TRUSTED_IDLE, within},
    },
};

const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "books", include_str!("../../../migrations/postgres/0001_books.sql"))];

/// Of every session of ours: name, value, and the version that knows it first. On tables that are new, or grew
/// since they were last analysed, the planner would rather scan than use an index, so it is told; a plan once
/// made is kept, because every statement has only one good one.
const SETTINGS: &str = "\
    SELECT set_config(name, value, false)
    FROM (VALUES ('default_transaction_isolation', 'read committed', 0),
                 ('lock_timeout', '3s', 0),
                 ('statement_timeout', '4s', 0),
                 ('idle_in_transaction_session_timeout', '5s', 0),
                 ('client_connection_check_interval', '1s', 140000),
                 ('tcp_keepalives_idle', '30', 0),
                 ('tcp_keepalives_interval', '10', 0),
                 ('tcp_keepalives_count', '3', 0),
                 ('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, 0),
                 ('enable_seqscan', 'off', 0),
                 ('enable_hashjoin', 'off', 0),
                 ('enable_mergejoin', 'off', 0),
                 ('plan_cache_mode', 'force_generic_plan', 0),
                 ('jit', 'off', 0)) AS setting (name, value, since)
    WHERE current_setting('server_version_num')::bigint >= since";

async fn open(options: &ServerOptions) -> Result<PgConnection, Error> {
    let what = "open the database";
    let connect = PgConnectOptions::from_str(&options.url)
        .map_err(|error| Error::from(error).during(what))?
        .application_name("payonce")
        .disable_statement_logging();
    let mut connection = within(CONNECT, what, connect.connect()).await?;
    fetch(&mut connection, what, query(SETTINGS)).await?;
    if options.clock == Clock::Caller {
        fetch(&mut connection, what, query("SELECT set_config('payonce.clock', 'caller', false)")).await?;
    }
    Ok(connection)
}

impl Engine for PgConnection {
    type Options = ServerOptions;
    const NAME: &'static str = "postgres";
    const BREATHER: Option<(Duration, Duration)> = None;
    const WRITERS: usize = 2;
    const READS_BEFORE_DURABLE: bool = false;
    const TRUSTED_IDLE: Option<Duration> = Some(TRUSTED_IDLE);
    const COMPUTES: bool = false;

    async fn connect(options: &ServerOptions) -> Result<Self, Error> {
        open(options).await
    }

    async fn connect_reader(options: &ServerOptions) -> Result<Self, Error> {
        let mut connection = open(options).await?;
        execute(&mut connection, "open for reading", query("SET default_transaction_read_only = on")).await?;
        Ok(connection)
    }

    async fn migrate(&mut self) -> Result<Vec<i64>, Error> {
        const TABLE: &str = "payonce_migrations";
        let failed = |error: sqlx::migrate::MigrateError| Error::permanent(format!("migrate: {error}"));
        // A migration may take as long as it takes, and may have to wait for another gateway's.
        const PATIENCE: &str = "\
            SELECT set_config(name, '0', false)
            FROM (VALUES ('lock_timeout'), ('statement_timeout'), ('idle_in_transaction_session_timeout')) AS s (name)";
        fetch(self, "migrate", query(PATIENCE)).await?;
        let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(TABLE);
        migrator.set_locking(false);
        self.lock().await.map_err(failed)?;
        self.ensure_migrations_table(TABLE).await.map_err(failed)?;
        let before = self.list_applied_migrations(TABLE).await.map_err(failed)?;
        migrator.run_direct(None, self, false).await.map_err(failed)?;
        self.unlock().await.map_err(failed)?;
        fetch(self, "migrate", query(SETTINGS)).await?;
        let known: Vec<i64> = before.iter().map(|applied| applied.version).collect();
        Ok(MIGRATIONS.iter().map(|&(version, ..)| version).filter(|version| !known.contains(version)).collect())
    }

    async fn doubts(&mut self) -> Result<Vec<String>, Error> {
        const SQL: &str = "\
            SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')";
        let found = fetch(self, "read settings", query(SQL)).await?;
        let row = found.first().ok_or_else(|| Error::permanent("read settings: no row"))?;
        let mut doubts = Vec::new();
        if row.text(0)? != "on" {
            doubts.push(
                "PostgreSQL: fsync = off; after a power failure everything can be lost or damaged. \
                 Set fsync = on in postgresql.conf and restart"
                    .to_owned(),
            );
        }
        if row.text(1)? != "on" {
            doubts.push(
                "PostgreSQL: full_page_writes = off; a power failure can leave half-written pages. Set it to on in \
                 postgresql.conf and reload, unless the file system guarantees whole pages"
                    .to_owned(),
            );
        }
        let level = row.text(2)?;
        if level != "on" && level != "remote_apply" {
            doubts.push(format!(
                "PostgreSQL: synchronous_commit = {level} although this session asked for on; the last commits can \
                 be lost with the power. Let the role of payonce set it"
            ));
        }
        Ok(doubts)
    }
}

impl Server for PgConnection {
    async fn about(&mut self) -> Result<About, Error> {
        const SQL: &str =
            "SELECT current_setting('server_version'), (to_regclass('payonce_migrations') IS NOT NULL)::int::bigint";
        const APPLIED: &str = "SELECT version FROM payonce_migrations WHERE success ORDER BY version";
        let found = fetch(self, "read the version", query(SQL)).await?;
        let row = found.first().ok_or_else(|| Error::permanent("read the version: no row"))?;
        let applied = if row.int(1)? == 1 { fetch(self, "read migrations", query(APPLIED)).await? } else { Vec::new() };
        Ok(About {
            product: "PostgreSQL",
            version: row.text(0)?,
            applied: applied.iter().map(|row| row.int(0)).collect::<Result<_, Error>>()?,
            known: MIGRATIONS.iter().map(|&(version, ..)| version).collect(),
        })
    }
}
