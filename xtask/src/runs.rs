//! The long runs: soak, fuzz.
//!
//! Here: which tests, with which environment. Not here: the tests themselves, and the benchmark (`bench`).

use crate::{
    shell::{self, Outcome},
    test::closing_line,
};

/// All tests with many more random rounds.
pub(crate) fn soak(rounds: &str) -> Outcome<()> {
    whole_number("rounds", rounds)?;
    shell::step(&format!("all tests, {rounds} rounds each"), || {
        let test = ["test", "--locked", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
        shell::run(
            shell::cargo()
                .args(test)
                .env("PAYONCE_TEST_ROUNDS", rounds)
                .env("PROPTEST_CASES", rounds)
                .env("PAYONCE_PEERS", shell::peers_folder()),
        )
    })
}

/// The fuzz targets are ordinary tests with `fuzz` in their path, whose engine obeys these variables
/// (bolero-engine, `rng.rs`). One thread, so that each target has the processor to itself.
pub(crate) fn fuzz(seconds: &str) -> Outcome<()> {
    let milliseconds = whole_number("seconds", seconds)?.saturating_mul(1000).to_string();
    shell::step(&format!("fuzz targets of payonce-channels, {seconds} s each"), || {
        let test = ["test", "--locked", "-p", "payonce-channels", "--lib", "--tests", "--no-fail-fast"];
        let mut cargo = shell::cargo();
        cargo.args(test).args(["fuzz", "--", "--test-threads=1", "--nocapture"]);
        cargo.env("BOLERO_RANDOM_TEST_TIME_MS", milliseconds);
        cargo.env("BOLERO_RANDOM_ITERATIONS", u32::MAX.to_string());
        let mut passed = 0;
        let ok = shell::watch(&mut cargo, |line| passed += closing_line(line).unwrap_or_default().passed)?;
        match (ok, passed) {
            (true, 0) => Err("there are no fuzz targets".into()),
            (true, _) => Ok(()),
            (false, _) => Err("a target failed, or did not build".into()),
        }
    })
}

fn whole_number(what: &str, text: &str) -> Outcome<u64> {
    text.parse().map_err(|_| format!("{what}: {text} is no whole number"))
}
