//! Interop: software that is not ours makes messages that ours believes, and believes ours.
//!
//! Here: which peer says what to whom, and that one changed byte is refused in every direction. A refusal
//! counts only beside the same message accepted. The peers are npm `wechatpay-axios-plugin`, `alipay-sdk`,
//! `standardwebhooks` and PyPI `wechatpayv3`, `alipay-sdk-python`, `standardwebhooks`; how each is asked
//! stands in `peers/`. Not here: the corners of each format (`it/`).
//!
//! They are installed by `cargo xtask peers`. A peer that is missing is a failure and never a skip.

#![allow(clippy::unwrap_used, reason = "tests, all of it")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::{
    channel::{Answer, Belief, Callback, Channel, Headers, Reason, Rejection},
    ids::AccountName,
    notice::{Fact, Notice},
    time::Micros,
};
use payonce_channels::{alipay, keys::PublicKey, wechat};
use payonce_sim::{
    Request, Response,
    alipay::{Alipay, Charset},
    keys::RsaKey,
    receiver,
    wechat::{Disorder, Mode, Wechat},
};
use serde_json::{Value, json};

const NOW: i64 = 1_767_294_247;
const MCHID: &str = "1900000001";
const API_V3_KEY: &str = "PayonceTestApiV3Key0123456789ABC";
const APP_ID: &str = "2021000000000001";
const SELLER_ID: &str = "2088000000000002";
const QUERY_NODE: &str = "alipay_trade_query_response";
const SUBJECT: &str = "测试+订单 50%";

/// As in the documentation: a payment of 1.00 yuan, of which the buyer paid 0.90.
const WECHAT_PAYMENT: &str = r#"{"appid":"wx00000000000000aa","mchid":"1900000001","out_trade_no":"PO20260102030405","transaction_id":"4200000000202601020000000001","trade_type":"JSAPI","trade_state":"SUCCESS","trade_state_desc":"支付成功","bank_type":"OTHERS","success_time":"2026-01-02T03:04:06+08:00","payer":{"openid":"oPayonceTestOpenId0000000001"},"amount":{"total":100,"payer_total":90,"currency":"CNY","payer_currency":"CNY"}}"#;

const ALIPAY_TRADE: &str = r#"{"code":"10000","msg":"Success","buyer_logon_id":"abc***@sandbox.com","out_trade_no":"PO_1","subject":"测试a}\"b{","store":"http:\/\/x","total_amount":"12.30","send_pay_date":"2026-01-02 03:04:05","trade_no":"2026010222001400000000000001","trade_status":"TRADE_SUCCESS"}"#;

/// One key for what a peer signs, one that signs nothing; making keys is slow.
static KEYS: LazyLock<Vec<RsaKey>> = LazyLock::new(|| RsaKey::generate_many(2));
static WECHAT: LazyLock<Wechat> = LazyLock::new(|| Wechat { api_v3_key: API_V3_KEY.into(), ..Wechat::new(MCHID) });
static ALIPAY: LazyLock<Alipay> = LazyLock::new(|| Alipay::new(APP_ID, SELLER_ID));

// ---- asking a peer

fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let folder = std::env::var_os("PAYONCE_PEERS").map_or_else(default, PathBuf::from);
    let folder = folder.canonicalize().unwrap_or(folder);
    assert!(
        folder.join("node_modules").is_dir() && folder.join("venv").is_dir(),
        "the interop peers are not in {}: install them with `cargo xtask peers` (needs Node.js, npm, Python 3 with venv)",
        folder.display()
    );
    folder
}

/// Gives a script of `peers/` a request and gets its answer.
fn ask(script: &str, request: &Value) -> Value {
    let folder = folder();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
    let mut command = if script.ends_with(".mjs") {
        Command::new("node")
    } else {
        // Isolated: the folder of the script is no place for modules, or `alipay.py` would hide the package.
        let mut python = Command::new(folder.join("venv/bin/python"));
        python.arg("-I");
        python
    };
    let mut child = command
        .arg(path)
        .env("PAYONCE_PEERS", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{script}: {error}; `cargo xtask peers` says what the machine needs"));
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{script}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{script}: {error}: {output:?}"))
}

/// The request with more members.
fn with(mut request: Value, more: Value) -> Value {
    let (Value::Object(all), Value::Object(more)) = (&mut request, more) else { panic!("not objects") };
    all.extend(more);
    request
}

fn accepts(script: &str, request: &Value) -> bool {
    ask(script, request)["accepted"].as_bool().expect("a peer says whether it accepts")
}

/// The peer accepts the message, and refuses it with one byte changed.
fn accepts_only_unchanged(script: &str, request: &Value, body: &[u8], old: &str, new: &str) -> Value {
    let given = |body: &[u8]| with(request.clone(), json!({ "body": STANDARD.encode(body) }));
    let answer = ask(script, &given(body));
    assert_eq!(answer["accepted"], true, "{script} refuses what is right: {answer}");
    assert!(!accepts(script, &given(&changed(body, old, new))), "{script} accepts a changed byte");
    answer
}

// ---- messages of either side

/// `old` and `new` have one byte between them that differs.
fn changed(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.bytes().zip(new.bytes()).filter(|(a, b)| a != b).count(), 1, "{old} and {new}");
    assert_eq!(old.len(), new.len());
    let at = bytes.windows(old.len()).position(|window| window == old.as_bytes());
    let at = at.unwrap_or_else(|| panic!("{old} is not in {}", String::from_utf8_lossy(bytes)));
    [&bytes[..at], new.as_bytes(), &bytes[at + old.len()..]].concat()
}

fn bytes_of(answer: &Value) -> Vec<u8> {
    STANDARD.decode(answer["body"].as_str().expect("a body")).expect("base64")
}

fn headers_of(answer: &Value) -> Headers {
    let lines = answer["headers"].as_array().expect("headers");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    lines.iter().map(|line| (text(&line[0]), text(&line[1]).into_bytes())).collect()
}

fn from_sim(headers: &[(String, String)]) -> Headers {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Ours believes the body, and refuses it with one byte changed, before anything in it is read.
fn believes_only_unchanged(
    believe: impl Fn(Vec<u8>) -> Result<Belief, Rejection>,
    body: Vec<u8>,
    old: &str,
    new: &str,
) -> Notice {
    let refused = believe(changed(&body, old, new)).expect_err("a changed byte");
    assert_eq!(refused.reason, Reason::Signature, "{refused}");
    let belief = believe(body).expect("believed");
    assert_eq!(belief.notices.len(), 1, "{belief:?}");
    belief.notices.into_iter().next().unwrap()
}

fn is_payment(notice: &Notice, out_trade_no: &str, trade_no: &str, minor: i64) {
    assert_eq!(notice.fact, Fact::Payment);
    assert_eq!(notice.out_trade_no.as_str(), out_trade_no);
    assert_eq!(notice.trade_no.as_ref().map(|number| number.as_str()), Some(trade_no));
    assert_eq!(notice.money.map(|money| money.amount), Some(minor));
}

fn our_wechat(keys: Vec<(Option<String>, PublicKey)>) -> wechat::Wechat {
    wechat::Wechat::new(wechat::Config {
        account: AccountName::new("wx-main").unwrap(),
        mchid: MCHID.into(),
        partner: false,
        app_ids: Vec::new(),
        api_v3_keys: vec![API_V3_KEY.into()],
        keys,
        window: wechat::WINDOW,
    })
    .unwrap()
}

fn our_alipay(key: &RsaKey) -> alipay::Alipay {
    alipay::Alipay::new(alipay::Config {
        account: AccountName::new("ali-main").unwrap(),
        app_ids: vec![APP_ID.into()],
        seller_id: SELLER_ID.into(),
        keys: vec![PublicKey::read(&key.public_base64()).unwrap()],
        algorithm: alipay::Algorithm::Rsa2,
    })
    .unwrap()
}

fn callback(channel: &dyn Channel, headers: &Headers, body: Vec<u8>) -> Result<Belief, Rejection> {
    channel.believe(&Callback { headers: headers.clone(), body }, Micros::from_seconds(NOW + 2))
}

fn answer(channel: &dyn Channel, headers: &Headers, body: Vec<u8>) -> Result<Belief, Rejection> {
    channel.believe_answer(&Answer { status: 200, headers: headers.clone(), body }, Micros::from_seconds(NOW + 2))
}

/// A certificate of `key`, as PEM, with its serial as `Wechatpay-Serial` writes it.
fn certificate(key: &RsaKey) -> (String, String) {
    let pem = key.private_pkcs8_pem();
    let pair = rcgen::KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &rcgen::PKCS_RSA_SHA256).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let serial: Vec<u8> = (0x50..0x64).collect();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&serial));
    let hex = serial.iter().map(|byte| format!("{byte:02X}")).collect();
    (params.self_signed(&pair).unwrap().pem(), hex)
}

// ---- WeChat Pay: theirs to ours

/// `wechatpay-axios-plugin` encrypts and signs a payment under this serial.
fn axios_payment(serial: &str, associated_data: &str) -> Value {
    ask(
        "wechat.mjs",
        &json!({
            "action": "callback", "private_key": KEYS[0].private_pkcs8_pem(), "serial": serial,
            "timestamp": NOW.to_string(), "api_v3_key": API_V3_KEY, "associated_data": associated_data,
            "event_type": "TRANSACTION.SUCCESS", "original_type": "transaction", "plaintext": WECHAT_PAYMENT,
        }),
    )
}

#[test]
fn wechat_callback_of_axios_plugin_in_public_key_mode() {
    let message = axios_payment("PUB_KEY_ID_0119000000012026010200000001", "transaction");
    let key = PublicKey::read(&KEYS[0].public_pem()).unwrap();
    let channel = our_wechat(vec![(Some("PUB_KEY_ID_0119000000012026010200000001".into()), key)]);
    let believe = |body| callback(&channel, &headers_of(&message), body);
    let notice = believes_only_unchanged(believe, bytes_of(&message), "TRANSACTION.S", "TRANSACTION.T");
    is_payment(&notice, "PO20260102030405", "4200000000202601020000000001", 100);
}

#[test]
fn wechat_callback_of_axios_plugin_in_certificate_mode() {
    let (pem, serial) = certificate(&KEYS[0]);
    let message = axios_payment(&serial, "");
    let channel = our_wechat(vec![(None, PublicKey::read(&pem).unwrap())]);
    let believe = |body| callback(&channel, &headers_of(&message), body);
    let notice = believes_only_unchanged(believe, bytes_of(&message), "\"nonce\"", "\"nonc3\"");
    is_payment(&notice, "PO20260102030405", "4200000000202601020000000001", 100);

    let other = our_wechat(vec![(Some(serial), PublicKey::read(&KEYS[1].public_pem()).unwrap())]);
    let refused = callback(&other, &headers_of(&message), bytes_of(&message)).unwrap_err();
    assert_eq!(refused.reason, Reason::Signature, "another key under the same serial");
}

#[test]
fn wechat_answers_of_both_peers() {
    let key = PublicKey::read(&KEYS[0].public_pem()).unwrap();
    let channel = our_wechat(vec![(Some("PUB_KEY_ID_01".into()), key)]);
    for script in ["wechat.mjs", "wechat.py"] {
        let message = ask(
            script,
            &json!({
                "action": "answer", "mchid": MCHID, "merchant_serial": "0A", "serial": "PUB_KEY_ID_01",
                "private_key": KEYS[0].private_pkcs8_pem(), "public_key": KEYS[0].public_pem(),
                "api_v3_key": API_V3_KEY, "timestamp": NOW.to_string(), "body": STANDARD.encode(WECHAT_PAYMENT),
            }),
        );
        let believe = |body| answer(&channel, &headers_of(&message), body);
        let notice = believes_only_unchanged(believe, bytes_of(&message), "\"total\":100", "\"total\":900");
        is_payment(&notice, "PO20260102030405", "4200000000202601020000000001", 100);
    }
}

// ---- WeChat Pay: the simulator's to theirs, and to ours

fn sim_payment(mode: Mode) -> Request {
    let sim = &*WECHAT;
    let disorder = Disorder { mode: Some(mode), ..Disorder::default() };
    sim.notify_payment(&sim.payment("PO_1", "4200000000202601020000000001", 100)).send(NOW, disorder)
}

#[test]
fn wechat_callback_of_the_simulator_at_axios_plugin() {
    for mode in [Mode::PublicKey, Mode::Certificate] {
        let sent = sim_payment(mode);
        let key = WECHAT.signer(mode).1.public_pem();
        let request = json!({
            "action": "check", "public_key": key, "api_v3_key": API_V3_KEY, "headers": sent.headers,
        });
        let have = accepts_only_unchanged("wechat.mjs", &request, &sent.body, "TRANSACTION.S", "TRANSACTION.T");
        let plain: Value = serde_json::from_str(have["plaintext"].as_str().unwrap()).unwrap();
        assert_eq!((&plain["out_trade_no"], &plain["amount"]["total"]), (&json!("PO_1"), &json!(100)));
    }
}

/// In certificate mode the peer wants a folder of certificates, or it asks the platform.
#[test]
fn wechat_callback_of_the_simulator_at_wechatpayv3() {
    let merchant = json!({
        "action": "callback", "mchid": MCHID, "merchant_serial": WECHAT.merchant_serial,
        "private_key": WECHAT.merchant_key.private_pkcs8_pem(), "api_v3_key": API_V3_KEY,
    });
    let sent = sim_payment(Mode::PublicKey);
    let keys =
        json!({ "public_key": WECHAT.public_key.public_pem(), "serial": WECHAT.pub_key_id, "headers": sent.headers });
    let request = with(merchant.clone(), keys);
    let have = accepts_only_unchanged("wechat.py", &request, &sent.body, "TRANSACTION.S", "TRANSACTION.T");
    assert_eq!(
        (&have["resource"]["out_trade_no"], &have["resource"]["amount"]["total"]),
        (&json!("PO_1"), &json!(100))
    );

    let (pem, serial) = certificate(&WECHAT.certificate_key);
    let certificates = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wechatpay-certificates");
    std::fs::create_dir_all(&certificates).unwrap();
    std::fs::write(certificates.join(format!("{serial}.pem")), pem).unwrap();
    let mut sent = sim_payment(Mode::Certificate);
    sent.set_header("Wechatpay-Serial", serial);
    let request = with(merchant, json!({ "certificates": certificates, "headers": sent.headers }));
    accepts_only_unchanged("wechat.py", &request, &sent.body, "TRANSACTION.S", "TRANSACTION.T");
}

#[test]
fn wechat_answer_of_the_simulator_at_both_peers_and_ours() {
    let sim = &*WECHAT;
    let Response { headers, body, .. } = sim.answer(&sim.payment("PO_1", "4200000000202601020000000001", 100), NOW);
    for script in ["wechat.mjs", "wechat.py"] {
        let request = json!({ "action": "check", "public_key": sim.public_key.public_pem(), "headers": headers });
        accepts_only_unchanged(script, &request, &body, "\"total\":100", "\"total\":900");
    }
    let key = PublicKey::read(&sim.public_key.public_pem()).unwrap();
    let channel = our_wechat(vec![(Some(sim.pub_key_id.clone()), key)]);
    let believe = |body| answer(&channel, &from_sim(&headers), body);
    let notice = believes_only_unchanged(believe, body, "\"total\":100", "\"total\":900");
    is_payment(&notice, "PO_1", "4200000000202601020000000001", 100);
}

// ---- Alipay: theirs to ours

#[test]
fn alipay_notification_of_the_python_sdk_in_both_charsets() {
    let channel = our_alipay(&KEYS[0]);
    for charset in ["utf-8", "gbk"] {
        let fields = json!([
            ["notify_time", "2026-01-02 03:04:06"],
            ["notify_type", "trade_status_sync"],
            ["notify_id", "2026010201222030405000000000000001"],
            ["app_id", APP_ID],
            ["charset", charset],
            ["version", "1.0"],
            ["sign_type", "RSA2"],
            ["trade_no", "2026010222001400000000000001"],
            ["out_trade_no", "PO_1"],
            ["seller_id", SELLER_ID],
            ["trade_status", "TRADE_SUCCESS"],
            ["total_amount", "12.30"],
            ["subject", SUBJECT],
            ["gmt_create", "2026-01-02 03:04:00"],
            ["gmt_payment", "2026-01-02 03:04:05"],
            ["passback_params", "k%3Dv%26n%3D1"],
            ["fund_bill_list", r#"[{"amount":"12.30","fundChannel":"ALIPAYACCOUNT"}]"#],
        ]);
        let key = KEYS[0].private_pkcs8_pem();
        let request = json!({ "action": "notification", "charset": charset, "private_key": key, "fields": fields });
        let body = bytes_of(&ask("alipay.py", &request));
        let believe = |body| callback(&channel, &Headers::default(), body);
        let notice = believes_only_unchanged(believe, body, "total_amount=12.30", "total_amount=72.30");
        is_payment(&notice, "PO_1", "2026010222001400000000000001", 1230);
        assert_eq!(notice.channel_data["subject"], SUBJECT, "{charset}");
    }
}

#[test]
fn alipay_answer_of_the_python_sdk_in_both_charsets() {
    let channel = our_alipay(&KEYS[0]);
    for charset in ["utf-8", "gbk"] {
        let key = KEYS[0].private_pkcs8_pem();
        let request = json!({
            "action": "answer", "charset": charset, "private_key": key, "node": QUERY_NODE, "text": ALIPAY_TRADE,
        });
        let body = bytes_of(&ask("alipay.py", &request));
        let believe = |body| answer(&channel, &Headers::default(), body);
        let notice = believes_only_unchanged(believe, body, "\"12.30\"", "\"92.30\"");
        is_payment(&notice, "PO_1", "2026010222001400000000000001", 1230);
        assert_eq!(notice.channel_data["subject"], "测试a}\"b{", "{charset}");
    }
}

// ---- Alipay: the simulator's to theirs, and to ours

fn sim_notification(charset: Charset) -> Request {
    let mut event = ALIPAY.notify(ALIPAY.payment("PO_1", "2026010222001400000000000001", "12.30"));
    event.charset = charset;
    event.send(NOW)
}

#[test]
fn alipay_notification_of_the_simulator_at_the_node_sdk() {
    let sent = sim_notification(Charset::Utf8);
    let request = json!({
        "action": "notification", "public_key": ALIPAY.key.public_base64(),
        "private_key": ALIPAY.app_key.private_pkcs8_base64(),
    });
    let have = accepts_only_unchanged("alipay.mjs", &request, &sent.body, "total_amount=12.30", "total_amount=72.30");
    assert_eq!(have["subject"], SUBJECT);
}

#[test]
fn alipay_notification_of_the_simulator_at_the_python_sdk() {
    for (charset, name) in [(Charset::Utf8, "utf-8"), (Charset::Gbk, "gbk")] {
        let sent = sim_notification(charset);
        let request = json!({ "action": "check", "charset": name, "public_key": ALIPAY.key.public_base64() });
        let have =
            accepts_only_unchanged("alipay.py", &request, &sent.body, "total_amount=12.30", "total_amount=72.30");
        assert_eq!(have["subject"], SUBJECT, "{name}");
    }
}

#[test]
fn alipay_answer_of_the_simulator_at_the_node_sdk_and_ours() {
    let Response { headers, body, .. } = ALIPAY.answer_raw("alipay.trade.query", ALIPAY_TRADE);
    let request = json!({
        "action": "answer", "public_key": ALIPAY.key.public_base64(), "node": QUERY_NODE,
        "private_key": ALIPAY.app_key.private_pkcs8_base64(),
    });
    accepts_only_unchanged("alipay.mjs", &request, &body, "\"12.30\"", "\"92.30\"");
    let channel = our_alipay(&ALIPAY.key);
    let believe = |body| answer(&channel, &from_sim(&headers), body);
    let notice = believes_only_unchanged(believe, body, "\"12.30\"", "\"92.30\"");
    is_payment(&notice, "PO_1", "2026010222001400000000000001", 1230);
}

// ---- Standard Webhooks: what effects are delivered with, as the simulator's receiver reads it

/// Deliveries carry the present, and the peers refuse what is older than five minutes.
#[test]
fn webhook_signatures_agree_with_both_peers() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let secret = receiver::secret_bytes(SECRET).unwrap();
    let (id, timestamp, body) =
        ("default:PO_1:order-paid:ship", payonce_sim::text::now_unix().to_string(), r#"{"a":1}"#);
    let ours = receiver::signature(&secret, id, &timestamp, body.as_bytes());
    for script in ["webhooks.mjs", "webhooks.py"] {
        let message = json!({ "secret": SECRET, "id": id, "timestamp": timestamp, "body": body });
        let theirs = ask(script, &with(message.clone(), json!({ "action": "sign" })));
        assert_eq!(theirs["signature"], ours);
        let check = with(message, json!({ "action": "check", "signature": format!("v1,bm9uZQ== {ours}") }));
        assert!(accepts(script, &check), "{script}: one of two signatures is right");
        assert!(!accepts(script, &with(check, json!({ "body": r#"{"a":2}"# }))), "{script}: a changed byte");
    }
}
