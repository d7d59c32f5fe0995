//! `payonce migrate`: brings the database's tables up to date.
//!
//! Here: asking for it, and saying what was done. Not here: the tables (`crates/payonce/migrations`) and how
//! they are applied (`payonce::store`).

use clap::Args;
use payonce::store::{
    Database,
    sqlite::{Sqlite, SqliteOptions},
};

use super::{
    ConfigFile, block_on,
    out::{self, Failure},
};
use crate::config::Config;

const EXAMPLES: &str = "\
Examples:
  payonce migrate
  payonce --config /etc/payonce/payonce.toml migrate

`payonce serve` does this by itself for the embedded database. Only tables named payonce_... are touched.";

/// Create or update payonce's tables in the configured database
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Migrate {}

impl Migrate {
    pub(super) fn run(&self, file: &ConfigFile) -> Result<(), Failure> {
        let config = file.load()?;
        let path = config.database.path.display();
        let applied = block_on(apply(&config))?;
        if applied.is_empty() {
            out::line(format_args!("{path}: up to date, nothing to do"));
        } else {
            out::line(format_args!("{path}: applied {}", list(&applied)));
        }
        Ok(())
    }
}

/// Where the embedded database is.
pub(super) fn options(config: &Config) -> SqliteOptions {
    SqliteOptions { path: config.database.path.clone() }
}

/// Applies what is missing; the numbers of what was applied.
pub(super) async fn apply(config: &Config) -> Result<Vec<i64>, Failure> {
    let path = &config.database.path;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        let what = format!("the database's folder {} does not exist", folder.display());
        return Err(Failure::new(what, format!("mkdir -p {}, or correct `url` in [database]", folder.display())));
    }
    Database::<Sqlite>::migrate(&options(config)).await.map_err(|error| {
        let todo = "`payonce doctor` looks at the file, its folder and the disk";
        Failure::new(format!("the database {} cannot be brought up to date: {error}", path.display()), todo)
    })
}

/// `migration 1`, `migrations 1, 2`.
pub(super) fn list(applied: &[i64]) -> String {
    let numbers: Vec<String> = applied.iter().map(i64::to_string).collect();
    format!("migration{} {}", if applied.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
