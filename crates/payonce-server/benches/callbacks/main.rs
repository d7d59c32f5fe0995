//! Callbacks per second through the gateway, beside what else one could do on the same machine.
//!
//! Here: the order of a run. A table of competitors (`competitors`), each a child process on a database of its own
//! (`servers`), takes pre-signed callbacks (`presigned`) from a load generator on the same cores; competitors
//! alternate round by round, so that a noisy minute hits all of them (`measure`), and after each turn the books are
//! audited (`books`).
//! Not here: the load generator (`payonce_sim::load`), any judgement about the numbers but the ratios (`report`).
//!
//! `cargo xtask bench --help` lists the arguments.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::print_stderr, reason = "progress and failures go beside the table")]

mod args;
mod books;
mod child;
mod competitors;
mod controls;
mod engines;
mod machine;
mod measure;
mod presigned;
mod report;
mod servers;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser as _;

use crate::{args::Args, measure::Bench};

/// What any part may come to.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The gateway's own allocator, for the controls too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.control {
        Some(control) => {
            controls::run(control, &args.folder.clone().unwrap_or_default(), args.database.as_deref().unwrap_or(""))
        }
        None => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("callbacks: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder `target`.
fn target() -> PathBuf {
    let within = Path::new(env!("CARGO_TARGET_TMPDIR"));
    within.parent().unwrap_or(within).to_owned()
}

/// Where everything of a benchmark lies.
fn home() -> PathBuf {
    target().join("bench")
}

fn run(args: &Args) -> Outcome<()> {
    let home = home();
    fs::create_dir_all(&home)?;
    let plan = args.plan()?;
    if args.needs {
        plan.needs().iter().for_each(|need| println!("needs {need}"));
        return Ok(());
    }
    let callbacks = presigned::load_or_sign(&home, plan.callbacks, plan.expected())?;
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&home)?;
    let mut bench = Bench::new(plan, callbacks, folder.path().to_owned())?;
    bench.describe();
    bench.print_conditions();
    bench.prepare()?;
    let samples = bench.run();
    if args.keep {
        println!("kept: {}", folder.keep().display());
    }
    let report = report::Report::of(&bench.conditions, &bench.plan, samples?);
    drop(bench);
    report.print();
    let path = if args.smoke { home.join("smoke.json") } else { home.join("report.json") };
    fs::write(&path, serde_json::to_string_pretty(&report)?)?;
    println!("\nwritten: {}", path.display());
    // Cargo starts a benchmark in its package's folder; the files are named from the workspace's.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in &args.markdown {
        report.write_into(&workspace.join(file))?;
        println!("written: {}", file.display());
    }
    report.verdict()
}
