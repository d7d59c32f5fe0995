//! The statements as texts: names quoted, values bound.

use std::collections::BTreeSet;

use super::{Dialect, padded, read, statements, update};
use crate::{
    ids::OrderKind,
    money::Currency,
    own_table::{AmountUnit, Identifier, OwnChange, OwnState, OwnTable, TableName, TimeForm, Word},
};

fn table() -> OwnTable {
    let name = |text| Identifier::new(text).unwrap();
    OwnTable {
        table: TableName::new("shop.t_order").unwrap(),
        order_no: name("order_no"),
        amount: name("amount"),
        amount_unit: AmountUnit::Fen,
        status: name("status"),
        pending: vec![Word::Text("NEW".into()), Word::Text("W'AIT".into())],
        paid: Word::Text("PAID".into()),
        closed: vec![Word::Text("CLOSED".into())],
        refunded: Some(Word::Text("REFUNDED".into())),
        paid_at: Some((name("paid_at"), TimeForm::DatetimeBeijing)),
        trade_no: Some(name("trade_no")),
        kind: OrderKind::new("goods").unwrap(),
        currency: Currency::CNY,
        merchants: BTreeSet::new(),
    }
}

const PAY: OwnChange = OwnChange { from: OwnState::Pending, to: OwnState::Paid, with_payment: true };

#[test]
fn names_are_quoted_and_values_bound() {
    assert_eq!(
        read(&table(), Dialect::Postgres, 1, true),
        "SELECT CAST(t.\"order_no\" AS text) COLLATE \"C\", CAST(t.\"amount\" AS text) COLLATE \"C\", \
         CAST(t.\"status\" AS text) COLLATE \"C\", CAST(t.\"trade_no\" AS text) COLLATE \"C\" \
         FROM \"shop\".\"t_order\" AS t WHERE t.\"order_no\" = ANY($1) ORDER BY t.\"order_no\" FOR UPDATE OF t"
    );
    assert_eq!(
        update(&table(), Dialect::Sqlite, PAY, 9),
        "UPDATE \"shop\".\"t_order\" AS t SET \"status\" = ?2, \"paid_at\" = j.value->>'at', \
         \"trade_no\" = COALESCE(j.value->>'t', t.\"trade_no\") FROM json_each(?1) AS j \
         WHERE t.\"order_no\" = j.value->>'o' AND CAST(t.\"order_no\" AS TEXT) COLLATE BINARY = j.value->>'o' \
         AND CAST(t.\"status\" AS TEXT) COLLATE BINARY IN (?3, ?4)"
    );
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        let all = statements(&table(), dialect);
        assert_eq!(all.len(), 4, "{all:?}");
        for word in ["NEW", "W'AIT", "PAID", "CLOSED", "REFUNDED"] {
            assert!(!all.iter().any(|text| text.contains(word)), "{word} is spliced: {all:?}");
        }
    }
}

#[test]
fn few_statements_are_prepared() {
    let sizes: BTreeSet<usize> = (1..=32).map(padded).collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
    let text = update(&table(), Dialect::Mysql, PAY, 2);
    assert_eq!(text.matches('?').count(), 1 + 4 + 4 + 2 + 2 + 2);
}
