//! Fuzz target: the text of a key.
//!
//! Here: any text where a key belongs. Runs briefly under `cargo test`, longer under
//! `cargo bolero test fuzz::key_text`. Not here: the channels' targets (`wechat/fuzz.rs`, `alipay/fuzz.rs`).

use crate::keys::PublicKey;

const ITERATIONS: usize = 500;

#[test]
fn key_text() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        if let Ok(key) = PublicKey::read(&String::from_utf8_lossy(bytes)) {
            assert!((1024..=8192).contains(&key.bits()));
            assert_eq!(key.fingerprint().len(), 64);
        }
    });
}
