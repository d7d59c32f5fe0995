//! `payonce migrate`: brings the database's tables up to date.
//!
//! Here: asking for it, and saying what was done. Not here: the tables (`crates/payonce/migrations`) and how
//! they are applied (`payonce::store`).

use std::path::Path;

use clap::Args;

use super::{
    ConfigFile, block_on,
    out::{self, Failure},
};
use crate::{config::Config, database::Place};

const EXAMPLES: &str = "\
Examples:
  payonce migrate
  payonce --config /etc/payonce/payonce.toml migrate

`payonce serve` does this by itself. On a server it needs the right to make tables only when something is
missing. Only tables named payonce_... are touched.";

/// Create or update payonce's tables in the configured database
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Migrate {}

impl Migrate {
    pub(super) fn run(&self, file: &ConfigFile) -> Result<(), Failure> {
        let config = file.load()?;
        let place = &config.database.place;
        let applied = block_on(apply(&config))?;
        if applied.is_empty() {
            out::line(format_args!("{place}: up to date, nothing to do"));
        } else {
            out::line(format_args!("{place}: applied {}", list(&applied)));
        }
        Ok(())
    }
}

/// Applies what is missing; the numbers of what was applied.
pub(super) async fn apply(config: &Config) -> Result<Vec<i64>, Failure> {
    let place = &config.database.place;
    let folder = place.as_file().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let what = format!("the database's folder {} does not exist", folder.display());
        return Err(Failure::new(what, format!("mkdir -p {}, or correct `url` in [database]", folder.display())));
    }
    place.door().migrate().await.map_err(|error| failed(place, "brought up to date", &error))
}

/// A database that does not do what is asked of it.
pub(super) fn failed(place: &Place, what: &str, error: &payonce::Error) -> Failure {
    let todo = match place.as_file() {
        Some(_) => "`payonce doctor` looks at the file, its folder and the disk",
        None => todo_at(error),
    };
    Failure::new(format!("the database {place} cannot be {what}: {error}"), todo)
}

/// What to look at where a server cannot be spoken to.
pub(super) fn todo_at(error: &payonce::Error) -> &'static str {
    if error.to_string().contains("certificate") {
        "compare the host in `url` with the names in the server's certificate, and sslrootcert (ssl-ca) with who signed it"
    } else {
        "see whether the server runs and can be reached from here, and host, port, name, user and password of `url` in \
         [database]"
    }
}

/// `migration 1`, `migrations 1, 2`.
pub(super) fn list(applied: &[i64]) -> String {
    let numbers: Vec<String> = applied.iter().map(i64::to_string).collect();
    format!("migration{} {}", if applied.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
