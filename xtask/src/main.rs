//! The caretaker: `cargo xtask <command>`.
//!
//! Here: the list of commands, and what each is for. Not here: how they do it (a file per command), and
//! nothing that a user of payonce needs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod bench;
mod gateways;
mod packages;
mod peers;
mod runs;
mod services;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
payonce's caretaker

Usage: cargo xtask <command>

  test [--no-install]   everything the README promises: installs the interop peers and nginx, then tidy and all tests.
                        Last line: `N passed, N failed`. --no-install: use what is there, install nothing
  tidy                  checks the code about the code: who may know what, headers, lengths, names. Seconds
  peers                 installs other people's payment software into target/peers, for the interop tests
  services [--stop]     starts (or ends) real PostgreSQL, MariaDB and seekdb servers for the tests, on loopback
  bench [arguments]     measures callbacks per second through the gateway on three databases, beside what one would
                        write or pick instead. Installs packages of npm and PyPI into target/bench and starts the
                        servers. `bench --help` lists its arguments
  gateways [--count 3] [--orders 50] [--database postgres15|postgres18|mariadb]
                        several gateways behind nginx on one database: callbacks with repeats, one gateway killed, all
                        restarted one after the other, new orders each time; tells who took how much, and audits
  soak [rounds]         runs the tests with many more random rounds (default 200), everything else as usual
  fuzz [seconds]        runs each fuzz target of payonce-channels for so many seconds (default 60)
  help                  this

Environment:
  CI=true               a peer that is missing and a test that is ignored are failures
  PAYONCE_PEERS         where the peers are (default target/peers)
  PAYONCE_TEST_ROUNDS   rounds of the randomised tests; `soak` sets it

Every failing random test prints its seed and how to run it again.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        // Before the line about --help: the benchmark has its own.
        ["bench", rest @ ..] => bench::command(rest),
        [] | ["help" | "--help" | "-h", ..] | [_, "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["tidy"] => tidy::command(),
        ["test"] => test::command(true),
        ["test", "--no-install"] => test::command(false),
        ["gateways", rest @ ..] => gateways::command(rest),
        ["peers"] => peers::install().map(|folder| println!("peers are in {}", folder.display())),
        ["services"] => services::start().map(|found| found.iter().for_each(|(name, url)| println!("{name}={url}"))),
        ["services", "--stop"] => services::stop(),
        ["soak"] => runs::soak("200"),
        ["soak", rounds] => runs::soak(rounds),
        ["fuzz"] => runs::fuzz("60"),
        ["fuzz", seconds] => runs::fuzz(seconds),
        other => Err(format!("no such command: {}\n\n{HELP}", other.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
