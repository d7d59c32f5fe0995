//! Tests of the centre through its public surface.
//!
//! Here: the exercise on each engine, `decide` in tables, the embedder's surface, batcher and worker. Not
//! here: channels and HTTP, which have tests at their own boundaries.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batcher;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod databases;
mod decide;
mod embed;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod sqlite;
mod support;
mod worker;
