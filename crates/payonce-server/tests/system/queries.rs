//! The shop's own query code hands in what the platform answered.

use crate::support::*;
use payonce_sim::{Response, text::now_unix};
use serde_json::{Value, json};

crate::databases::on_each_database!(an_answer_books_like_a_callback);

pub(crate) async fn hand_in(house: &House, account: &str, answer: &Response) -> (u16, Value) {
    let url = format!("http://{}/api/accounts/{account}/query-answer", house.running.admin);
    let mut request = house.client.post(url).bearer_auth(TOKEN).body(answer.body.clone());
    request = request.header("X-Payonce-Answer-Status", answer.status);
    for (name, value) in &answer.headers {
        request = request.header(name, value);
    }
    let told = request.send().await.unwrap();
    (told.status().as_u16(), told.json().await.unwrap())
}

async fn an_answer_books_like_a_callback(on: Kind) {
    let house = House::on(on).await;
    let order = fresh("QUERY-");
    house.order(&order, 100).await;
    let paid = WECHAT.answer(&WECHAT.payment(&order, &wx_trade(&order), 100), now_unix());
    let (status, told) = hand_in(&house, "wx-main", &paid).await;
    let key = format!("WXPAY:{order}:PAY");
    let want = json!({
        "account": "wx-main", "bearing": "facts", "word": null, "acknowledged": true,
        "facts": [{"key": key, "outcome": "applied"}],
    });
    assert_eq!((status, told), (200, want));
    let (_, told) = hand_in(&house, "wx-main", &paid).await;
    assert_eq!(told["facts"][0]["outcome"], "repeated");
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
    let shown = house.show(&order).await;
    assert_eq!((&shown["status"], &shown["flow"][0]["source"]), (&json!("PAID"), &json!("query")));
    assert_eq!(house.books().await.of(&order).await, (1, 1, 2));
    let headers = house.books().await.text("SELECT headers FROM payonce_callback").await.unwrap();
    assert!(!headers.contains(TOKEN) && !headers.to_lowercase().contains("authorization"), "{headers}");
    house.effects_taken(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_say_nothing_final_book_nothing() {
    let house = House::start().await;
    let order = fresh("QUERY-");
    house.order(&order, 100).await;
    let mut unpaid = WECHAT.payment(&order, &wx_trade(&order), 100);
    unpaid["trade_state"] = json!("NOTPAY");
    unpaid.as_object_mut().unwrap().remove("transaction_id");
    unpaid.as_object_mut().unwrap().remove("success_time");
    let (status, told) = hand_in(&house, "wx-main", &WECHAT.answer(&unpaid, now_unix())).await;
    assert_eq!((status, &told["bearing"], &told["word"]), (200, &json!("not_final"), &json!("NOTPAY")), "{told}");
    let not_exist = WECHAT.answer_unsigned(404, &json!({"code": "ORDER_NOT_EXIST", "message": "订单不存在"}));
    let (status, told) = hand_in(&house, "wx-main", &not_exist).await;
    assert_eq!((status, &told["bearing"]), (200, &json!("not_final")), "{told}");
    assert_eq!(house.books().await.of(&order).await, (0, 0, 0));
    assert_eq!(house.show(&order).await["status"], "PENDING");
    assert_eq!(house.metric(&["payonce_key_verified_total", "key=\"\""]).await, 0.0, "nobody signed that");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_to_believe_the_shop() {
    let house = House::start().await;
    let order = fresh("QUERY-");
    house.order(&order, 100).await;
    let mut forged = WECHAT.answer(&WECHAT.payment(&order, &wx_trade(&order), 1), now_unix());
    let text = String::from_utf8(forged.body.clone()).unwrap().replace("\"total\":1}", "\"total\":100}");
    assert_ne!(text.as_bytes(), forged.body);
    forged.body = text.into_bytes();
    let (status, told) = hand_in(&house, "wx-main", &forged).await;
    assert_eq!((status, &told["error"]["code"]), (422, &json!("answer_not_believed")), "{told}");
    let unsigned = WECHAT.answer_unsigned(200, &WECHAT.payment(&order, &wx_trade(&order), 100));
    assert_eq!(hand_in(&house, "wx-main", &unsigned).await.0, 422);
    let (status, told) = hand_in(&house, "nobody", &unsigned).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("unknown_account")));
    let strange = Response { status: 99, ..unsigned };
    let (status, told) = hand_in(&house, "wx-main", &strange).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("invalid_request")));
    assert_eq!(house.books().await.of(&order).await, (0, 0, 0));
}
