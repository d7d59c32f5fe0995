//! Payment callbacks always repeat. payonce makes sure that what they cause happens once.
//!
//! The way of one callback, and where it is told:
//!
//! ```text
//! bytes ─ Callback ─▶ channel.believe ─▶ Notice(s) ─▶ apply ─▶ Outcome(s) ─▶ channel.reply ─▶ bytes
//!                     (pure)                           one transaction        (pure)
//!                                                         │
//!                                          effects (outbox rows) ─▶ worker ─▶ sink
//! ```
//!
//! `channel` says what a platform's reader must give, `notice` what is believed, `apply` books it (the one
//! home of idempotency), `outcome` says whether the platform may stop, `store` is what a database must
//! offer, `worker` delivers what is owed, `sink` is where it goes.

pub mod channel;
pub mod ids;
pub mod key;
pub mod money;
pub mod notice;
pub mod outcome;
pub mod time;

#[cfg(feature = "books")]
pub mod apply;
#[cfg(feature = "books")]
pub mod batcher;
#[cfg(feature = "books")]
mod error;
#[cfg(feature = "books")]
pub mod order;
#[cfg(feature = "books")]
pub mod own_table;
#[cfg(feature = "books")]
pub mod register;
#[cfg(feature = "books")]
pub mod rules;
#[cfg(feature = "books")]
pub mod sink;
#[cfg(feature = "books")]
pub mod statement;
#[cfg(feature = "books")]
pub mod store;
#[cfg(feature = "books")]
pub mod worker;

#[cfg(feature = "books")]
pub use error::Error;
