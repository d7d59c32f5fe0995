//! Databases for tests that go through the gateway: a file, or a database of its own on a server that
//! `cargo xtask services` started; and a look into each beside the gateway.
//!
//! Here: which database a test is on, and the few words that differ from engine to engine. Not here: where the servers
//! are and databases of their own on them (`servers`, of the books' tests), or what is tested.

#![allow(dead_code, unused_macros, unused_imports, reason = "each of the test programs uses its part of this")]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use payonce::store::server::Clock;
use payonce_server::{
    config::Secret,
    database::{Place, engine_of},
};
use rand::Rng;
use sqlx::{
    AssertSqlSafe, Connection as _, MySqlConnection, PgConnection, Row, SqliteConnection, sqlite::SqliteConnectOptions,
};

pub(crate) mod own;
#[path = "../../../payonce/tests/it/servers.rs"]
pub(crate) mod servers;

/// An engine, and which version of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Sqlite,
    Postgres15,
    Postgres18,
    Mariadb,
}

impl Kind {
    /// The variable that names its server.
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres15 => Some("PAYONCE_TEST_POSTGRES15"),
            Self::Postgres18 => Some("PAYONCE_TEST_POSTGRES18"),
            Self::Mariadb => Some("PAYONCE_TEST_MARIADB"),
        }
    }
}

/// Each of these tests once for each database: `name::sqlite`, `name::postgres_15` …
macro_rules! on_each_database {
    ($($test:ident),+ $(,)?) => {
        crate::databases::on_each_database!(@ sqlite Sqlite: $($test),+);
        crate::databases::on_each_database!(@ postgres_15 Postgres15: $($test),+);
        crate::databases::on_each_database!(@ postgres_18 Postgres18: $($test),+);
        crate::databases::on_each_database!(@ mariadb Mariadb: $($test),+);
    };
    (@ $module:ident $kind:ident: $($test:ident),+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::$test(crate::databases::Kind::$kind).await;
                }
            )+
        }
    };
}
pub(crate) use on_each_database;

/// A port that nobody listens on, and that is given once in this program. Below the range from which outgoing
/// connections take theirs: with a port of that range, a client that calls a server that is down can end up connected to
/// itself, and then the server cannot start.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut tries = (0..1000).map(|_| rand::rng().random_range(20_000..32_000));
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    tries.find(|port| is_free(*port) && GIVEN.lock().unwrap().insert(*port)).unwrap()
}

/// A database's URL, and the databases that it was given a name among.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
}

impl Database {
    /// A new, empty one; a file of SQLite goes into the folder.
    pub(crate) async fn fresh(kind: Kind, dir: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let case = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let url = match (kind, kind.variable()) {
            (_, None) => format!("sqlite:{}", dir.join("payonce.db").display()),
            (Kind::Mariadb, Some(server)) => servers::mysql(server, &case, Clock::Server).await.url,
            (_, Some(server)) => servers::postgres(server, &case, Clock::Server).await.url,
        };
        Self { kind, url }
    }

    /// As the configuration would give it.
    pub(crate) fn place(&self) -> Place {
        let (scheme, rest) = self.url.split_once(':').unwrap();
        match self.kind {
            Kind::Sqlite => Place::sqlite(rest),
            _ => Place::server(engine_of(scheme).unwrap(), Secret::new(&*self.url, "a test", None), &*self.url),
        }
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(&self.url).await
    }
}

/// A connection beside the gateway's.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

/// The same words for each engine's connection.
macro_rules! each {
    ($this:expr, $connection:ident => $work:expr) => {
        match $this {
            Self::Sqlite($connection) => $work,
            Self::Postgres($connection) => $work,
            Self::Mysql($connection) => $work,
        }
    };
}

macro_rules! text_of {
    ($row:expr, $at:expr) => {
        // MySQL's binary texts are bytes to the driver.
        match $row.try_get::<Option<String>, _>($at) {
            Ok(text) => text,
            Err(_) => $row.get::<Option<Vec<u8>>, _>($at).map(|bytes| String::from_utf8(bytes).unwrap()),
        }
    };
}

impl Connection {
    pub(crate) async fn open(url: &str) -> Self {
        Self::try_open(url).await.unwrap()
    }

    pub(crate) async fn try_open(url: &str) -> Result<Self, sqlx::Error> {
        Ok(match url.split(':').next().unwrap() {
            "postgres" => Self::Postgres(PgConnection::connect(url).await?),
            "mysql" => Self::Mysql(MySqlConnection::connect(url).await?),
            _ => {
                let path = url.strip_prefix("sqlite:").unwrap();
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                Self::Sqlite(SqliteConnection::connect_with(&options.busy_timeout(Duration::from_secs(30))).await?)
            }
        })
    }

    /// Statements without an answer.
    pub(crate) async fn try_run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        each!(self, connection => sql.execute(connection).await.map(drop))
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// One statement; affected rows.
    pub(crate) async fn affected(&mut self, sql: &str) -> u64 {
        let sql = AssertSqlSafe(sql.to_owned());
        each!(self, connection => sqlx::query(sql).execute(connection).await.unwrap().rows_affected())
    }

    /// All rows, each column as a text.
    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        macro_rules! rows {
            ($connection:expr) => {{
                let rows = query.fetch_all($connection).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                rows.iter().map(|row| (0..row.len()).map(|at| text_of!(row, at)).collect()).collect()
            }};
        }
        each!(self, connection => rows!(connection))
    }

    /// One text, if there is a row.
    pub(crate) async fn text(&mut self, sql: &str) -> Option<String> {
        self.rows(sql).await.pop().and_then(|mut row| row.swap_remove(0))
    }

    /// One number.
    pub(crate) async fn count(&mut self, sql: &str) -> i64 {
        let (what, rest) = sql.strip_prefix("SELECT ").unwrap().split_once(" FROM ").unwrap();
        let text = format!("SELECT {} FROM {rest}", self.as_text(what));
        self.text(&text).await.unwrap().parse().unwrap()
    }

    /// An expression as a text.
    pub(crate) fn as_text(&self, expression: &str) -> String {
        match self {
            Self::Mysql(_) => format!("CAST({expression} AS CHAR)"),
            _ => format!("CAST({expression} AS TEXT)"),
        }
    }

    /// Makes each row that is inserted into (or updated in) this table fail; of `order_no` only, if one is given.
    pub(crate) async fn break_table(&mut self, verb: &str, table: &str, order_no: Option<&str>) {
        let only = order_no.map(|order_no| format!("NEW.order_no = '{order_no}'"));
        let sql = match (&self, only) {
            (Self::Sqlite(_), only) => {
                let when = only.map(|only| format!("WHEN {only} ")).unwrap_or_default();
                format!(
                    "CREATE TRIGGER broken BEFORE {verb} ON {table} {when}BEGIN SELECT RAISE(ABORT, 'a test broke it'); END"
                )
            }
            (Self::Postgres(_), only) => {
                let when = only.map(|only| format!("WHEN ({only}) ")).unwrap_or_default();
                format!(
                    "CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
                       $$ BEGIN RAISE EXCEPTION 'a test broke it'; END $$;
                     CREATE TRIGGER broken BEFORE {verb} ON {table} FOR EACH ROW {when}EXECUTE FUNCTION broken()"
                )
            }
            (Self::Mysql(_), only) => format!(
                "CREATE TRIGGER broken BEFORE {verb} ON {table} FOR EACH ROW BEGIN IF {} THEN
                   SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a test broke it'; END IF; END",
                only.as_deref().unwrap_or("TRUE")
            ),
        };
        self.run(&sql).await;
    }

    /// The reverse.
    pub(crate) async fn mend_table(&mut self, table: &str) {
        let on = if matches!(self, Self::Postgres(_)) { format!(" ON {table}") } else { String::new() };
        self.run(&format!("DROP TRIGGER broken{on}")).await;
    }

    /// A table of orders as people have them, in this engine's types.
    pub(crate) async fn create_t_order(&mut self) {
        let (id, datetime, end) = match self {
            Self::Sqlite(_) => ("INTEGER PRIMARY KEY", "DATETIME", ""),
            Self::Postgres(_) => ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "TIMESTAMP", ""),
            Self::Mysql(_) => {
                ("BIGINT AUTO_INCREMENT PRIMARY KEY", "DATETIME", " ENGINE = InnoDB DEFAULT CHARSET = utf8mb4")
            }
        };
        let create = format!(
            "CREATE TABLE t_order (id {id}, order_sn VARCHAR(64) NOT NULL UNIQUE, user_id BIGINT NOT NULL DEFAULT 0,
               pay_amount DECIMAL(10, 2) NOT NULL, status VARCHAR(16) NOT NULL, pay_time {datetime},
               transaction_id VARCHAR(64)){end}"
        );
        self.run(&create).await;
    }
}
