//! The machine: clock, database file, disk.
//!
//! Here: what the machine must offer before callbacks come, and what to do where it does not. Not here: how
//! findings are shown (`doctor`), the tables themselves (`migrate`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use payonce::{
    rules::Rules,
    store::{Database, Store, sqlite::Sqlite},
    time::Micros,
};

use super::Findings;
use crate::{
    cli::migrate,
    config::{Config, reason},
};

/// Nothing that this program meets was made before it was written: 2026-01-01.
const EARLIEST: Micros = Micros::from_seconds(1_767_225_600);

/// Files may come from a machine that is a little ahead.
const TOLERATED_SECONDS: u64 = 120;

/// A clock that is wrong refuses every WeChat callback (5 minutes either way).
pub(super) fn clock(findings: &mut Findings, config: &Config, now: Micros) {
    const AREA: &str = "clock";
    const REMEDY: &str =
        "set the clock and keep it set (NTP, chrony): WeChat callbacks more than 5 minutes off are refused";
    let zone = env::var("TZ").ok().filter(|zone| !zone.is_empty());
    let zone = zone.map(|zone| format!(", TZ={zone}")).unwrap_or_default();
    if now < EARLIEST {
        findings.fault(AREA, format!("{now} is before this program was written"), REMEDY);
        return;
    }
    let newest = [env::current_exe().ok(), Some(config.file.clone()), Some(config.database.path.clone())]
        .into_iter()
        .flatten()
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .max();
    if let Some((modified, path)) = newest
        && let Ok(ahead) = modified.duration_since(UNIX_EPOCH + Duration::from_micros(now.0.unsigned_abs()))
        && ahead.as_secs() > TOLERATED_SECONDS
    {
        let what = format!("{now} is {} s before {} was written", ahead.as_secs(), path.display());
        findings.fault(AREA, what, REMEDY);
        return;
    }
    findings
        .ok(AREA, format!("{now}, not before any file of ours{zone}; times are compared in UTC, the zone has no part"));
}

pub(super) async fn database(findings: &mut Findings, config: &Config) {
    const AREA: &str = "database";
    let path = &config.database.path;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        let what = format!("the folder {} does not exist", folder.display());
        findings.fault(AREA, what, format!("mkdir -p {}, or correct `url` in [database]", folder.display()));
        return;
    }
    if let Err(why) = can_create_in(&folder) {
        // The journal is a file beside the database, so the folder matters too.
        let what = format!("nothing can be written in {}: {why}", folder.display());
        findings.fault(AREA, what, "give the folder to the user that payonce runs as");
        return;
    }
    disk(findings, &folder);
    if !path.exists() {
        findings.ok(AREA, format!("sqlite:{} is made at the first start", path.display()));
        return;
    }
    if let Err(error) = fs::OpenOptions::new().append(true).open(path) {
        let what = format!("{} cannot be written: {}", path.display(), reason(&error));
        findings.fault(AREA, what, "give the file to the user that payonce runs as");
        return;
    }
    tables(findings, config, path).await;
}

async fn tables(findings: &mut Findings, config: &Config, path: &Path) {
    const AREA: &str = "database";
    let opened = Database::<Sqlite>::open(migrate::options(config), Arc::new(Rules::default())).await;
    let database = match opened {
        Ok(database) => database,
        Err(error) => {
            let todo = "see whether it is a SQLite file: sqlite3 FILE 'PRAGMA integrity_check'; restore it from the backup if not";
            findings.fault(AREA, format!("{} cannot be opened: {error}", path.display()), todo);
            return;
        }
    };
    match database.doubts().await {
        Ok(doubts) if doubts.is_empty() => {}
        Ok(doubts) => {
            let todo = "change the setting; `serve` refuses it unless accept_unsafe_settings = true";
            doubts.into_iter().for_each(|doubt| findings.fault(AREA, doubt, todo));
        }
        Err(error) => findings.fault(AREA, format!("its settings cannot be read: {error}"), "look at the file"),
    }
    match database.counts().await {
        Ok(counts) => {
            let what = format!(
                "sqlite:{}: tables are there, commits are durable; {} held, {} effects owed, {} dead",
                path.display(),
                counts.held,
                counts.effects_ready + counts.effects_leased,
                counts.effects_dead
            );
            findings.ok(AREA, what);
        }
        Err(error) => findings.warning(
            AREA,
            format!("{} has no tables of payonce, or old ones: {error}", path.display()),
            "payonce migrate (`payonce serve` does it by itself)",
        ),
    }
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

/// By `df`: the standard library does not ask file systems, and no dependency is worth this line.
fn disk(findings: &mut Findings, folder: &Path) {
    const AREA: &str = "disk";
    /// A million callbacks with their bytes are about 4 GiB.
    const LITTLE: u64 = 1024 * 1024 * 1024;
    let Some(free) = free_bytes(folder) else { return };
    let gib = free as f64 / (1024.0 * 1024.0 * 1024.0);
    let what = format!("{gib:.1} GiB free at {}", folder.display());
    if free < LITTLE {
        findings.warning(AREA, what, "make room: a full disk stops bookings (the platforms are then told to repeat)");
    } else {
        findings.ok(AREA, what);
    }
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let answer = Command::new("df").arg("-Pk").arg(folder).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let kib: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::doctor::Level, config};

    #[test]
    fn a_clock_behind_a_file_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("payonce.toml");
        fs::write(&file, "").unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let written = written.as_secs() as i64;
        let config = config::read(&file, String::new().into(), &[]).config;
        for (offset, level) in [(0, Level::Ok), (-60, Level::Ok), (-8 * 3600, Level::Fault), (8 * 3600, Level::Ok)] {
            let mut findings = Findings::default();
            clock(&mut findings, &config, Micros::from_seconds(written + offset));
            assert_eq!(findings.0[0].level, level, "{offset}: {findings:?}");
        }
        let mut findings = Findings::default();
        clock(&mut findings, &config, Micros::from_seconds(0));
        assert_eq!(findings.0[0].level, Level::Fault);
    }
}
