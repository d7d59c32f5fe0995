//! Running other programs, and saying so.
//!
//! Here: one line before a step, one after it with the time it took; where the tree is. Not here: what is
//! run and why.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Why a command ended; the text is for a person.
pub(crate) type Outcome<T> = Result<T, String>;

/// The root of the tree, as this program was built from it.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Where other people's software for the interop tests is.
pub(crate) fn peers_folder() -> PathBuf {
    std::env::var_os("PAYONCE_PEERS").map_or_else(|| root().join("target").join("peers"), PathBuf::from)
}

/// Whether a machine judges us: then nothing may be left out.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Runs a step between two lines.
pub(crate) fn step<T>(what: &str, run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    println!("▶ {what}");
    let begin = Instant::now();
    let outcome = run();
    let took = begin.elapsed().as_secs_f64();
    match &outcome {
        Ok(_) => println!("✔ {what} ({took:.1} s)\n"),
        Err(_) => println!("✘ {what} ({took:.1} s)\n"),
    }
    outcome
}

/// Runs to the end with this program's output; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Outcome<()> {
    let name = spelt(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// Runs to the end and gives the output, or what it complained about.
pub(crate) fn read(command: &mut Command) -> Outcome<String> {
    let name = spelt(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs to the end, passes its output on line by line as it comes, and shows each line to `see`.
/// Whether it succeeded.
pub(crate) fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Outcome<bool> {
    let name = spelt(command);
    let complain = |error: std::io::Error| format!("{name}: {error}");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(complain)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output to read")?);
    let mut line = Vec::new();
    let mut out = std::io::stdout();
    while lines.read_until(b'\n', &mut line).map_err(complain)? > 0 {
        // Whoever reads us may have gone; the tests run on and the exit code still tells.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().map(|status| status.success()).map_err(complain)
}

fn spelt(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
