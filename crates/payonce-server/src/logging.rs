//! Log lines on stderr, as text or JSON.
//!
//! Here: format and level. Not here: what is logged. Bodies, keys and tokens are never handed to a log
//! line in the first place; there is no filter that could take them out again.

use std::{env, io};

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging; `RUST_LOG` wins over the configuration. Once per process.
///
/// # Errors
/// A text that says what is wrong with `RUST_LOG`.
pub fn init(log: &Log) -> Result<(), String> {
    let directives = env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let filter = match directives {
        Some(text) => EnvFilter::try_new(&text).map_err(|error| format!("RUST_LOG: {error}"))?,
        None => EnvFilter::try_new(&log.level).map_err(|error| format!("`level` in [log]: {error}"))?,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(true);
    let started = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    started.map_err(|error| format!("logging: {error}"))
}
