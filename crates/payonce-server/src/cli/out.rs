//! The only place that prints.
//!
//! Here: stdout for what was asked for, stderr for what went wrong, colour on terminals only (and not where
//! `NO_COLOR` is set). Not here: log lines (`logging`).

use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
};

use crate::config::Faults;

/// Why a command ended without doing its work.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is wrong.
    Faults(Faults),
    /// One thing went wrong.
    One {
        /// What.
        what: String,
        /// What to do.
        todo: String,
    },
    /// It was printed already.
    Told,
}

impl Failure {
    /// One thing that went wrong.
    pub fn new(what: impl fmt::Display, todo: impl Into<String>) -> Self {
        Self::One { what: what.to_string(), todo: todo.into() }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

/// Prints a line. A reader that has gone away (`| head`) is no failure.
pub fn line(text: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints why a command failed.
pub fn failure(failure: &Failure) {
    let mut out = io::stderr().lock();
    let error = if colour() { "\u{1b}[1;31merror\u{1b}[0m" } else { "error" };
    let _ = match failure {
        Failure::Told => Ok(()),
        Failure::One { what, todo } => writeln!(out, "{error}: {what}\n  to do: {todo}"),
        Failure::Faults(Faults(faults)) => {
            for fault in faults {
                let _ = writeln!(out, "{error}: {fault}\n");
            }
            let many = if faults.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", faults.len()) };
            writeln!(out, "{many}; nothing was started or changed")
        }
    };
}

fn colour() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none()
}
