//! The envelope and what is locked in it.
//!
//! Here: reading the envelope of a verified body and AES-256-GCM with the account's API v3 keys. Not here:
//! what the plaintext means (`payload`). That it decrypts proves nothing about who sent it (F006), so the
//! only input is a `Verified`. pay.weixin.qq.com/doc/v3/merchant/4012071382

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::channel::{Reason, Rejection};
use serde::Deserialize;

use super::verify::Verified;
use crate::{
    config::ConfigError,
    text::{lenient_json, quote},
};

/// The only algorithm of envelopes (facts 2.1).
const ALGORITHM: &str = "AEAD_AES_256_GCM";

/// Current, previous, and one to spare.
const MAX_KEYS: usize = 4;

/// The API v3 keys, ready for use; the library wipes its copies when they are dropped.
pub(super) struct CipherKeys(Vec<LessSafeKey>);

impl CipherKeys {
    pub(super) fn new(keys: &[String]) -> Result<Self, ConfigError> {
        let fail = |message: String| Err(ConfigError::new("api_v3_keys", message));
        if keys.is_empty() {
            return fail(
                "none given; set the APIv3 key on the merchant platform (账户中心, API安全) and copy it here"
                    .to_owned(),
            );
        }
        if keys.len() > MAX_KEYS {
            return fail(format!("more than {MAX_KEYS}; keep the current one and the one before"));
        }
        let mut ready = Vec::with_capacity(keys.len());
        for key in keys {
            // The key is its 32 ASCII characters; people paste hexadecimal or base64 of it, or a line end.
            let Ok(unbound) = UnboundKey::new(&AES_256_GCM, key.as_bytes()) else {
                return fail(format!("a key of {} bytes; an APIv3 key has exactly 32 characters", key.len()));
            };
            ready.push(LessSafeKey::new(unbound));
        }
        Ok(Self(ready))
    }
}

/// Members that nobody needs stay unread: a new or odd one must not hold up money.
#[derive(Deserialize)]
struct Envelope {
    event_type: Option<String>,
    resource: Locked,
}

#[derive(Deserialize)]
struct Locked {
    original_type: Option<String>,
    algorithm: String,
    ciphertext: String,
    associated_data: Option<String>,
    nonce: String,
}

/// What was locked in.
pub(super) struct Resource {
    pub(super) plaintext: Vec<u8>,
    pub(super) event_type: Option<String>,
    pub(super) original_type: Option<String>,
}

/// Reads the envelope and decrypts its resource.
pub(super) fn open(verified: &Verified<'_>, keys: &CipherKeys) -> Result<Resource, Rejection> {
    let envelope: Envelope = serde_json::from_str(&lenient_json(verified.body()))
        .map_err(|error| Rejection::new(Reason::Malformed, format!("envelope: {}", quote(&error.to_string()))))?;
    let Envelope { event_type, resource } = envelope;
    let plaintext = decrypt(&resource, keys)?;
    Ok(Resource { plaintext, event_type, original_type: resource.original_type })
}

fn decrypt(locked: &Locked, keys: &CipherKeys) -> Result<Vec<u8>, Rejection> {
    let refuse = |what: String| Rejection::new(Reason::Undecryptable, what);
    if locked.algorithm != ALGORITHM {
        return Err(refuse(format!("resource.algorithm: {}", quote(&locked.algorithm))));
    }
    let ciphertext =
        STANDARD.decode(&locked.ciphertext).map_err(|_| refuse("resource.ciphertext: not base64".to_owned()))?;
    // Absent, null and empty all mean no associated data.
    let associated = locked.associated_data.as_deref().unwrap_or_default().as_bytes();
    for key in &keys.0 {
        let nonce = Nonce::try_assume_unique_for_key(locked.nonce.as_bytes())
            .map_err(|_| refuse(format!("resource.nonce: {} bytes instead of 12", locked.nonce.len())))?;
        // Decryption works in place and may spoil the bytes, so each key gets its own copy.
        let mut bytes = ciphertext.clone();
        if let Ok(plaintext) = key.open_in_place(nonce, Aad::from(associated), &mut bytes) {
            return Ok(plaintext.to_vec());
        }
    }
    Err(refuse(format!(
        "none of the {} APIv3 keys opens it; if the key was changed on the merchant platform, configure the new one",
        keys.0.len()
    )))
}
