//! The shop's own `t_order` in the same database, from the callback to the row.

use std::sync::Arc;

use payonce::{
    ids::{Merchant, OrderKind, Shop},
    money::Currency,
    own_table::{AmountUnit, Identifier, OwnTable, TableName, TimeForm, Word},
    rules::Rules,
};
use serde_json::json;

use crate::support::*;

crate::databases::on_each_database!(
    a_callback_pays_their_row_once,
    a_callback_before_their_commit_is_sent_again,
    what_does_not_fit_leaves_their_row_alone
);

/// A house whose shop has a table of its own.
async fn house(database: Kind) -> House {
    let name = |text| Identifier::new(text).unwrap();
    let word = |text: &str| Word::Text(text.to_owned());
    let table = OwnTable {
        table: TableName::new("t_order").unwrap(),
        order_no: name("order_sn"),
        amount: name("pay_amount"),
        amount_unit: AmountUnit::Yuan,
        status: name("status"),
        pending: vec![word("WAIT_PAY")],
        paid: word("PAID"),
        closed: vec![word("CANCELLED")],
        refunded: None,
        paid_at: Some((name("pay_time"), TimeForm::DatetimeBeijing)),
        trade_no: Some(name("transaction_id")),
        kind: OrderKind::new("goods").unwrap(),
        currency: Currency::CNY,
        merchants: [("WXPAY", WECHAT.mchid.as_str()), ("ALIPAY", ALIPAY.seller_id.as_str())]
            .map(|(channel, number)| Merchant::of(channel, number).unwrap())
            .into(),
    };
    let plan = Plan::default();
    let rules = Rules { own_tables: [(Shop::default_shop(), Arc::new(table))].into(), ..plan.rules };
    let house = House::with(Plan { database, rules, ..Plan::default() }).await;
    house.books().await.0.create_t_order().await;
    house
}

async fn insert(house: &House, order_no: &str, yuan: &str, status: &str) {
    let text = format!("INSERT INTO t_order (order_sn, pay_amount, status) VALUES ('{order_no}', {yuan}, '{status}')");
    house.books().await.run(&text).await;
}

async fn status(house: &House, order_no: &str) -> String {
    let text = format!("SELECT status FROM t_order WHERE order_sn = '{order_no}'");
    house.books().await.text(&text).await.unwrap()
}

/// Nobody registers anything: their row is enough, on both channels, however often the platforms repeat.
async fn a_callback_pays_their_row_once(on: Kind) {
    let house = house(on).await;
    let (wx, ali) = (fresh("OWN"), fresh("OWN"));
    insert(&house, &wx, "19.90", "WAIT_PAY").await;
    insert(&house, &ali, "0.01", "WAIT_PAY").await;
    let event = wx_paid(&wx, 1990);
    let copies = (0..20).map(|_| send_wx(&event)).collect::<Vec<_>>();
    let copies = copies.iter().map(|request| house.deliver("wx-main", request));
    futures_util::future::join_all(copies).await.iter().for_each(wx_acknowledged);
    ali_acknowledged(&house.deliver("ali-main", &send_ali(&ali_paid(&ali, "0.01"))).await);
    house.effects_taken(4).await;
    for (order_no, trade_no) in [(&wx, wx_trade(&wx)), (&ali, ali_trade(&ali))] {
        assert_eq!(status(&house, order_no).await, "PAID");
        let text = format!("SELECT transaction_id FROM t_order WHERE order_sn = '{order_no}'");
        assert_eq!(house.books().await.text(&text).await, Some(trade_no));
        assert_eq!(house.books().await.of(order_no).await, (1, 1, 2));
        assert_eq!(house.show(order_no).await["status"], "PAID");
    }
    // They ship; a copy that comes after that changes nothing of theirs.
    house.books().await.run(&format!("UPDATE t_order SET status = 'SHIPPED' WHERE order_sn = '{wx}'")).await;
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&event)).await);
    assert_eq!(status(&house, &wx).await, "SHIPPED");
    house.effects_taken(4).await;
}

/// Refused until their row is there, then booked by the platform's next copy.
async fn a_callback_before_their_commit_is_sent_again(on: Kind) {
    let house = house(on).await;
    let order_no = fresh("OWN");
    let event = wx_paid(&order_no, 100);
    wx_refused(&house.deliver("wx-main", &send_wx(&event)).await, 503);
    insert(&house, &order_no, "1.00", "WAIT_PAY").await;
    wx_acknowledged(&house.deliver("wx-main", &send_wx(&event)).await);
    assert_eq!(status(&house, &order_no).await, "PAID");
    house.effects_taken(2).await;
    let shown = house.show(&order_no).await;
    assert_eq!((&shown["attempts"].as_array().unwrap().len(), &shown["held"]), (&2, &json!([])));
}

/// Wrong amount, closed, paid before, a number that differs in case: told, and theirs is left alone.
async fn what_does_not_fit_leaves_their_row_alone(on: Kind) {
    let house = house(on).await;
    let cases = [("WAIT_PAY", 99, "mismatched", 1), ("CANCELLED", 100, "late", 0), ("PAID", 100, "adopted", 0)];
    for (is, fen, disposition, effects) in cases {
        let order_no = fresh("OWN");
        insert(&house, &order_no, "1.00", is).await;
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order_no, fen))).await);
        assert_eq!(status(&house, &order_no).await, is);
        assert_eq!(house.show(&order_no).await["flow"][0]["disposition"], disposition);
        assert_eq!(house.books().await.of(&order_no).await, (1, 1, effects), "{disposition}");
    }
    let order_no = fresh("OWN");
    insert(&house, &order_no, "1.00", "WAIT_PAY").await;
    let lower = order_no.to_lowercase();
    wx_refused(&house.deliver("wx-main", &send_wx(&wx_paid(&lower, 100))).await, 503);
    assert_eq!(status(&house, &order_no).await, "WAIT_PAY");
    let (code, answer) = house.api("POST", "/api/orders", Some(json!({"order_no": order_no, "amount": 101}))).await;
    assert_eq!((code, &answer["error"]["code"]), (409, &json!("order_table_differs")));
    house.order(&order_no, 100).await;
}
