//! However often, in whatever bytes, from wherever: a fact changes the books once.

use std::{sync::Arc, time::Duration};

use crate::support::*;
use payonce_sim::{
    Notification,
    courier::{Courier, Plan as Delivery},
    text::now_unix,
    wechat::{Disorder, Mode},
};
use serde_json::json;

crate::databases::on_each_database!(
    a_hundred_deliveries_are_one_payment,
    fifty_at_a_barrier_are_one_payment,
    another_notification_id_is_the_same_payment,
    waiting_does_not_block_the_payment,
    a_repeat_after_the_work_resets_nothing,
    a_retry_is_recognised_by_what_it_says,
    a_replay_inside_the_window_is_a_repeat
);

/// The headline: 100 deliveries, each signed anew, 20 at once: one key, one flow row, one PAID, each effect once.
async fn a_hundred_deliveries_are_one_payment(on: Kind) {
    let house = House::on(on).await;
    let (wx, ali) = (fresh("HUNDRED-"), fresh("HUNDRED-"));
    house.order(&wx, 19_900).await;
    house.order(&ali, 19_900).await;
    let plan = Delivery { times: 100, concurrency: 20, seed: 7, ..Delivery::default() };
    let mut alternating = wx_paid(&wx, 19_900);
    alternating.disorder = Disorder { alternate: true, ..Disorder::default() };
    let events: [(&str, Arc<dyn Notification>); 2] =
        [("wx-main", Arc::new(alternating)), ("ali-main", Arc::new(ali_paid(&ali, "199.00")))];
    for (account, event) in events {
        let report = Courier.deliver_many(&[house.notify_url(account)], event, plan, |_, _| {}).await;
        assert_eq!((report.taken, report.refused, report.failed), (100, 0, 0), "{:?}", report.by_status);
    }
    let mut books = house.books().await;
    for (order, account) in [(&wx, "wx-main"), (&ali, "ali-main")] {
        assert_eq!(books.of(order).await, (1, 1, 2), "{order}");
        let shown = house.show(order).await;
        assert_eq!((&shown["status"], &shown["paid"]), (&json!("PAID"), &json!(19_900)));
        assert_eq!(shown["flow"][0]["account"], account);
        assert_eq!(shown["callbacks"].as_array().unwrap().len(), 1, "evidence of repeats is not kept");
    }
    house.effects_taken(4).await;
    // Repeats were counted, by the flush at the latest.
    let house = house.restart(Plan::default()).await;
    for order in [&wx, &ali] {
        assert_eq!(house.show(order).await["flow"][0]["repeats"], 99);
    }
    assert!(house.metric(&["payonce_callbacks_total", "wx-main", "repeated"]).await >= 99.0);
}

/// F038: fifty identical callbacks whose last byte goes out at one moment.
async fn fifty_at_a_barrier_are_one_payment(on: Kind) {
    let house = House::on(on).await;
    for _ in 0..rounds(3) {
        let order = fresh("F038-");
        house.order(&order, 100).await;
        let plan = Delivery { times: 50, concurrency: 50, barrier: true, ..Delivery::default() };
        let event = Arc::new(wx_paid(&order, 100));
        let report = Courier.deliver_many(&[house.notify_url("wx-main")], event, plan, |_, _| {}).await;
        assert_eq!((report.taken, report.refused, report.failed), (50, 0, 0), "{:?}", report.by_status);
        assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    }
    house.effects_taken(2 * rounds(3) as usize).await;
}

/// F044: the notification's id names a message, not the money.
async fn another_notification_id_is_the_same_payment(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("F044-");
    house.order(&order, 100).await;
    let first = wx_paid(&order, 100);
    let mut second = first.clone();
    second.id = "another-id".into();
    second.create_time = "2030-01-01T00:00:00+08:00".into();
    let mut paid_at = None;
    for event in [&first, &second, &first] {
        wx_acknowledged(&house.deliver("wx-main", &send_wx(event)).await);
        let shown = house.show(&order).await;
        let at = paid_at.get_or_insert_with(|| shown["paid_at"].clone()).clone();
        assert_eq!(shown["paid_at"], at, "the first paid_at is kept");
    }
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    house.effects_taken(2).await;
    let lines = log_lines(&format!("WXPAY:{order}:PAY"));
    let (booked, repeats) =
        (lines.iter().filter(|line| line.contains("booked")), lines.iter().filter(|line| line.contains("a repeat")));
    assert_eq!((booked.count(), repeats.count()), (1, 2), "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("WECHATPAY2-SHA256-RSA2048")), "the rule that matched: {lines:#?}");
}

/// F046: a message that is not final uses nobody's key up.
async fn waiting_does_not_block_the_payment(on: Kind) {
    let house = House::on(on).await;
    let (wx, ali) = (fresh("F046-"), fresh("F046-"));
    house.order(&wx, 100).await;
    house.order(&ali, 100).await;
    let mut waiting = WECHAT.payment(&wx, &wx_trade(&wx), 100);
    waiting["trade_state"] = json!("PAYERROR");
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&WECHAT.notify_payment(&waiting))).await);
    let mut fields = ALIPAY.payment(&ali, &ali_trade(&ali), "1.00");
    payonce_sim::alipay::set(&mut fields, "trade_status", "WAIT_BUYER_PAY");
    payonce_sim::alipay::remove(&mut fields, "gmt_payment");
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ALIPAY.notify(fields))).await);
    for order in [&wx, &ali] {
        assert_eq!(house.books().await.of(order).await, (0, 0, 0));
        assert_eq!(house.show(order).await["status"], "PENDING");
    }
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await);
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await);
    for order in [&wx, &ali] {
        assert_eq!(house.books().await.of(order).await, (1, 1, 2));
        assert_eq!(house.show(order).await["status"], "PAID");
    }
    house.effects_taken(4).await;
    assert!(house.metric(&["payonce_callbacks_total", "wx-main", "not_final"]).await >= 1.0);
}

/// F049: a repeat after everything was delivered wakes nothing up.
async fn a_repeat_after_the_work_resets_nothing(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("F049-");
    house.order(&order, 100).await;
    let event = wx_paid(&order, 100);
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&event)).await);
    house.effects_taken(2).await;
    for _ in 0..5 {
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&event)).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    house.effects_taken(2).await;
    assert_eq!(house.receiver.counts().deliveries, 2);
    let shown = house.show(&order).await;
    for effect in shown["effects"].as_array().unwrap() {
        assert_eq!((&effect["state"], &effect["tries"]), (&json!("done"), &json!(1)), "{effect}");
    }
}

/// F051: a retry has other bytes (nonce, ciphertext, time, signature, key); another transaction may have the same nonce.
async fn a_retry_is_recognised_by_what_it_says(on: Kind) {
    let house = House::on(on).await;
    let (order, other, ali) = (fresh("F051-"), fresh("F051-"), fresh("F051-"));
    for number in [&order, &other, &ali] {
        house.order(number, 100).await;
    }
    let event = wx_paid(&order, 100);
    for mode in [Mode::PublicKey, Mode::Certificate, Mode::PublicKey] {
        for reencrypt in [true, false] {
            let disorder = Disorder { reencrypt, fresh_id: reencrypt, mode: Some(mode), ..Disorder::default() };
            wx_acknowledged(&house.deliver("wx-main", &event.send(now_unix(), disorder)).await);
        }
    }
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    let mut alipay = ali_paid(&ali, "1.00");
    for shuffle in [false, true, true] {
        alipay.shuffle = shuffle;
        ali_acknowledged(&house.deliver("ali-main", &alipay.send(now_unix() + 30)).await);
    }
    alipay.charset = payonce_sim::alipay::Charset::Gbk;
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&alipay)).await);
    assert_eq!(house.books().await.of(&ali).await, (1, 1, 2));
    // The same nonce in the headers, another transaction in the body: its own payment.
    let first = send_wx(&event);
    let mut body_only = send_wx(&wx_paid(&other, 100));
    let nonce = first.header("Wechatpay-Nonce").unwrap();
    body_only.headers = WECHAT.signed_headers(WECHAT.mode, now_unix(), nonce, &body_only.body);
    wx_acknowledged(&house.deliver("wx-main", &body_only).await);
    assert_eq!(house.books().await.of(&other).await, (1, 1, 2));
    house.effects_taken(6).await;
}

/// F106: the very same bytes, replayed inside the window, are a plain repeat.
async fn a_replay_inside_the_window_is_a_repeat(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("F106R-");
    house.order(&order, 100).await;
    let request = send_wx(&wx_paid(&order, 100));
    for _ in 0..3 {
        wx_acknowledged(&house.deliver("wx-main", &request).await);
    }
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    house.effects_taken(2).await;
}
