//! From pasted text to DER, and what that DER is.
//!
//! Here: PEM with any label, bare base64 in one line or many, CRLF, byte-order mark, `\n` written as two
//! characters, base64 of a whole PEM file; and a DER reader just large enough to tell the forms apart. The
//! label is never believed, the bytes are. Not here: using the key (`keys`).

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::keys::KeyError;

/// Keys are pasted by hand, so missing padding is forgiven here. Signatures are decoded strictly.
const PASTED: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Longer than any key or chain of certificates somebody means to paste.
const MAX_TEXT: usize = 64 * 1024;

/// `1.2.840.113549.1.1.1`, rsaEncryption (RFC 8017, appendix C).
const OID_RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];

/// The AlgorithmIdentifier `SEQUENCE { rsaEncryption, NULL }`.
const ALGORITHM_RSA: &[u8] =
    &[0x30, 0x0D, 0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Text to the DER of its first block.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, KeyError> {
    let der = decode_once(text)?;
    // Alipay's certificate download answers base64 of the PEM file.
    match std::str::from_utf8(&der) {
        Ok(inner) if inner.trim_start().starts_with("-----BEGIN") => decode_once(inner),
        _ => Ok(der),
    }
}

fn decode_once(text: &str) -> Result<Vec<u8>, KeyError> {
    if text.len() > MAX_TEXT {
        return Err(KeyError::NotBase64);
    }
    // Keys in environment variables and JSON often hold `\n` as two characters.
    let text = text.replace("\\r", "\n").replace("\\n", "\n");
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    let blocks = blocks(&text);
    let (first, more) = blocks.split_first().ok_or(KeyError::Empty)?;
    // A bundle of certificate and private key reads like a certificate, and the secret would stay where it
    // does not belong.
    for block in more {
        refuse_private(block)?;
    }
    bytes(first)
}

fn refuse_private(block: &Block<'_>) -> Result<(), KeyError> {
    let der = match bytes(block) {
        Err(private @ KeyError::Private(_)) => return Err(private),
        // Whatever else stands behind the first block is of no interest.
        Err(_) => return Ok(()),
        Ok(der) => der,
    };
    match classify(&der) {
        Form::Private(form) => Err(KeyError::Private(form)),
        _ => Ok(()),
    }
}

struct Block<'t> {
    label: &'t str,
    body: &'t str,
}

fn bytes(block: &Block<'_>) -> Result<Vec<u8>, KeyError> {
    // PKCS#8 says it in the label, the older form in a header line.
    if block.label.contains("ENCRYPTED") || block.body.contains("ENCRYPTED") && block.body.contains("Proc-Type") {
        return Err(KeyError::Private("encrypted private key"));
    }
    let is_ignored = |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '\u{FEFF}');
    let compact: String = block.body.chars().filter(|&char| !is_ignored(char)).collect();
    if compact.is_empty() {
        return Err(KeyError::Empty);
    }
    PASTED.decode(compact.as_bytes()).map_err(|_| KeyError::NotBase64)
}

/// What stands between each BEGIN line and the next dashes; the whole text if there is no BEGIN line.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut pieces = text.split("-----BEGIN");
    let before = pieces.next().unwrap_or_default();
    let found: Vec<Block<'_>> = pieces
        .map(|piece| {
            // The label ends with the next dashes, which may stand on the same line as the base64.
            let (label, rest) = piece.split_once("-----").unwrap_or((piece, ""));
            Block { label, body: rest.split_once("-----").map_or(rest, |(body, _)| body) }
        })
        .collect();
    if found.is_empty() { vec![Block { label: "", body: before }] } else { found }
}

/// What a DER text is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// SubjectPublicKeyInfo around this RSAPublicKey.
    Spki(&'a [u8]),
    /// An RSAPublicKey by itself.
    Pkcs1,
    /// An RSA or PKCS#8 private key; the text names which.
    Private(&'static str),
    /// A public key of another algorithm.
    OtherAlgorithm,
    /// None of these; perhaps a certificate.
    Other,
}

/// Tells the forms apart by their outer members.
pub(crate) fn classify(der: &[u8]) -> Form<'_> {
    let Some((SEQUENCE, content, [])) = element(der) else {
        return Form::Other;
    };
    match members(content).as_slice() {
        [(INTEGER, _), (INTEGER, _)] => Form::Pkcs1,
        [(INTEGER, _), (INTEGER, _), (INTEGER, _), ..] => Form::Private("PKCS#1 private key"),
        [(INTEGER, _), (SEQUENCE, _), (OCTET_STRING, _), ..] => Form::Private("PKCS#8 private key"),
        [(INTEGER, _), (OCTET_STRING, _), ..] => Form::Private("EC private key"),
        [(SEQUENCE, _), (OCTET_STRING, _)] => Form::Private("encrypted private key"),
        [(SEQUENCE, algorithm), (BIT_STRING, bits)] => spki(algorithm, bits),
        _ => Form::Other,
    }
}

fn spki<'a>(algorithm: &[u8], bits: &'a [u8]) -> Form<'a> {
    match (element(algorithm), bits.split_first()) {
        (Some((OID, oid, _)), Some((0, key))) if oid == OID_RSA => Form::Spki(key),
        (Some((OID, _, _)), _) => Form::OtherAlgorithm,
        _ => Form::Other,
    }
}

/// The number of bits of the modulus of an RSAPublicKey.
pub(crate) fn modulus_bits(pkcs1: &[u8]) -> Option<usize> {
    let (SEQUENCE, content, []) = element(pkcs1)? else {
        return None;
    };
    let (INTEGER, modulus, _) = element(content)? else {
        return None;
    };
    let leading = modulus.iter().position(|&byte| byte != 0)?;
    let significant = &modulus[leading..];
    Some(significant.len() * 8 - significant[0].leading_zeros() as usize)
}

/// Wraps an RSAPublicKey as SubjectPublicKeyInfo, the form in which keys are fingerprinted.
pub(crate) fn to_spki(pkcs1: &[u8]) -> Vec<u8> {
    let mut bits = vec![0];
    bits.extend_from_slice(pkcs1);
    let mut content = ALGORITHM_RSA.to_vec();
    write_element(&mut content, BIT_STRING, &bits);
    let mut out = Vec::with_capacity(content.len() + 6);
    write_element(&mut out, SEQUENCE, &content);
    out
}

fn write_element(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().position(|&byte| byte != 0).unwrap_or(length.len() - 1)..];
    if content.len() >= 0x80 {
        out.push(0x80 | significant.len() as u8);
    }
    out.extend_from_slice(significant);
    out.extend_from_slice(content);
}

/// One element: tag, content, what follows it. `None` if the bytes are not DER with a length that fits.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7F);
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let (digits, rest) = rest.split_at(count);
        (digits.iter().fold(0usize, |sum, &digit| (sum << 8) | usize::from(digit)), rest)
    };
    if rest.len() < length {
        return None;
    }
    let (content, rest) = rest.split_at(length);
    Some((tag, content, rest))
}

/// The first few members of a SEQUENCE; more than any form needs are not looked at.
fn members(mut content: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((tag, member, rest)) = element(content) {
        found.push((tag, member));
        content = rest;
        if found.len() == 10 {
            break;
        }
    }
    found
}
