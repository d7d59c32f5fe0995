//! THE EARS: bytes to notices, verdicts to bytes.
//!
//! Here: the only list of channels. Not here: anything that happens later. This crate is pure: no async, no
//! SQL, no network, no clock (`Micros` is handed in), and it is never given an order, so it cannot decide.
//!
//! The way of the data is the same in both channels, and so are the file names:
//!
//! ```text
//! Callback ─▶ verify.rs ─▶ Verified ─▶ (decrypt.rs, WeChat only) ─▶ payload.rs ─▶ Belief
//!               │ keys.rs: which key                                              Verdict ─▶ reply.rs ─▶ Reply
//! ```
//!
//! Only `verify.rs` makes a `Verified`, and nothing after it takes anything else: a field cannot be read
//! before the signature was right.
//!
//! | channel | [`Channel::name`] | module |
//! |---|---|---|
//! | WeChat Pay V3: direct (直连), service provider (服务商), e-commerce (收付通) | `WXPAY` | [`wechat`] |
//! | Alipay, mainland China open platform (支付宝) | `ALIPAY` | [`alipay`] |
//!
//! A new channel is one folder, one line here and in the table, fixtures in `testdata/`, and a page of docs.
//!
//! [`Channel::name`]: payonce::channel::Channel::name

pub mod alipay;
mod config;
#[cfg(test)]
mod fuzz;
pub mod keys;
mod pem;
mod text;
mod times;
pub mod wechat;

pub use config::ConfigError;
