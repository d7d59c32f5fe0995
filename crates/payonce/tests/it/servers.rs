//! Databases on the servers that `cargo xtask services` starts, one for each test.
//!
//! Here: where the servers are, and a fresh database under the test's name. Not here: what is tested.

use payonce::store::server::{Clock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection};

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
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split('/').next().unwrap();
    format!("{scheme}://{host}/{name}")
}

fn name_of(case: &str) -> String {
    let mut name = format!("payonce_{case}");
    name.truncate(63);
    name
}

/// A new, empty database for this case.
#[cfg(feature = "postgres")]
pub(crate) async fn postgres(variable: &str, case: &str, clock: Clock) -> ServerOptions {
    let (url, name) = (url(variable), name_of(case));
    let mut admin = sqlx::PgConnection::connect(&url).await.unwrap();
    for statement in [format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"), format!("CREATE DATABASE {name}")] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    }
    ServerOptions { url: with_database(&url, &name), clock }
}

/// A new, empty database for this case.
#[cfg(feature = "mysql")]
pub(crate) async fn mysql(variable: &str, case: &str, clock: Clock) -> ServerOptions {
    let (url, name) = (url(variable), name_of(case));
    let mut admin = sqlx::MySqlConnection::connect(&url).await.unwrap();
    for statement in [format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}")] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    }
    ServerOptions { url: with_database(&url, &name), clock }
}
