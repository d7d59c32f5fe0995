//! The machine: what it is, and how quiet it is.
//!
//! Here: readings of `/proc`, and a short test of the disk. Where there is no `/proc` they are zero, and the
//! report says "unknown". Not here: what is measured.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::Outcome;

/// How quiet it was just before a measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Probe {
    /// Share of the processors that nobody used, 0 to 1.
    pub(crate) idle: f64,
    /// Overwrites of 4 KiB with fdatasync per second in the folder of the databases.
    pub(crate) fdatasync: f64,
}

/// From this share of idle processors on it counts as quiet.
const QUIET: f64 = 0.85;
/// Waits for a quiet machine, at most `patience`, and says how quiet it was; processors and disk are each
/// looked at for the time of `look`.
pub(crate) fn probe(folder: &Path, patience: Duration, look: Duration) -> Outcome<Probe> {
    let until = Instant::now() + patience;
    loop {
        let before = Cpu::now();
        std::thread::sleep(look);
        let idle = Cpu::now().idle_since(before);
        if idle >= QUIET || Instant::now() >= until {
            return Ok(Probe { idle, fdatasync: fdatasync(folder, look)? });
        }
    }
}

/// What the write-ahead log of a database does: overwrite, and wait for the disk.
fn fdatasync(folder: &Path, look: Duration) -> Outcome<f64> {
    const BLOCK: [u8; 4096] = [7; 4096];
    const BLOCKS: u64 = 256;
    let path = folder.join("fdatasync.probe");
    let mut file = File::create(&path)?;
    for _ in 0..BLOCKS {
        file.write_all(&BLOCK)?;
    }
    file.sync_all()?;
    let (start, mut times) = (Instant::now(), 0_u64);
    while start.elapsed() < look {
        file.seek(SeekFrom::Start(times % BLOCKS * BLOCK.len() as u64))?;
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times += 1;
    }
    let rate = times as f64 / start.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(rate)
}

/// Processor time of the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    idle: Duration,
    all: Duration,
}

impl Cpu {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|text| text.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Self { idle: ticks_to_time(at(3) + at(4)), all: ticks_to_time(ticks.iter().sum()) }
    }

    fn idle_since(self, before: Self) -> f64 {
        let all = (self.all.saturating_sub(before.all)).as_secs_f64();
        if all > 0.0 { self.idle.saturating_sub(before.idle).as_secs_f64() / all } else { 0.0 }
    }

    /// The share of the processors that was used by others than those whose time is `ours`.
    pub(crate) fn others_since(self, before: Self, ours: Duration) -> f64 {
        let all = self.all.saturating_sub(before.all).as_secs_f64();
        let busy = all - self.idle.saturating_sub(before.idle).as_secs_f64();
        if all > 0.0 { ((busy - ours.as_secs_f64()) / all).max(0.0) } else { 0.0 }
    }
}

/// Linux counts in hundredths of a second wherever it runs.
const fn ticks_to_time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

/// Processor time of a process (`self` for this one), user and system.
pub(crate) fn cpu_of(process: &str) -> Duration {
    stat(process).map_or(Duration::ZERO, |stat| stat.own)
}

/// What `/proc/<pid>/stat` says.
struct Stat {
    parent: u32,
    own: Duration,
    /// Of children that have ended.
    ended: Duration,
}

fn stat(process: &str) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold blanks.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |from: usize| {
        ticks_to_time(fields.iter().skip(from).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
    };
    Some(Stat { parent: fields.get(1)?.parse().ok()?, own: ticks(11), ended: ticks(13) })
}

/// A process and all that descend from it.
pub(crate) fn family(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let processes: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parents: Vec<(u32, u32)> =
        processes.into_iter().filter_map(|process| Some((process, stat(&process.to_string())?.parent))).collect();
    let mut family = vec![root];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        at += 1;
    }
    family
}

/// Processor time of a process, of all that descend from it, and of those of them that have ended.
pub(crate) fn cpu_of_family(root: u32) -> Duration {
    let stats = family(root).into_iter().filter_map(|process| stat(&process.to_string()));
    stats.map(|stat| stat.own + stat.ended).sum()
}

/// As `memory_of`, added up over a process and all that descend from it.
pub(crate) fn memory_of_family(root: u32) -> (f64, f64) {
    let each = family(root).into_iter().map(memory_of);
    each.fold((0.0, 0.0), |sum, (peak, anonymous)| (sum.0 + peak, sum.1 + anonymous))
}

/// Peak resident memory and present anonymous memory of a process, in MiB.
fn memory_of(process: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    (kib("VmHWM:") / 1024.0, kib("RssAnon:") / 1024.0)
}

/// Conditions that a reader needs to judge numbers, by name.
pub(crate) fn describe(folder: &Path) -> Vec<(&'static str, String)> {
    let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let field = |file: &str, name: &str| {
        let line = file.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let memory = field(&text("/proc/meminfo"), "MemTotal");
    let version = |program: &str| {
        let said = Command::new(program)
            .arg("--version")
            .output()
            .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
        said.unwrap_or_else(|_| "not there".to_owned())
    };
    vec![
        ("CPU", field(&text("/proc/cpuinfo"), "model name")),
        ("cores", std::thread::available_parallelism().map_or(0, usize::from).to_string()),
        ("memory", memory),
        ("kernel", text("/proc/sys/kernel/osrelease")),
        ("file system", file_system(folder, &text("/proc/self/mounts"))),
        ("Rust", version("rustc")),
        ("Node.js", version("node")),
        ("Python", version("python3")),
    ]
}

/// Type and options of the file system that a folder lies on: the mount with the longest fitting path.
fn file_system(folder: &Path, mounts: &str) -> String {
    let fitting = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (at, kind, options) = (*fields.get(1)?, *fields.get(2)?, *fields.get(3)?);
        folder.starts_with(at).then_some((at.len(), format!("{kind} ({options})")))
    });
    fitting.max_by_key(|(length, _)| *length).map_or("unknown".to_owned(), |(_, text)| text)
}
