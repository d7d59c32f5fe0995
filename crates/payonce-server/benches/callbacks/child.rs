//! A competitor's process: started, watched, and ended.
//!
//! Here: what it says on its first lines, its processor time and memory, and that nothing stays behind. The
//! lines are `callbacks ADDRESS`, and before it, as far as it has any, `durable SETTINGS`; after it, `admin ADDRESS`.
//! `payonce serve` speaks so anyway.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::{Outcome, machine};

/// How long it may take until it listens.
const START_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to go down after it was asked to.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// A running competitor.
pub(crate) struct Running {
    child: Child,
    pub(crate) callbacks: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) durable: Option<String>,
}

/// What one line says.
enum Said {
    Callbacks(SocketAddr),
    Admin(SocketAddr),
    Durable(String),
}

fn read(line: &str) -> Option<Said> {
    let (word, rest) = line.trim().split_once(' ')?;
    let rest = rest.trim();
    let address = || rest.trim_start_matches("http://").parse().ok();
    match word {
        "callbacks" => address().map(Said::Callbacks),
        "admin" => address().map(Said::Admin),
        "durable" => Some(Said::Durable(rest.to_owned())),
        _ => None,
    }
}

impl Running {
    /// Starts a command and waits until it says where it listens. Its stderr goes to `log`.
    pub(crate) fn start(mut command: Command, log: &Path, with_admin: bool) -> Outcome<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(log)?);
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let (said, lines) = mpsc::channel();
        // Reads on to the end, so that the child never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                read(&line).and_then(|what| said.send(what).ok());
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut running = Self { child, callbacks: nowhere, admin: None, durable: None };
        let until = Instant::now() + START_WITHIN;
        while running.callbacks == nowhere || with_admin != running.admin.is_some() {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Said::Callbacks(address)) => running.callbacks = address,
                Ok(Said::Admin(address)) => running.admin = Some(address),
                Ok(Said::Durable(settings)) => running.durable = Some(settings),
                Err(_) => return Err(format!("did not start: {}", last_lines(log)).into()),
            }
        }
        Ok(running)
    }

    /// Processor time so far, with its own children's.
    pub(crate) fn cpu(&self) -> Duration {
        machine::cpu_of_family(self.child.id())
    }

    /// Peak resident memory, and what is anonymous of it now, in MiB, with its own children's.
    pub(crate) fn memory(&self) -> (f64, f64) {
        machine::memory_of_family(self.child.id())
    }

    /// Asks it to end, as an operator would, and waits.
    pub(crate) fn stop(mut self) -> Outcome<ExitStatus> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !asked.success() {
            return Err("it had ended already".into());
        }
        let until = Instant::now() + STOP_WITHIN;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("did not stop within {STOP_WITHIN:?}").into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already unless something failed on the way.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Its own children first, which would be nobody's otherwise.
        for process in machine::family(self.child.id()).into_iter().skip(1) {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a log, for a message.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2_000)..]).into_owned();
    if text.is_empty() { "it said nothing".to_owned() } else { format!("it said:\n{text}") }
}
