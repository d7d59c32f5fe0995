//! The long runs: bench, soak, fuzz.
//!
//! Here: which tests or benches, with which environment. Not here: the tests and benches themselves.

use crate::shell::{self, Outcome};

/// Callbacks per second through the gateway.
pub(crate) fn bench(arguments: &[&str]) -> Outcome<()> {
    shell::step("cargo bench: callbacks", || {
        let bench = ["bench", "--locked", "-p", "payonce-server", "--bench", "callbacks"];
        shell::run(shell::cargo().args(bench).arg("--").args(arguments))
    })
}

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

/// The fuzz targets are ordinary tests whose engine obeys these variables (bolero-engine, `rng.rs`); the
/// tests beside them run as always. One thread, so that each target has the processor to itself.
pub(crate) fn fuzz(seconds: &str) -> Outcome<()> {
    let milliseconds = whole_number("seconds", seconds)?.saturating_mul(1000).to_string();
    shell::step(&format!("fuzz targets of payonce-channels, {seconds} s each"), || {
        let test = ["test", "--locked", "-p", "payonce-channels", "--tests", "--no-fail-fast"];
        shell::run(
            shell::cargo()
                .args(test)
                .args(["--", "--test-threads=1", "--nocapture"])
                .env("BOLERO_RANDOM_TEST_TIME_MS", milliseconds)
                .env("BOLERO_RANDOM_ITERATIONS", u64::from(u32::MAX).to_string()),
        )
    })
}

fn whole_number(what: &str, text: &str) -> Outcome<u64> {
    text.parse().map_err(|_| format!("{what}: {text} is no whole number"))
}
