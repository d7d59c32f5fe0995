//! Databases on the servers that `cargo xtask services` starts, one for each test; the gateway's tests use it too.
//!
//! Here: where the servers are, a fresh database under the test's name and this process's number (another run
//! may be at the same servers), and the end of those whose run has ended. Not here: what is tested.

use std::{collections::BTreeSet, path::Path};

use payonce::store::server::{Clock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::Mutex;

/// The server's URL; a test without its server has failed.
pub(crate) fn url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: `cargo xtask services` starts the servers and writes target/services/env; \
             `cargo xtask test` loads it, or: set -a; . target/services/env; set +a"
        )
    })
}

/// The URL with another database; admin URLs of PostgreSQL name one, those of MySQL none.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split('/').next().unwrap();
    format!("{scheme}://{host}/{name}")
}

/// The longest name that both engines take is 63 letters.
fn name_of(case: &str) -> String {
    let mut name = format!("payonce_{}_{case}", std::process::id());
    name.truncate(63);
    name
}

/// Whether the run that made this database has ended.
fn is_left_over(name: &str) -> bool {
    let owner = name.strip_prefix("payonce_").and_then(|rest| rest.split('_').next());
    owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
}

/// Servers that were tidied by this run.
static TIDIED: Mutex<BTreeSet<String>> = Mutex::const_new(BTreeSet::new());

macro_rules! fresh {
    ($name:ident, $connection:ty, list: $list:literal, drop: $drop:literal) => {
        /// A new, empty database for this case.
        pub(crate) async fn $name(variable: &str, case: &str, clock: Clock) -> ServerOptions {
            let (url, name) = (url(variable), name_of(case));
            let mut admin = <$connection as Connection>::connect(&url).await.unwrap();
            let mut run = async |statement: String| sqlx::raw_sql(AssertSqlSafe(statement)).fetch_all(&mut admin).await;
            let mut tidied = TIDIED.lock().await;
            if tidied.insert(url.clone()) {
                for row in run($list.to_owned()).await.unwrap() {
                    let name: String = row.get(0);
                    if is_left_over(&name) {
                        // Another run may be dropping it as well.
                        let _ = run(format!($drop, name)).await;
                    }
                }
            }
            drop(tidied);
            run(format!($drop, name)).await.unwrap();
            run(format!("CREATE DATABASE {name}")).await.unwrap();
            ServerOptions { url: with_database(&url, &name), clock }
        }
    };
}

#[cfg(feature = "postgres")]
fresh!(
    postgres,
    sqlx::PgConnection,
    list: "SELECT datname::text FROM pg_database",
    drop: "DROP DATABASE IF EXISTS {} WITH (FORCE)"
);

#[cfg(feature = "mysql")]
fresh!(
    mysql,
    sqlx::MySqlConnection,
    list: "SELECT CONVERT(schema_name USING utf8mb4) FROM information_schema.schemata",
    drop: "DROP DATABASE IF EXISTS {}"
);
