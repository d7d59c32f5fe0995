//! The machine: clock and disk.
//!
//! Here: what the machine must offer before callbacks come, and what to do where it does not. Not here: how
//! findings are shown (`doctor`), the database (`database`).

use std::{
    env, fs,
    path::Path,
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

use payonce::time::Micros;

use super::Findings;
use crate::config::Config;

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
    let newest =
        [env::current_exe().ok(), Some(config.file.clone()), config.database.place.as_file().map(Path::to_owned)]
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

/// By `df`: the standard library does not ask file systems, and no dependency is worth this line.
pub(super) fn disk(findings: &mut Findings, folder: &Path) {
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
