//! `/api/orders`: strict in what it takes, complete in what it shows.

use crate::support::*;
use payonce_sim::text::now_unix;
use serde_json::{Value, json};

crate::databases::on_each_database!(
    registering_again_is_a_repeat_and_differing_is_refused,
    an_order_shows_everything_about_it,
    health_and_metrics
);

#[tokio::test(flavor = "multi_thread")]
async fn only_the_token_opens_the_admin_api() {
    let house = House::start().await;
    let base = format!("http://{}", house.running.admin);
    let routes = ["/api/orders", "/api/orders/x", "/api/effects", "/metrics", "/nothing", "/"];
    for route in routes {
        for token in
            [None, Some(""), Some("wrong"), Some(&TOKEN[..TOKEN.len() - 1]), Some("admin-token-of-the-tests-5fd1x")]
        {
            let mut request = house.client.get(format!("{base}{route}"));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{route}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
            let body: Value = answer.json().await.unwrap();
            assert_eq!(body["error"]["code"], "unauthorized", "every route alike, so that none is given away");
        }
    }
    let basic = house.client.get(format!("{base}/metrics")).basic_auth("x", Some(TOKEN)).send().await.unwrap();
    assert_eq!(basic.status(), 401);
    let lower =
        house.client.get(format!("{base}/metrics")).header("authorization", format!("bearer {TOKEN}")).send().await;
    assert_eq!(lower.unwrap().status(), 200);
    for open in ["/healthz", "/readyz"] {
        assert_eq!(house.client.get(format!("{base}{open}")).send().await.unwrap().status(), 200, "{open}");
    }
    assert_eq!(house.api("GET", "/nothing", None).await.0, 404);
    let (status, answer) = house.api("DELETE", "/api/orders", None).await;
    assert_eq!((status, &answer["error"]["code"]), (405, &json!("method_not_allowed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_read_strictly() {
    let house = House::start().await;
    let long = "x".repeat(129);
    let nested = |open: &str, depth: usize| {
        let (opened, closed) = (open.repeat(depth), if open == "[" { String::new() } else { "}".repeat(depth) });
        format!(r#"{{"order_no":"S-1","amount":1,"meta":{opened}1{closed}}}"#)
    };
    let table: Vec<(String, u16, &str, &str)> = [
        (r#"{"order_no":"S-1","amount":100,"amout":1}"#, 400, "invalid_request", "unknown field `amout`"),
        (r#"{"order_no":"S-1","amount":100,"amout":1}"#, 400, "invalid_request", "line 1 column 38"),
        (r#"{"order_no":"S-1"}"#, 400, "invalid_request", "missing field `amount`"),
        (r#"{"amount":1}"#, 400, "invalid_request", "missing field `order_no`"),
        (r#"{"order_no":"S-1","amount":0}"#, 400, "invalid_request", "amount is 0"),
        (r#"{"order_no":"S-1","amount":-5}"#, 400, "invalid_request", "amount is -5"),
        (r#"{"order_no":"S-1","amount":1.0}"#, 400, "invalid_request", "floating point"),
        (r#"{"order_no":"S-1","amount":1e2}"#, 400, "invalid_request", "floating point"),
        (r#"{"order_no":"S-1","amount":"1"}"#, 400, "invalid_request", "string"),
        (r#"{"order_no":"S-1","amount":9223372036854775808}"#, 400, "invalid_request", "9223372036854775808"),
        (r#"{"order_no":"S-1","amount":1,"amount":2}"#, 400, "invalid_request", "duplicate field `amount`"),
        (r#"{"order_no":"","amount":1}"#, 400, "invalid_request", "order_no is empty"),
        (r#"{"order_no":"a\u0000b","amount":1}"#, 400, "invalid_request", "control character"),
        (r#"{"order_no":"S-1","amount":1,"currency":"cny"}"#, 400, "invalid_request", "currency: "),
        (r#"{"order_no":"S-1","amount":1,"kind":""}"#, 400, "invalid_request", "kind is empty"),
        (r#"{"order_no":"S-1","amount":1,"meta":[1]}"#, 400, "invalid_request", "meta must be an object"),
        (r#"{"order_no":"S-1","amount":1,"meta":"{}"}"#, 400, "invalid_request", "meta must be an object"),
        (r#"{"order_no":"S-1","amount":1,"shop":"nowhere"}"#, 400, "shop_without_account", "nowhere"),
        (r#"{"order_no":"S-1","amount":1,"attempts":[]}"#, 409, "no_number", ""),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"nobody","out_trade_no":"x"}]}"#,
            400,
            "unknown_account",
            "attempts[0].account",
        ),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"wx-other","out_trade_no":"x"}]}"#,
            400,
            "account_of_other_shop",
            "wx-other pays orders of shop other",
        ),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"wx-main","out_trade_no":""}]}"#,
            400,
            "invalid_request",
            "attempts[0].out_trade_no",
        ),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"wx-main","out_trade_no":"x","amount":0}]}"#,
            400,
            "invalid_request",
            "attempts[0].amount is 0",
        ),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"wx-main","out_trade_no":"x","price":1}]}"#,
            400,
            "invalid_request",
            "unknown field `price`",
        ),
        (
            r#"{"order_no":"S-1","amount":1,"attempts":[{"account":"wx-main","out_trade_no":"x"},{"account":"wx-main","out_trade_no":"x","amount":2}]}"#,
            400,
            "invalid_request",
            "attempts[1]",
        ),
        ("", 400, "invalid_json", "line 1"),
        ("{", 400, "invalid_json", "line 1 column 1"),
        ("order_no=S-1", 400, "invalid_json", "line 1"),
        ("[]", 400, "invalid_request", ""),
        ("null", 400, "invalid_request", ""),
    ]
    .map(|(body, status, code, part)| (body.to_owned(), status, code, part))
    .into_iter()
    .chain([
        (format!(r#"{{"order_no":"{long}","amount":1}}"#), 400, "invalid_request", "order_no has 129 bytes"),
        (format!(r#"{{"order_no":"{}","amount":1}}"#, &long[..65]), 400, "invalid_request", "the order number cannot be"),
        (format!(r#"{{"order_no":"S-1","amount":1,"meta":{{"x":"{}"}}}}"#, "y".repeat(70_000)), 413, "too_large", ""),
        (nested("[", 1000), 400, "invalid_json", "line 1"),
        (nested("{\"a\":", 40), 400, "invalid_request", "meta is nested more than 32 deep"),
        (nested("{\"a\":", 4000), 400, "invalid_request", "meta: recursion limit"),
        (r#"{"order_no":"S-1","amount":1,"meta":{"x":1e999}}"#.to_owned(), 400, "invalid_request", "meta: number out of range"),
    ])
    .collect();
    for (body, status, code, part) in table {
        let shown = &body[..body.len().min(120)];
        let (got, answer) = house.api_text("POST", "/api/orders", Some(body.clone())).await;
        let error = &answer["error"];
        assert_eq!((got, error["code"].as_str()), (status, Some(code)), "{shown}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(part), "{shown}: {answer}");
        assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{answer}");
    }
    assert_eq!(house.books().await.rows().await, [0; 7], "nothing of it was registered");
}

async fn registering_again_is_a_repeat_and_differing_is_refused(on: Kind) {
    let house = House::on(on).await;
    let (order, other) = (fresh("REG-"), fresh("REG-"));
    let register = async |body: Value| house.api("POST", "/api/orders", Some(body)).await;
    let (status, created) =
        register(json!({"order_no": order, "amount": 100, "meta": {"sku": "书", "n": 12345678901234567890123_f64}}))
            .await;
    assert_eq!(status, 201);
    assert_eq!(created["attempts"].as_array().unwrap().len(), 2, "one per account of the shop");
    for attempt in created["attempts"].as_array().unwrap() {
        assert_eq!((&attempt["out_trade_no"], &attempt["amount"]), (&json!(order), &json!(100)));
        assert!(["wx-main", "ali-main"].contains(&attempt["account"].as_str().unwrap()));
    }
    assert_eq!(
        (&created["kind"], &created["currency"], &created["shop"]),
        (&json!("goods"), &json!("CNY"), &json!("default"))
    );
    assert_eq!(register(json!({"order_no": order, "amount": 100})).await.0, 200);
    let more = json!({"order_no": order, "amount": 100, "attempts": [{"account": "wx-main", "out_trade_no": format!("{order}-2")}]});
    let (status, extended) = register(more).await;
    assert_eq!((status, extended["attempts"].as_array().unwrap().len()), (200, 3));
    for (body, code) in [
        (json!({"order_no": order, "amount": 101}), "order_amount_differs"),
        (json!({"order_no": order, "amount": 100, "currency": "USD"}), "order_amount_differs"),
        (json!({"order_no": order, "amount": 100, "kind": "recharge"}), "order_kind_differs"),
        (
            json!({"order_no": order, "amount": 100, "attempts": [{"account": "wx-main", "out_trade_no": order, "amount": 99}]}),
            "attempt_amount_differs",
        ),
        (
            json!({"order_no": other, "amount": 100, "attempts": [{"account": "wx-main", "out_trade_no": order}]}),
            "number_taken",
        ),
    ] {
        let (status, answer) = register(body).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (409, Some(code)), "{answer}");
    }
    // The same number at another shop's account is another number.
    let elsewhere = json!({"shop": "other", "order_no": order, "amount": 5});
    assert_eq!(register(elsewhere).await.0, 201);
    let (status, shown) = house.api("GET", &format!("/api/orders/{order}?shop=other"), None).await;
    assert_eq!((status, &shown["amount"]), (200, &json!(5)));
    assert_eq!(house.show(&order).await["amount"], 100);
    let (status, answer) = house.api("GET", &format!("/api/orders/{other}"), None).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("order_not_found")));
    let (status, answer) = house.api("GET", &format!("/api/orders/{order}?shopp=other"), None).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_request")), "{answer}");
}

async fn an_order_shows_everything_about_it(on: Kind) {
    let house = House::on(on).await;
    let order = format!("{} 订单/七", fresh("SHOW-"));
    let number = fresh("N");
    let body = json!({
        "order_no": order, "amount": 500, "kind": "recharge", "meta": {"user": 7},
        "attempts": [{"account": "wx-main", "out_trade_no": number}],
    });
    assert_eq!(house.api("POST", "/api/orders", Some(body)).await.0, 201);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&number, 500))).await);
    let refund = WECHAT.refund(&number, &wx_trade(&number), "R-1", 500, 200);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&WECHAT.notify_refund(&refund))).await);
    // A second refund that names no payment of ours: held.
    let strange = WECHAT.refund(&number, "4200000000000000000000000000", "R-2", 500, 100);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&WECHAT.notify_refund(&strange))).await);
    house.effects_taken(2).await;
    let path = "/api/orders/".to_owned() + &order.replace(' ', "%20").replace('/', "%2F");
    let (status, shown) = house.api("GET", &path, None).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["status"], "PARTIALLY_REFUNDED");
    assert_eq!((&shown["paid"], &shown["refunded"], &shown["unapplied"]), (&json!(500), &json!(200), &json!(0)));
    assert_eq!((&shown["kind"], &shown["meta"]), (&json!("recharge"), &json!({"user": 7})));
    assert!(shown["paid_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(shown["closed_at"], Value::Null);
    let attempt = json!({
        "account": "wx-main", "merchant": "WXPAY:1900000001", "out_trade_no": number, "amount": 500,
        "state": "OPEN", "closed_at": null,
    });
    assert_eq!(shown["attempts"], json!([attempt]));
    let flow = shown["flow"].as_array().unwrap();
    assert_eq!(flow.len(), 2);
    let payment = flow.iter().find(|row| row["kind"] == "payment").unwrap();
    assert_eq!(payment["key"], format!("WXPAY:{number}:PAY"));
    assert_eq!((&payment["trade_no"], &payment["source"]), (&json!(wx_trade(&number)), &json!("callback")));
    let held = shown["held"].as_array().unwrap();
    assert_eq!((held.len(), &held[0]["reason"]), (1, &json!("awaiting_payment")));
    assert_eq!(shown["callbacks"].as_array().unwrap().len(), 3);
    assert!(shown["effects"].as_array().unwrap().iter().all(|effect| effect["state"] == "done"));
    // No name of the buyer anywhere.
    assert!(!shown.to_string().contains("oSim"));
}

/// Ready means that the database answers; alive only that the process does.
async fn health_and_metrics(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("HEALTH-");
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    wx_acknowledged(&house.deliver("wx-main", &event.send(now_unix(), event.disorder)).await);
    let (status, ready) = house.api("GET", "/readyz", None).await;
    assert_eq!((status, ready), (200, json!({"status": "ready"})));
    assert_eq!(house.api("GET", "/healthz", None).await.0, 200);
    let (_, page) = house.api("GET", "/metrics", None).await;
    let page = page.as_str().unwrap();
    for name in [
        "payonce_callbacks_total{account=\"wx-main\",outcome=\"applied\"}",
        "payonce_key_verified_total{account=\"wx-main\",key=",
        "payonce_answer_seconds_bucket",
        "payonce_queue_deliveries",
        "payonce_connections{listener=\"public\"}",
        "payonce_held_notices",
        "payonce_effects{state=\"dead\"}",
        "payonce_effects_oldest_due_seconds",
        "# HELP payonce_callbacks_total",
    ] {
        assert!(page.contains(name), "{name} is missing in\n{page}");
    }
}
