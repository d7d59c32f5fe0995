//! The engines, as far as a benchmark must know them: connections that run text, and where they differ.
//!
//! Here: one connection type over sqlx's three, and what an engine says about its durability. Not here: making
//! and dropping databases (`servers`), tables and audits (`books`).

use std::{fs, path::PathBuf, str::FromStr as _, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, MySqlConnection, PgConnection, Row as _,
    SqliteConnection,
    mysql::MySqlConnectOptions,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use crate::Outcome;

/// What keeps the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Mariadb,
}

impl Engine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
        }
    }

    /// The name of a text with leading zeros: `prefix` and `digits` digits of the integer expression `number`.
    pub(crate) fn numbered(self, prefix: &str, number: &str, digits: usize) -> String {
        match self {
            Self::Sqlite => format!("('{prefix}' || printf('%0{digits}d', {number}))"),
            Self::Postgres => format!("('{prefix}' || lpad(({number})::text, {digits}, '0'))"),
            Self::Mariadb => format!("concat('{prefix}', lpad({number}, {digits}, '0'))"),
        }
    }

    /// A table expression with one column `i`, from `from` to before `to`.
    pub(crate) fn series(self, from: usize, to: usize) -> String {
        let last = to.saturating_sub(1);
        match self {
            Self::Sqlite => format!(
                "(WITH RECURSIVE c(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM c WHERE i < {last}) SELECT i FROM c)"
            ),
            Self::Postgres => format!("(SELECT i FROM generate_series({from}, {last}) AS s(i))"),
            // MariaDB's sequence engine: a table by its name.
            Self::Mariadb => format!("(SELECT seq AS i FROM seq_{from}_to_{last})"),
        }
    }
}

/// One competitor's database: a file's path, or a server's URL.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) address: String,
}

impl Database {
    pub(crate) fn file(path: PathBuf) -> Self {
        Self { engine: Engine::Sqlite, address: path.display().to_string() }
    }

    /// As the gateway's configuration has it.
    pub(crate) fn gateway_url(&self) -> String {
        match self.engine {
            Engine::Sqlite => format!("sqlite:{}", self.address),
            Engine::Postgres | Engine::Mariadb => self.address.clone(),
        }
    }

    /// The last part of a server's URL.
    pub(crate) fn name(&self) -> &str {
        self.address.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) async fn open(&self) -> Outcome<Connection> {
        Ok(match self.engine {
            Engine::Sqlite => {
                let options = SqliteConnectOptions::new()
                    .filename(&self.address)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .busy_timeout(Duration::from_secs(30));
                Connection::Sqlite(options.connect().await?)
            }
            Engine::Postgres => {
                let options = PgConnectOptions::from_str(&self.address)?.disable_statement_logging();
                Connection::Postgres(options.connect().await?)
            }
            Engine::Mariadb => {
                let options = MySqlConnectOptions::from_str(&self.address)?.disable_statement_logging();
                Connection::Mariadb(options.connect().await?)
            }
        })
    }
}

/// A connection of the benchmark's own.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Mariadb(MySqlConnection),
}

impl Connection {
    pub(crate) fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
            Self::Mariadb(_) => Engine::Mariadb,
        }
    }

    /// Statements without an answer.
    pub(crate) async fn run(&mut self, sql: &str) -> Outcome<()> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Sqlite(connection) => connection.execute(sql).await.map(|_| ())?,
            Self::Postgres(connection) => connection.execute(sql).await.map(|_| ())?,
            Self::Mariadb(connection) => connection.execute(sql).await.map(|_| ())?,
        }
        Ok(())
    }

    /// The one whole number that a query gives, in whatever type.
    pub(crate) async fn number(&mut self, query: &str) -> Outcome<i64> {
        let kind = if self.engine() == Engine::Mariadb { "SIGNED" } else { "BIGINT" };
        let sql = format!("SELECT CAST(({query}) AS {kind})");
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        Ok(match self {
            Self::Sqlite(connection) => connection.fetch_one(sql).await?.try_get(0)?,
            Self::Postgres(connection) => connection.fetch_one(sql).await?.try_get(0)?,
            Self::Mariadb(connection) => connection.fetch_one(sql).await?.try_get(0)?,
        })
    }

    /// One column of texts.
    pub(crate) async fn texts(&mut self, query: &str, column: usize) -> Outcome<Vec<String>> {
        let sql = sqlx::raw_sql(AssertSqlSafe(query.to_owned()));
        // Some engines give text as bytes, and SQLite numbers as numbers.
        macro_rules! rows {
            ($connection:expr) => {{
                let rows = $connection.fetch_all(sql).await?;
                let text = |row: &_| text(row, column);
                rows.iter().map(text).collect()
            }};
        }
        match self {
            Self::Sqlite(connection) => rows!(connection),
            Self::Postgres(connection) => rows!(connection),
            Self::Mariadb(connection) => rows!(connection),
        }
    }

    async fn text(&mut self, query: &str, column: usize) -> Outcome<String> {
        Ok(self.texts(query, column).await?.into_iter().next().unwrap_or_default())
    }

    /// What a session without settings of its own promises.
    pub(crate) async fn settings(&mut self) -> Outcome<String> {
        let engine = self.engine();
        let (version, named, column) = match engine {
            Engine::Sqlite => {
                ("SELECT sqlite_version()", [("journal_mode", "PRAGMA "), ("synchronous", "PRAGMA ")].as_slice(), 0)
            }
            Engine::Postgres => (
                "SHOW server_version",
                [("fsync", "SHOW "), ("synchronous_commit", "SHOW "), ("full_page_writes", "SHOW ")].as_slice(),
                0,
            ),
            Engine::Mariadb => (
                "SELECT version()",
                [
                    ("innodb_flush_log_at_trx_commit", "SHOW GLOBAL VARIABLES LIKE "),
                    ("innodb_doublewrite", "SHOW GLOBAL VARIABLES LIKE "),
                    ("log_bin", "SHOW GLOBAL VARIABLES LIKE "),
                ]
                .as_slice(),
                1,
            ),
        };
        let mut said = vec![format!("{} {}", engine.name(), self.text(version, 0).await?)];
        for (name, ask) in named {
            let quote = if engine == Engine::Mariadb { "'" } else { "" };
            let value = self.text(&format!("{ask}{quote}{name}{quote}"), column).await?;
            said.push(format!("{name} {}", value.to_lowercase()));
        }
        Ok(said.join(", "))
    }

    /// The server's first process; `None` where there is none, or it does not tell us.
    pub(crate) async fn server_process(&mut self) -> Outcome<Option<u32>> {
        let file = match self {
            Self::Sqlite(_) => return Ok(None),
            Self::Postgres(_) => self.text("SELECT pg_read_file('postmaster.pid')", 0).await?,
            Self::Mariadb(_) => {
                let path = self.text("SHOW GLOBAL VARIABLES LIKE 'pid_file'", 1).await?;
                fs::read_to_string(path).unwrap_or_default()
            }
        };
        Ok(file.lines().next().and_then(|line| line.trim().parse().ok()))
    }

    pub(crate) async fn close(self) -> Outcome<()> {
        match self {
            Self::Sqlite(connection) => connection.close().await?,
            Self::Postgres(connection) => connection.close().await?,
            Self::Mariadb(connection) => connection.close().await?,
        }
        Ok(())
    }
}

fn text<R>(row: &R, column: usize) -> Outcome<String>
where
    R: sqlx::Row,
    usize: sqlx::ColumnIndex<R>,
    for<'a> String: sqlx::Decode<'a, R::Database>,
    for<'a> i64: sqlx::Decode<'a, R::Database>,
{
    let text = row.try_get_unchecked::<String, _>(column);
    Ok(text.or_else(|_| row.try_get_unchecked::<i64, _>(column).map(|number| number.to_string()))?)
}
