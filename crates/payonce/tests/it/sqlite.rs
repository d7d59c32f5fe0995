//! The exercise on SQLite, on both ways that lead there.

use payonce::store::sqlite::SqliteOptions;

/// A fresh file per case; it is left to the operating system's temporary folder.
async fn fresh(case: &str) -> SqliteOptions {
    let folder = tempfile::Builder::new().prefix(case).tempdir().unwrap().keep();
    SqliteOptions { path: folder.join("payonce.db") }
}

mod our_own_connection {
    payonce::exercise!(payonce::store::sqlite::Sqlite, super::fresh);
}

mod a_connection_of_sqlx {
    payonce::exercise!(sqlx::SqliteConnection, super::fresh);
}
