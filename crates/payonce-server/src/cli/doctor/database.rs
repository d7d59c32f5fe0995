//! The database: a file that can be written, or a server that can be reached, and whether its commits are durable.
//!
//! Here: what must be true of it before callbacks come, and what to do where it is not. Not here: the tables
//! themselves (`migrate`), the shops' own tables (`order_table`).

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use payonce::{
    rules::Rules,
    store::{About, Counts},
};

use super::{Findings, machine};
use crate::{
    cli::migrate,
    config::{Config, reason},
    database::{Books, Engine, Place},
};

const DATABASE: &str = "database";

/// Looks at whichever it is.
pub(super) async fn examine(findings: &mut Findings, config: &Config) {
    let Some(path) = config.database.place.as_file() else {
        server(findings, config).await;
        return;
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        let what = format!("the folder {} does not exist", folder.display());
        findings.fault(DATABASE, what, format!("mkdir -p {}, or correct `url` in [database]", folder.display()));
        return;
    }
    if let Err(why) = can_create_in(&folder) {
        // The journal is a file beside the database, so the folder matters too.
        let what = format!("nothing can be written in {}: {why}", folder.display());
        findings.fault(DATABASE, what, "give the folder to the user that payonce runs as");
        return;
    }
    machine::disk(findings, &folder);
    if !path.exists() {
        findings.ok(DATABASE, format!("sqlite:{} is made at the first start", path.display()));
        return;
    }
    if let Err(error) = fs::OpenOptions::new().append(true).open(path) {
        let what = format!("{} cannot be written: {}", path.display(), reason(&error));
        findings.fault(DATABASE, what, "give the file to the user that payonce runs as");
        return;
    }
    tables(findings, config, path).await;
}

async fn tables(findings: &mut Findings, config: &Config, path: &Path) {
    let books = match config.database.place.door().open(Arc::new(Rules::default())).await {
        Ok(books) => books,
        Err(error) => {
            let todo = "see whether it is a SQLite file: sqlite3 FILE 'PRAGMA integrity_check'; restore it from the backup if not";
            findings.fault(DATABASE, format!("{} cannot be opened: {error}", path.display()), todo);
            return;
        }
    };
    let is_durable = doubts(findings, config, books.as_ref()).await;
    match books.counts().await {
        Ok(counts) => holds(findings, &config.database.place, counts, is_durable),
        Err(error) => findings.warning(
            DATABASE,
            format!("{} has no tables of payonce, or old ones: {error}", path.display()),
            "payonce migrate (`payonce serve` does it by itself)",
        ),
    }
}

/// Settings that make an acknowledgement untrue; whether there are none.
async fn doubts(findings: &mut Findings, config: &Config, books: &dyn Books) -> bool {
    match books.doubts().await {
        Ok(doubts) if doubts.is_empty() => return true,
        Ok(doubts) if config.database.accept_unsafe_settings => {
            let todo = "change the setting, and remove accept_unsafe_settings from [database]";
            doubts.into_iter().for_each(|doubt| {
                findings.warning(DATABASE, format!("{doubt} (accepted by accept_unsafe_settings)"), todo);
            });
        }
        Ok(doubts) => {
            let todo = "change the setting; `serve` refuses it unless accept_unsafe_settings = true";
            doubts.into_iter().for_each(|doubt| findings.fault(DATABASE, doubt, todo));
        }
        Err(error) => {
            let todo = "payonce must be able to read its own settings; see the server's log";
            findings.fault(DATABASE, format!("its settings cannot be read: {error}"), todo);
        }
    }
    false
}

fn holds(findings: &mut Findings, place: &Place, counts: Counts, is_durable: bool) {
    let durable = if is_durable { "commits are durable; " } else { "" };
    let what = format!(
        "{place}: tables are there, {durable}{} held, {} effects owed, {} dead",
        counts.held,
        counts.effects_ready + counts.effects_leased,
        counts.effects_dead
    );
    findings.ok(DATABASE, what);
}

/// A database on a server: reachable, which version, how far its tables are, what its settings are worth.
async fn server(findings: &mut Findings, config: &Config) {
    let place = &config.database.place;
    let door = place.door();
    let about = match door.about().await {
        Ok(Some(about)) => about,
        Ok(None) => return,
        Err(error) => {
            findings.fault(DATABASE, format!("{place} cannot be opened: {error}"), migrate::todo_at(&error));
            return;
        }
    };
    version(findings, place.engine(), &about);
    if about.applied.iter().any(|version| !about.known.contains(version)) {
        let what = format!("{place} has migrations {:?}, this program knows {:?}", about.applied, about.known);
        findings.fault(DATABASE, what, "a newer payonce was here: run that one, or a newer one still");
        return;
    }
    let books = match door.open(Arc::new(Rules::default())).await {
        Ok(books) => books,
        Err(error) => {
            let todo = "payonce needs two connections, one of them to write; see `max_connections` of the server";
            findings.fault(DATABASE, format!("{place} cannot be opened: {error}"), todo);
            return;
        }
    };
    let is_durable = doubts(findings, config, books.as_ref()).await;
    let missing: Vec<i64> = about.known.iter().copied().filter(|version| !about.applied.contains(version)).collect();
    if !missing.is_empty() {
        let what = format!("{place} lacks {}", migrate::list(&missing));
        let todo = "payonce migrate, by a user who may make tables (`payonce serve` does it by itself if it may)";
        findings.warning(DATABASE, what, todo);
        return;
    }
    match books.counts().await {
        Ok(counts) => holds(findings, place, counts, is_durable),
        Err(error) => {
            let todo = "give payonce's user SELECT, INSERT, UPDATE and DELETE on the tables payonce_…";
            findings.fault(DATABASE, format!("the tables in {place} cannot be read: {error}"), todo);
        }
    }
}

/// Which server it is, and whether payonce's tests were run on it.
fn version(findings: &mut Findings, engine: &Engine, about: &About) {
    let About { product, version, .. } = about;
    let Some(known) = engine.products.iter().find(|known| known.name == *product) else {
        findings.warning(
            DATABASE,
            format!("{product} {version} is not known"),
            "use a server that is named in the documentation",
        );
        return;
    };
    let mut numbers = version.split(|char: char| !char.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < known.since {
        let what = format!("{product} {version} is too old");
        findings.fault(DATABASE, what, format!("use {product} {}.{} or a newer one", known.since.0, known.since.1));
    } else if known.tested.iter().any(|(series, _)| is_of(version, series)) {
        findings.ok(DATABASE, format!("{product} {version}: payonce's tests were run on it"));
    } else {
        let tested: Vec<String> = (engine.products.iter())
            .flat_map(|product| product.tested.iter().map(move |(_, version)| format!("{} {version}", product.name)))
            .collect();
        let what = format!("{product} {version}: payonce's tests were run on {}, not on this", tested.join(", "));
        findings.warning(
            DATABASE,
            what,
            "try it with your own load before money depends on it, and tell us how it went",
        );
    }
}

/// `10.11.19-MariaDB` is of the series 10.11, and not of 10.1 or 0.11.
fn is_of(version: &str, series: &str) -> bool {
    version.match_indices(series).any(|(at, _)| {
        let before = version[..at].chars().next_back();
        let after = version[at + series.len()..].chars().next();
        before.is_none_or(|char| !char.is_ascii_digit() && char != '.')
            && after.is_none_or(|char| !char.is_ascii_digit())
    })
}

fn can_create_in(folder: &Path) -> Result<(), String> {
    tempfile::Builder::new().prefix(".payonce-doctor-").tempfile_in(folder).map(drop).map_err(|error| {
        // The error's own text names the temporary file, which nobody knows.
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            kind => kind.to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::doctor::Level, database::engine_of};

    #[test]
    fn a_version_is_tested_untested_or_too_old() {
        let cases = [
            ("postgres", "PostgreSQL", "15.18 (Debian 15.18-0+deb12u1)", Level::Ok),
            ("postgres", "PostgreSQL", "18.6", Level::Ok),
            ("postgres", "PostgreSQL", "18.7", Level::Ok),
            ("postgres", "PostgreSQL", "16.15", Level::Warning),
            ("postgres", "PostgreSQL", "11.22", Level::Fault),
            ("mysql", "MariaDB", "10.11.19-MariaDB-0+deb12u1", Level::Ok),
            ("mysql", "MariaDB", "10.5.9-MariaDB", Level::Fault),
            ("mysql", "MariaDB", "11.4.2-MariaDB", Level::Warning),
            ("mysql", "MySQL", "8.0.40", Level::Warning),
            ("mysql", "MySQL", "5.7.44", Level::Fault),
            ("mysql", "OceanBase", "5.7.25-OceanBase seekdb-v1.4.0.0", Level::Ok),
            ("mysql", "OceanBase", "5.7.25-OceanBase-v4.3.5.3", Level::Warning),
        ];
        for (scheme, product, text, level) in cases {
            let Some(engine) = engine_of(scheme) else { continue };
            let about = About { product, version: text.to_owned(), applied: Vec::new(), known: Vec::new() };
            let mut findings = Findings::default();
            version(&mut findings, engine, &about);
            assert_eq!(findings.0[0].level, level, "{text}: {findings:?}");
        }
        assert!(!is_of("10.11.19-MariaDB", "10.1") && !is_of("8.10.11", "10.11"));
    }
}
