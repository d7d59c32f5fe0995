//! The other side: plays WeChat Pay and Alipay with real keys and real crypto, carries their callbacks in every kind of
//! disorder, and judges what the receiver made of them.
//!
//! What lives here: [`platform`] (what a platform says, and how it signs it), [`faults`] (the same, broken on purpose),
//! [`courier`] (delivery over HTTP, repeated and concurrent), [`load`] (delivery as fast as possible, for measuring),
//! [`receiver`] (the user's service that effects arrive at) and [`auditor`] (what must be true afterwards).
//!
//! What does not: anything of payonce. This crate reads the platforms' specifications a second time, by itself, so that
//! the examiner and the examined share no mistake. It knows no database and no command line, and prints nothing.

pub mod auditor;
pub mod courier;
pub mod faults;
pub mod keys;
pub mod load;
pub mod message;
pub mod platform;
pub mod receiver;
pub mod text;

mod wire;

pub use message::{Headers, Request, Response};
pub use platform::{Notification, Platform, alipay, alipay::Alipay, wechat, wechat::Wechat};
