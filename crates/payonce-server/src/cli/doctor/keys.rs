//! Keys and secrets: what each is, whether it is the right one, who else can read it.
//!
//! Here: the confusions that cost people a day. What a wrong key does at run time is always the same: every
//! signature fails. Not here: what no channel would start with (`config`).

use std::{collections::BTreeMap, path::Path};

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa::KeyPair,
    signature::KeyPair as _,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::time::Micros;
use payonce_channels::{alipay::Algorithm, keys::PublicKey};
use x509_parser::{pem::Pem, prelude::X509Certificate};

use super::Findings;
use crate::config::{Account, AlipaySettings, ChannelSettings, Config, NamedKey, Secret, SinkSettings, WechatSettings};

/// The key of Alipay's old partner gateway (mapi), one for everybody and printed in every old demo: 1024 bits,
/// `MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCnxj/9qwVfgoUh/y2W89L6…`. SHA-256 of its SubjectPublicKeyInfo.
const ALIPAY_MAPI: &str = "ce187c187219eb206cafd68e2b9f02e308de32693feddf56cdd51415c7fcc2ef";

/// So long before its end a certificate is worth a warning.
const SOON_DAYS: i64 = 30;

pub(super) fn examine(findings: &mut Findings, config: &Config, now: Micros) {
    for account in &config.accounts {
        let area = format!("account {}", account.name);
        match &account.settings {
            ChannelSettings::Wechat(settings) => wechat(findings, &area, settings, now),
            ChannelSettings::Alipay(settings) => alipay(findings, &area, settings, now),
        }
    }
    shared_between_platforms(findings, &config.accounts);
    readable_by_others(findings, config);
}

fn wechat(findings: &mut Findings, area: &str, settings: &WechatSettings, now: Micros) {
    match settings.api_v3_keys.as_slice() {
        [] => {}
        [one, two, ..] if one.expose() == two.expose() => findings.warning(
            area,
            "the API v3 key and the previous one are the same",
            "remove previous_api_v3_key; it is for the days after a change",
        ),
        keys => findings
            .ok(area, format!("API v3 key: 32 bytes{}", if keys.len() > 1 { ", and the previous one" } else { "" })),
    }
    let lasting = settings.keys.iter().any(|key| key.key.not_after().is_none_or(|end| end > now));
    for key in &settings.keys {
        describe(findings, area, key, now, lasting);
        let Some(names) = Names::of(&key.text) else { continue };
        if names.subject.contains(&format!("CN={}", settings.mchid)) || names.subject.contains("微信商户系统") {
            findings.fault(
                area,
                format!(
                    "`{}` is the merchant's own certificate (apiclient_cert.pem): WeChat Pay does not sign with it",
                    key.text.origin
                ),
                "put the WeChat Pay public key (微信支付公钥) or the platform certificate (平台证书) in its place",
            );
        } else if !names.issuer.contains("Tenpay") {
            findings.warning(
                area,
                format!(
                    "`{}` was issued by `{}`, not by Tenpay.com, which issues platform certificates",
                    key.text.origin, names.issuer
                ),
                "compare the serial number with the merchant platform",
            );
        }
    }
}

fn alipay(findings: &mut Findings, area: &str, settings: &AlipaySettings, now: Micros) {
    let lasting = settings.keys.iter().any(|key| key.key.not_after().is_none_or(|end| end > now));
    let own = own_fingerprints(findings, area, settings);
    for key in &settings.keys {
        let origin = &key.text.origin;
        describe(findings, area, key, now, lasting);
        if own.iter().any(|own| *own == key.key.fingerprint()) {
            findings.fault(
                area,
                format!("`{origin}` is the app's own public key (应用公钥): Alipay does not sign with it"),
                "open platform → the app → 接口加签方式 → 查看: copy the Alipay public key (支付宝公钥), shown beside it",
            );
        } else if key.key.fingerprint() == ALIPAY_MAPI {
            findings.fault(
                area,
                format!(
                    "`{origin}` is the key of Alipay's old partner gateway (mapi), which open platform apps do not use"
                ),
                "open platform → the app → 接口加签方式: copy the Alipay public key (支付宝公钥) of this app",
            );
        } else if let Some(names) = Names::of(&key.text) {
            alipay_certificate(findings, area, origin, &names, settings);
        }
    }
    if settings.algorithm == Algorithm::Rsa {
        findings.warning(
            area,
            "sign_type is RSA (SHA-1), which Alipay keeps for old apps only",
            "set the app to RSA2 in the open platform, with a new key, and write sign_type = \"RSA2\"",
        );
    }
}

fn alipay_certificate(findings: &mut Findings, area: &str, origin: &str, names: &Names, settings: &AlipaySettings) {
    if settings.app_ids.iter().any(|app_id| names.subject.contains(app_id.as_str())) {
        findings.fault(
            area,
            format!("`{origin}` is the app's own certificate (appCertPublicKey): Alipay does not sign with it"),
            "name the file alipayCertPublicKey_RSA2.crt, downloaded at the same place",
        );
    } else if names.subject == names.issuer {
        findings.fault(
            area,
            format!("`{origin}` is a root certificate (alipayRootCert): Alipay does not sign with it"),
            "name the file alipayCertPublicKey_RSA2.crt, downloaded at the same place",
        );
    }
}

/// The fingerprints of the app's own keys, where they are given.
fn own_fingerprints(findings: &mut Findings, area: &str, settings: &AlipaySettings) -> Vec<String> {
    let mut own: Vec<String> = settings.own.iter().map(|key| key.key.fingerprint()).collect();
    if let Some(private) = &settings.own_private {
        match public_of(private) {
            Some(key) => {
                if settings.own.iter().any(|own| own.key.fingerprint() != key.fingerprint()) {
                    findings.warning(
                        area,
                        "app_public_key and app_private_key do not belong together",
                        "upload the public half of this private key to the open platform, or correct one of the two",
                    );
                }
                findings.ok(
                    area,
                    format!(
                        "app private key: RSA {} bits, public half sha256:{}…",
                        key.bits(),
                        &key.fingerprint()[..16]
                    ),
                );
                own.push(key.fingerprint());
            }
            None => findings.fault(
                area,
                format!("`{}` is no RSA private key of at least 2048 bits", private.origin),
                "name the app's private key (应用私钥), PKCS#8 or PKCS#1, with or without BEGIN and END lines",
            ),
        }
    }
    own
}

/// The public half of a private key in any of the forms that the consoles hand out.
fn public_of(private: &Secret) -> Option<PublicKey> {
    let body: String = private.expose().lines().filter(|line| !line.starts_with("-----")).collect();
    let body: zeroize::Zeroizing<String> = body.chars().filter(|char| !char.is_whitespace()).collect::<String>().into();
    let der = zeroize::Zeroizing::new(STANDARD.decode(body.as_bytes()).ok()?);
    let pair = KeyPair::from_pkcs8(&der).or_else(|_| KeyPair::from_der(&der)).ok()?;
    let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().ok()?;
    PublicKey::read(&STANDARD.encode(spki.as_ref())).ok()
}

/// One line for a key, and what is to be said about its end.
fn describe(findings: &mut Findings, area: &str, key: &NamedKey, now: Micros, another_lasts: bool) {
    let name = match (&key.id, key.key.certificate_serial()) {
        (Some(id), _) => format!("{id}: "),
        (None, Some(serial)) => format!("certificate {serial}: "),
        (None, None) => String::new(),
    };
    let end = key.key.not_after();
    let until = end.map(|end| format!(", until {}", day(end))).unwrap_or_default();
    let fingerprint = &key.key.fingerprint()[..16];
    let text = format!("{name}RSA {} bits, {}, sha256:{fingerprint}…{until}", key.key.bits(), key.key.form());
    match end {
        Some(end) if end <= now => {
            let what = format!("{text}: it has run out");
            let todo = "download the present one; remove this one when no late messages signed with it can come";
            if another_lasts { findings.warning(area, what, todo) } else { findings.fault(area, what, todo) }
        }
        Some(end) if days_until(end, now) < SOON_DAYS => {
            let what = format!("{text}: it runs out in {} days", days_until(end, now));
            findings.warning(area, what, "download the next one and name both files, so that there is no gap");
        }
        _ => findings.ok(area, text),
    }
}

fn days_until(end: Micros, now: Micros) -> i64 {
    (end.0 - now.0) / 86_400_000_000
}

fn day(at: Micros) -> String {
    at.to_string().chars().take(10).collect()
}

/// Who a certificate speaks of, as text.
struct Names {
    subject: String,
    issuer: String,
}

impl Names {
    fn of(text: &Secret) -> Option<Self> {
        let pem = Pem::iter_from_buffer(text.expose().as_bytes()).next()?.ok()?;
        let certificate: X509Certificate<'_> = pem.parse_x509().ok()?;
        Some(Self { subject: certificate.subject().to_string(), issuer: certificate.issuer().to_string() })
    }
}

fn shared_between_platforms(findings: &mut Findings, accounts: &[Account]) {
    let mut seen: BTreeMap<String, &Account> = BTreeMap::new();
    for account in accounts {
        let keys = match &account.settings {
            ChannelSettings::Wechat(settings) => &settings.keys,
            ChannelSettings::Alipay(settings) => &settings.keys,
        };
        for key in keys {
            let first = *seen.entry(key.key.fingerprint()).or_insert(account);
            if first.channel_word() != account.channel_word() {
                findings.fault(
                    &format!("account {}", account.name),
                    format!(
                        "`{}` is also the key of account {}, which is of another platform",
                        key.text.origin, first.name
                    ),
                    "one of the two is in the wrong place; copy it again",
                );
            }
        }
    }
}

/// Every secret of the configuration.
fn secrets(config: &Config) -> Vec<&Secret> {
    let mut secrets: Vec<&Secret> = config.server.admin_token.iter().collect();
    // A URL without password says nothing that others may not know.
    let has_password = |url: &&Secret| reqwest::Url::parse(url.expose()).is_ok_and(|url| url.password().is_some());
    secrets.extend(config.database.place.url().filter(has_password));
    for account in &config.accounts {
        match &account.settings {
            ChannelSettings::Wechat(settings) => secrets.extend(&settings.api_v3_keys),
            ChannelSettings::Alipay(settings) => secrets.extend(&settings.own_private),
        }
    }
    for sink in &config.sinks {
        if let SinkSettings::Http(http) = &sink.settings {
            secrets.extend(&http.secrets);
        }
    }
    secrets
}

fn readable_by_others(findings: &mut Findings, config: &Config) {
    const AREA: &str = "secrets";
    let secrets = secrets(config);
    let mut open = Vec::new();
    for path in secrets.iter().filter_map(|secret| secret.file.as_deref()) {
        if let Some(mode) = open_mode(path) {
            open.push((path, mode, "this file holds a secret"));
        }
    }
    // From the environment a secret has no file, and is not in the configuration either.
    let inline = secrets.iter().any(|secret| secret.file.is_none() && !secret.origin.starts_with("PAYONCE__"));
    if inline && let Some(mode) = open_mode(&config.file) {
        open.push((&config.file, mode, "it holds secrets itself; files of their own are the better place"));
    }
    open.sort();
    open.dedup();
    for (path, mode, why) in &open {
        let what = format!("{} can be read by others (mode {mode:o}): {why}", path.display());
        findings.warning(AREA, what, format!("chmod 600 {}", path.display()));
    }
    if open.is_empty() && !secrets.is_empty() {
        findings.ok(AREA, format!("{} of them, readable by nobody else", secrets.len()));
    }
}

/// The file's mode if others may read it.
#[cfg(unix)]
fn open_mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o044 != 0).then_some(mode)
}

/// Access lists of other systems are not read.
#[cfg(not(unix))]
fn open_mode(_: &Path) -> Option<u32> {
    None
}
