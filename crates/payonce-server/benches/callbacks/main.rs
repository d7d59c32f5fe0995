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
mod curve;
mod engines;
mod growth;
mod history;
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
    let done = match &args.growth {
        Some(sizes) => grow(&mut bench, sizes, args),
        None => compare(&mut bench, args),
    };
    if args.keep {
        println!("kept: {}", folder.keep().display());
    }
    done
}

fn compare(bench: &mut Bench, args: &Args) -> Outcome<()> {
    bench.prepare()?;
    let samples = bench.run()?;
    let report = report::Report::of(&bench.conditions, &bench.plan, samples);
    report.print();
    let name = if args.smoke { "smoke.json" } else { "report.json" };
    write(&home().join(name), &serde_json::to_string_pretty(&report)?)?;
    for file in &args.markdown {
        report.write_into(&named(file))?;
        println!("written: {}", file.display());
    }
    report.verdict()
}

fn grow(bench: &mut Bench, sizes: &[usize], args: &Args) -> Outcome<()> {
    let growth = growth::run(bench, sizes)?;
    growth.print();
    write(&home().join("growth.json"), &serde_json::to_string_pretty(&growth)?)?;
    // The picture first: the pages show it.
    if let Some(file) = &args.picture {
        write(&named(file), &growth.picture())?;
    }
    for file in &args.markdown {
        growth.write_into(&named(file), args.picture.as_deref())?;
        println!("written: {}", file.display());
    }
    Ok(())
}

/// Cargo starts a benchmark in its package's folder; files are named from the workspace's.
fn named(file: &Path) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    println!("written: {}", path.display());
    Ok(())
}
