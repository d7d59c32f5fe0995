//! A platform small enough for tests: signs, seals, builds messages.
//!
//! Here: a second reading of the fact sheets, with nothing of the crate under test but its public types. Not
//! here: schedules and disorder (`payonce-sim`).

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    encoding::{AsDer, PublicKeyX509Der},
    rand::SystemRandom,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_SHA256},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::{
    channel::{Answer, Callback, Headers},
    ids::AccountName,
    time::Micros,
};
use payonce_channels::{
    alipay::{self, Algorithm, Alipay},
    keys::PublicKey,
    wechat::{self, Wechat},
};

/// 2026-01-02T03:04:07+08:00, the time of the fact sheets' vectors.
pub(crate) const NOW: i64 = 1_767_294_247;
pub(crate) const API_V3_KEY: &str = "PayonceTestApiV3Key0123456789ABC";
pub(crate) const OTHER_API_V3_KEY: &str = "AnotherTestApiV3Key0123456789ABC";
pub(crate) const MCHID: &str = "1900000001";
pub(crate) const SERIAL: &str = "PUB_KEY_ID_0000000000000000000000000002";
pub(crate) const APP_ID: &str = "2021000000000001";
pub(crate) const SELLER: &str = "2088000000000002";

pub(crate) fn now() -> Micros {
    Micros::from_seconds(NOW)
}

/// A key pair of the platform's.
pub(crate) struct Signer(KeyPair);

impl Signer {
    pub(crate) fn generate() -> Self {
        Self(KeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> String {
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
        STANDARD.encode(signature)
    }

    pub(crate) fn spki(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = self.0.public_key().as_der().unwrap();
        der.as_ref().to_vec()
    }

    pub(crate) fn pkcs1(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    pub(crate) fn pem(&self) -> String {
        pem("PUBLIC KEY", &self.spki())
    }

    pub(crate) fn public(&self) -> PublicKey {
        PublicKey::read(&STANDARD.encode(self.spki())).unwrap()
    }
}

/// Making a key takes a second, so the tests share these.
pub(crate) fn signer(which: usize) -> &'static Signer {
    static SIGNERS: [OnceLock<Signer>; 3] = [const { OnceLock::new() }; 3];
    SIGNERS[which].get_or_init(Signer::generate)
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub(crate) fn account(name: &str) -> AccountName {
    AccountName::new(name).unwrap()
}

pub(crate) fn wechat_config() -> wechat::Config {
    wechat::Config {
        account: account("wx"),
        mchid: MCHID.to_owned(),
        partner: false,
        app_ids: Vec::new(),
        api_v3_keys: vec![API_V3_KEY.to_owned()],
        keys: vec![(Some(SERIAL.to_owned()), signer(0).public())],
        window: Duration::from_secs(300),
    }
}

pub(crate) fn wechat() -> Wechat {
    Wechat::new(wechat_config()).unwrap()
}

pub(crate) fn alipay_config() -> alipay::Config {
    alipay::Config {
        account: account("ali"),
        app_ids: vec![APP_ID.to_owned()],
        seller_id: SELLER.to_owned(),
        keys: vec![signer(0).public()],
        algorithm: Algorithm::Rsa2,
    }
}

pub(crate) fn alipay() -> Alipay {
    Alipay::new(alipay_config()).unwrap()
}

/// base64 of ciphertext and tag.
pub(crate) fn seal(plaintext: &[u8], key: &str, nonce: &str, associated: &str) -> String {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_bytes()).unwrap());
    let mut bytes = plaintext.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce.as_bytes()).unwrap();
    key.seal_in_place_append_tag(nonce, Aad::from(associated.as_bytes()), &mut bytes).unwrap();
    STANDARD.encode(bytes)
}

/// An envelope around a plaintext.
pub(crate) fn envelope(event: &str, original: &str, plaintext: &str) -> String {
    let ciphertext = seal(plaintext.as_bytes(), API_V3_KEY, "abcdEFGH1234", original);
    format!(
        r#"{{"id":"3f6e1d2c-0a1b-5c2d-8e3f-102030405060","create_time":"2026-01-02T03:04:07+08:00","resource_type":"encrypt-resource","event_type":"{event}","summary":"支付成功","resource":{{"original_type":"{original}","algorithm":"AEAD_AES_256_GCM","ciphertext":"{ciphertext}","associated_data":"{original}","nonce":"abcdEFGH1234"}}}}"#
    )
}

pub(crate) fn headers_at(signer: &Signer, serial: &str, timestamp: &str, body: &[u8]) -> Headers {
    let nonce = "N0nceN0nceN0nceN0nceN0nceN0nce32";
    let text = [timestamp.as_bytes(), b"\n", nonce.as_bytes(), b"\n", body, b"\n"].concat();
    [
        ("Wechatpay-Timestamp", timestamp.to_owned()),
        ("Wechatpay-Nonce", nonce.to_owned()),
        ("Wechatpay-Signature", signer.sign(&text)),
        ("Wechatpay-Serial", serial.to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.into_bytes()))
    .collect()
}

/// Serial, PEM and key of a self-made platform certificate.
pub(crate) fn certificate() -> (String, String, rcgen::KeyPair) {
    let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    let serial = [0x00, 0xD7, 0xCE, 0x59, 0xD1, 0xF5, 0x22, 0xD7, 0x01];
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&serial[1..]));
    let certificate = params.self_signed(&pair).unwrap();
    (serial.iter().map(|byte| format!("{byte:02X}")).collect(), certificate.pem(), pair)
}

/// Headers signed with it.
pub(crate) fn headers_with(pair: &rcgen::KeyPair, serial: &str, body: &[u8]) -> Headers {
    use rcgen::SigningKey as _;
    let text = [format!("{NOW}\nn\n").as_bytes(), body, b"\n"].concat();
    let signature = STANDARD.encode(pair.sign(&text).unwrap());
    [
        ("Wechatpay-Timestamp", NOW.to_string()),
        ("Wechatpay-Nonce", "n".to_owned()),
        ("Wechatpay-Signature", signature),
        ("Wechatpay-Serial", serial.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.into_bytes()))
    .collect()
}

/// A signed callback with this body.
pub(crate) fn signed(body: impl Into<Vec<u8>>) -> Callback {
    let body = body.into();
    Callback { headers: headers_at(signer(0), SERIAL, &NOW.to_string(), &body), body }
}

/// A signed payment callback with this plaintext.
pub(crate) fn paid(plaintext: &str) -> Callback {
    signed(envelope("TRANSACTION.SUCCESS", "transaction", plaintext))
}

/// A signed query answer.
pub(crate) fn answered(body: impl Into<Vec<u8>>) -> Answer {
    let Callback { headers, body } = signed(body);
    Answer { status: 200, headers, body }
}

/// The same with one header replaced, or removed.
pub(crate) fn with_header(callback: &Callback, name: &str, value: Option<&str>) -> Callback {
    let kept = callback.headers.iter().filter(|(have, _)| *have != name).map(|(have, old)| (have, old.to_vec()));
    let new = value.map(|value| (name, value.as_bytes().to_vec()));
    Callback { headers: kept.chain(new).collect(), body: callback.body.clone() }
}

/// Parameters by name.
pub(crate) type Params = BTreeMap<String, Vec<u8>>;

pub(crate) fn params(pairs: &[(&str, &str)]) -> Params {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
}

/// A plain payment notification.
pub(crate) fn payment_params() -> Params {
    params(&[
        ("app_id", APP_ID),
        ("charset", "utf-8"),
        ("gmt_create", "2026-01-02 03:04:00"),
        ("gmt_payment", "2026-01-02 03:04:05"),
        ("notify_id", "2026010201222030405000000000000001"),
        ("notify_time", "2026-01-02 03:04:06"),
        ("notify_type", "trade_status_sync"),
        ("out_trade_no", "PO_1"),
        ("seller_id", SELLER),
        ("sign_type", "RSA2"),
        ("subject", "测试"),
        ("total_amount", "12.30"),
        ("trade_no", "2026010222001400000000000001"),
        ("trade_status", "TRADE_SUCCESS"),
        ("version", "1.0"),
    ])
}

pub(crate) fn with(base: &Params, changes: &[(&str, Option<&str>)]) -> Params {
    let mut params = base.clone();
    for (name, value) in changes {
        match value {
            Some(value) => params.insert((*name).to_owned(), value.as_bytes().to_vec()),
            None => params.remove(*name),
        };
    }
    params
}

/// `name=value&…` over everything but what `leave_out` names.
pub(crate) fn text_to_sign(params: &Params, leave_out: &[&str]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = params
        .iter()
        .filter(|(name, _)| !leave_out.contains(&name.as_str()))
        .map(|(name, value)| [name.as_bytes(), b"=", value].concat())
        .collect();
    parts.join(&b'&')
}

pub(crate) fn encode(params: &Params) -> Vec<u8> {
    let escape = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .map(|&byte| match byte {
                b' ' => "+".to_owned(),
                b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect()
    };
    let parts: Vec<String> =
        params.iter().map(|(name, value)| format!("{}={}", escape(name.as_bytes()), escape(value))).collect();
    parts.join("&").into_bytes()
}

/// Signs as V1 does, `leave_out` besides `sign_type`.
pub(crate) fn form_leaving_out(params: &Params, leave_out: &[&str]) -> Callback {
    let mut params = params.clone();
    let sign = signer(0).sign(&text_to_sign(&params, leave_out));
    params.insert("sign".to_owned(), sign.into_bytes());
    Callback { headers: Headers::default(), body: encode(&params) }
}

/// A signed notification, V1.
pub(crate) fn form(params: &Params) -> Callback {
    form_leaving_out(params, &["sign_type"])
}

/// A classic answer to the trade query.
pub(crate) fn gateway_answer(node: &str) -> Answer {
    let sign = signer(0).sign(node.as_bytes());
    let body = format!(r#"{{"alipay_trade_query_response":{node},"sign":"{sign}"}}"#);
    Answer { status: 200, headers: Headers::default(), body: body.into_bytes() }
}
