//! The command line and the configuration, as their users meet them.
//!
//! Here: texts, exit codes, files. One process per call of the binary; no product code but the reader of
//! configurations. Not here: callbacks (`tests/system`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod config;
mod doctor;
mod help;
mod init;
mod manual;
mod order_table;
mod secrecy;
mod serve;
mod support;
