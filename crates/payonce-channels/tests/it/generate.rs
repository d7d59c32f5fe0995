//! Writes the `made-*` files of `testdata/`, signed with a fresh key that is then forgotten.
//!
//! `UPDATE_MADE=1 cargo test -p payonce-channels generate`, then update the expectations as `fixtures` says.
//! In a plain run this only checks that the list and the folder agree.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    fixtures::folder,
    support::{self, Signer, envelope, headers_at, params, payment_params, text_to_sign, with},
};

/// Name, event type, original type, plaintext. `answer-` in a name: the plaintext is the body of a query answer.
const WECHAT: &[(&str, &str, &str, &str)] = &[
    (
        "made-payment-minimal",
        "TRANSACTION.SUCCESS",
        "transaction",
        r#"{"mchid":"1900000001","appid":"wx00000000000000aa","out_trade_no":"PO_MIN_1","transaction_id":"4200000000202601020000000003","trade_state":"SUCCESS","amount":{"total":1}}"#,
    ),
    (
        "made-payment-emoji",
        "TRANSACTION.SUCCESS",
        "transaction",
        r#"{"mchid":"1900000001","appid":"wx00000000000000aa","out_trade_no":"PO_EMO_1","transaction_id":"4200000000202601020000000004","trade_state":"SUCCESS","attach":"🎁𠮷 \ud83c","success_time":"2026-01-02T03:04:06.120+08:00","amount":{"total":100,"currency":"CNY"},"payer":{"openid":"oNobody"}}"#,
    ),
    (
        "made-partner-payment",
        "TRANSACTION.SUCCESS",
        "transaction",
        r#"{"sp_appid":"wx00000000000000bb","sp_mchid":"1900000100","sub_mchid":"1900000101","out_trade_no":"PO_SP_1","transaction_id":"4200000000202601020000000005","trade_type":"NATIVE","trade_state":"SUCCESS","bank_type":"ICBC_DEBIT","success_time":"2026-01-02T03:04:06+08:00","payer":{"sp_openid":"oNobody"},"amount":{"total":999,"payer_total":999,"currency":"CNY","payer_currency":"CNY"}}"#,
    ),
    (
        "made-refund-success",
        "REFUND.SUCCESS",
        "refund",
        r#"{"mchid":"1900000001","out_trade_no":"PO_RF_1","transaction_id":"4200000000202601020000000006","out_refund_no":"RF_1","refund_id":"50300000002026010200000000002","refund_status":"SUCCESS","success_time":"2026-01-02T03:04:06+08:00","user_received_account":"支付用户零钱","amount":{"total":100,"refund":40,"payer_total":100,"payer_refund":40}}"#,
    ),
    (
        "made-refund-closed",
        "REFUND.CLOSED",
        "refund",
        r#"{"mchid":"1900000001","out_trade_no":"PO_RF_1","transaction_id":"4200000000202601020000000006","out_refund_no":"RF_2","refund_id":"50300000002026010200000000003","refund_status":"CLOSED","amount":{"total":100,"refund":40,"payer_total":100,"payer_refund":40}}"#,
    ),
    (
        "made-partner-refund-abnormal",
        "REFUND.ABNORMAL",
        "refund",
        r#"{"sp_mchid":"1900000100","sub_mchid":"1900000101","transaction_id":"4200000000202601020000000002","out_trade_no":"PO20260102030406","refund_id":"50300000002026010200000000001","out_refund_no":"RF20260102030406","refund_status":"ABNORMAL","user_received_account":"支付用户零钱","amount":{"total":999,"refund":500,"payer_total":999,"payer_refund":500}}"#,
    ),
    (
        "made-combined",
        "TRANSACTION.SUCCESS",
        "transaction",
        r#"{"combine_appid":"wx00000000000000aa","combine_mchid":"1900000001","combine_out_trade_no":"CO_1","sub_orders":[{"mchid":"1900000001","out_trade_no":"CO_1_A","transaction_id":"4200000000202601020000000007","trade_state":"SUCCESS","success_time":"2026-01-02T03:04:05.120+08:00","amount":{"total_amount":10,"payer_amount":9,"currency":"CNY"}},{"mchid":"1900000009","out_trade_no":"CO_1_B","transaction_id":"4200000000202601020000000008","trade_state":"SUCCESS","amount":{"total_amount":20,"payer_amount":20,"currency":"CNY"}}]}"#,
    ),
    (
        // F020: a profit-sharing receipt under the event type of a payment.
        "made-profit-sharing",
        "TRANSACTION.SUCCESS",
        "profitsharing",
        r#"{"mchid":"1900000001","transaction_id":"4200000000202601020000000003","order_id":"1217752501201407033233368018","out_order_no":"P20150806125346","receiver":{"type":"MERCHANT_ID","account":"1900000001","amount":888,"description":"分账"},"success_time":"2026-01-02T03:04:06+08:00"}"#,
    ),
    (
        "made-withdrawal",
        "MCHWITHDRAW.CHANGE",
        "mch_withdraw",
        r#"{"sp_mchid":"1900000001","withdraw_id":"1","out_request_no":"W1","status":"SUCCESS","amount":100}"#,
    ),
    (
        "made-answer-paid",
        "",
        "",
        r#"{"appid":"wx00000000000000aa","mchid":"1900000001","out_trade_no":"PO20260102030405","transaction_id":"4200000000202601020000000001","trade_type":"JSAPI","trade_state":"SUCCESS","trade_state_desc":"支付成功","bank_type":"OTHERS","success_time":"2026-01-02T03:04:06+08:00","payer":{"openid":"oNobody"},"amount":{"total":100,"payer_total":90,"currency":"CNY","payer_currency":"CNY"}}"#,
    ),
    (
        "made-answer-not-paid",
        "",
        "",
        r#"{"appid":"wx00000000000000aa","mchid":"1900000001","out_trade_no":"PO20260102030405","trade_state":"NOTPAY","trade_state_desc":"订单未支付","amount":{"total":100,"currency":"CNY"}}"#,
    ),
];

type Changes = &'static [(&'static str, Option<&'static str>)];

/// Name and what differs from a plain payment.
const ALIPAY: &[(&str, Changes)] = &[
    ("made-finished", &[("trade_status", Some("TRADE_FINISHED"))]),
    ("made-waiting", &[("trade_status", Some("WAIT_BUYER_PAY")), ("gmt_payment", None)]),
    (
        "made-refund-partial",
        &[("refund_fee", Some("5.00")), ("gmt_refund", Some("2026-01-02 03:10:00.123")), ("out_biz_no", Some("RF_1"))],
    ),
    (
        "made-refund-full",
        &[
            ("trade_status", Some("TRADE_CLOSED")),
            ("refund_fee", Some("12.30")),
            ("gmt_refund", Some("2026-01-02 03:10:00.123")),
            ("gmt_close", Some("2026-01-02 03:10:00")),
            ("out_biz_no", Some("PO_1")),
        ],
    ),
    (
        "made-closed-unpaid",
        &[("trade_status", Some("TRADE_CLOSED")), ("gmt_payment", None), ("gmt_close", Some("2026-01-02 03:30:00"))],
    ),
];

fn wechat_file(signer: &Signer, event: &str, original: &str, plaintext: &str) -> Vec<u8> {
    let answer = event.is_empty();
    let body = if answer { plaintext.to_owned() } else { envelope(event, original, plaintext) };
    let headers = headers_at(signer, support::SERIAL, &support::NOW.to_string(), body.as_bytes());
    let mut file = if answer { "HTTP/1.1 200 OK\n" } else { "POST /notify/wx HTTP/1.1\n" }.to_owned();
    for (name, value) in headers.iter() {
        file.push_str(&format!("{name}: {}\n", std::str::from_utf8(value).unwrap()));
    }
    format!("{file}\n{body}").into_bytes()
}

fn alipay_file(signer: &Signer, changes: Changes) -> Vec<u8> {
    let mut all = with(&payment_params(), changes);
    all.append(&mut params(&[("sign", &signer.sign(&text_to_sign(&all, &["sign_type"])))]));
    let head = b"POST /notify/ali HTTP/1.1\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\n\n";
    [&head[..], &support::encode(&all)].concat()
}

fn write() {
    let signer = Signer::generate();
    fs::write(folder("wechat").join("made-public-key.pem"), support::pem("PUBLIC KEY", &signer.spki())).unwrap();
    for (name, event, original, plaintext) in WECHAT {
        let file = wechat_file(&signer, event, original, plaintext);
        fs::write(folder("wechat").join(name).with_extension("http"), file).unwrap();
    }
    let signer = Signer::generate();
    fs::write(folder("alipay").join("made-public-key.txt"), STANDARD.encode(signer.spki()) + "\n").unwrap();
    for (name, changes) in ALIPAY {
        fs::write(folder("alipay").join(name).with_extension("http"), alipay_file(&signer, changes)).unwrap();
    }
}

#[test]
fn every_made_file_is_in_the_list() {
    if std::env::var_os("UPDATE_MADE").is_some() {
        write();
    }
    let listed = |channel: &str| match channel {
        "wechat" => WECHAT.iter().map(|(name, ..)| (*name).to_owned()).collect::<Vec<_>>(),
        _ => ALIPAY.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    for channel in ["wechat", "alipay"] {
        let mut listed = listed(channel);
        let mut present: Vec<String> = fs::read_dir(folder(channel))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".http").map(str::to_owned))
            .filter(|name| name.starts_with("made-"))
            .collect();
        listed.sort();
        present.sort();
        assert_eq!(listed, present);
    }
}
