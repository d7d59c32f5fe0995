//! The other side: plays WeChat Pay and Alipay with real keys and real crypto, carries their callbacks in every kind of
//! disorder, and judges what the receiver made of them.
//!
//! What lives here: [`platform`] (what a platform says, and how it signs it), [`faults`] (the same, broken on purpose),
//! [`courier`] (delivery over HTTP, repeated and concurrent), [`load`] (delivery as fast as possible, for measuring),
//! [`receiver`] (the user's service that effects arrive at) and [`auditor`] (what must be true afterwards).
//!
//! What does not: anything of payonce. This crate reads the platforms' specifications a second time, by itself, so that
//! the examiner and the examined share no mistake. It knows no database and no command line, and prints nothing.
//!
//! ```no_run
//! use payonce_sim::{Wechat, courier::{Courier, Plan}};
//! use std::sync::Arc;
//!
//! # async fn deliver() {
//! // The receiver under test is configured with these keys before the first delivery.
//! let wechat = Wechat::new("1900000001");
//! let payment = wechat.payment("A20260131-0007", "4200000000202601310000000007", 100);
//! let event = Arc::new(wechat.notify_payment(&payment));
//! // A hundred copies, twenty at a time, each twenty released at one moment.
//! let plan = Plan { times: 100, concurrency: 20, barrier: true, seed: 7, ..Plan::default() };
//! let urls = ["http://127.0.0.1:8080/notify/wx".to_owned()];
//! let report = Courier.deliver_many(&urls, event, plan, |_done, _total| {}).await;
//! assert_eq!(report.taken, 100);
//! # }
//! ```

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
