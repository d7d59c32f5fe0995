//! Public keys of the platforms, in every form in which people paste them.
//!
//! Here: reading (PEM with any label, bare base64, SubjectPublicKeyInfo, PKCS#1, X.509 certificate), saying
//! what it is, and verifying with it. Not here: which key a message names (`wechat/keys.rs`,
//! `alipay/keys.rs`), or asking whether a certificate has run out: the platforms sign with what they
//! announced, and there is no clock here.

use std::fmt;

use aws_lc_rs::{
    digest,
    signature::{ParsedPublicKey, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256},
};
use payonce::time::Micros;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::pem::{self, Form};

/// Why a text is no public key that can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// No text.
    Empty,
    /// The text is no base64; perhaps a file name, or cut off.
    NotBase64,
    /// A private key, where the platform's public key belongs.
    Private(&'static str),
    /// A key of another algorithm than RSA.
    NotRsa,
    /// Base64, but neither a public key nor a certificate.
    Unrecognised,
    /// RSA, but the library refuses it (an even modulus, an odd size …).
    Unusable,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no key in the text; paste the platform's public key or certificate"),
            Self::NotBase64 => f.write_str(
                "not base64: paste the content of the key file, not its name, and all of it, with or without the BEGIN and END lines",
            ),
            Self::Private(form) => write!(
                f,
                "this is a PRIVATE key ({form}); here belongs the platform's public key. If it was pasted anywhere public, replace it"
            ),
            Self::NotRsa => f.write_str("not an RSA key; WeChat Pay and Alipay sign with RSA"),
            Self::Unrecognised => f.write_str(
                "neither a public key (SPKI or PKCS#1) nor an X.509 certificate; it may be cut off, copy it again",
            ),
            Self::Unusable => f.write_str("an RSA key that cannot be used: 1024 to 8192 bits are needed"),
        }
    }
}

impl std::error::Error for KeyError {}

/// An RSA public key, parsed once.
#[derive(Clone)]
pub struct PublicKey {
    sha256: Option<ParsedPublicKey>,
    sha1: ParsedPublicKey,
    bits: usize,
    fingerprint: String,
    form: &'static str,
    certificate: Option<Certificate>,
}

#[derive(Clone)]
struct Certificate {
    serial: String,
    not_after: Micros,
}

impl PublicKey {
    /// Reads a pasted key or certificate; of several blocks, the first (Alipay's certificate files hold the
    /// leaf first).
    pub fn read(text: &str) -> Result<Self, KeyError> {
        let der = pem::decode(text)?;
        match pem::classify(&der) {
            Form::Spki(pkcs1) => Self::build(pkcs1, "SPKI", None),
            Form::Pkcs1 => Self::build(&der, "PKCS#1", None),
            Form::Private(form) => Err(KeyError::Private(form)),
            Form::OtherAlgorithm => Err(KeyError::NotRsa),
            Form::Other => Self::from_certificate(&der),
        }
    }

    fn from_certificate(der: &[u8]) -> Result<Self, KeyError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| KeyError::Unrecognised)?;
        let details = Certificate {
            serial: upper_hex(trim_zero_bytes(certificate.raw_serial())),
            not_after: Micros::from_seconds(certificate.validity().not_after.timestamp()),
        };
        match pem::classify(certificate.public_key().raw) {
            Form::Spki(pkcs1) => Self::build(pkcs1, "X.509 certificate", Some(details)),
            _ => Err(KeyError::NotRsa),
        }
    }

    fn build(pkcs1: &[u8], form: &'static str, certificate: Option<Certificate>) -> Result<Self, KeyError> {
        let bits = pem::modulus_bits(pkcs1).ok_or(KeyError::Unrecognised)?;
        if !BITS.contains(&bits) {
            return Err(KeyError::Unusable);
        }
        let spki = pem::to_spki(pkcs1);
        let parse = |algorithm| ParsedPublicKey::new(algorithm, &spki).map_err(|_| KeyError::Unusable);
        // The library loads a shorter key under the 2048 bit algorithm and then refuses every signature with
        // an error that says nothing; not loading it at all keeps the two apart.
        let sha256 = if bits >= MIN_BITS_SHA256 { Some(parse(&RSA_PKCS1_2048_8192_SHA256)?) } else { None };
        Ok(Self {
            sha256,
            sha1: parse(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY)?,
            bits,
            fingerprint: lower_hex(digest::digest(&digest::SHA256, &spki).as_ref()),
            form,
            certificate,
        })
    }

    /// RSASSA-PKCS1-v1_5 with SHA-256. Always `false` for keys under 2048 bits.
    pub fn verify_sha256(&self, message: &[u8], signature: &[u8]) -> bool {
        self.sha256.as_ref().is_some_and(|key| key.verify_sig(message, signature).is_ok())
    }

    /// RSASSA-PKCS1-v1_5 with SHA-1, for accounts that still sign with Alipay's sign type `RSA`.
    pub fn verify_sha1(&self, message: &[u8], signature: &[u8]) -> bool {
        self.sha1.verify_sig(message, signature).is_ok()
    }

    /// Bits of the modulus.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// SHA-256 of the key as SubjectPublicKeyInfo, 64 hexadecimal digits; the same in whatever form it was pasted.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// `SPKI`, `PKCS#1` or `X.509 certificate`.
    pub fn form(&self) -> &'static str {
        self.form
    }

    /// The serial number of the certificate, in capital hexadecimal digits without leading zero bytes.
    pub fn certificate_serial(&self) -> Option<&str> {
        self.certificate.as_ref().map(|certificate| certificate.serial.as_str())
    }

    /// When the certificate runs out.
    pub fn not_after(&self) -> Option<Micros> {
        self.certificate.as_ref().map(|certificate| certificate.not_after)
    }
}

/// What the library verifies with; it would load others and refuse every signature.
const BITS: std::ops::RangeInclusive<usize> = 1024..=8192;

/// The least size with which both platforms sign SHA-256 (Alipay RSA2: opendocs.alipay.com/common/02kf5q).
pub(crate) const MIN_BITS_SHA256: usize = 2048;

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} bits, {}, {}…)", self.bits, self.form, &self.fingerprint[..16])
    }
}

fn trim_zero_bytes(bytes: &[u8]) -> &[u8] {
    // A DER integer whose top bit is set carries a zero byte in front that is no part of the number.
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    &bytes[start..]
}

fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn upper_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
