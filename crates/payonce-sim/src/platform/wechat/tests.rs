//! WeChat Pay as played here against the vectors of the fact sheet (made with other implementations), and round trips.

use super::*;
use crate::keys::verify_spki;
use rand::SeedableRng as _;

const KEY: &str = "PayonceTestApiV3Key0123456789ABC";
const A_PLAINTEXT: &str = include_str!("../../../testdata/wechat/a_plaintext.json");
const A_CIPHERTEXT: &str = include_str!("../../../testdata/wechat/a_ciphertext.txt");
const B_PLAINTEXT: &str = include_str!("../../../testdata/wechat/b_plaintext.json");
const B_CIPHERTEXT: &str = include_str!("../../../testdata/wechat/b_ciphertext.txt");
const PUBLIC_KEY: &str = include_str!("../../../testdata/wechat/c_public_key.txt");
const D_BODY: &str = include_str!("../../../testdata/wechat/d_body.json");
const NOW: i64 = 1_767_294_247;

fn verifies(text: &[u8], signature: &str) -> bool {
    verify_spki(&STANDARD.decode(PUBLIC_KEY).unwrap(), text, signature)
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.header(name).unwrap_or_default()
}

fn signed_by(request: &Request, key: &RsaKey) -> bool {
    let text = signed_text(header(request, "Wechatpay-Timestamp"), header(request, "Wechatpay-Nonce"), &request.body);
    key.verify(&text, header(request, "Wechatpay-Signature"))
}

/// Reads a delivery as a merchant would.
fn opened(wechat: &Wechat, request: &Request) -> Value {
    let envelope: Value = serde_json::from_slice(&request.body).unwrap();
    let resource = &envelope["resource"];
    let text = |name: &str| resource[name].as_str().unwrap_or_default();
    let plain = decrypt(&wechat.api_v3_key, text("nonce"), text("associated_data"), text("ciphertext")).unwrap();
    serde_json::from_slice(&plain).unwrap()
}

#[test]
fn encrypts_like_the_vectors() {
    assert_eq!(encrypt(KEY, "abcdEFGH1234", "transaction", A_PLAINTEXT.as_bytes()), A_CIPHERTEXT);
    assert_eq!(encrypt(KEY, "zyxw98765432", "", B_PLAINTEXT.as_bytes()), B_CIPHERTEXT);
    assert_eq!(decrypt(KEY, "abcdEFGH1234", "transaction", A_CIPHERTEXT).as_deref(), Some(A_PLAINTEXT.as_bytes()));
    for (nonce, aad) in [("abcdEFGH1234", "transactioN"), ("abcdEFGH1234", ""), ("abcdEFGH1235", "transaction")] {
        assert_eq!(decrypt(KEY, nonce, aad, A_CIPHERTEXT), None);
    }
    assert_eq!(decrypt(KEY, "zyxw98765432", "refund", B_CIPHERTEXT), None);
    assert_eq!(decrypt("short", "zyxw98765432", "", B_CIPHERTEXT), None);
}

#[test]
fn writes_the_envelope_byte_for_byte() {
    let mut wechat = Wechat::new("1900000001");
    wechat.api_v3_key = KEY.into();
    let mut event = wechat.notify(&json!({}), "TRANSACTION.SUCCESS", "transaction");
    event.id = "3f6e1d2c-0a1b-5c2d-8e3f-102030405060".into();
    event.create_time = text::beijing_rfc3339(NOW);
    event.plaintext = A_PLAINTEXT.into();
    assert_eq!(String::from_utf8(event.body(&event.id, "abcdEFGH1234")).unwrap(), D_BODY);
    event.associated_data = None;
    assert!(!String::from_utf8(event.body("x", "abcdEFGH1234")).unwrap().contains("associated_data"));
}

#[test]
fn signs_the_text_of_the_vectors() {
    let nonce = "N0nceN0nceN0nceN0nceN0nceN0nce32";
    let signature = include_str!("../../../testdata/wechat/d_signature.txt");
    let text = signed_text("1767294247", nonce, D_BODY.as_bytes());
    assert_eq!(text.len(), 1076);
    assert!(verifies(&text, signature));
    assert!(!verifies(&text[..text.len() - 1], signature));
    assert!(!verifies(&signed_text("1767294248", nonce, D_BODY.as_bytes()), signature));

    let path = "/v3/pay/transactions/out-trade-no/PO20260102030405?mchid=1900000001";
    let text = request_text("GET", path, "1767294300", "Q0nceQ0nceQ0nceQ0nceQ0nceQ0nce32", b"");
    assert!(verifies(&text, include_str!("../../../testdata/wechat/e_signature.txt")));
    let empty = signed_text("1767294301", "R0nceR0nceR0nceR0nceR0nceR0nce32", b"");
    assert!(verifies(&empty, include_str!("../../../testdata/wechat/f_signature.txt")));
}

#[test]
fn deliveries_of_one_event_share_what_the_platform_keeps() {
    let wechat = Wechat::new("1900000001");
    let payment = wechat.payment("PO1", "4200000000202601020000000001", 100);
    let event = wechat.notify_payment(&payment);
    let [first, second] = [NOW, NOW + 15].map(|now| event.send(now, Disorder::default()));
    for request in [&first, &second] {
        assert!(signed_by(request, &wechat.public_key));
        assert_eq!(header(request, "Wechatpay-Serial"), wechat.pub_key_id);
        assert_eq!(header(request, "Content-Type"), "application/json");
        assert_eq!(header(request, "User-Agent"), "Mozilla/4.0");
        assert_eq!(opened(&wechat, request), payment);
    }
    assert_ne!(first.body, second.body);
    assert_ne!(header(&first, "Wechatpay-Nonce"), header(&second, "Wechatpay-Nonce"));
    let envelope = |request: &Request| serde_json::from_slice::<Value>(&request.body).unwrap();
    for member in ["id", "create_time", "event_type"] {
        assert_eq!(envelope(&first)[member], envelope(&second)[member]);
    }
    assert_eq!(envelope(&first)["id"].as_str().unwrap().len(), 36);
}

#[test]
fn disorder_changes_what_it_names() {
    let wechat = Wechat::new("1900000001");
    let event = wechat.notify_payment(&wechat.payment("PO1", "T1", 100));
    let same = Disorder { reencrypt: false, ..Disorder::default() };
    assert_eq!(event.send(NOW, same).body, event.send(NOW + 1, same).body);
    let fresh = Disorder { reencrypt: false, fresh_id: true, ..Disorder::default() };
    assert_ne!(event.send(NOW, fresh).body, event.send(NOW, fresh).body);
    let certificate = event.send(NOW, Disorder { mode: Some(Mode::Certificate), ..same });
    assert_eq!(header(&certificate, "Wechatpay-Serial"), wechat.serial);
    assert!(signed_by(&certificate, &wechat.certificate_key) && !signed_by(&certificate, &wechat.public_key));
    let bare = event.send(NOW, Disorder { without_signature_type: true, ..same });
    assert_eq!(bare.header("Wechatpay-Signature-Type"), None);

    let alternate = Disorder { alternate: true, ..same };
    let mut rng = StdRng::seed_from_u64(1);
    let serials: std::collections::BTreeSet<_> =
        (0..20).map(|_| header(&event.send_with(NOW, alternate, &mut rng), "Wechatpay-Serial").to_owned()).collect();
    assert_eq!(serials.len(), 2);
}

#[test]
fn a_seed_repeats_a_delivery() {
    let wechat = Wechat::new("1900000001");
    let event = wechat.notify_payment(&wechat.payment("PO1", "T1", 100));
    let [a, b] = [7, 7].map(|seed| event.request(NOW, &mut StdRng::seed_from_u64(seed)));
    assert_eq!(a, b);
    assert_ne!(a, event.request(NOW, &mut StdRng::seed_from_u64(8)));
}

#[test]
fn payloads_have_the_platforms_shapes() {
    let wechat = Wechat::new("1900000001");
    let partner = wechat.partner_payment("1900000101", "PO1", "T1", 100);
    assert_eq!((&partner["sp_mchid"], &partner["sub_mchid"]), (&json!("1900000001"), &json!("1900000101")));
    assert!(partner["payer"]["sp_openid"].is_string() && partner.get("mchid").is_none());

    let sub = |number: &str| SubOrder {
        mchid: "1900000001".into(),
        sub_mchid: Some("1900000101".into()),
        out_trade_no: number.into(),
        transaction_id: format!("T{number}"),
        total_fen: 50,
    };
    let combined = wechat.combined("C1", &[sub("PO1"), sub("PO2")]);
    assert_eq!(combined["sub_orders"][1]["amount"]["total_amount"], 50);
    assert_eq!(combined["sub_orders"][1]["sub_mchid"], "1900000101");

    let mut refund = wechat.refund("PO1", "T1", "RF1", 100, 30);
    assert_eq!((&refund["amount"]["total"], &refund["amount"]["refund"]), (&json!(100), &json!(30)));
    assert_eq!(wechat.notify_refund(&refund).event_type, "REFUND.SUCCESS");
    let success = wechat.notify_refund(&refund);
    refund["refund_status"] = json!("ABNORMAL");
    let abnormal = wechat.notify_refund(&wechat.as_partner(refund, "1900000101"));
    assert_eq!(abnormal.event_type, "REFUND.ABNORMAL");
    assert_ne!(abnormal.id, success.id);
    assert_eq!(wechat.profit_sharing("T1", "S1", "1900000201", 5)["receiver"]["amount"], 5);
    assert_eq!(wechat.transfer("B1", 5, "FAIL")["state"], "FAIL");
}

#[test]
fn answers_of_the_api_are_signed() {
    let wechat = Wechat::new("1900000001");
    let answer = wechat.answer(&json!({ "trade_state": "NOTPAY" }), NOW);
    let as_request = Request { headers: answer.headers.clone(), body: answer.body.clone() };
    assert!(signed_by(&as_request, &wechat.public_key));
    let empty = wechat.answer_with(204, vec![], NOW);
    assert!(signed_by(&Request { headers: empty.headers, body: empty.body }, &wechat.public_key));
    assert_eq!(wechat.answer_unsigned(404, &json!({})).header("Wechatpay-Signature"), None);
}

#[test]
fn checks_a_merchants_authorization() {
    let wechat = Wechat::new("1900000001");
    let path = "/v3/pay/transactions/out-trade-no/PO1?mchid=1900000001";
    let signature = wechat.merchant_key.sign_sha256(&request_text("GET", path, "1767294247", "nonce", b""));
    let serial = &wechat.merchant_serial;
    let header = format!(
        r#"WECHATPAY2-SHA256-RSA2048 mchid="1900000001",nonce_str="nonce",signature="{signature}",timestamp="1767294247",serial_no="{serial}""#
    );
    let check = |path: &str, now, header: &str| wechat.check_authorization("GET", path, b"", header, now);
    assert_eq!(check(path, NOW + 300, &header), Ok(()));
    for (path, now, header, why) in [
        ("/v3/other", NOW, header.clone(), "signature is wrong"),
        (path, NOW + 301, header.clone(), "timestamp is more than"),
        (path, NOW, header.replace("mchid=\"1900000001\"", "mchid=\"1900000002\""), "mchid is another"),
        (path, NOW, header.replace(serial.as_str(), "00"), "serial_no is not"),
        (path, NOW, header.replace("nonce_str", "nonce"), "nonce_str is missing"),
        (path, NOW, format!("Bearer {header}"), "scheme"),
    ] {
        let error = check(path, now, &header).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
}
