//! Two entrances, or an order and its payment, at the same moment.

use std::{sync::Arc, time::Duration};

use crate::support::*;
use payonce_sim::{
    courier::{Courier, Plan as Delivery},
    text::now_unix,
};
use serde_json::json;
use tokio::sync::Barrier;

crate::databases::on_each_database!(
    callback_and_query_answer_meet,
    an_order_is_registered_while_its_callbacks_arrive,
    a_payment_before_its_order_is_held_and_booked
);

/// Callback and query answer at one barrier: one booking, and both are answered well.
async fn callback_and_query_answer_meet(on: Kind) {
    let house = Arc::new(House::on(on).await);
    let rounds = rounds(12);
    for round in 0..rounds {
        let order = fresh("RACE-");
        house.order(&order, 100).await;
        let barrier = Arc::new(Barrier::new(2));
        let callback = {
            let (house, barrier, order) = (house.clone(), barrier.clone(), order.clone());
            tokio::spawn(async move {
                if round % 2 == 0 {
                    let request = send_wx(&wx_paid(&order, 100));
                    barrier.wait().await;
                    wx_acknowledged(&house.deliver("wx-main", &request).await);
                } else {
                    let request = send_ali(&ali_paid(&order, "1.00"));
                    barrier.wait().await;
                    ali_acknowledged(&house.deliver("ali-main", &request).await);
                }
            })
        };
        let (account, answer) = if round % 2 == 0 {
            ("wx-main", WECHAT.answer(&WECHAT.payment(&order, &wx_trade(&order), 100), now_unix()))
        } else {
            let members = json!({
                "trade_no": ali_trade(&order), "out_trade_no": order, "trade_status": "TRADE_SUCCESS",
                "total_amount": "1.00", "send_pay_date": "2026-01-31 10:00:00",
            });
            ("ali-main", ALIPAY.query_answer(&members))
        };
        barrier.wait().await;
        let (status, told) = crate::queries::hand_in(&house, account, &answer).await;
        assert_eq!((status, &told["acknowledged"]), (200, &json!(true)), "{told}");
        callback.await.unwrap();
        let word = told["facts"][0]["outcome"].as_str().unwrap().to_owned();
        assert!(["applied", "repeated"].contains(&word.as_str()), "{told}");
        assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
        let source = if word == "applied" { "query" } else { "callback" };
        assert_eq!(house.show(&order).await["flow"][0]["source"], source);
    }
    house.effects_taken(2 * rounds as usize).await;
}

/// An order that is registered while its callbacks arrive: refused until then, booked by the registration itself,
/// acknowledged from then on.
async fn an_order_is_registered_while_its_callbacks_arrive(on: Kind) {
    let house = Arc::new(House::on(on).await);
    let rounds = rounds(6);
    for round in 0..rounds {
        let order = fresh("LATE-");
        let plan = Delivery { times: 40, concurrency: 8, seed: u64::from(round), ..Delivery::default() };
        let urls = [house.notify_url("wx-main")];
        let event = Arc::new(wx_paid(&order, 100));
        let load = tokio::spawn(async move { Courier.deliver_many(&urls, event, plan, |_, _| {}).await });
        tokio::time::sleep(Duration::from_millis(u64::from(round) * 4)).await;
        let (status, registered) =
            house.api("POST", "/api/orders", Some(json!({"order_no": order, "amount": 100}))).await;
        assert_eq!(status, 201, "{registered}");
        let report = load.await.unwrap();
        assert_eq!(report.failed, 0);
        assert!(report.by_status.keys().all(|status| [204, 503].contains(status)), "{:?}", report.by_status);
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
        assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
        assert_eq!(house.show(&order).await["status"], "PAID");
    }
    house.effects_taken(2 * rounds as usize).await;
    let mut books = house.books().await;
    assert_eq!(books.count("SELECT count(*) FROM payonce_quarantine WHERE state = 'held'").await, 0);
    assert_eq!(house.metric(&["payonce_swept_total"]).await, 0.0);
}

/// The same told slowly: unknown order, then registered, then repeated.
async fn a_payment_before_its_order_is_held_and_booked(on: Kind) {
    let house = House::on(on).await;
    let (wx, ali) = (fresh("EARLY-"), fresh("EARLY-"));
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await, 503);
    ali_refused(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await, 503);
    let mut books = house.books().await;
    assert_eq!(books.count("SELECT count(*) FROM payonce_quarantine WHERE state = 'held'").await, 2);
    assert_eq!(books.count("SELECT count(*) FROM payonce_callback").await, 2, "the bytes behind a hold are kept");
    assert_eq!(house.metric(&["payonce_held_notices"]).await, 2.0);
    for order in [&wx, &ali] {
        let shown = house.order(order, 100).await;
        assert_eq!(shown["status"], "PAID", "{shown}");
        assert_eq!(shown["held"], json!([]));
        assert_eq!(shown["callbacks"].as_array().unwrap().len(), 1);
    }
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&wx, 100))).await);
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "1.00"))).await);
    for order in [&wx, &ali] {
        assert_eq!(books.of(order).await, (1, 1, 2));
    }
    house.effects_taken(4).await;
    assert!(log_lines(&wx).iter().any(|line| line.contains("WARN") && line.contains("held_unknown_order")));
}
