//! `cargo xtask bench`: what the benchmark needs, and then the benchmark.
//!
//! Here: asking it what the chosen competitors need, installing those packages, starting those servers. Not here: who
//! the competitors are and what is measured (`crates/payonce-server/benches/callbacks`).

use std::{
    path::Path,
    process::{Command, Stdio},
};

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
    let program = shell::step("cargo bench: build", build)?;
    let needs = needs(&program, arguments)?;
    let variables = provide(&needs, &folder)?;
    let mut bench = Command::new(&program);
    bench.args(arguments).env("PAYONCE_BENCH_FOREIGN", &folder).envs(variables);
    shell::run(&mut bench)
}

/// Builds it once, so that what is asked and what runs is the same; the path of the program.
fn build() -> Outcome<String> {
    let mut cargo = shell::cargo();
    cargo.args(["bench", "--locked", "--no-run", "-p", "payonce-server", "--bench", "callbacks"]);
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| format!("cargo bench: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // One line for each part; only what can be run has an executable, and the gateway itself is one too.
    let programs = text.lines().filter(|line| line.contains("\"name\":\"callbacks\""));
    let path = programs.filter_map(|line| line.split_once("\"executable\":\"")?.1.split('"').next()).next_back();
    match (output.status.success(), path) {
        (true, Some(path)) => Ok(path.to_owned()),
        _ => Err("the benchmark did not build".to_owned()),
    }
}

/// The benchmark's table of competitors is the only one, so it is asked. It prints no needs where it only prints help.
fn needs(program: &str, arguments: &[&str]) -> Outcome<Vec<String>> {
    let mut bench = Command::new(program);
    let output = bench.args(arguments).arg("--needs").stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err("the benchmark does not know these arguments".to_owned());
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
