//! What is believed, what is not, and what is kept of what is not.

use crate::support::*;
use payonce_sim::{faults, keys::RsaKey, text::now_unix};
use serde_json::json;

crate::databases::on_each_database!(
    what_is_not_signed_changes_nothing,
    what_is_signed_and_not_understood_is_kept,
    another_amount_or_currency_does_not_pay
);

/// F106: five minutes in both directions, and every odd spelling of a time.
#[tokio::test(flavor = "multi_thread")]
async fn the_window_has_two_sides() {
    let house = House::start().await;
    let order = fresh("F106-");
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    let before = house.books().await.rows().await;
    for seconds in [-302, 302, -86_400, 86_400] {
        wx_refused(&house.deliver("wx-main", &event.send(now_unix() + seconds, event.disorder)).await, 401);
    }
    let good = send_wx(&event);
    for text in [
        "0",
        "-1",
        "1e9",
        " 1700000000",
        "99999999999999999999",
        "１７００００００００",
        "",
        "+1700000000",
        "1700000000.0",
    ] {
        wx_refused(&house.deliver("wx-main", &faults::with_header(&good, "Wechatpay-Timestamp", text)).await, 401);
    }
    assert_eq!(house.books().await.rows().await, before, "refused messages touch nothing");
    for seconds in [-298, 298] {
        wx_acknowledged(&house.deliver("wx-main", &event.send(now_unix() + seconds, event.disorder)).await);
    }
    assert!(house.metric(&["payonce_rejections_total", "wx-main", "timestamp"]).await >= 4.0);
}

/// F108: the window is checked at the receipt; however late it is booked and delivered, it was in time.
#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_checked_at_the_receipt() {
    // The order is registered 20 minutes (by the gateway's clock) after its payment was held.
    static OFFSET: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
    fn clock() -> payonce::time::Micros {
        let offset = OFFSET.load(std::sync::atomic::Ordering::SeqCst);
        payonce::time::Micros(payonce::time::Micros::now().0 + offset * 1_000_000)
    }
    let house = House::with(Plan { clock, ..Plan::default() }).await;
    let order = fresh("F108-");
    let request = send_wx(&wx_paid(&order, 100));
    wx_refused(&house.deliver("wx-main", &request).await, 503);
    OFFSET.store(1200, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(house.order(&order, 100).await["status"], "PAID", "booked by the registration itself");
    house.effects_taken(2).await;
    // The same bytes are too old by now; a retry that the platform signs anew is a repeat.
    wx_refused(&house.deliver("wx-main", &request).await, 401);
    let event = wx_paid(&order, 100);
    wx_acknowledged(&house.deliver("wx-main", &event.send(now_unix() + 1200, event.disorder)).await);
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    let received: i64 = house.books().await.count("SELECT received_at FROM payonce_callback").await;
    assert!(received < payonce::time::Micros::now().0 + 60_000_000, "evidence has the time of the receipt");
}

/// Forged, swapped, reserialised, with a header too few or too many: refused, nothing written, one line each.
async fn what_is_not_signed_changes_nothing(on: Kind) {
    let house = House::on(on).await;
    let (order, other) = (fresh("FORGED-"), fresh("FORGED-"));
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    let good = send_wx(&event);
    let stranger = RsaKey::generate();
    let before = house.books().await.rows().await;
    let forged = [
        faults::forged_wechat(&event, now_unix(), &stranger),
        faults::swapped_body(&good, &send_wx(&wx_paid(&other, 1))),
        faults::reserialised(&good),
        faults::truncated(&good, 100),
        faults::flipped(&good, 17),
        faults::unknown_serial(&event, now_unix()),
        faults::without_header(&good, "Wechatpay-Signature"),
        faults::without_header(&good, "Wechatpay-Serial"),
        faults::duplicated_header(&good, "Wechatpay-Timestamp", "1"),
    ];
    for request in &forged {
        wx_refused(&house.deliver("wx-main", request).await, 401);
    }
    for probe in [faults::probe(&good), faults::probe_undecodable(&good)] {
        wx_refused(&house.deliver("wx-main", &probe).await, 401);
    }
    let alipay = ali_paid(&order, "1.00");
    let signed = send_ali(&alipay);
    for request in [
        faults::forged_alipay(&alipay, now_unix(), &stranger),
        faults::tampered_field(&signed, "total_amount", "0.01"),
        faults::dropped_field(&signed, "sign"),
        faults::duplicated_field(&signed, "out_trade_no", "X"),
    ] {
        let answer = house.deliver("ali-main", &request).await;
        ali_refused(&answer, answer.status);
        assert!((400..500).contains(&answer.status));
    }
    assert_eq!(house.books().await.rows().await, before);
    assert!(house.metric(&["payonce_rejections_total", "wx-main", "\"signature\""]).await >= 4.0);
    assert!(house.metric(&["payonce_probes_total", "wx-main"]).await >= 2.0);
    assert_eq!(house.metric(&["payonce_rejections_total", "probe"]).await, 0.0, "a probe is no forgery");
    // Meanwhile the real one is believed.
    wx_acknowledged(&house.deliver("wx-main", &good).await);
    ali_acknowledged(&house.deliver("ali-main", &signed).await);
}

/// Signed by the platform and not understood: refused, alarmed about, and the bytes are kept once.
async fn what_is_signed_and_not_understood_is_kept(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("SIGNED-");
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    let mut unknown_state = WECHAT.payment(&order, &wx_trade(&order), 100);
    unknown_state["trade_state"] = json!("WHATEVER");
    let mut foreign = WECHAT.payment(&order, &wx_trade(&order), 100);
    foreign["mchid"] = json!("1900000777");
    let undecryptable = faults::undecryptable(&event, now_unix());
    let cases = [
        ("undecryptable", 500, undecryptable.clone()),
        ("unknown_state", 500, send_wx(&WECHAT.notify_payment(&unknown_state))),
        ("foreign_identity", 403, send_wx(&WECHAT.notify_payment(&foreign))),
    ];
    for (reason, status, request) in &cases {
        let with_cookie = faults::with_header(request, "Cookie", "session=very-private-cookie");
        wx_refused(&house.deliver("wx-main", &with_cookie).await, *status);
        let mut books = house.books().await;
        assert_eq!(books.count(&format!("SELECT count(*) FROM payonce_callback WHERE verdict = '{reason}'")).await, 1);
        let headers =
            books.text(&format!("SELECT headers FROM payonce_callback WHERE verdict = '{reason}'")).await.unwrap();
        assert!(headers.to_lowercase().contains("wechatpay-signature"), "{headers}");
        assert!(!headers.contains("very-private-cookie"), "{headers}");
    }
    // The same bytes again are not kept again.
    wx_refused(&house.deliver("wx-main", &undecryptable).await, 500);
    let mut books = house.books().await;
    assert_eq!(books.count("SELECT count(*) FROM payonce_callback").await, 3);
    let body =
        books.count("SELECT count(*) FROM payonce_callback WHERE length(body) > 100 AND length(body_hash) = 64").await;
    assert_eq!(body, 3);
    assert_eq!(books.of(&order).await, (0, 0, 0));
    assert!(
        log_lines("somebody should look").iter().any(|line| line.contains("ERROR") && line.contains("undecryptable"))
    );
}

/// A kind of message that is not booked yet is kept, and acknowledged: repeats would not help.
#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_kind_is_kept_and_acknowledged() {
    let house = House::start().await;
    let transfer = WECHAT.transfer(&fresh("BILL"), 100, "SUCCESS");
    let event = WECHAT.notify(&transfer, "MCHTRANSFER.BILL.FINISHED", "mch_payment");
    for _ in 0..2 {
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&event)).await);
    }
    let mut books = house.books().await;
    let verdict = books.text("SELECT verdict FROM payonce_callback").await.unwrap();
    assert!(verdict.starts_with("unsupported:"), "{verdict}");
    assert!(house.metric(&["payonce_callbacks_total", "wx-main", "unsupported"]).await >= 2.0);
}

/// F073: signed only means that the platform sent it. An order of 999 yuan is not paid by one fen.
async fn another_amount_or_currency_does_not_pay(on: Kind) {
    let house = House::on(on).await;
    let (less, currency, ali) = (fresh("F073-"), fresh("F073-"), fresh("F073-"));
    for number in [&less, &currency, &ali] {
        house.order(number, 99_900).await;
    }
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&less, 1))).await);
    let mut dollars = WECHAT.payment(&currency, &wx_trade(&currency), 99_900);
    dollars["amount"]["currency"] = json!("USD");
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&WECHAT.notify_payment(&dollars))).await);
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "0.01"))).await);
    for (order, unapplied) in [(&less, 1), (&currency, 0), (&ali, 1)] {
        let shown = house.show(order).await;
        assert_eq!((&shown["status"], &shown["paid"]), (&json!("PENDING"), &json!(0)), "{shown}");
        assert_eq!(shown["unapplied"], unapplied);
        assert_eq!(shown["flow"][0]["disposition"], "mismatched");
        assert_eq!(shown["effects"][0]["event"], "payment.mismatched");
        assert_eq!(shown["callbacks"].as_array().unwrap().len(), 1);
    }
    house.effects_taken(3).await;
    assert!(log_lines(&less).iter().any(|line| line.contains("WARN") && line.contains("applied_mismatched")));
}
