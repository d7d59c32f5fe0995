//! The binary `payonce`: arguments in, exit code out. Everything else is in the library beside it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    payonce_server::cli::run()
}
