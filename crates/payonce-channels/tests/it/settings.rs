//! Settings that could never work are refused at start, with advice.

use std::time::Duration;

use payonce_channels::{
    alipay::{self, Algorithm},
    keys::PublicKey,
    wechat::{self, Wechat},
};

use crate::support::{API_V3_KEY, SERIAL, alipay_config, certificate, signer, wechat, wechat_config};

const LEGACY_RSA_1024: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDHikastc8+I81zCg/qWW8dMr8mqvXQ3qbPAmu0RjxoZVI47tvskYlFAXOf0sPrhO2nUuooJngnHV0639iTTEYG1vckNaW2R6U5QTdQ5Rq5u+uV3pMk7w7Vs4n3urQ6jnqt2rTXbC1DNa/PFeAZatbf7ffBBy0IGO0zc128IshYcwIDAQAB";

#[test]
fn wechat_settings() {
    let fails = |config: wechat::Config, setting: &str, advice: &str| {
        let error = Wechat::new(config).unwrap_err();
        assert_eq!(error.setting(), setting, "{error}");
        assert!(error.to_string().contains(advice), "{error}");
    };
    let base = wechat_config;
    fails(wechat::Config { mchid: String::new(), ..base() }, "mchid", "empty");
    fails(wechat::Config { mchid: "1900000001 ".to_owned(), ..base() }, "mchid", "blanks");
    fails(wechat::Config { api_v3_keys: Vec::new(), ..base() }, "api_v3_keys", "none");
    fails(wechat::Config { api_v3_keys: vec![API_V3_KEY[1..].to_owned()], ..base() }, "api_v3_keys", "31 bytes");
    fails(wechat::Config { api_v3_keys: vec![format!("{API_V3_KEY}\n")], ..base() }, "api_v3_keys", "33 bytes");
    fails(wechat::Config { keys: Vec::new(), ..base() }, "keys", "PUB_KEY_ID_");
    fails(wechat::Config { keys: vec![(None, signer(0).public())], ..base() }, "keys", "without its name");
    fails(wechat::Config { keys: vec![(Some("key one".to_owned()), signer(0).public())], ..base() }, "keys", "neither");
    let twice = vec![(Some("0A".to_owned()), signer(0).public()), (Some("a".to_owned()), signer(1).public())];
    fails(wechat::Config { keys: twice, ..base() }, "keys", "twice");
    let (_, pem, _) = certificate();
    let wrong = vec![(Some("1234".to_owned()), PublicKey::read(&pem).unwrap())];
    fails(wechat::Config { keys: wrong, ..base() }, "keys", "serial is D7CE59D1F522D701");
    fails(wechat::Config { window: Duration::ZERO, ..base() }, "window", "300");
}

#[test]
fn nothing_secret_is_printed() {
    let config = wechat_config();
    let printed = format!("{config:?} {:?}", wechat());
    assert!(!printed.contains(API_V3_KEY) && printed.contains(SERIAL), "{printed}");
}

#[test]
fn alipay_settings() {
    let fails = |config: alipay::Config, setting: &str, advice: &str| {
        let error = alipay::Alipay::new(config).unwrap_err();
        assert_eq!(error.setting(), setting, "{error}");
        assert!(error.to_string().contains(advice), "{error}");
    };
    fails(alipay::Config { app_ids: Vec::new(), ..alipay_config() }, "app_ids", "which are yours");
    fails(alipay::Config { seller_id: " 2088".to_owned(), ..alipay_config() }, "seller_id", "blanks");
    fails(alipay::Config { keys: Vec::new(), ..alipay_config() }, "keys", "支付宝公钥");
    let short = || vec![PublicKey::read(LEGACY_RSA_1024).unwrap()];
    fails(alipay::Config { keys: short(), ..alipay_config() }, "keys", "1024 bits");
    assert!(
        alipay::Alipay::new(alipay::Config { keys: short(), algorithm: Algorithm::Rsa, ..alipay_config() }).is_ok()
    );
    let twice = vec![signer(0).public(), signer(0).public()];
    fails(alipay::Config { keys: twice, ..alipay_config() }, "keys", "twice");
}
