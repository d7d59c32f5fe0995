//! The exercise on SQLite.

use payonce::store::sqlite::SqliteOptions;
use sqlx::SqliteConnection;

/// A fresh file per case; it is left to the operating system's temporary folder.
async fn fresh(case: &str) -> SqliteOptions {
    let folder = tempfile::Builder::new().prefix(case).tempdir().unwrap().keep();
    SqliteOptions { path: folder.join("payonce.db") }
}

payonce::exercise!(SqliteConnection, fresh);
