//! THE HOUSE: what surrounds the centre in the binary `payonce`.
//!
//! `gateway` starts and stops everything, `http` is where callbacks and the shop's own requests arrive,
//! `sink` is where effects leave, `database` knows which engines there are, `error` is the only place where failures become HTTP. Not here: any
//! decision about a fact (`payonce::apply`), or a platform's words (`payonce-channels`).

pub mod cli;
pub mod config;
pub mod database;
mod demo;
pub mod error;
pub mod gateway;
pub mod http;
pub mod logging;
pub mod sink;
