//! RSA keys of a simulated platform or merchant: made at run time, never stored, spelt in every form people configure.
//!
//! Here: making, signing, verifying, spelling. Not here: what is signed, and which header names the key (`platform`).

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{self, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::sync::Arc;

/// A 2048-bit RSA key pair, signing with SHA-256 and PKCS#1 v1.5 padding as both platforms do. Cheap to clone.
#[derive(Clone)]
pub struct RsaKey {
    pair: Arc<KeyPair>,
}

/// The failures inside the crypto library have no cause that a caller could meet: the key is one of our own and the
/// sizes are fixed. A simulator that cannot sign is of no use, so it stops with the reason.
pub(crate) fn certain<T, E: fmt::Debug>(result: Result<T, E>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} failed in the crypto library: {error:?}"),
    }
}

impl RsaKey {
    /// A new key pair. Takes some tens of milliseconds, now and then a few hundred.
    ///
    /// # Panics
    /// When the crypto library cannot make a key at all.
    #[must_use]
    pub fn generate() -> Self {
        Self { pair: Arc::new(certain(KeyPair::generate(KeySize::Rsa2048), "generating an RSA key")) }
    }

    /// `count` keys, made on as many threads.
    ///
    /// # Panics
    /// When the crypto library cannot make a key at all.
    #[must_use]
    pub fn generate_many(count: usize) -> Vec<Self> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(Self::generate)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// The signature of `text` in standard base64 on one line (344 characters).
    ///
    /// # Panics
    /// When the crypto library cannot sign.
    #[must_use]
    pub fn sign_sha256(&self, text: &[u8]) -> String {
        let mut out = vec![0; self.pair.public_modulus_len()];
        certain(self.pair.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut out), "signing");
        STANDARD.encode(out)
    }

    /// Whether `signature` (base64) is this key's signature of `text`.
    #[must_use]
    pub fn verify(&self, text: &[u8], signature: &str) -> bool {
        verify_spki(self.spki().as_ref(), text, signature)
    }

    /// The public half as PEM, `BEGIN PUBLIC KEY`.
    #[must_use]
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", self.spki().as_ref())
    }

    /// The public half as one line of base64 without armour (SubjectPublicKeyInfo), as Alipay's console shows it.
    #[must_use]
    pub fn public_base64(&self) -> String {
        STANDARD.encode(self.spki().as_ref())
    }

    /// The public half as one line of base64 in the older PKCS#1 form (RSAPublicKey).
    #[must_use]
    pub fn public_pkcs1_base64(&self) -> String {
        STANDARD.encode(self.pair.public_key().as_ref())
    }

    /// The private half as PEM, `BEGIN PRIVATE KEY` (PKCS#8), for the configuration of a simulated merchant.
    ///
    /// # Panics
    /// When the crypto library cannot encode its own key.
    #[must_use]
    pub fn private_pkcs8_pem(&self) -> String {
        pem("PRIVATE KEY", self.pkcs8().as_ref())
    }

    /// The private half as one line of base64 without armour (PKCS#8), as Alipay's key tool writes it.
    ///
    /// # Panics
    /// When the crypto library cannot encode its own key.
    #[must_use]
    pub fn private_pkcs8_base64(&self) -> String {
        STANDARD.encode(self.pkcs8().as_ref())
    }

    fn spki(&self) -> PublicKeyX509Der<'static> {
        certain(self.pair.public_key().as_der(), "encoding a public key")
    }

    fn pkcs8(&self) -> Pkcs8V1Der<'static> {
        certain(self.pair.as_der(), "encoding a private key")
    }
}

impl fmt::Debug for RsaKey {
    // The private half has no business in a log, not even a simulated one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaKey(..)")
    }
}

/// Verifies a base64 signature with a public key in SubjectPublicKeyInfo form. Base64 that does not decode is a wrong
/// signature, not another kind of failure.
#[must_use]
pub fn verify_spki(spki_der: &[u8], text: &[u8], signature: &str) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, spki_der).verify(text, &signature).is_ok()
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for start in (0..base64.len()).step_by(64) {
        out.push_str(&base64[start..base64.len().min(start + 64)]);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_verifies() {
        let keys = RsaKey::generate_many(2);
        let signature = keys[0].sign_sha256(b"text");
        assert_eq!(signature.len(), 344);
        assert!(keys[0].verify(b"text", &signature));
        assert!(!keys[0].verify(b"Text", &signature));
        assert!(!keys[1].verify(b"text", &signature));
        assert!(!keys[0].verify(b"text", "WECHATPAY/SIGNTEST/!"));
    }

    #[test]
    fn spells_its_keys() {
        let key = RsaKey::generate();
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----\nMIIBIjAN"));
        assert!(key.public_pem().ends_with("-----END PUBLIC KEY-----\n"));
        assert!(key.public_pem().lines().all(|line| line.len() <= 64));
        assert_eq!(STANDARD.decode(key.public_base64()).unwrap().len(), 294);
        assert!(key.public_pkcs1_base64().starts_with("MIIBCgKCAQEA"));
        assert!(key.private_pkcs8_pem().starts_with("-----BEGIN PRIVATE KEY-----\nMIIE"));
        assert!(KeyPair::from_pkcs8(&STANDARD.decode(key.private_pkcs8_base64()).unwrap()).is_ok());
        assert_eq!(format!("{key:?}"), "RsaKey(..)");
    }
}
