//! WeChat Pay: field cases by id, as far as a pure reader can settle them.

use std::{sync::Arc, thread};

use payonce::{
    channel::{Answer, Bearing, Belief, Callback, Channel, Headers, Reason, Rejection},
    notice::{Fact, Source},
    time::Micros,
};
use payonce_channels::wechat::{Config, Wechat};

use crate::support::{
    API_V3_KEY, MCHID, NOW, OTHER_API_V3_KEY, SERIAL, answered, certificate, envelope, headers_at, headers_with, now,
    paid, seal, signed, signer, wechat, wechat_config, with_header,
};

const PAID: &str = r#"{"mchid":"1900000001","appid":"wx00000000000000aa","out_trade_no":"O1","transaction_id":"T1","trade_state":"SUCCESS","amount":{"total":100,"payer_total":80,"currency":"CNY"}}"#;

fn believe(callback: &Callback) -> Result<Belief, Rejection> {
    wechat().believe(callback, now())
}

fn reason(callback: &Callback) -> Reason {
    believe(callback).unwrap_err().reason
}

/// A payment plaintext with one text replaced by another.
fn changed(from: &str, to: &str) -> Callback {
    assert!(PAID.contains(from), "{from}");
    paid(&PAID.replace(from, to))
}

fn edited(callback: &Callback, edit: impl FnOnce(&mut Vec<u8>)) -> Callback {
    let mut callback = callback.clone();
    edit(&mut callback.body);
    callback
}

#[test]
fn f001_the_exact_bytes_are_signed() {
    let good = paid(PAID);
    assert_eq!(believe(&good).unwrap().notices.len(), 1);
    let text = String::from_utf8(good.body.clone()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sorted = serde_json::to_string(&value).unwrap();
    for other in [sorted, text.replacen("\":", "\": ", 1), text.replace('支', "\\u652f")] {
        assert_ne!(other, text);
        assert_eq!(reason(&edited(&good, |body| *body = other.into_bytes())), Reason::Signature);
    }
}

#[test]
fn f003_line_ends_are_part_of_the_body() {
    let compact = envelope("TRANSACTION.SUCCESS", "transaction", PAID);
    let value: serde_json::Value = serde_json::from_str(&compact).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    for body in
        [compact.clone(), pretty.clone(), compact.clone() + "\n", pretty.replace('\n', "\r\n"), compact + "\r\n"]
    {
        let callback = signed(body);
        assert_eq!(believe(&callback).unwrap().notices.len(), 1);
        let trimmed = edited(&callback, |body| body.retain(|byte| !matches!(byte, b'\r' | b'\n')));
        assert!(trimmed.body == callback.body || reason(&trimmed) == Reason::Signature);
    }
}

#[test]
fn f005_a_probe_fails_like_any_other_and_is_told_apart() {
    let good = paid(PAID);
    let signature = good.headers.one("Wechatpay-Signature").unwrap().to_owned();
    let prefix = "WECHATPAY/SIGNTEST/";
    for probe in [format!("{prefix}{signature}"), format!("{prefix}{}", &signature[prefix.len()..]), prefix.to_owned()]
    {
        assert_eq!(reason(&with_header(&good, "Wechatpay-Signature", Some(&probe))), Reason::Probe);
    }
    assert!(believe(&good).is_ok());
    // A probe that is too old is too old: nothing is looked at out of turn.
    let probe = with_header(&good, "Wechatpay-Signature", Some(prefix));
    assert_eq!(wechat().believe(&probe, Micros::from_seconds(NOW + 301)).unwrap_err().reason, Reason::Timestamp);
}

#[test]
fn f006_a_right_api_key_proves_nothing() {
    // Decryption would fail, or succeed; neither is reached without a signature.
    let forged = envelope("TRANSACTION.SUCCESS", "transaction", PAID);
    let without = Callback { headers: Headers::default(), body: forged.clone().into_bytes() };
    assert_eq!(reason(&without), Reason::SignatureParts);
    let stranger = Callback {
        headers: headers_at(signer(1), SERIAL, &NOW.to_string(), forged.as_bytes()),
        body: forged.clone().into_bytes(),
    };
    assert_eq!(reason(&stranger), Reason::Signature);
    let borrowed = edited(&paid(&PAID.replace("O1", "O2")), |body| *body = forged.into_bytes());
    assert_eq!(reason(&borrowed), Reason::Signature);
    let garbage = edited(&paid(PAID), |body| *body = b"{".to_vec());
    assert_eq!(reason(&garbage), Reason::Signature, "the envelope must not be read before the signature");
}

#[test]
fn f007_f014_each_header_once_and_with_a_value() {
    let good = paid(PAID);
    for name in ["Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature", "Wechatpay-Serial"] {
        for value in [None, Some("")] {
            let rejection = believe(&with_header(&good, name, value)).unwrap_err();
            assert_eq!(rejection.reason, Reason::SignatureParts);
            assert!(rejection.detail.contains(name), "{}", rejection.detail);
        }
        let value = good.headers.one(name).unwrap().as_bytes().to_vec();
        let mut twice = good.clone();
        twice.headers.push(name.to_ascii_lowercase(), value);
        assert_eq!(reason(&twice), Reason::SignatureParts, "{name}");
        let upper = Callback {
            headers: good.headers.iter().map(|(name, value)| (name.to_ascii_uppercase(), value.to_vec())).collect(),
            body: good.body.clone(),
        };
        assert!(believe(&upper).is_ok());
    }
    let signature = good.headers.one("Wechatpay-Signature").unwrap();
    for odd in [format!(" {signature}"), format!("{signature} "), format!("{signature}\t")] {
        assert!(believe(&with_header(&good, "Wechatpay-Signature", Some(&odd))).is_err(), "{odd:?}");
    }
    // Serial and signature in each other's place.
    let swapped =
        with_header(&with_header(&good, "Wechatpay-Serial", Some(signature)), "Wechatpay-Signature", Some(SERIAL));
    assert_eq!(reason(&swapped), Reason::UnknownKey);
}

#[test]
fn the_signature_type_is_the_known_one_or_absent() {
    let good = paid(PAID);
    let typed = |value| with_header(&good, "Wechatpay-Signature-Type", Some(value));
    assert!(believe(&typed("WECHATPAY2-SHA256-RSA2048")).is_ok());
    for other in ["WECHATPAY-BRAND-SHA256-RSA2048", "WECHATPAY2-SM2-WITH-SM3", "wechatpay2-sha256-rsa2048"] {
        assert_eq!(reason(&typed(other)), Reason::SignatureParts, "{other}");
    }
}

#[test]
fn f019_odd_characters_do_not_hold_up_money() {
    let attach = |attach: &str| changed(r#""amount""#, &format!(r#""attach":"{attach}","amount""#));
    for (text, want) in
        [("🎁𠮷", "🎁𠮷"), (r"\ud83c", r"\ud83c"), (r"x\udf81\ud83c", r"x\udf81\ud83c"), (r"\ud83c\udf81", "🎁")]
    {
        let belief = believe(&attach(text)).unwrap();
        assert_eq!(belief.notices[0].channel_data["attach"], want);
    }
    // In a number the same character would make another number of it.
    for (from, to) in [("O1", r"O\ud83c1"), ("T1", r"T\ud83c1")] {
        assert_eq!(reason(&changed(from, to)), Reason::MissingField);
    }
}

#[test]
fn f020_the_shape_decides_and_not_the_event_type() {
    let receipt = r#"{"mchid":"1900000001","transaction_id":"T1","order_id":"S1","out_order_no":"P1","receiver":{"type":"MERCHANT_ID","account":"1900000001","amount":5},"success_time":"2026-01-02T03:04:06+08:00"}"#;
    for original in ["profitsharing", "transaction"] {
        let belief = believe(&signed(envelope("TRANSACTION.SUCCESS", original, receipt))).unwrap();
        assert_eq!(belief.bearing, Bearing::Unsupported("profitsharing".into()));
        assert!(belief.notices.is_empty());
    }
    // And the other way round: a payment is one under whatever event type.
    assert_eq!(believe(&signed(envelope("SOMETHING.NEW", "something", PAID))).unwrap().notices[0].fact, Fact::Payment);
}

#[test]
fn other_kinds_are_kept_and_not_booked() {
    let table = [
        (
            "MCHTRANSFER.BILL.FINISHED",
            "mch_payment",
            r#"{"mch_id":"1900000001","out_bill_no":"B1","state":"SUCCESS","transfer_amount":5}"#,
        ),
        (
            "PAYSCORE.USER_PAID",
            "payscore",
            r#"{"mchid":"1900000001","out_order_no":"P1","state":"DONE","total_amount":5}"#,
        ),
        ("MCHWITHDRAW.CHANGE", "mch_withdraw", r#"{"sp_mchid":"1900000001","status":"SUCCESS","amount":100}"#),
        (
            "MEDICAL_INSURANCE.SUCCESS",
            "",
            r#"{"mix_trade_no":"M1","out_trade_no":"O1","mix_pay_status":"MIX_PAY_SUCCESS"}"#,
        ),
        ("COUPON.USE", "coupon", r#"{"stock_id":"1","coupon_id":"2","status":"USED"}"#),
        ("SECURITY_ECHO.SUCCESS", "security", "{}"),
    ];
    for (event, original, plaintext) in table {
        let belief = believe(&signed(envelope(event, original, plaintext))).unwrap();
        assert_eq!((belief.notices.len(), belief.bearing), (0, Bearing::Unsupported(event.into())));
    }
}

#[test]
fn f021_f030_refunds_in_callback_and_query() {
    let plain = |state: &str, more: &str| {
        format!(
            r#"{{{more}"out_trade_no":"O1","transaction_id":"T1","out_refund_no":"R1","refund_id":"W1",{state}"amount":{{"total":100,"refund":40,"payer_total":100,"payer_refund":40}}}}"#
        )
    };
    let callback =
        |state: &str| signed(envelope("REFUND.SUCCESS", "refund", &plain(state, r#""mchid":"1900000001","#)));
    let called =
        believe(&callback(r#""refund_status":"SUCCESS","success_time":"2026-01-02T03:04:06+08:00","#)).unwrap();
    let asked = wechat().believe_answer(&answered(plain(r#""status":"SUCCESS","#, "")), now()).unwrap();
    for belief in [&called, &asked] {
        let notice = &belief.notices[0];
        assert_eq!(notice.fact, Fact::Refund { refund_no: "R1".into(), full: false });
        assert_eq!(notice.money.unwrap().amount, 40);
        assert_eq!(notice.key().unwrap().to_string(), "WXPAY:O1:REFUND:R1");
    }
    assert_eq!(called.notices[0].fingerprint(), asked.notices[0].fingerprint());
    // F030: neither time nor account of the receiver.
    let abnormal = believe(&callback(r#""refund_status":"ABNORMAL","user_received_account":"支付用户零钱","#)).unwrap();
    assert_eq!(abnormal.notices[0].fact, Fact::RefundAbnormal { refund_no: "R1".into() });
    assert_eq!(abnormal.notices[0].occurred_at, None);
    let closed = believe(&callback(r#""refund_status":"CLOSED","#)).unwrap();
    assert_eq!(closed.notices[0].fact, Fact::RefundClosed { refund_no: "R1".into() });
    let bare = r#"{"mchid":"1900000001","out_trade_no":"O1","transaction_id":"T1","out_refund_no":"R1","refund_status":"CLOSED"}"#;
    let bare = believe(&signed(envelope("REFUND.CLOSED", "refund", bare))).unwrap();
    assert_eq!(bare.notices[0].money, None, "nothing moved, so the amount may be absent");
    // F022: known, unknown, absent.
    assert_eq!(
        believe(&callback(r#""refund_status":"PROCESSING","#)).unwrap().bearing,
        Bearing::NotFinal("PROCESSING".into())
    );
    assert_eq!(reason(&callback(r#""refund_status":"SOMETHING_NEW","#)), Reason::UnknownState);
    assert_eq!(reason(&callback("")), Reason::MissingField);
    assert_eq!(reason(&callback(r#""status":"SUCCESS","#)), Reason::MissingField, "the query's name in a callback");
}

#[test]
fn f022_f069_unknown_words_and_members_do_not_block() {
    let odd = changed(
        r#""amount":{"#,
        r#""trade_type":"FACEPAY2","bank_type":7,"success_time":"soon","attach":{"a":1},"promotion_detail":[{"coupon_id":"1","type":"NOCASH","amount":20,"goods_detail":[{"goods_id":"g"}],"new":[[]]}],"brand_new":{"x":[1]},"amount":{"new":1,"#,
    );
    let belief = believe(&odd).unwrap();
    let notice = &belief.notices[0];
    assert_eq!((notice.money.unwrap().amount, notice.occurred_at), (100, None));
    assert_eq!(notice.channel_data["promotion_total"], 20);
    assert!(!notice.channel_data.contains_key("attach"), "only scalars are passed on");
    assert_eq!(reason(&changed(r#""SUCCESS""#, r#""SOMETHING_NEW""#)), Reason::UnknownState);
}

#[test]
fn f023_bodies_that_are_no_message() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_member = format!(r#"{{"resource":{deep}}}"#);
    for body in ["", "null", "[]", "\"\"", "{}", r#"{"resource":null}"#, r#"{"resource":{}}"#, &deep, &deep_member] {
        assert_eq!(reason(&signed(body)), Reason::Malformed, "{}", &body[..body.len().min(40)]);
        let unsigned = Callback { headers: paid(PAID).headers, body: body.as_bytes().to_vec() };
        assert_eq!(reason(&unsigned), Reason::Signature);
    }
    // F023: too large is refused by its size, before anything is read.
    let padded = format!("{}{}", envelope("TRANSACTION.SUCCESS", "transaction", PAID), " ".repeat(1024 * 1024));
    assert_eq!(reason(&signed(padded.clone())), Reason::Malformed);
    assert_eq!(reason(&Callback { headers: Headers::default(), body: padded.into_bytes() }), Reason::Malformed);
    for plaintext in ["", "null", "[]", "{", &format!(r#"{{"trade_state":{deep}}}"#)] {
        assert_eq!(reason(&paid(plaintext)), Reason::MissingField, "{}", &plaintext[..plaintext.len().min(40)]);
    }
}

#[test]
fn f024_what_is_locked_in_opens_with_the_right_parts_only() {
    let wrap = |resource: &str| {
        signed(format!(
            r#"{{"event_type":"TRANSACTION.SUCCESS","resource":{{"algorithm":"AEAD_AES_256_GCM",{resource}}}}}"#
        ))
    };
    let sealed = |associated: &str| seal(PAID.as_bytes(), API_V3_KEY, "abcdEFGH1234", associated);
    let nonce = r#""nonce":"abcdEFGH1234""#;
    for absent in [r#","associated_data":"""#, r#","associated_data":null"#, ""] {
        assert!(believe(&wrap(&format!(r#""ciphertext":"{}",{nonce}{absent}"#, sealed("")))).is_ok(), "{absent}");
    }
    let transaction = r#","associated_data":"transaction""#;
    assert!(believe(&wrap(&format!(r#""ciphertext":"{}",{nonce}{transaction}"#, sealed("transaction")))).is_ok());
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let bytes = STANDARD.decode(sealed("transaction")).unwrap();
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        STANDARD.encode(bytes)
    };
    let good = sealed("transaction");
    let table = [
        (flipped(0), nonce, transaction),
        (flipped(bytes.len() - 1), nonce, transaction),
        (STANDARD.encode(&bytes[..15]), nonce, transaction),
        (STANDARD.encode(&bytes[..16]), nonce, transaction),
        (STANDARD.encode(&bytes[..bytes.len() - 1]), nonce, transaction),
        (format!("{good}\\n"), nonce, transaction),
        ("".to_owned(), nonce, transaction),
        (good.clone(), nonce, ""),
        (good.clone(), nonce, r#","associated_data":"transactioN""#),
        (good.clone(), nonce, r#","associated_data":"refund""#),
        (good.clone(), r#""nonce":"abcdEFGH1235""#, transaction),
        (good.clone(), r#""nonce":"abcdEFGH123""#, transaction),
        (good.clone(), r#""nonce":"abcdEFGH12345""#, transaction),
        (good.clone(), r#""nonce":"abcdEFGH12345678""#, transaction),
        (good.clone(), r#""nonce":"""#, transaction),
        (seal(PAID.as_bytes(), OTHER_API_V3_KEY, "abcdEFGH1234", "transaction"), nonce, transaction),
    ];
    for (ciphertext, nonce, associated) in table {
        let callback = wrap(&format!(r#""ciphertext":"{ciphertext}",{nonce}{associated}"#));
        let rejection = believe(&callback).unwrap_err();
        assert_eq!((rejection.reason, rejection.key_id.as_deref()), (Reason::Undecryptable, Some(SERIAL)));
    }
    // An empty plaintext is sealed well and says nothing.
    let empty = seal(b"", API_V3_KEY, "abcdEFGH1234", "");
    assert_eq!(reason(&wrap(&format!(r#""ciphertext":"{empty}",{nonce}"#))), Reason::MissingField);
    let other = signed(envelope("X", "x", PAID).replace("AEAD_AES_256_GCM", "AEAD_SM4_GCM"));
    assert_eq!(reason(&other), Reason::Undecryptable);
}

#[test]
fn the_previous_api_key_still_opens() {
    let config = Config { api_v3_keys: vec![OTHER_API_V3_KEY.to_owned(), API_V3_KEY.to_owned()], ..wechat_config() };
    assert!(Wechat::new(config).unwrap().believe(&paid(PAID), now()).is_ok());
}

#[test]
fn f028_optional_fields_are_optional_and_required_ones_named() {
    for (from, to) in [
        (r#""appid":"wx00000000000000aa","#, ""),
        (r#","payer_total":80"#, ""),
        (r#","currency":"CNY""#, ""),
        (r#""amount":"#, r#""promotion_detail":[],"amount":"#),
        (r#""amount":"#, r#""promotion_detail":null,"scene_info":null,"payer":null,"success_time":null,"amount":"#),
    ] {
        assert_eq!(believe(&changed(from, to)).unwrap().notices[0].money.unwrap().amount, 100, "{to}");
    }
    let table = [
        (r#""out_trade_no":"O1","#, "", "out_trade_no"),
        (r#""out_trade_no":"O1","#, r#""out_trade_no":"","#, "out_trade_no"),
        (r#""out_trade_no":"O1","#, r#""out_trade_no":null,"#, "out_trade_no"),
        (r#""out_trade_no":"O1","#, r#""out_trade_no":7,"#, "out_trade_no"),
        (r#""out_trade_no":"O1","#, r#""out_trade_no":"a\u0000b","#, "out_trade_no"),
        (r#""transaction_id":"T1","#, "", "transaction_id"),
        (r#""trade_state":"SUCCESS","#, "", "trade_state"),
        (r#""mchid":"1900000001","#, "", "mchid"),
        (r#""total":100,"#, "", "amount.total"),
        (r#""total":100,"#, r#""total":"100","#, "amount.total"),
        (r#""total":100,"#, r#""total":100.5,"#, "amount.total"),
        (r#""total":100,"#, r#""total":-1,"#, "amount.total"),
        (r#""total":100,"#, r#""total":92233720368547758080,"#, "amount.total"),
        (r#""currency":"CNY""#, r#""currency":"yuan""#, "amount.currency"),
    ];
    for (from, to, field) in table {
        let rejection = believe(&changed(from, to)).unwrap_err();
        assert_eq!(rejection.reason, Reason::MissingField, "{to}");
        assert!(rejection.detail.starts_with(field), "{}", rejection.detail);
        assert_eq!(rejection.key_id.as_deref(), Some(SERIAL));
    }
    // A member given twice: a map would take the last one, another reader the first.
    for (from, to) in [
        (r#""total":100"#, r#""total":100,"total":1"#),
        (r#""out_trade_no":"O1""#, r#""out_trade_no":"O1","out_trade_no":"O2""#),
    ] {
        assert_eq!(reason(&changed(from, to)), Reason::Ambiguous);
    }
}

#[test]
fn f029_only_success_is_paid_in_a_callback() {
    for state in ["REFUND", "NOTPAY", "CLOSED", "REVOKED", "USERPAYING", "PAYERROR", "ACCEPT", "PAY_FAIL"] {
        let belief = believe(&changed(r#""SUCCESS""#, &format!("\"{state}\""))).unwrap();
        assert_eq!((belief.notices.len(), belief.bearing), (0, Bearing::NotFinal(state.into())));
    }
}

#[test]
fn f068_the_order_amount_counts() {
    let belief = believe(&paid(PAID)).unwrap();
    assert_eq!(belief.notices[0].money.unwrap().amount, 100);
    assert_eq!(belief.notices[0].channel_data["payer_total"], 80);
    // F073: another currency is part of the amount.
    assert_eq!(believe(&changed("CNY", "USD")).unwrap().notices[0].money.unwrap().currency.as_str(), "USD");
}

#[test]
fn no_name_of_the_buyer_is_passed_on() {
    let belief = believe(&changed(r#""amount""#, r#""payer":{"openid":"oSecret"},"amount""#)).unwrap();
    assert!(!format!("{belief:?}").contains("oSecret"));
}

#[test]
fn f076_f078_the_account_is_the_url_and_the_number_space() {
    let config = Config {
        mchid: "1900000002".to_owned(),
        keys: vec![(Some("PUB_KEY_ID_9".to_owned()), signer(1).public())],
        ..wechat_config()
    };
    let other = Wechat::new(config).unwrap();
    assert_eq!(other.believe(&paid(PAID), now()).unwrap_err().reason, Reason::UnknownKey);
    // Even if both were given the same keys, the payload says whose it is.
    let careless = Wechat::new(Config { mchid: "1900000002".to_owned(), ..wechat_config() }).unwrap();
    let rejection = careless.believe(&paid(PAID), now()).unwrap_err();
    assert_eq!((rejection.reason, rejection.key_id.as_deref()), (Reason::ForeignIdentity, Some(SERIAL)));
    let theirs = careless.believe(&changed(MCHID, "1900000002"), now()).unwrap();
    let ours = believe(&paid(PAID)).unwrap();
    assert_eq!(theirs.notices[0].key(), ours.notices[0].key());
    assert_ne!(theirs.notices[0].merchant, ours.notices[0].merchant, "the scope keeps equal numbers apart");
    let app = Wechat::new(Config { app_ids: vec!["wx00000000000000cc".to_owned()], ..wechat_config() }).unwrap();
    assert_eq!(app.believe(&paid(PAID), now()).unwrap_err().reason, Reason::ForeignIdentity);
}

#[test]
fn partner_and_direct_are_told_apart() {
    let partner = Wechat::new(Config { partner: true, ..wechat_config() }).unwrap();
    let provider = PAID.replace(r#""mchid":"#, r#""sub_mchid":"1900000101","sp_mchid":"#);
    let belief = partner.believe(&paid(&provider), now()).unwrap();
    assert_eq!(belief.notices[0].merchant.as_str(), "WXPAY:1900000001");
    assert_eq!(belief.notices[0].channel_data["sub_mchid"], "1900000101");
    assert_eq!(reason(&paid(&provider)), Reason::ForeignIdentity, "the account is configured as direct");
    let foreign = provider.replace(MCHID, "1900000003");
    assert_eq!(partner.believe(&paid(&foreign), now()).unwrap_err().reason, Reason::ForeignIdentity);
    // A partner's refund example names the provider `mchid`.
    let refund = r#"{"mchid":"1900000001","out_trade_no":"O1","transaction_id":"T1","out_refund_no":"R1","refund_status":"SUCCESS","amount":{"refund":1}}"#;
    assert!(partner.believe(&signed(envelope("REFUND.SUCCESS", "refund", refund)), now()).is_ok());
}

#[test]
fn f077_accounts_interleaved_on_threads() {
    let accounts: Vec<Arc<Wechat>> = (0..2)
        .map(|which| {
            let config = Config {
                mchid: format!("190000000{which}"),
                api_v3_keys: vec![[API_V3_KEY, OTHER_API_V3_KEY][which].to_owned()],
                keys: vec![(Some(format!("PUB_KEY_ID_{which}")), signer(which).public())],
                ..wechat_config()
            };
            Arc::new(Wechat::new(config).unwrap())
        })
        .collect();
    let messages: Vec<Callback> = (0..2)
        .map(|which| {
            let plaintext = PAID.replace(MCHID, &format!("190000000{which}"));
            let ciphertext = seal(plaintext.as_bytes(), [API_V3_KEY, OTHER_API_V3_KEY][which], "abcdEFGH1234", "");
            let body = format!(
                r#"{{"resource":{{"algorithm":"AEAD_AES_256_GCM","ciphertext":"{ciphertext}","nonce":"abcdEFGH1234"}}}}"#
            )
            .into_bytes();
            Callback { headers: headers_at(signer(which), &format!("PUB_KEY_ID_{which}"), &NOW.to_string(), &body), body }
        })
        .collect();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (accounts, messages) = (&accounts, &messages);
            scope.spawn(move || {
                for turn in 0..250 {
                    let (account, message) = ((thread + turn) % 2, (turn / 2) % 2);
                    let result = accounts[account].believe(&messages[message], now());
                    assert_eq!(result.is_ok(), account == message);
                    if let Ok(belief) = result {
                        assert_eq!(belief.notices[0].merchant, *accounts[account].merchant());
                    }
                }
            });
        }
    });
}

#[test]
fn f081_f083_certificate_and_public_key_side_by_side() {
    let (name, pem, pair) = certificate();
    let serial = name.trim_start_matches('0').to_owned();
    let keys = vec![
        (None, payonce_channels::keys::PublicKey::read(&pem).unwrap()),
        (Some(SERIAL.to_owned()), signer(0).public()),
    ];
    let both = Wechat::new(Config { keys, ..wechat_config() }).unwrap();
    let body = envelope("TRANSACTION.SUCCESS", "transaction", PAID).into_bytes();
    for spelling in [serial.clone(), serial.to_ascii_lowercase(), format!("00{serial}")] {
        let headers = headers_with(&pair, &spelling, &body);
        let belief = both.believe(&Callback { headers, body: body.clone() }, now()).unwrap();
        assert_eq!(belief.key_id, serial);
    }
    assert_eq!(both.believe(&paid(PAID), now()).unwrap().key_id, SERIAL);
    // One key is never tried in the place of another.
    let crossed = Callback { headers: headers_with(&pair, SERIAL, &body), body: body.clone() };
    assert_eq!(both.believe(&crossed, now()).unwrap_err().reason, Reason::Signature);
    // After its removal a late message is refused, by name.
    let late = Callback { headers: headers_with(&pair, &serial, &body), body };
    let rejection = wechat().believe(&late, now()).unwrap_err();
    assert_eq!(rejection.reason, Reason::UnknownKey);
    assert!(rejection.detail.contains(&serial));
    for odd in
        ["PUB_KEY_ID_0000000000000000000000000003", "pub_key_id_0000000000000000000000000002", "FFFF", "-", "\u{7f}"]
    {
        let reason = reason(&with_header(&paid(PAID), "Wechatpay-Serial", Some(odd)));
        assert!(matches!(reason, Reason::UnknownKey | Reason::SignatureParts), "{odd}");
    }
}

#[test]
fn f106_the_window_is_two_sided_and_its_border_belongs_to_it() {
    let body = envelope("TRANSACTION.SUCCESS", "transaction", PAID).into_bytes();
    let at = |timestamp: &str| {
        let callback = Callback { headers: headers_at(signer(0), SERIAL, timestamp, &body), body: body.clone() };
        believe(&callback).map(|belief| belief.notices.len()).map_err(|rejection| rejection.reason)
    };
    for offset in [0, 299, 300, -299, -300] {
        assert_eq!(at(&(NOW + offset).to_string()), Ok(1), "{offset}");
    }
    let refused = [
        (NOW + 301).to_string(),
        (NOW - 301).to_string(),
        "0".to_owned(),
        "-1".to_owned(),
        "1e9".to_owned(),
        format!(" {NOW}"),
        format!("{NOW} "),
        format!("+{NOW}"),
        format!("{NOW}.0"),
        i64::MAX.to_string(),
        i64::MIN.to_string(),
        "99999999999999999999".to_owned(),
        "9".repeat(400),
    ];
    for timestamp in refused {
        assert_eq!(at(&timestamp), Err(Reason::Timestamp), "{timestamp}");
    }
    assert_eq!(at(""), Err(Reason::SignatureParts));
    // Extreme clocks do not overflow either.
    for clock in [i64::MIN, 0, i64::MAX] {
        assert_eq!(wechat().believe(&paid(PAID), Micros(clock)).unwrap_err().reason, Reason::Timestamp);
    }
    // The time is looked at before the signature.
    let old = with_header(&paid(PAID), "Wechatpay-Timestamp", Some("1"));
    assert_eq!(reason(&old), Reason::Timestamp);
}

#[test]
fn f109_the_zone_of_the_text_is_converted() {
    for text in ["2024-01-01T00:10:00+08:00", "2023-12-31T16:10:00Z"] {
        let belief = believe(&changed(r#""amount""#, &format!(r#""success_time":"{text}","amount""#))).unwrap();
        assert_eq!(belief.notices[0].occurred_at, Some(Micros::from_seconds(1_704_039_000)));
    }
}

#[test]
fn combined_payments_are_booked_per_sub_order_of_this_account() {
    let order = |mchid: &str, number: &str, state: &str| {
        format!(
            r#"{{"mchid":"{mchid}","out_trade_no":"{number}","transaction_id":"T{number}","trade_state":"{state}","amount":{{"total_amount":10,"payer_amount":9}}}}"#
        )
    };
    let combined = |orders: &[String]| {
        paid(&format!(r#"{{"combine_mchid":"1","combine_out_trade_no":"C","sub_orders":[{}]}}"#, orders.join(",")))
    };
    let belief =
        believe(&combined(&[order(MCHID, "A", "SUCCESS"), order("7", "B", "SUCCESS"), order(MCHID, "C", "SUCCESS")]))
            .unwrap();
    let numbers: Vec<&str> = belief.notices.iter().map(|notice| notice.out_trade_no.as_str()).collect();
    assert_eq!(numbers, ["A", "C"]);
    assert_eq!(belief.notices[0].channel_data["combine_orders_of_others"], 1);
    assert_eq!(reason(&combined(&[order("7", "B", "SUCCESS")])), Reason::ForeignIdentity);
    assert_eq!(reason(&combined(&[])), Reason::MissingField);
    assert_eq!(reason(&combined(&[order(MCHID, "A", "SUCCESS"), order(MCHID, "B", "NEW")])), Reason::UnknownState);
    assert_eq!(believe(&combined(&[order(MCHID, "A", "NOTPAY")])).unwrap().bearing, Bearing::NotFinal("NOTPAY".into()));
}

#[test]
fn answers_mean_paid_closed_or_unknown() {
    let state = |state: &str| PAID.replace("SUCCESS", state);
    let ask = |body: String| wechat().believe_answer(&answered(body), now());
    for paid in ["SUCCESS", "REFUND"] {
        let belief = ask(state(paid)).unwrap();
        assert_eq!((&belief.notices[0].fact, belief.notices[0].source), (&Fact::Payment, Source::Query));
    }
    let unpaid = |word: &str| state(word).replace(r#""transaction_id":"T1","#, "");
    assert_eq!(ask(unpaid("CLOSED")).unwrap().notices[0].fact, Fact::Closed);
    assert_eq!(ask(state("CLOSED")).unwrap().bearing, Bearing::NotFinal("CLOSED".into()), "it names a transaction");
    for word in ["NOTPAY", "USERPAYING", "REVOKED", "PAYERROR", "ACCEPT"] {
        assert_eq!(ask(unpaid(word)).unwrap().bearing, Bearing::NotFinal(word.into()));
    }
    assert_eq!(ask(state("NEW")).unwrap_err().reason, Reason::UnknownState);
    assert_eq!(ask("{}".to_owned()).unwrap_err().reason, Reason::MissingField);
    // F061: a failure means unknown, signed or not.
    for (status, body, word) in [
        (404, r#"{"code":"ORDER_NOT_EXIST","message":"订单不存在"}"#, "http 404 ORDER_NOT_EXIST"),
        (500, "<html>", "http 500"),
        (502, "", "http 502"),
    ] {
        let answer = Answer { status, headers: Headers::default(), body: body.into() };
        let belief = wechat().believe_answer(&answer, now()).unwrap();
        assert_eq!((belief.notices.len(), belief.bearing), (0, Bearing::NotFinal(word.into())));
    }
    // A success without a right signature is forged.
    let unsigned = Answer { status: 200, headers: Headers::default(), body: PAID.into() };
    assert_eq!(wechat().believe_answer(&unsigned, now()).unwrap_err().reason, Reason::SignatureParts);
    let mut other = answered(PAID);
    other.body = state("REFUND").into_bytes();
    assert_eq!(wechat().believe_answer(&other, now()).unwrap_err().reason, Reason::Signature);
}
