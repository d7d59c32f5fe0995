//! Alipay: field cases by id, as far as a pure reader can settle them.

use payonce::{
    channel::{Answer, Bearing, Belief, Callback, Channel, Headers, Reason, Rejection},
    notice::{Fact, Source},
    time::Micros,
};
use payonce_channels::alipay::{Algorithm, Alipay, Config};

use crate::support::{
    APP_ID, Params, SELLER, alipay, alipay_config, encode, form, form_leaving_out, gateway_answer, now, params,
    payment_params, signer, with,
};

fn believe(callback: &Callback) -> Result<Belief, Rejection> {
    alipay().believe(callback, now())
}

fn reason(callback: &Callback) -> Reason {
    believe(callback).unwrap_err().reason
}

fn changed(changes: &[(&str, Option<&str>)]) -> Callback {
    form(&with(&payment_params(), changes))
}

fn facts(callback: &Callback) -> Vec<Fact> {
    believe(callback).unwrap().notices.into_iter().map(|notice| notice.fact).collect()
}

fn refund(number: &str, full: bool) -> Fact {
    Fact::Refund { refund_no: number.into(), full }
}

/// Replaces in the body as sent, after signing.
fn tampered(callback: &Callback, from: &str, to: &str) -> Callback {
    let body = String::from_utf8(callback.body.clone()).unwrap();
    assert!(body.contains(from), "{from} in {body}");
    Callback { headers: Headers::default(), body: body.replace(from, to).into_bytes() }
}

#[test]
fn f007_a_message_without_its_parts_says_nothing() {
    let bare = Callback { headers: Headers::default(), body: b"out_trade_no=PO_1&total_amount=12.30".to_vec() };
    assert_eq!(reason(&bare), Reason::SignatureParts);
    let mut with_empty = form(&payment_params());
    let text = String::from_utf8(with_empty.body.clone()).unwrap();
    let (before, _) = text.split_once("&sign=").unwrap();
    let after = text.split_once("&sign_type").unwrap().1;
    with_empty.body = format!("{before}&sign=&sign_type{after}").into_bytes();
    assert_eq!(reason(&with_empty), Reason::SignatureParts);
    for (from, to) in [
        ("&sign_type=RSA2", ""),
        ("sign_type=RSA2", "sign_type="),
        ("sign_type=RSA2", "sign_type=RSA"),
        ("sign_type=RSA2", "sign_type=rsa2"),
    ] {
        let rejection = believe(&tampered(&form(&payment_params()), from, to)).unwrap_err();
        assert_eq!(rejection.reason, Reason::SignatureParts, "{to}");
        assert!(rejection.detail.contains("sign_type"));
    }
    for body in ["", "&", "a=1&a=2", "%", "null", "{}"] {
        let result = believe(&Callback { headers: Headers::default(), body: body.into() });
        assert!(matches!(result.unwrap_err().reason, Reason::Malformed | Reason::SignatureParts), "{body}");
    }
}

#[test]
fn f008_plus_and_percent_are_decoded_once() {
    let mut number = 0;
    let message = loop {
        // A signature with a plus, a slash and padding; about every message has one.
        let candidate = changed(&[("notify_id", Some(&format!("N{number}"))), ("subject", Some("A+B 50%2B"))]);
        let text = String::from_utf8(candidate.body.clone()).unwrap();
        let sign = text.split("&sign=").nth(1).unwrap().split('&').next().unwrap();
        if sign.contains("%2B") && sign.contains("%2F") {
            break candidate;
        }
        number += 1;
    };
    let notice = believe(&message).unwrap().notices.remove(0);
    assert_eq!(notice.channel_data["subject"], "A+B 50%2B");
    assert_eq!(notice.occurred_at, Some(Micros::from_seconds(1_767_294_245)), "the plus in the time is a blank");
    // A literal plus in the signature is a blank by the rule of forms, and no base64: a clean refusal.
    let text = String::from_utf8(message.body.clone()).unwrap();
    let sign = text.split("&sign=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    assert_eq!(reason(&tampered(&message, &sign, &sign.replace("%2B", "+"))), Reason::Signature);
    assert_eq!(reason(&tampered(&message, &sign, &sign.replace("%2B", "%252B"))), Reason::Signature);
}

#[test]
fn f010_the_signed_set_is_what_the_body_holds() {
    assert!(believe(&changed(&[("merchant_app_id", Some("x")), ("zzz", Some("y"))])).is_ok(), "unknown and signed");
    let good = form(&payment_params());
    let added = Callback { body: [&good.body[..], b"&_method=notify"].concat(), ..good.clone() };
    assert_eq!(reason(&added), Reason::Signature);
    // Empty values: signed or left out.
    let empties = with(&payment_params(), &[("body", Some(""))]);
    assert_eq!(believe(&form(&empties)).unwrap().rule, "V1");
    let skipping = believe(&form_leaving_out(&empties, &["sign_type", "body"])).unwrap();
    assert_eq!(skipping.rule, "V1 skip-empty");
    // A parameter that carries something cannot be left out.
    assert_eq!(reason(&form_leaving_out(&payment_params(), &["sign_type", "subject"])), Reason::Signature);
    // An added empty parameter passes, and changes nothing.
    let padded = Callback { body: [&good.body[..], b"&gmt_refund=&refund_fee="].concat(), ..good };
    assert_eq!(facts(&padded), [Fact::Payment]);
}

#[test]
fn v2_is_for_other_kinds_only() {
    let v2 = |params: &Params| form_leaving_out(params, &[]);
    assert_eq!(reason(&v2(&payment_params())), Reason::Signature);
    let order = with(&payment_params(), &[("notify_type", Some("servicemarket_order_notify"))]);
    assert_eq!(believe(&v2(&order)).unwrap().rule, "V2");
    assert_eq!(believe(&form(&order)).unwrap().rule, "V1");
}

#[test]
fn alipay_cert_sn_may_be_signed_or_not() {
    let params = with(&payment_params(), &[("alipay_cert_sn", Some("7513daaaa48aa3ba2e4018d84402479c"))]);
    assert_eq!(believe(&form(&params)).unwrap().rule, "V1");
    let without = believe(&form_leaving_out(&params, &["sign_type", "alipay_cert_sn"])).unwrap();
    assert_eq!((without.rule, without.notices.len()), ("V1 without alipay_cert_sn", 1));
}

#[test]
fn f012_amounts_are_signed_as_text_and_read_exactly() {
    for (text, fen) in
        [("0.10", 10), ("1.00", 100), ("100", 10_000), ("0.15", 15), ("1000000.00", 100_000_000), ("19.99", 1999)]
    {
        let belief = believe(&changed(&[("total_amount", Some(text))])).unwrap();
        assert_eq!(belief.notices[0].money.unwrap().amount, fen, "{text}");
    }
    for text in ["1e2", "-1.00", " 1.00", "1.005", "1,000.00", "９.９９", "92233720368547758.08"] {
        let rejection = believe(&changed(&[("total_amount", Some(text))])).unwrap_err();
        assert_eq!(rejection.reason, Reason::MissingField, "{text}");
        assert!(rejection.detail.starts_with("total_amount"));
    }
}

fn gbk(charset: &str, subject: &[u8]) -> Callback {
    let mut params = with(&payment_params(), &[("charset", Some(charset))]);
    params.insert("subject".to_owned(), subject.to_vec());
    form(&params)
}

#[test]
fn f015_the_charset_is_the_messages_own_word() {
    for charset in ["GBK", "gbk", "gb2312", "GB18030"] {
        let notice = believe(&gbk(charset, b"\xB2\xE2\xCA\xD4")).unwrap().notices.remove(0);
        assert_eq!(notice.channel_data["subject"], "测试");
        assert_eq!(notice.fingerprint(), believe(&form(&payment_params())).unwrap().notices[0].fingerprint());
    }
    // Without the word: UTF-8 if it is, else GBK.
    for (subject, want) in [(&b"\xB2\xE2\xCA\xD4"[..], "测试"), ("测试".as_bytes(), "测试")] {
        let mut params = with(&payment_params(), &[("charset", None)]);
        params.insert("subject".to_owned(), subject.to_vec());
        assert_eq!(believe(&form(&params)).unwrap().notices[0].channel_data["subject"], want);
    }
}

#[test]
fn f016_unreadable_bytes_matter_in_numbers_only() {
    for bytes in [&b"\x81\x30\x89\x38"[..], b"\xFF\xFF", b"\xB2", b"\x00", b"\xEF\xBB\xBFabc"] {
        let belief = believe(&gbk("GBK", bytes)).unwrap();
        assert_eq!(belief.notices[0].money.unwrap().amount, 1230);
    }
    for name in ["out_trade_no", "trade_no"] {
        for bytes in [&b"\xFF\xFF"[..], b"A\x00B", b"A\\uD83C"] {
            let mut params = payment_params();
            params.insert(name.to_owned(), bytes.to_vec());
            assert_eq!(reason(&form(&params)), Reason::MissingField, "{name} {bytes:?}");
        }
    }
    // A number in Chinese is the same number in both charsets.
    let mut number = with(&payment_params(), &[("charset", Some("GBK")), ("subject", None)]);
    number.insert("out_trade_no".to_owned(), b"\xB6\xA9\xB5\xA5".to_vec());
    let utf8 = changed(&[("out_trade_no", Some("订单"))]);
    assert_eq!(believe(&form(&number)).unwrap().notices[0].key(), believe(&utf8).unwrap().notices[0].key());
}

#[test]
fn required_fields_are_named_and_optional_ones_are_optional() {
    for name in ["out_trade_no", "trade_no", "total_amount", "trade_status", "notify_id", "app_id"] {
        for value in [None, Some("")] {
            let rejection = believe(&changed(&[(name, value)])).unwrap_err();
            assert_eq!((rejection.reason, rejection.key_id.is_some()), (Reason::MissingField, true), "{name}");
            assert!(rejection.detail.starts_with(name), "{}", rejection.detail);
        }
    }
    let least = changed(&[
        ("gmt_create", None),
        ("gmt_payment", None),
        ("notify_time", None),
        ("seller_id", None),
        ("subject", None),
        ("version", None),
        ("charset", None),
    ]);
    assert_eq!(facts(&least), [Fact::Payment]);
}

#[test]
fn f029_the_status_decides() {
    assert_eq!(
        believe(&changed(&[("trade_status", Some("WAIT_BUYER_PAY"))])).unwrap().bearing,
        Bearing::NotFinal("WAIT_BUYER_PAY".into())
    );
    assert_eq!(reason(&changed(&[("trade_status", Some("TRADE_PENDING"))])), Reason::UnknownState);
    for paid in ["TRADE_SUCCESS", "TRADE_FINISHED"] {
        assert_eq!(facts(&changed(&[("trade_status", Some(paid))])), [Fact::Payment]);
    }
}

#[test]
fn f069_f070_the_order_amount_counts_and_the_others_are_passed_on() {
    let message = changed(&[
        ("total_amount", Some("10.00")),
        ("receipt_amount", Some("9.00")),
        ("buyer_pay_amount", Some("8.00")),
        ("point_amount", Some("0.00")),
        ("invoice_amount", Some("8.00")),
        ("buyer_id", Some("2088000000000001")),
        ("buyer_logon_id", Some("138****0000")),
        ("seller_email", Some("a@example.com")),
        ("voucher_detail_list", Some(r#"[{"amount":"1.00","merchantContribute":"1.00","name":"券","type":"X"}]"#)),
        (
            "fund_bill_list",
            Some(r#"[{"amount":"8.00","fundChannel":"PCREDIT"},{"amount":"1.00","fundChannel":"POINT"}]"#),
        ),
    ]);
    let belief = believe(&message).unwrap();
    let notice = &belief.notices[0];
    assert_eq!(notice.money.unwrap().amount, 1000);
    assert_eq!(notice.channel_data["receipt_amount"], "9.00");
    assert_eq!(notice.channel_data["buyer_pay_amount"], "8.00");
    let printed = format!("{belief:?}");
    for private in ["2088000000000001", "138****0000", "a@example.com"] {
        assert!(!printed.contains(private), "{private}");
    }
}

#[test]
fn f076_f078_identity() {
    for (name, value) in [("app_id", "2021000000000009"), ("seller_id", "2088000000000009")] {
        let rejection = believe(&changed(&[(name, Some(value))])).unwrap_err();
        assert_eq!((rejection.reason, rejection.key_id.is_some()), (Reason::ForeignIdentity, true), "{name}");
    }
    // Kinds that are not booked are checked as well, where they say it.
    let other = changed(&[("notify_type", Some("open_app_auth_notify")), ("app_id", Some("2021000000000009"))]);
    assert_eq!(reason(&other), Reason::ForeignIdentity);
    // An app that acts for others has to say for whom.
    assert_eq!(
        reason(&changed(&[("auth_app_id", Some("2021000000000008")), ("seller_id", None)])),
        Reason::MissingField
    );
    assert!(believe(&changed(&[("auth_app_id", Some("2021000000000008"))])).is_ok());
    assert!(believe(&changed(&[("auth_app_id", Some(APP_ID)), ("seller_id", None)])).is_ok());
    let scope = believe(&form(&payment_params())).unwrap().notices[0].merchant.clone();
    assert_eq!(scope.as_str(), format!("ALIPAY:{SELLER}"));
}

#[test]
fn a_page_return_is_no_notification() {
    let page = params(&[
        ("app_id", APP_ID),
        ("auth_app_id", APP_ID),
        ("charset", "utf-8"),
        ("method", "alipay.trade.page.pay.return"),
        ("out_trade_no", "PO_1"),
        ("seller_id", SELLER),
        ("sign_type", "RSA2"),
        ("timestamp", "2026-01-02 03:04:06"),
        ("total_amount", "12.30"),
        ("trade_no", "2026010222001400000000000001"),
        ("version", "1.0"),
    ]);
    assert_eq!(reason(&form(&page)), Reason::Malformed);
}

#[test]
fn a_value_that_hides_a_parameter_is_not_taken_by_itself() {
    for value in ["a&total_amount=0.01", "a&b&trade_no=1&c", "&out_trade_no="] {
        assert_eq!(reason(&changed(&[("subject", Some(value))])), Reason::Ambiguous, "{value}");
    }
    for value in ["a&b", "a&b=c", "total_amount=1", "a&total_amount", "a&xtotal_amount=1", "&"] {
        assert!(believe(&changed(&[("subject", Some(value))])).is_ok(), "{value}");
    }
    // The attack itself: the borders of a genuine message moved, with its signature intact.
    let genuine = changed(&[("passback_params", Some("x")), ("subject", Some("y"))]);
    let moved = tampered(&genuine, "subject=y&total_amount=12.30", "subject=y%26total_amount%3D12.30");
    assert_eq!(reason(&moved), Reason::Ambiguous);
}

#[test]
fn f081_f085_two_keys_around_a_change() {
    let both = Alipay::new(Config { keys: vec![signer(1).public(), signer(0).public()], ..alipay_config() }).unwrap();
    let belief = both.believe(&form(&payment_params()), now()).unwrap();
    assert_eq!(belief.key_id, format!("sha256:{}", &signer(0).public().fingerprint()[..16]));
    let stranger = Alipay::new(Config { keys: vec![signer(1).public()], ..alipay_config() }).unwrap();
    assert_eq!(stranger.believe(&form(&payment_params()), now()).unwrap_err().reason, Reason::Signature);
}

#[test]
fn f087_a_partial_refund_is_no_second_payment() {
    let message = |fee: &str, number: &str| {
        changed(&[
            ("refund_fee", Some(fee)),
            ("out_biz_no", Some(number)),
            ("gmt_refund", Some("2026-01-02 03:10:00.123")),
        ])
    };
    let first = believe(&message("0.50", "R1")).unwrap();
    let second = believe(&message("1.20", "R2")).unwrap();
    let payment = believe(&form(&payment_params())).unwrap();
    for (belief, number) in [(&first, "R1"), (&second, "R2")] {
        let [paid, refunded] = &belief.notices[..] else { panic!("{belief:?}") };
        assert_eq!((paid.key(), paid.fingerprint()), (payment.notices[0].key(), payment.notices[0].fingerprint()));
        assert_eq!((&refunded.fact, refunded.money), (&refund(number, false), None), "the fee may be cumulative");
        assert_eq!(refunded.trade_no, paid.trade_no);
        assert_eq!(refunded.occurred_at, Some(Micros(1_767_294_600_123_000)));
    }
    // What counts as told: a zero fee does not, an unreadable one does.
    for (fee, gmt, shaped) in [
        (Some("0.00"), None, false),
        (Some("0"), None, false),
        (None, Some("2026-01-02 03:10:00"), true),
        (Some("0.01"), None, true),
        (Some("abc"), None, true),
    ] {
        assert_eq!(facts(&changed(&[("refund_fee", fee), ("gmt_refund", gmt)])).len() == 2, shaped, "{fee:?} {gmt:?}");
    }
    // A refund without a number of its own.
    for number in [None, Some("PO_1"), Some("2026010222001400000000000001")] {
        let told = changed(&[("refund_fee", Some("0.50")), ("out_biz_no", number)]);
        assert_eq!(facts(&told), [Fact::Payment, refund("-", false)]);
    }
    // The refund period runs out after a partial refund.
    let finished =
        changed(&[("trade_status", Some("TRADE_FINISHED")), ("refund_fee", Some("0.50")), ("out_biz_no", Some("R1"))]);
    assert_eq!(facts(&finished), [Fact::Payment, refund("R1", false)]);
}

#[test]
fn f088_closed_means_three_things() {
    let closed = |changes: &[(&str, Option<&str>)]| {
        form(&with(&with(&payment_params(), &[("trade_status", Some("TRADE_CLOSED"))]), changes))
    };
    assert_eq!(facts(&closed(&[("gmt_payment", None)])), [Fact::Closed]);
    assert_eq!(
        facts(&closed(&[("gmt_payment", None), ("trade_no", None), ("refund_fee", Some("0.00"))])),
        [Fact::Closed]
    );
    let full =
        [("refund_fee", Some("12.3")), ("gmt_refund", Some("2026-01-02 03:10:00.123")), ("out_biz_no", Some("R1"))];
    assert_eq!(facts(&closed(&full)), [Fact::Payment, refund("R1", true)]);
    let last_of_several =
        [("refund_fee", Some("2.00")), ("gmt_refund", Some("2026-01-02 03:10:00")), ("out_biz_no", Some("R2"))];
    assert_eq!(facts(&closed(&last_of_several)), [Fact::Payment, refund("R2", false)]);
    // O3: paid and closed, and no word of a refund. Booked as paid, never as closed; the refund is asked for.
    assert_eq!(facts(&closed(&[])), [Fact::Payment, refund("-", false)]);
}

#[test]
fn f109_times_are_beijing_times() {
    let belief = believe(&changed(&[("gmt_payment", Some("2024-01-01 00:10:00"))])).unwrap();
    assert_eq!(belief.notices[0].occurred_at, Some(Micros::from_seconds(1_704_039_000)));
}

#[test]
fn other_kinds_are_kept_and_not_booked() {
    for (name, kind) in [
        ("notify_type", "fund_auth_freeze"),
        ("notify_type", "dut_user_sign"),
        ("notify_type", "trade_status_sync_x"),
        ("msg_method", "alipay.trade.order.settle.notify"),
        ("msg_method", "alipay.trade.refund.depositback.completed"),
    ] {
        let belief = believe(&changed(&[("notify_type", None), (name, Some(kind))])).unwrap();
        assert_eq!((belief.notices.len(), belief.bearing), (0, Bearing::Unsupported(kind.into())));
    }
}

fn ask(node: &str) -> Result<Belief, Rejection> {
    alipay().believe_answer(&gateway_answer(node), now())
}

#[test]
fn answers_mean_paid_closed_or_unknown() {
    let trade = |status: &str, more: &str| {
        format!(
            r#"{{"code":"10000","msg":"Success","out_trade_no":"PO_1","trade_no":"T1","total_amount":"12.30","trade_status":"{status}"{more}}}"#
        )
    };
    let paid_at = r#","send_pay_date":"2026-01-02 03:04:05""#;
    let table = [
        ("TRADE_SUCCESS", "", Some(Fact::Payment)),
        ("TRADE_FINISHED", paid_at, Some(Fact::Payment)),
        ("TRADE_CLOSED", paid_at, Some(Fact::Payment)),
        ("TRADE_CLOSED", "", Some(Fact::Closed)),
        ("WAIT_BUYER_PAY", "", None),
    ];
    for (status, more, want) in table {
        let belief = ask(&trade(status, more)).unwrap();
        assert_eq!(belief.notices.first().map(|notice| notice.fact.clone()), want, "{status}{more}");
        assert!(belief.notices.iter().all(|notice| notice.source == Source::Query));
    }
    let called = believe(&changed(&[("trade_no", Some("T1"))])).unwrap();
    let asked = ask(&trade("TRADE_SUCCESS", paid_at)).unwrap();
    assert_eq!(asked.notices[0].fingerprint(), called.notices[0].fingerprint());
    assert_eq!(asked.notices[0].key(), called.notices[0].key());
    assert_eq!(ask(&trade("NEW", "")).unwrap_err().reason, Reason::UnknownState);
    assert_eq!(ask(r#"{"code":"10000","msg":"Success"}"#).unwrap_err().reason, Reason::MissingField);
    let twice = trade("TRADE_SUCCESS", r#","total_amount":"0.01""#);
    assert_eq!(ask(&twice).unwrap_err().reason, Reason::Ambiguous);
}

/// F087: the refund query says the amount that the notification does not.
#[test]
fn a_refund_query_names_the_amount() {
    let ask = |node: &str| {
        let sign = signer(0).sign(node.as_bytes());
        let body = format!(r#"{{"alipay_trade_fastpay_refund_query_response":{node},"sign":"{sign}"}}"#);
        let answer = Answer { status: 200, headers: Headers::default(), body: body.into_bytes() };
        alipay().believe_answer(&answer, now())
    };
    let node = |more: &str| {
        format!(
            r#"{{"code":"10000","out_trade_no":"PO_1","trade_no":"T1","total_amount":"2.00","refund_amount":"0.70"{more}}}"#
        )
    };
    let done = ask(&node(r#","out_request_no":"R2","refund_status":"REFUND_SUCCESS""#)).unwrap();
    assert_eq!((&done.notices[0].fact, done.notices[0].money.unwrap().amount), (&refund("R2", false), 70));
    let unnamed = ask(&node(r#","out_request_no":"PO_1","refund_status":"REFUND_SUCCESS""#)).unwrap();
    assert_eq!(unnamed.notices[0].fact, refund("-", false));
    assert_eq!(ask(&node("")).unwrap().bearing, Bearing::NotFinal("refund not done".into()));
    assert_eq!(ask(&node(r#","refund_status":"NEW""#)).unwrap_err().reason, Reason::UnknownState);
}

/// F061: not found, failed and unsigned answers are unknown, never unpaid.
#[test]
fn failures_mean_unknown() {
    let failure = r#"{"code":"40004","msg":"Business Failed","sub_code":"ACQ.TRADE_NOT_EXIST","sub_msg":"交易不存在"}"#;
    let not_final = |belief: Belief, word: &str| {
        assert_eq!((belief.notices.len(), belief.bearing), (0, Bearing::NotFinal(word.into())));
    };
    not_final(ask(failure).unwrap(), "40004 ACQ.TRADE_NOT_EXIST");
    let raw = |status: u16, body: &[u8]| {
        alipay().believe_answer(&Answer { status, headers: Headers::default(), body: body.to_vec() }, now())
    };
    let unsigned = format!(r#"{{"alipay_trade_query_response":{failure}}}"#);
    not_final(raw(200, unsigned.as_bytes()).unwrap(), "unsigned 40004 ACQ.TRADE_NOT_EXIST");
    let gateway = r#"{"error_response":{"code":"40002","msg":"Invalid Arguments","sub_code":"isv.invalid-app-id"}}"#;
    not_final(raw(200, gateway.as_bytes()).unwrap(), "unsigned 40002 isv.invalid-app-id");
    not_final(raw(502, b"<html>").unwrap(), "http 502");
    not_final(raw(404, br#"{"code":"ACQ.TRADE_NOT_EXIST","message":"x"}"#).unwrap(), "http 404 ACQ.TRADE_NOT_EXIST");
    // Error texts in GBK, with a second byte that is a backslash.
    let gbk = [
        br#"{"alipay_trade_query_response":{"code":"40004","sub_code":"ACQ.SYSTEM_ERROR","sub_msg":""#,
        &b"\x81\x5c"[..],
        br#""}}"#,
    ]
    .concat();
    not_final(raw(200, &gbk).unwrap(), "unsigned 40004 ACQ.SYSTEM_ERROR");
    for body in [
        "",
        "null",
        "{}",
        r#"{"sign":"x"}"#,
        r#"{"alipay_trade_query_response":{},"error_response":{}}"#,
        "{\"alipay_trade_close_response\":{}}",
    ] {
        assert_eq!(raw(200, body.as_bytes()).unwrap_err().reason, Reason::Malformed, "{body}");
    }
    let success = r#"{"alipay_trade_query_response":{"code":"10000","trade_status":"TRADE_SUCCESS"}}"#;
    assert_eq!(raw(200, success.as_bytes()).unwrap_err().reason, Reason::SignatureParts);
    let forged = r#"{"alipay_trade_query_response":{"code":"40004"},"sign":"AAAA"}"#;
    assert_eq!(raw(200, forged.as_bytes()).unwrap_err().reason, Reason::Signature);
}

#[test]
fn the_algorithm_is_pinned() {
    let legacy = Alipay::new(Config { algorithm: Algorithm::Rsa, ..alipay_config() }).unwrap();
    assert_eq!(legacy.believe(&form(&payment_params()), now()).unwrap_err().reason, Reason::SignatureParts);
    let renamed = with(&payment_params(), &[("sign_type", Some("RSA"))]);
    assert_eq!(
        legacy.believe(&form(&renamed), now()).unwrap_err().reason,
        Reason::Signature,
        "SHA-256 under SHA-1's name"
    );
}

#[test]
fn sizes_are_bounded() {
    let long = with(&payment_params(), &[("body", Some(&"x".repeat(300 * 1024)))]);
    assert_eq!(reason(&Callback { headers: Headers::default(), body: encode(&long) }), Reason::Malformed);
    let number = "x".repeat(65);
    assert_eq!(reason(&changed(&[("out_trade_no", Some(&number))])), Reason::MissingField);
    let escaped = "订".repeat(21);
    assert_eq!(
        reason(&changed(&[
            ("out_trade_no", Some(&escaped)),
            ("refund_fee", Some("1")),
            ("out_biz_no", Some(&escaped[..60]))
        ])),
        Reason::MissingField
    );
}
