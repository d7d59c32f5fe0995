//! `config.default.toml` is the manual: it states every key, and every default as it is.

use std::collections::BTreeSet;

use payonce_server::config::{self, Config, Faults, MANUAL};

use crate::support::{API_V3_KEY, Folder, WEBHOOK_SECRET, testdata};

/// The manual with its settings uncommented; `defaults`: those without a mark too.
fn uncommented(defaults: bool) -> String {
    let mut text = String::new();
    for line in MANUAL.lines() {
        let Some(setting) = line.strip_prefix('#').filter(|rest| rest.starts_with(|char: char| char != ' ')) else {
            continue;
        };
        let marked = ["(example)", "(required)"].iter().any(|mark| setting.contains(mark));
        if defaults || marked || setting.starts_with('[') {
            text.push_str(setting);
            text.push('\n');
        }
    }
    text
}

fn folder() -> Folder {
    let folder = Folder::with("");
    let app = payonce_sim::keys::RsaKey::generate();
    folder.private("secrets/wechat-api-v3-key", API_V3_KEY);
    folder.private("secrets/wechat-api-v3-key-before", "0123456789abcdef0123456789abcdef");
    folder.write("secrets/wechat-platform.pem", &testdata("platform.pem"));
    folder.write("secrets/wechat-public-key.pem", &testdata("wechat-public.pem"));
    folder.write("secrets/alipay-public-key", &testdata("alipay-public"));
    folder.write("secrets/alipayCertPublicKey_RSA2.crt", &testdata("alipay.pem"));
    folder.write("secrets/alipay-app-public-key", &app.public_base64());
    folder.private("secrets/alipay-app-private-key", &app.private_pkcs8_base64());
    folder.private("secrets/webhook-secret", WEBHOOK_SECRET);
    folder
}

fn read(folder: &Folder, text: &str) -> (Config, BTreeSet<String>) {
    let loaded = config::read(&folder.path("payonce.toml"), text.to_owned().into(), &[]);
    assert!(loaded.faults.is_empty(), "{}\n--- for\n{text}", Faults(loaded.faults));
    (loaded.config, loaded.known)
}

#[test]
fn every_stated_default_is_the_default() {
    let folder = folder();
    let (with, _) = read(&folder, &uncommented(true));
    let (without, _) = read(&folder, &uncommented(false));
    assert!(uncommented(true).lines().count() > uncommented(false).lines().count() + 20);
    assert_eq!(format!("{with:#?}"), format!("{without:#?}"));
}

#[test]
fn the_manual_names_every_key() {
    let folder = folder();
    let (_, known) = read(&folder, &uncommented(true));
    let stated: BTreeSet<&str> = MANUAL
        .split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let missing: Vec<&String> =
        known.iter().filter(|path| !stated.contains(path.rsplit('.').next().unwrap_or_default())).collect();
    assert!(missing.is_empty(), "the manual does not speak of {missing:?}");
    assert!(known.len() > 60, "{known:?}");
}

#[test]
fn the_manual_and_what_init_writes_are_valid_as_they_stand() {
    for text in [MANUAL, include_str!("../../src/cli/init.toml")] {
        let folder = Folder::with(text);
        let loaded = config::read(&folder.path("payonce.toml"), text.to_owned().into(), &[]);
        let found: Vec<&str> = loaded.faults.iter().map(|fault| fault.what.as_str()).collect();
        assert_eq!(found, ["no account is configured, so no callback could be believed"]);
    }
}
