//! `cargo xtask bench`: what the benchmark needs, and then the benchmark.
//!
//! Here: asking it what the chosen competitors need, installing those packages, starting those servers. Not here: who
//! the competitors are and what is measured (`crates/payonce-server/benches/callbacks`).

use std::{path::Path, process::Stdio};

use crate::{
    packages, services,
    shell::{self, Outcome},
};

/// What people would build the handler with, or pick for its effects. graphile-worker 0.16 is the newest that runs on
/// Node.js 20.
const NPM: [&str; 3] = ["fastify@5.12.8", "pg@8.23.1", "graphile-worker@0.16.6"];

/// `uvloop` and `httptools` are what `uvicorn[standard]` would bring, without its file watchers.
const PYPI: [&str; 7] = [
    "fastapi==0.165.0",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "httptools==0.9.0",
    "asyncpg==0.32.0",
    "wechatpayv3==2.0.4",
    "cryptography==50.0.2",
];

/// Measures callbacks per second through the gateway and its competitors.
pub(crate) fn command(arguments: &[&str]) -> Outcome<()> {
    let folder = shell::root().join("target").join("bench").join("foreign");
    let needs = needs(arguments)?;
    let variables = provide(&needs, &folder)?;
    let mut bench = bench(arguments);
    bench.env("PAYONCE_BENCH_FOREIGN", &folder).envs(variables);
    shell::step("cargo bench: callbacks", || shell::run(&mut bench))
}

fn bench(arguments: &[&str]) -> std::process::Command {
    let mut cargo = shell::cargo();
    cargo.args(["bench", "--locked", "-p", "payonce-server", "--bench", "callbacks", "--"]).args(arguments);
    cargo
}

/// The benchmark's table of competitors is the only one, so it is asked. It prints no needs where it only prints help.
fn needs(arguments: &[&str]) -> Outcome<Vec<String>> {
    let mut bench = bench(arguments);
    let output = bench.arg("--needs").stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo bench: {error}"))?;
    if !output.status.success() {
        return Err("the benchmark did not build, or does not know these arguments".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_prefix("needs ")).map(str::to_owned).collect())
}

/// Installs and starts; the variables with the servers' addresses.
fn provide(needs: &[String], folder: &Path) -> Outcome<Vec<(String, String)>> {
    let mut servers = Vec::new();
    for need in needs {
        match need.as_str() {
            "npm" => packages::npm(folder, &NPM, 20)?,
            "pypi" => packages::pypi(folder, &PYPI)?,
            server => servers.push(server),
        }
    }
    services::start_these(|name| servers.contains(&name))
}
