//! What the platforms are told: exact bytes, never a redirect, never a success that nothing stands behind.

use crate::support::*;
use payonce_sim::{Request, Response, courier::Courier, faults};

/// F052: the status is WeChat's verdict, and exactly 204 without a body is "taken".
#[tokio::test(flavor = "multi_thread")]
async fn wechat_is_told_204_and_nothing_more() {
    let house = House::start().await;
    let order = fresh("F052-");
    house.order(&order, 100).await;
    let request = send_wx(&wx_paid(&order, 100));
    let mut bytes = request.to_http(&house.notify_url("wx-main")).unwrap();
    // On the wire: not even a Content-Length or an empty chunk.
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    bytes.splice(head_end..head_end, *b"\r\nConnection: close");
    let (status, head, body) = house.raw(&bytes).await;
    assert_eq!((status, body.as_slice()), (204, b"".as_slice()));
    let head = head.to_lowercase();
    for never in ["content-length", "transfer-encoding", "content-type", "location", "set-cookie"] {
        assert!(!head.contains(never), "{head}");
    }
    wx_acknowledged(&house.deliver("wx-main", &request).await);
}

/// F054: Alipay compares the body with seven bytes.
#[tokio::test(flavor = "multi_thread")]
async fn alipay_is_told_seven_bytes() {
    let house = House::start().await;
    let order = fresh("F054-");
    house.order(&order, 8888).await;
    let request = send_ali(&ali_paid(&order, "88.88"));
    for _ in 0..2 {
        let answer = house.deliver("ali-main", &request).await;
        ali_acknowledged(&answer);
        assert_eq!(answer.body, [0x73, 0x75, 0x63, 0x63, 0x65, 0x73, 0x73]);
        assert_eq!(answer.header("content-length"), Some("7"));
        assert_eq!(answer.header("content-encoding"), None);
    }
    // Compression is not even done for those who ask for it.
    let asking = faults::with_header(&request, "Accept-Encoding", "gzip, br");
    ali_acknowledged(&house.deliver("ali-main", &asking).await);
    // Failure is `fail`, for whatever reason: forged, panicked, another method.
    ali_refused(&house.deliver("ali-main", &faults::tampered_field(&request, "total_amount", "0.01")).await, 401);
}

/// F054: also a panic answers in the failing form, and the next delivery is booked.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure_and_not_the_end() {
    let trouble = std::sync::Arc::new(Trouble::default());
    let house = House::with(Plan { trouble: Some(trouble.clone()), ..Plan::default() }).await;
    let (wx, ali) = (fresh("F054P-"), fresh("F054P-"));
    house.order(&wx, 100).await;
    house.order(&ali, 100).await;
    // In the channel, while it reads: for a callback and for a query answer.
    wx_refused(&house.deliver("wx-panics", &send_wx(&wx_paid(&wx, 100))).await, 500);
    let answer = Response { status: 200, headers: vec![], body: b"{}".to_vec() };
    let (status, told) = crate::queries::hand_in(&house, "wx-panics", &answer).await;
    assert_eq!((status, told["error"]["code"].as_str()), (500, Some("internal")), "{told}");
    // While it is booked.
    trouble.panic.store(1, std::sync::atomic::Ordering::SeqCst);
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await, 503);
    trouble.panic.store(1, std::sync::atomic::Ordering::SeqCst);
    ali_refused(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await, 503);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await);
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await);
}

/// F137: both slash forms are the notify URL; everything else is refused, and nothing is ever a redirect.
#[tokio::test(flavor = "multi_thread")]
async fn no_shape_of_the_url_is_redirected() {
    let house = House::start().await;
    let order = fresh("F137-");
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    let deliver = async |path: &str| {
        let url = format!("http://{}{path}", house.running.public);
        Courier.deliver(&url, &send_wx(&event), PATIENCE).await.outcome.unwrap()
    };
    for path in ["/notify/wx-main", "/notify/wx-main/", "/notify/wx-main?from=proxy", "/notify/%77x-main"] {
        wx_acknowledged(&deliver(path).await);
    }
    for path in [
        "/",
        "//notify/wx-main",
        "/notify//wx-main",
        "/notify/wx-main//",
        "/notify/WX-MAIN",
        "/Notify/wx-main",
        "/notify",
        "/notify/",
        "/notify/wx-main/extra",
        "/notify/wx-main/../ali-main",
        "/api/orders",
        "/healthz",
        "/metrics",
    ] {
        wx_refused(&deliver(path).await, 404);
    }
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let ask = format!("{method} /notify/wx-main HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (status, head, body) = house.raw(ask.as_bytes()).await;
        assert_eq!(status, 405, "{method} {head}");
        assert!(head.to_lowercase().contains("allow: post"), "{head}");
        assert!(!String::from_utf8_lossy(&body).contains("success"));
        // In the account's own form.
        let ask = ask.replace("wx-main", "ali-main");
        let (status, _, body) = house.raw(ask.as_bytes()).await;
        assert_eq!(status, 405);
        assert_eq!(body, if method == "HEAD" { b"".to_vec() } else { b"fail".to_vec() });
    }
}

/// F027: names that split, decode or overflow badly are just unknown accounts.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_names_are_unknown_accounts() {
    let house = House::start().await;
    let before = house.books().await.rows().await;
    let long = "a".repeat(4096);
    let names = [
        "%00",
        "..%2f",
        "..%2fwx-main",
        "wx-main%00",
        "wx-main%20",
        "wx-main%0d%0aX:1",
        "%FF%FE",
        "%",
        "%2",
        "%zz",
        &long,
        "wx%252Dmain",
        "%E5%BA%97",
        "wx-main%2F",
        "{account}",
        "'or'1'='1",
        "%3Cscript%3E",
    ];
    let request = send_wx(&wx_paid(&fresh("F027-"), 100));
    for name in names {
        let answer = house.deliver(name, &request).await;
        wx_refused(&answer, 404);
        assert!(!String::from_utf8_lossy(&answer.body).contains(name), "the answer repeats what a stranger sent");
    }
    assert_eq!(house.books().await.rows().await, before);
    // Unknown accounts share one label, and none of them writes a line of its own into the log.
    assert!(house.metric(&["payonce_callbacks_total", "account=\"-\"", "unknown_account"]).await >= names.len() as f64);
    assert_eq!(house.metric(&["script"]).await, 0.0);
    assert!(log().lines().all(|line| !line.starts_with("X:1")));
}

/// F023: bodies that are empty, tiny, huge, nested or gone are refused in bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_none_are_refused() {
    let house = House::start().await;
    let before = house.books().await.rows().await;
    let signed = |body: &[u8]| -> Request {
        let mut headers = WECHAT.signed_headers(WECHAT.mode, payonce_sim::text::now_unix(), "nonce", body);
        headers.push(("Content-Type".into(), "application/json".into()));
        Request { headers, body: body.to_vec() }
    };
    let unsigned = |body: &[u8]| Request { headers: vec![], body: body.to_vec() };
    let nested = "[".repeat(10_000);
    let null_resource =
        br#"{"id":"1","event_type":"TRANSACTION.SUCCESS","resource_type":"encrypt-resource","resource":null}"#;
    for body in [b"".as_slice(), b"null", b"[]", b"\"\"", b"{}", b"\xff\xfe", nested.as_bytes(), null_resource] {
        // Even a right signature over it does not make it a message: those are kept and alarmed about, or plainly malformed.
        let answer = house.deliver("wx-main", &signed(body)).await;
        assert!((400..600).contains(&answer.status), "{answer:?}");
        wx_refused(&answer, answer.status);
        wx_refused(&house.deliver("wx-main", &unsigned(body)).await, 401);
        let answer = house.deliver("ali-main", &unsigned(body)).await;
        ali_refused(&answer, answer.status);
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    // 10 MB, with and without a declared length, and a lie of a length.
    let started = std::time::Instant::now();
    let huge = vec![b' '; 10 << 20];
    wx_refused(&house.deliver("wx-main", &unsigned(&huge)).await, 413);
    ali_refused(&house.deliver("ali-main", &unsigned(&huge)).await, 413);
    let just_too_large = vec![b' '; 64 * 1024 + 1];
    wx_refused(&house.deliver("wx-main", &unsigned(&just_too_large)).await, 413);
    let declared =
        "POST /notify/wx-main HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n{}";
    assert_eq!(house.raw(declared.as_bytes()).await.0, 413);
    let chunked = format!(
        "POST /notify/wx-main HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        just_too_large.len(),
        " ".repeat(just_too_large.len())
    );
    assert_eq!(house.raw(chunked.as_bytes()).await.0, 413);
    assert!(started.elapsed() < std::time::Duration::from_secs(4), "{:?}", started.elapsed());
    // Nothing of all that is in the books; what was signed and no message may be kept as evidence.
    let after = house.books().await.rows().await;
    assert_eq!(after[..6], before[..6]);
}

/// A body that trickles is given up, with an answer, before the platform would.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_given_up() {
    let mut plan = Plan::default();
    plan.limits.body_read_timeout = std::time::Duration::from_millis(150);
    let house = House::with(plan).await;
    let started = std::time::Instant::now();
    let half = "POST /notify/wx-main HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"id\"";
    let (status, head, body) = house.raw(half.as_bytes()).await;
    let answer = Response { status, headers: vec![("content-type".into(), "application/json".into())], body };
    wx_refused(&answer, 400);
    assert!(head.to_lowercase().contains("connection: close"), "{head}");
    assert!(started.elapsed() < std::time::Duration::from_secs(2));
}
