//! The gateway from outside: real HTTP on free ports, real signatures, real SQLite files.
//!
//! Each file is a topic, each test tells a case in its own words; `F…` names the field case it comes from.
//! Random runs print their seed. `PAYONCE_TEST_ROUNDS` makes the races longer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod connections;
#[path = "../databases/mod.rs"]
mod databases;
mod effects;
mod logs;
mod orders;
mod own_table;
mod queries;
mod races;
mod repeats;
mod replies;
mod support;
mod troubles;
mod trust;
