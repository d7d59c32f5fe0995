//! The exercise on SQLite, on both ways that lead there.

use payonce::store::{
    Database,
    sqlite::{Sqlite, SqliteOptions},
};
use sqlx::SqliteConnection;

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

/// Programs that start at once on a file that is not there yet: each opens it, and the tables are made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn many_open_a_new_file_at_once() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { path: folder.path().join("payonce.db") };
        let opening: Vec<_> = (0..16)
            .map(|index| {
                let options = options.clone();
                tokio::spawn(async move {
                    match index % 2 {
                        0 => Database::<Sqlite>::migrate(&options).await,
                        _ => Database::<SqliteConnection>::migrate(&options).await,
                    }
                })
            })
            .collect();
        for opened in opening {
            opened.await.unwrap().unwrap();
        }
    }
}
