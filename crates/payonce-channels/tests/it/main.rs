//! The channels from outside: raw bytes in, notices out.
//!
//! `fixtures` reads `testdata/`, `wechat` and `alipay` hold the field cases by id, `keys` and `settings` what people paste,
//! `properties` what must hold for any bytes, `generate` writes the signed files of `testdata/` anew.

#![expect(clippy::unwrap_used, reason = "the allowance for tests does not reach their helper functions")]

mod alipay;
mod fixtures;
mod generate;
mod keys;
mod properties;
mod settings;
mod support;
mod wechat;
