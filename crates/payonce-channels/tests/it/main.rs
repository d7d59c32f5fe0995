//! The channels from outside: raw bytes in, notices out.
//!
//! `fixtures` reads `testdata/`, `wechat` and `alipay` hold the field cases by id, `keys` what people paste,
//! `properties` what must hold for any bytes, `generate` writes the signed files of `testdata/` anew.

mod alipay;
mod fixtures;
mod generate;
mod keys;
mod properties;
mod support;
mod wechat;
