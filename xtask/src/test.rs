//! `cargo xtask test`: what the README promises.
//!
//! Here: the order of the steps, and the sum at the end. Not here: the checks of `tidy`, the packages of
//! `peers`.

use crate::{
    packages, peers, services,
    shell::{self, Outcome},
    tidy,
};

/// What cargo's closing lines said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) passed: u64,
    failed: u64,
    ignored: u64,
}

/// Everything, to the end, whatever fails on the way.
pub(crate) fn command(may_install: bool) -> Outcome<()> {
    let mut complaints: Vec<String> = Vec::new();
    let mut sum = Sum::default();
    // Without peers the tests that need them fail and say how to get them, so nothing is left out here.
    if may_install && let Err(why) = peers::install() {
        complaints.push(format!("interop peers: {why}"));
    }
    if may_install && let Err(why) = packages::nginx() {
        complaints.push(format!("nginx: {why}"));
    }
    if may_install && let Err(why) = services::start() {
        complaints.push(format!("database servers: {why}"));
    }
    if let Err(why) = shell::step("tidy", tidy::command) {
        complaints.push(format!("tidy: {why}"));
    }
    let unit = ["--lib", "--bins", "--tests", "--examples"];
    let tests = shell::step("cargo test: unit, integration and system tests", || cargo_test(&unit, &mut sum));
    let ignored = sum.ignored;
    if ignored > 0 && shell::is_ci() {
        complaints.push(format!("ignored tests: {ignored}; where a machine judges, nothing is left out"));
    }
    let docs = shell::step("cargo test: examples in the documentation", || cargo_test(&["--doc"], &mut sum));
    let others = complaints.len() as u64;
    complaints.extend([tests, docs].into_iter().filter_map(Result::err));

    for complaint in &complaints {
        println!("✘ {complaint}");
    }
    // What failed without a failing test counts as well: a peer that could not be installed, say.
    let failed = sum.failed + others;
    println!("{} passed, {failed} failed", sum.passed);
    if failed == 0 { Ok(()) } else { Err("see above".into()) }
}

fn cargo_test(what: &[&str], sum: &mut Sum) -> Outcome<()> {
    let before = sum.failed;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--locked", "--workspace", "--no-fail-fast"]).args(what);
    cargo.args(["--features", services::FEATURES]).envs(services::variables());
    cargo.env("PAYONCE_PEERS", shell::peers_folder());
    let ok = shell::watch(&mut cargo, |line| {
        if let Some(part) = closing_line(line) {
            sum.passed += part.passed;
            sum.failed += part.failed;
            sum.ignored += part.ignored;
        }
    })?;
    match (ok, sum.failed - before) {
        (true, 0) => Ok(()),
        (_, 0) => {
            sum.failed += 1;
            Err(format!("cargo test {}: did not build, or ended by a signal", what.join(" ")))
        }
        (_, failed) => Err(format!("cargo test {}: {failed} failed", what.join(" "))),
    }
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`
pub(crate) fn closing_line(line: &str) -> Option<Sum> {
    let (_, counts) = line.trim_start().strip_prefix("test result: ")?.split_once(". ")?;
    let mut sum = Sum::default();
    for part in counts.split("; ") {
        let (number, word) = part.split_once(' ')?;
        match word {
            "passed" => sum.passed = number.parse().ok()?,
            "failed" => sum.failed = number.parse().ok()?,
            "ignored" => sum.ignored = number.parse().ok()?,
            _ => {}
        }
    }
    Some(sum)
}

#[test]
fn closing_lines_are_read() {
    let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
    assert_eq!(closing_line(ok), Some(Sum { passed: 12, failed: 0, ignored: 1 }));
    let bad = "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s";
    assert_eq!(closing_line(bad), Some(Sum { passed: 2, failed: 4, ignored: 0 }));
    assert_eq!(closing_line("test result of something else"), None);
    assert_eq!(closing_line("running 3 tests"), None);
}
