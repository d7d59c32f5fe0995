//! What people paste where a public key belongs.

use aws_lc_rs::{encoding::AsDer, rsa::KeyPair, signature::KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce_channels::keys::{KeyError, PublicKey};

use crate::support::{pem, signer};

fn read(text: &str) -> Result<PublicKey, KeyError> {
    PublicKey::read(text)
}

#[test]
fn one_key_in_every_form() {
    let (spki, pkcs1) = (signer(0).spki(), signer(0).pkcs1());
    let want = signer(0).public().fingerprint();
    let proper = pem("PUBLIC KEY", &spki);
    let line = STANDARD.encode(&spki);
    let wrapped_oddly: String = line
        .chars()
        .enumerate()
        .map(|(n, char)| if n % 37 == 36 { format!("{char}\n  ") } else { char.to_string() })
        .collect();
    let forms = [
        (proper.clone(), "SPKI"),
        (proper.replace('\n', "\r\n"), "SPKI"),
        (proper.replace('\n', "\\n"), "SPKI"),
        (proper.replace('\n', ""), "SPKI"),
        (proper.replace('\n', " "), "SPKI"),
        (format!("\u{FEFF}{proper}"), "SPKI"),
        (format!("Bag Attributes\n  friendlyName: x\n{proper}"), "SPKI"),
        (proper.replace("-----END PUBLIC KEY-----", ""), "SPKI"),
        (pem("RSA PUBLIC KEY", &spki), "SPKI"),
        (pem("CERTIFICATE", &spki), "SPKI"),
        (format!("-----BEGIN PUBLIC KEY-----\n{wrapped_oddly}\n-----END PUBLIC KEY-----"), "SPKI"),
        (line.clone(), "SPKI"),
        (format!("\"{line}\"\n"), "SPKI"),
        (line.trim_end_matches('=').to_owned(), "SPKI"),
        (STANDARD.encode(&proper), "SPKI"),
        (pem("RSA PUBLIC KEY", &pkcs1), "PKCS#1"),
        (STANDARD.encode(&pkcs1), "PKCS#1"),
    ];
    for (text, form) in forms {
        let key = read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!((key.form(), key.bits(), key.fingerprint()), (form, 2048, want.clone()), "{text}");
        assert!(key.certificate_serial().is_none() && key.not_after().is_none());
        let signature = STANDARD.decode(signer(0).sign(b"text")).unwrap();
        assert!(key.verify_sha256(b"text", &signature) && !key.verify_sha256(b"texT", &signature));
        assert!(!key.verify_sha1(b"text", &signature));
    }
}

#[test]
fn a_certificate_brings_serial_and_end() {
    let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0xF1, 0x57, 0x0A]));
    params.not_after = rcgen::date_time_ymd(2031, 2, 3);
    let certificate = params.self_signed(&pair).unwrap();
    let bare = STANDARD.encode(certificate.der());
    let chain = format!("{}{}", certificate.pem(), pem("CERTIFICATE", b"something else"));
    for text in
        [certificate.pem(), pem("PUBLIC KEY", certificate.der()), bare, chain, STANDARD.encode(certificate.pem())]
    {
        let key = read(&text).unwrap();
        assert_eq!((key.form(), key.certificate_serial(), key.bits()), ("X.509 certificate", Some("F1570A"), 2048));
        assert_eq!(key.not_after().unwrap().to_string(), "2031-02-03T00:00:00Z");
        let spki = read(&STANDARD.encode(rcgen::PublicKeyData::subject_public_key_info(&pair))).unwrap();
        assert_eq!(key.fingerprint(), spki.fingerprint());
    }
}

#[test]
fn a_private_key_is_recognised_and_never_repeated() {
    let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let pkcs8 = pair.serialize_der();
    // The RSAPrivateKey inside is the last OCTET STRING of the PKCS#8 structure.
    let pkcs1 = &pkcs8[26..];
    assert!(KeyPair::from_der(pkcs1).is_ok());
    let _: Vec<u8> = KeyPair::from_der(pkcs1)
        .unwrap()
        .public_key()
        .as_der()
        .map(|der: aws_lc_rs::encoding::PublicKeyX509Der<'_>| der.as_ref().to_vec())
        .unwrap();
    let table = [
        (pem("PRIVATE KEY", &pkcs8), "PKCS#8"),
        (pem("PUBLIC KEY", &pkcs8), "PKCS#8"),
        (STANDARD.encode(&pkcs8), "PKCS#8"),
        (pem("RSA PRIVATE KEY", pkcs1), "PKCS#1"),
        (STANDARD.encode(pkcs1), "PKCS#1"),
        (format!("{}{}", signer(0).pem(), pem("PRIVATE KEY", &pkcs8)), "PKCS#8"),
        (pem("ENCRYPTED PRIVATE KEY", b"x"), "encrypted"),
        (format!("{}{}", signer(0).pem(), pem("ENCRYPTED PRIVATE KEY", b"x")), "encrypted"),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----".to_owned(), "encrypted"),
    ];
    for (text, form) in table {
        let error = read(&text).unwrap_err();
        assert!(matches!(error, KeyError::Private(_)), "{error}");
        let printed = error.to_string();
        assert!(printed.contains("PRIVATE") && printed.contains(form), "{printed}");
        assert!(!printed.contains(&STANDARD.encode(&pkcs8)[..16]));
    }
}

#[test]
fn other_texts_are_told_what_they_are() {
    let elliptic = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let table = [
        ("", KeyError::Empty),
        ("  \n", KeyError::Empty),
        ("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----", KeyError::Empty),
        ("/etc/payonce/pub_key.pem", KeyError::NotBase64),
        ("公钥", KeyError::NotBase64),
        ("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAspP4", KeyError::Unrecognised),
        ("AAAA", KeyError::Unrecognised),
    ];
    for (text, want) in table {
        assert_eq!(read(text).unwrap_err(), want, "{text}");
    }
    assert_eq!(read(&elliptic.public_key_pem()).unwrap_err(), KeyError::NotRsa);
    // 256 bits: an RSA key, and a toy.
    let tiny = "MDwwDQYJKoZIhvcNAQEBBQADKwAwKAIhAMM0AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAgMBAAE=";
    assert_eq!(read(tiny).unwrap_err(), KeyError::Unusable);
}

#[test]
fn a_key_prints_as_a_description() {
    let printed = format!("{:?}", signer(0).public());
    assert!(printed.starts_with("PublicKey(2048 bits, SPKI, ") && printed.len() < 60, "{printed}");
}
