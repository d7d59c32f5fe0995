//! The command line: one file per subcommand.
//!
//! Here: arguments, the exit code, and what every command needs (the configuration, a runtime). Not here:
//! what a command does. Exit codes: 0 done, 1 failed or faults found, 2 not understood.

mod demo;
mod doctor;
mod init;
mod migrate;
pub mod out;
mod serve;

use std::{
    env,
    future::Future,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::config::{self, Config};
use out::Failure;

const EXAMPLES: &str = "\
Examples:
  payonce init                      write payonce.toml and a folder for keys
  payonce doctor                    say what is still missing or doubtful
  payonce serve                     receive callbacks
  payonce --config /etc/payonce/payonce.toml serve

Settings come from the configuration file; PAYONCE__SECTION__KEY in the environment overrides one,
for example PAYONCE__SERVER__PUBLIC=0.0.0.0:9000. `payonce init --manual` prints all of them.";

/// Payment callbacks always repeat. payonce makes sure that what they cause happens once.
///
/// It stands where WeChat Pay and Alipay send their callbacks: verifies, decrypts, books each fact once in a
/// database, answers the platform in its form, and hands what is owed (ship, points, ...) to your services.
#[derive(Debug, Parser)]
#[command(name = "payonce", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    /// The configuration file [default: payonce.toml, or what PAYONCE_CONFIG names]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Init(init::Init),
    Doctor(doctor::Doctor),
    Migrate(migrate::Migrate),
}

/// Where the configuration is, and whether somebody named it.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) named: bool,
}

impl ConfigFile {
    /// The file's name unless somebody names another.
    const DEFAULT: &'static str = "payonce.toml";

    fn of(option: Option<PathBuf>) -> Self {
        let variable = env::var_os("PAYONCE_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        match option.or(variable) {
            Some(path) => Self { path, named: true },
            None => Self { path: PathBuf::from(Self::DEFAULT), named: false },
        }
    }

    pub(crate) fn load(&self) -> Result<Config, Failure> {
        Ok(config::load(&self.path, self.named)?)
    }
}

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    // One crypto library for payments and TLS. A second provider in the process would be a mistake of ours.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let file = ConfigFile::of(cli.config);
    let done = match cli.command {
        Command::Demo(command) => command.run(),
        Command::Serve(command) => command.run(&file),
        Command::Init(command) => command.run(),
        Command::Doctor(command) => command.run(&file),
        Command::Migrate(command) => command.run(&file),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out::failure(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Runs a future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(format!("no runtime: {error}"), "look at the limits for threads and open files of this user")
    })?;
    runtime.block_on(future)
}

/// A file that only its owner may read; it must not exist.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// 256 random bits.
pub(crate) fn random_bytes() -> zeroize::Zeroizing<[u8; 32]> {
    zeroize::Zeroizing::new(rand::random())
}
