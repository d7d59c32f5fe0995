//! What the shop's service gets, and what an operator can do about what it did not take.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::*;
use payonce::{
    rules::{EffectRule, Event, Rules},
    sink::{ClosureSink, DeliveryError},
};
use payonce_sim::receiver::Behaviour;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

crate::databases::on_each_database!(an_effect_is_delivered_until_taken, a_dead_effect_is_tried_again_by_hand);

/// Effects arrive signed, with their key, and again with the same key and bytes if they were not taken.
async fn an_effect_is_delivered_until_taken(on: Kind) {
    let mut plan = Plan { database: on, ..Plan::default() };
    for rule in &mut plan.rules.effects {
        rule.retry = vec![Duration::from_millis(10); 3];
    }
    let house = House::with(plan).await;
    house.receiver.behave(Behaviour { fail_each: 2, fail_status: 503, ..Behaviour::default() });
    let order = fresh("EFFECT.");
    let body = json!({"order_no": order, "amount": 100, "meta": {"sku": "书"}});
    assert_eq!(house.api("POST", "/api/orders", Some(body)).await.0, 201);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
    house.effects_taken(2).await;
    assert_eq!(house.receiver.counts().deliveries, 6);
    let delivery = &house.receiver.deliveries()[0];
    let header = |name: &str| delivery.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str());
    assert_eq!(header("content-type"), Some("application/json"));
    assert!(header("user-agent").unwrap().starts_with("payonce/"));
    assert!(!delivery.id.contains('.'), "{}", delivery.id);
    let payload: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert_eq!(payload["key"], delivery.id);
    assert_eq!((&payload["version"], &payload["event"]), (&json!(1), &json!("order.paid")));
    assert_eq!(
        (&payload["order_no"], &payload["amount"], &payload["meta"]),
        (&json!(order), &json!(100), &json!({"sku": "书"}))
    );
    // The stored bytes are the delivered bytes.
    let stored = house
        .books()
        .await
        .text(&format!("SELECT payload FROM payonce_effect WHERE effect_key = '{}'", delivery.id))
        .await;
    assert_eq!(stored.unwrap().into_bytes(), delivery.body);
}

/// A server that answers everything with these bytes, again and again until its caller has had enough. Counts requests.
async fn answering(bytes: &'static [u8], endless: bool) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let counter = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            // A delivery this small comes in one piece; and if not, the answer is just as strange.
            let _begun = stream.read(&mut request).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            while endless && stream.write_all(&[b'x'; 1024]).await.is_ok() {}
        }
    });
    (address, requests)
}

/// What a delivery to such a server ends in, and how many requests it took.
async fn ends_in(bytes: &'static [u8], endless: bool) -> (String, u32) {
    let (address, requests) = answering(bytes, endless).await;
    let mut plan = Plan { shop_url: Some(format!("http://{address}/hook?token=not-for-logs")), ..Plan::default() };
    plan.rules.effects.truncate(1);
    plan.rules.effects[0].retry = Vec::new();
    let house = House::with(plan).await;
    let order = fresh("STRANGE-");
    house.order(&order, 100).await;
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
    let effect = wait_for_state(&house, &order, "dead").await;
    (effect["last_error"].as_str().unwrap().to_owned(), requests.load(Ordering::SeqCst))
}

/// A redirect is not followed, and is no success; an answer without end is read to its first 4 KiB; nonsense is an error.
#[tokio::test(flavor = "multi_thread")]
async fn strange_answers_are_no_delivery() {
    let redirect =
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(ends_in(redirect, false).await, ("answered 307".to_owned(), 1));
    let (endless, _) = ends_in(b"HTTP/1.1 500 Oh\r\n\r\n<html>\x1b[2J\n", true).await;
    assert!(endless.starts_with("answered 500: <html> [2J x"), "{endless}");
    assert_eq!(endless.chars().count(), "answered 500: ".len() + 200);
    let (nonsense, _) = ends_in(b"220 smtp.example ESMTP\r\n", false).await;
    assert!(!nonsense.contains("not-for-logs") && nonsense.contains("HTTP"), "{nonsense}");
    assert!(log_lines("not-for-logs").is_empty());
}

async fn wait_for_state(house: &House, order: &str, state: &str) -> Value {
    for _ in 0..200 {
        let shown = house.show(order).await;
        if shown["effects"][0]["state"] == state {
            return shown["effects"][0].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{order} has no effect that is {state}: {}", house.show(order).await);
}

/// Listing pages by key; a dead effect is tried again with its key; others are not.
async fn a_dead_effect_is_tried_again_by_hand(on: Kind) {
    let mut plan = Plan { database: on, ..Plan::default() };
    plan.rules.effects.truncate(1);
    plan.rules.effects[0].retry = Vec::new();
    let house = House::with(plan).await;
    house.receiver.behave(Behaviour { fail_next: 3, ..Behaviour::default() });
    let orders: Vec<String> = (0..3).map(|_| fresh("DEAD-")).collect();
    for order in &orders {
        house.order(order, 100).await;
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(order, 100))).await);
        wait_for_state(&house, order, "dead").await;
    }
    let mut keys = Vec::new();
    let mut path = "/api/effects?state=dead&limit=2".to_owned();
    loop {
        let (status, page) = house.api("GET", &path, None).await;
        assert_eq!(status, 200, "{page}");
        for effect in page["effects"].as_array().unwrap() {
            assert_eq!((&effect["state"], effect.get("payload")), (&json!("dead"), None));
            keys.push(effect["key"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/effects?state=dead&limit=2&after={next}");
    }
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys.is_sorted());
    assert_eq!(house.metric(&["payonce_effects{state=\"dead\"}"]).await, 3.0);

    let (status, effect) = house.api("GET", &format!("/api/effects/{}", keys[0]), None).await;
    assert_eq!(
        (status, &effect["last_error"], &effect["payload"]["key"]),
        (200, &json!("answered 500"), &json!(keys[0]))
    );
    let (status, retried) = house.api("POST", &format!("/api/effects/{}/retry", keys[0]), None).await;
    assert_eq!((status, &retried["key"]), (200, &json!(keys[0])), "{retried}");
    house.effects_taken(1).await;
    let deliveries = house.receiver.deliveries();
    let of_key: Vec<_> = deliveries.iter().filter(|delivery| delivery.id == keys[0]).collect();
    assert_eq!(of_key.len(), 2);
    assert_eq!(of_key[0].body, of_key[1].body);
    let (status, answer) = house.api("POST", &format!("/api/effects/{}/retry", keys[0]), None).await;
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("effect_not_dead")), "{answer}");
    let (status, answer) = house.api("POST", "/api/effects/none/retry", None).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("effect_not_found")));
    for (query, part) in
        [("state=lost", "there are ready, leased"), ("limit=0", "limit is 0"), ("limit=501", "501"), ("limt=1", "limt")]
    {
        let (status, answer) = house.api("GET", &format!("/api/effects?{query}"), None).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_request")), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
    }
}

/// One worker per sink: a slow sink holds up no other; an effect that is being delivered is not retried by hand.
#[tokio::test(flavor = "multi_thread")]
async fn each_sink_has_a_worker_of_its_own() {
    let delivered = Arc::new(std::sync::Mutex::new(Vec::new()));
    let quick = {
        let delivered = delivered.clone();
        ClosureSink::new(move |effect: payonce::store::Effect| {
            delivered.lock().unwrap().push(effect.key.to_string());
            async { Ok::<_, DeliveryError>(()) }
        })
    };
    let rules = Rules {
        effects: vec![
            rule(Event::OrderPaid, "ship"),
            EffectRule { sink: "quick".into(), ..rule(Event::OrderPaid, "quick") },
        ],
        ..Rules::default()
    };
    let house = House::with(Plan { rules, sinks: vec![("quick", Arc::new(quick))], ..Plan::default() }).await;
    house.receiver.behave(Behaviour { delay: Duration::from_secs(4), ..Behaviour::default() });
    let order = fresh("SINKS-");
    house.order(&order, 100).await;
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
    let key = format!("default:{order}:order-paid:ship");
    let until = Instant::now() + PATIENCE;
    while delivered.lock().unwrap().is_empty()
        || house.api("GET", &format!("/api/effects/{key}"), None).await.1["state"] != "leased"
    {
        assert!(Instant::now() < until, "nobody has it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(*delivered.lock().unwrap(), [format!("default:{order}:order-paid:quick")]);
    let (status, answer) = house.api("POST", &format!("/api/effects/{key}/retry"), None).await;
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("effect_leased")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains(" s"), "{answer}");
    house.effects_taken(1).await;
}
