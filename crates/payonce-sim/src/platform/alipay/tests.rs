//! Alipay as played here against the vectors of the fact sheet (made with other implementations), and round trips.

use super::*;
use crate::keys::verify_spki;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::SeedableRng as _;
use serde_json::json;

const PUBLIC_KEY: &str = include_str!("../../../testdata/alipay/public_key.txt");
const BODIES: [(&str, &str, Charset); 6] = [
    ("a", include_str!("../../../testdata/alipay/a_body.txt"), Charset::Utf8),
    ("b", include_str!("../../../testdata/alipay/b_body.txt"), Charset::Gbk),
    ("c", include_str!("../../../testdata/alipay/c_body.txt"), Charset::Utf8),
    ("d", include_str!("../../../testdata/alipay/d_body.txt"), Charset::Utf8),
    ("e", include_str!("../../../testdata/alipay/e_body.txt"), Charset::Utf8),
    ("f", include_str!("../../../testdata/alipay/f_body.txt"), Charset::Utf8),
];
const NOW: i64 = 1_767_294_247;

fn alipay() -> Alipay {
    Alipay::new("2021000000000001", "2088000000000002")
}

fn signed_right(alipay: &Alipay, request: &Request, charset: Charset, signing: Signing) -> bool {
    let fields = parse_form(&request.body, charset);
    alipay.key.verify(&signed_text(&fields, charset, signing), get(&fields, "sign").unwrap_or_default())
}

#[test]
fn signs_the_text_of_the_vectors() {
    let key = STANDARD.decode(PUBLIC_KEY).unwrap();
    // Length of the V1 (for D: V2, for F: skip-empty) text, and which ways of signing verify.
    let expected = [
        ("a", 508, [true, false, true]),
        ("b", 502, [true, false, true]),
        ("c", 310, [true, false, true]),
        ("d", 223, [false, true, false]),
        ("e", 246, [true, false, false]),
        ("f", 240, [false, false, true]),
    ];
    for ((name, body, charset), (_, length, verdicts)) in BODIES.into_iter().zip(expected) {
        let fields = parse_form(body.as_bytes(), charset);
        let sign = get(&fields, "sign").unwrap();
        for (signing, verdict) in [Signing::V1, Signing::V2, Signing::V1SkipEmpty].into_iter().zip(verdicts) {
            let text = signed_text(&fields, charset, signing);
            assert_eq!(verify_spki(&key, &text, sign), verdict, "{name} {signing:?}");
            if verdict {
                assert_eq!(text.len(), length, "{name}");
            }
        }
    }
}

#[test]
fn writes_form_bodies_byte_for_byte() {
    for (name, body, charset) in BODIES {
        let written = form_body(&parse_form(body.as_bytes(), charset), charset);
        assert_eq!(String::from_utf8(written).unwrap(), body, "{name}");
    }
}

#[test]
fn a_notification_is_signed_in_every_way_and_charset() {
    let alipay = alipay();
    for charset in [Charset::Utf8, Charset::Gbk] {
        for signing in [Signing::V1, Signing::V2, Signing::V1SkipEmpty, Signing::V2SkipEmpty] {
            let mut fields = alipay.payment("PO_1", "2026010222001400000000000001", "12.30");
            set(&mut fields, "body", "");
            let event = Event { charset, signing, shuffle: true, ..alipay.notify(fields) };
            let request = event.send(NOW);
            assert!(signed_right(&alipay, &request, charset, signing), "{charset:?} {signing:?}");
            let fields = parse_form(&request.body, charset);
            assert_eq!(get(&fields, "subject"), Some("测试+订单 50%"));
            assert_eq!(get(&fields, "charset"), Some(charset.name()));
            assert_eq!(get(&fields, "notify_time"), Some("2026-01-02 03:04:07"));
        }
    }
}

#[test]
fn deliveries_of_one_event_share_the_notification_id() {
    let alipay = alipay();
    let event = alipay.notify(alipay.payment("PO_1", "T1", "12.30"));
    let [first, second] = [NOW, NOW + 240].map(|now| parse_form(&event.send(now).body, Charset::Utf8));
    for field in ["notify_id", "trade_no", "total_amount", "gmt_payment"] {
        assert_eq!(get(&first, field), get(&second, field));
        assert!(get(&first, field).is_some(), "{field}");
    }
    for field in ["notify_time", "sign"] {
        assert_ne!(get(&first, field), get(&second, field));
    }
    assert_eq!(get(&first, "notify_id").map(str::len), Some(34));
    assert_eq!(event.id(), get(&first, "notify_id").unwrap());
    // The same trade's next event is another notification.
    assert_ne!(alipay.notify(alipay.finished("PO_1", "T1", "12.30")).id(), event.id());
}

#[test]
fn a_seed_repeats_a_delivery() {
    let alipay = alipay();
    let event = Event { shuffle: true, ..alipay.notify(alipay.payment("PO_1", "T1", "12.30")) };
    let [a, b, c] = [7, 7, 8].map(|seed| event.request(NOW, &mut StdRng::seed_from_u64(seed)));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn refunds_and_closings_differ_by_their_fields() {
    let alipay = alipay();
    let partial = alipay.refund("PO_1", "T1", "12.30", "2.30", Some("RF_1"), false);
    let full = alipay.refund("PO_1", "T1", "12.30", "12.30", None, true);
    let closed = alipay.closed("PO_1", "T1", "12.30");
    for (fields, status, refund_fee, gmt_close, out_biz_no) in [
        (&partial, "TRADE_SUCCESS", Some("2.30"), false, Some("RF_1")),
        (&full, "TRADE_CLOSED", Some("12.30"), true, None),
        (&closed, "TRADE_CLOSED", None, true, None),
    ] {
        assert_eq!(get(fields, "trade_status"), Some(status));
        assert_eq!(get(fields, "refund_fee"), refund_fee);
        assert_eq!(get(fields, "gmt_close").is_some(), gmt_close);
        assert_eq!(get(fields, "out_biz_no"), out_biz_no);
        assert_eq!(get(fields, "total_amount"), Some("12.30"));
        assert_eq!(get(fields, "receipt_amount"), None);
    }
    assert_eq!(get(&partial, "gmt_refund").map(str::len), Some(23));
    let names: std::collections::BTreeSet<_> = partial.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), partial.len(), "no field twice");
}

#[test]
fn messages_carry_the_time_of_their_delivery() {
    let alipay = alipay();
    let event = alipay.notify(alipay.message("alipay.fund.trans.order.changed", &json!({ "out_biz_no": "TR_1" })));
    let request = event.send(NOW);
    assert!(signed_right(&alipay, &request, Charset::Utf8, Signing::V1));
    let fields = parse_form(&request.body, Charset::Utf8);
    assert_eq!(get(&fields, "utc_timestamp"), Some("1767294247000"));
    assert_eq!(get(&fields, "biz_content"), Some(r#"{"out_biz_no":"TR_1"}"#));
    assert_eq!(get(&fields, "notify_time"), None);
}

/// The raw node and the signature of a gateway answer with the signature last.
fn taken_apart(body: &str) -> (&str, &str) {
    let (node, sign) = body.split_once(r#","sign":""#).unwrap();
    (node.split_once(':').unwrap().1, sign.strip_suffix(r#""}"#).unwrap())
}

#[test]
fn gateway_answers_are_signed_over_the_raw_node() {
    let vector = include_str!("../../../testdata/alipay/g_answer.json");
    let (node, sign) = taken_apart(vector);
    assert_eq!(node.len(), 228);
    assert!(verify_spki(&STANDARD.decode(PUBLIC_KEY).unwrap(), node.as_bytes(), sign));

    let alipay = alipay();
    let answer = alipay.answer_raw("alipay.trade.query", node);
    let text = String::from_utf8(answer.body).unwrap();
    let (written, sign) = taken_apart(&text);
    assert_eq!(written, node);
    assert!(alipay.key.verify(node.as_bytes(), sign));

    let answer = alipay.query_answer(&json!({ "out_trade_no": "PO_1", "trade_status": "TRADE_SUCCESS" }));
    let value: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(value["alipay_trade_query_response"]["code"], "10000");
    assert_eq!(value["alipay_trade_query_response"]["trade_status"], "TRADE_SUCCESS");
    let gbk = Alipay { charset: Charset::Gbk, ..alipay.clone() };
    let answer = gbk.error_answer("alipay.trade.query", "ACQ.TRADE_NOT_EXIST");
    let text = GBK.decode_without_bom_handling(&answer.body).0.into_owned();
    let (node, sign) = taken_apart(&text);
    assert!(alipay.key.verify(&GBK.encode(node).0, sign));
    let unsigned = alipay.answer_unsigned("alipay.trade.query", &json!({ "code": "40002" }));
    assert_eq!(unsigned.body, br#"{"alipay_trade_query_response":{"code":"40002"}}"#);
}

#[test]
fn checks_a_merchants_request() {
    let alipay = alipay();
    let mut params: Fields = [("app_id", "2021000000000001"), ("method", "alipay.trade.query"), ("sign_type", "RSA2")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let sign = alipay.app_key.sign_sha256(b"app_id=2021000000000001&method=alipay.trade.query&sign_type=RSA2");
    set(&mut params, "sign", &sign);
    set(&mut params, "notify_url", "");
    assert_eq!(alipay.check_request(&params), Ok(()));
    for (name, value) in [("method", "alipay.trade.refund"), ("app_id", "1"), ("sign_type", "RSA"), ("sign", "")] {
        let mut wrong = params.clone();
        set(&mut wrong, name, value);
        assert!(alipay.check_request(&wrong).is_err(), "{name}");
    }
}
