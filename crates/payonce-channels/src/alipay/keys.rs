//! Which keys Alipay may have signed with.
//!
//! Here: the account's few keys, all of them tried, since a notification names none (facts 1.8), and the
//! algorithm pinned by the settings. Not here: reading keys (`crate::keys`), what is signed (`verify`).

use std::fmt;

use super::Algorithm;
use crate::{
    config::ConfigError,
    keys::{MIN_BITS_SHA256, PublicKey},
};

/// Every unsigned message costs one RSA operation per key and rule, so the number is small.
const MAX_KEYS: usize = 4;

/// What Alipay may sign with.
pub(super) struct TrustedKeys {
    keys: Vec<(String, PublicKey)>,
    algorithm: Algorithm,
}

impl TrustedKeys {
    pub(super) fn new(keys: Vec<PublicKey>, algorithm: Algorithm) -> Result<Self, ConfigError> {
        let fail = |message: String| Err(ConfigError::new("keys", message));
        if keys.is_empty() {
            return fail(
                "none given, so that no callback could be verified; add the Alipay public key (支付宝公钥) from the app's 接口加签方式, not the app's own"
                    .to_owned(),
            );
        }
        if keys.len() > MAX_KEYS {
            return fail(format!("more than {MAX_KEYS} keys; remove those that are no longer in use"));
        }
        let mut named: Vec<(String, PublicKey)> = Vec::with_capacity(keys.len());
        for key in keys {
            if algorithm == Algorithm::Rsa2 && key.bits() < MIN_BITS_SHA256 {
                return fail(format!(
                    "a key of {} bits, while RSA2 has at least {MIN_BITS_SHA256}: it may be the key of sign type RSA, or of the old partner gateway",
                    key.bits()
                ));
            }
            // What evidence shows. The whole fingerprint would say no more and is hard to read.
            let id = format!("sha256:{}", &key.fingerprint()[..16]);
            if named.iter().any(|(have, _)| *have == id) {
                return fail(format!("{id} is given twice"));
            }
            named.push((id, key));
        }
        Ok(Self { keys: named, algorithm })
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The name of the key that made this signature.
    pub(super) fn signer(&self, message: &[u8], signature: &[u8]) -> Option<&str> {
        let verify = match self.algorithm {
            Algorithm::Rsa2 => PublicKey::verify_sha256,
            Algorithm::Rsa => PublicKey::verify_sha1,
        };
        self.keys.iter().find(|(_, key)| verify(key, message, signature)).map(|(id, _)| id.as_str())
    }
}

impl fmt::Debug for TrustedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(_, key)| key)).finish()
    }
}
