//! Which key a message names.
//!
//! Here: the set of trusted keys and the choice by `Wechatpay-Serial` alone: one key is never tried in the
//! place of another. Certificates and public keys stand side by side, since for weeks both are in use
//! (facts 1.5; F081, F083). Not here: reading keys (`crate::keys`), verifying (`verify`).

use std::fmt;

use crate::{
    config::ConfigError,
    keys::{MIN_BITS_SHA256, PublicKey},
};

/// What the ID of a WeChat Pay public key (微信支付公钥) begins with
/// (pay.weixin.qq.com/doc/v3/partner/4013038589).
const PUBLIC_KEY_PREFIX: &str = "PUB_KEY_ID_";

/// More than any change-over needs.
const MAX_KEYS: usize = 16;

/// The name of a key as a header may give it.
#[derive(Clone, PartialEq, Eq)]
enum Serial {
    /// Opaque, compared exactly.
    PublicKey(String),
    /// A number in hexadecimal: letter case and leading zeros are no part of it.
    Certificate(String),
}

impl Serial {
    fn read(text: &str) -> Option<Self> {
        if text.starts_with(PUBLIC_KEY_PREFIX) {
            return Some(Self::PublicKey(text.to_owned()));
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let number = text.trim_start_matches('0').to_ascii_uppercase();
        Some(Self::Certificate(number))
    }
}

/// A key and its name.
pub(super) struct TrustedKey {
    serial: Serial,
    /// The name as configured: what logs and evidence show.
    pub(super) id: String,
    pub(super) key: PublicKey,
}

/// What the platform may sign with.
pub(super) struct TrustedKeys(Vec<TrustedKey>);

impl TrustedKeys {
    pub(super) fn new(keys: Vec<(Option<String>, PublicKey)>) -> Result<Self, ConfigError> {
        if keys.is_empty() {
            return Err(ConfigError::new(
                "keys",
                "none given, so that no callback could be verified; add the WeChat Pay public key with its PUB_KEY_ID_, or the platform certificate",
            ));
        }
        if keys.len() > MAX_KEYS {
            return Err(ConfigError::new("keys", format!("more than {MAX_KEYS} keys; remove those that have run out")));
        }
        let mut trusted: Vec<TrustedKey> = Vec::with_capacity(keys.len());
        for (id, key) in keys {
            let key = named(id, key)?;
            if trusted.iter().any(|have| have.serial == key.serial) {
                return Err(ConfigError::new("keys", format!("{} is given twice", key.id)));
            }
            trusted.push(key);
        }
        Ok(Self(trusted))
    }

    /// The key of exactly this name.
    pub(super) fn find(&self, serial: &str) -> Option<&TrustedKey> {
        let serial = Serial::read(serial)?;
        self.0.iter().find(|key| key.serial == serial)
    }
}

impl fmt::Debug for TrustedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|trusted| (&trusted.id, &trusted.key))).finish()
    }
}

/// Gives a key its name, from the setting or from the certificate, and checks that the two agree.
fn named(id: Option<String>, key: PublicKey) -> Result<TrustedKey, ConfigError> {
    let fail = |message: String| Err(ConfigError::new("keys", message));
    if key.bits() < MIN_BITS_SHA256 {
        return fail(format!(
            "a key of {} bits; WeChat Pay signs with at least {MIN_BITS_SHA256}, so this is another key",
            key.bits()
        ));
    }
    let own = key.certificate_serial().map(str::to_owned);
    let id = id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
    let Some(id) = id.or_else(|| own.clone()) else {
        return fail(
            "a public key without its name: give the PUB_KEY_ID_… that the merchant platform shows beside it; only a certificate brings its own"
                .to_owned(),
        );
    };
    let Some(serial) = Serial::read(&id) else {
        return fail(format!(
            "`{}` is neither a certificate serial (hexadecimal) nor a PUB_KEY_ID_…",
            id.escape_debug()
        ));
    };
    match own {
        Some(own) if Serial::read(&own).as_ref() != Some(&serial) => fail(format!(
            "`{id}` is given for a certificate whose serial is {own}; leave the serial out, it is in the certificate"
        )),
        _ => Ok(TrustedKey { serial, id, key }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_numbers_and_ids_are_texts() {
        let same = |a, b| Serial::read(a).is_some() && Serial::read(a) == Serial::read(b);
        assert!(same("00D7CE59D1F522D701", "d7ce59d1f522d701"));
        assert!(same("PUB_KEY_ID_0001", "PUB_KEY_ID_0001"));
        assert!(!same("PUB_KEY_ID_0001", "PUB_KEY_ID_001"));
        assert!(!same("PUB_KEY_ID_0A", "PUB_KEY_ID_0a"));
        for odd in ["", "pub_key_id_0001", "D7:CE", " D7CE", "0xD7", "订"] {
            assert!(Serial::read(odd).is_none(), "{odd}");
        }
    }
}
