//! F138: what must never stand in a log, at debug level, after the whole matrix of callbacks.

use crate::support::*;
use payonce_sim::{alipay, faults, keys::RsaKey, text::now_unix};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_is_logged() {
    let house = House::start().await;
    let order = fresh("F138-");
    house.order(&order, 100).await;
    let plaintext = WECHAT.payment(&order, &wx_trade(&order), 100);
    let openid = plaintext["payer"]["openid"].as_str().unwrap().to_owned();
    let event = WECHAT.notify_payment(&plaintext);
    let good = send_wx(&event);
    let stranger = RsaKey::generate();
    let mut unknown_state = plaintext.clone();
    unknown_state["trade_state"] = json!("WHATEVER");
    let mut foreign = plaintext.clone();
    foreign["mchid"] = json!("1900000777");
    let mut mismatched = WECHAT.payment(&fresh("F138-"), &wx_trade(&order), 1);
    mismatched["payer"]["openid"] = json!(openid);
    let matrix = [
        good.clone(),
        good.clone(),
        faults::forged_wechat(&event, now_unix(), &stranger),
        faults::probe(&good),
        faults::undecryptable(&event, now_unix()),
        faults::not_json_inside(&event, now_unix()),
        faults::reserialised(&good),
        faults::stale(&event, now_unix(), 4000),
        send_wx(&WECHAT.notify_payment(&unknown_state)),
        send_wx(&WECHAT.notify_payment(&foreign)),
        send_wx(&WECHAT.notify_payment(&mismatched)),
    ];
    for request in &matrix {
        house.deliver("wx-main", request).await;
        house.deliver("ali-main", request).await;
        house.deliver("nobody", request).await;
    }
    let fields = ALIPAY.payment(&order, &ali_trade(&order), "1.00");
    let buyer_id = alipay::get(&fields, "buyer_id").unwrap().to_owned();
    let mut unknown = fields.clone();
    alipay::set(&mut unknown, "trade_status", "TRADE_WHATEVER");
    for fields in [fields, unknown] {
        let signed = send_ali(&ALIPAY.notify(fields));
        for request in [
            &signed,
            &faults::tampered_field(&signed, "seller_id", "2088999999999999"),
            &faults::dropped_field(&signed, "sign"),
        ] {
            house.deliver("ali-main", request).await;
        }
    }
    crate::queries::hand_in(&house, "wx-main", &WECHAT.answer(&plaintext, now_unix())).await;
    let (status, _) = house.api("GET", "/api/orders/none", None).await;
    assert_eq!(status, 404);
    let wrong = house
        .client
        .get(format!("http://{}/metrics", house.running.admin))
        .bearer_auth("wrong-token-7731")
        .send()
        .await;
    assert_eq!(wrong.unwrap().status(), 401);
    house.receiver.wait_for(PATIENCE, |counts| counts.distinct_taken >= 2).await;

    // The log of every gateway of this process, so of all the other tests as well.
    let log = log();
    assert!(log.contains(&format!("WXPAY:{order}:PAY")), "the log is being captured");
    let signature = good.header("Wechatpay-Signature").unwrap();
    let envelope: Value = serde_json::from_slice(&good.body).unwrap();
    let ciphertext = envelope["resource"]["ciphertext"].as_str().unwrap();
    for (what, secret) in [
        ("the API v3 key", WECHAT.api_v3_key.as_str()),
        ("an openid", &openid),
        ("any openid", "oSim"),
        ("a buyer", &buyer_id),
        ("a buyer's account", "138****0000"),
        ("a signature", &signature[..40]),
        ("a ciphertext", &ciphertext[..40]),
        ("a plaintext", "trade_state_desc"),
        ("a plaintext's bank", "bank_type"),
        ("a seller's mail", "seller@example.com"),
        ("the admin token", TOKEN),
        ("a wrong admin token", "wrong-token-7731"),
        ("the webhook secret", &SECRET[6..]),
    ] {
        let hits: Vec<&str> = log.lines().filter(|line| line.contains(secret)).collect();
        assert!(hits.is_empty(), "{what}: {hits:#?}");
    }
    // A rejection says size and hash instead.
    assert!(log_lines("not believed").iter().all(|line| line.contains("body_sha256=") && line.contains("body_bytes=")));
}
