//! The user's own order table, like the ones people have: theirs and ours in one transaction.
//!
//! Here: the table on each engine (statuses as texts, an amount in yuan as DECIMAL, a collation that folds case),
//! and the cases. Not here: what a pure rule says (`decide`).

use std::sync::Arc;

use super::{Faulty, Story, open_with, refund, rules};
use crate::{
    apply::{Batch, Repeats},
    ids::{Merchant, OrderKind, OrderNo},
    money::Currency,
    order::{Number, OrderStatus},
    outcome::{Disposition, HoldReason, Outcome},
    own_table::{AmountUnit, Identifier, OwnTable, TableName, TimeForm, Word},
    register::Refused,
    rules::{LatePolicy, Rules},
    statement::Statement,
    store::{Engine, Store},
};

fn table() -> OwnTable {
    let name = |text| Identifier::new(text).unwrap();
    OwnTable {
        table: TableName::new("t_order").unwrap(),
        order_no: name("order_sn"),
        amount: name("pay_amount"),
        amount_unit: AmountUnit::Yuan,
        status: name("status"),
        pending: vec![Word::Text("NEW".into()), Word::Text("WAIT_PAY".into())],
        paid: Word::Text("PAID".into()),
        closed: vec![Word::Text("CANCELLED".into()), Word::Text("EXPIRED".into())],
        refunded: Some(Word::Text("REFUNDED".into())),
        paid_at: Some((name("pay_time"), TimeForm::DatetimeBeijing)),
        trade_no: Some(name("transaction_id")),
        kind: OrderKind::new("goods").unwrap(),
        currency: Currency::CNY,
        merchants: ["WXPAY:1900000001", "ALIPAY:2088000000000002"].map(|text| Merchant::new(text).unwrap()).into(),
    }
}

fn mapped(table: OwnTable) -> Rules {
    Rules { own_tables: [(crate::ids::Shop::default_shop(), Arc::new(table))].into(), ..rules() }
}

/// Runs a statement of the shop's own program.
async fn say<E: Engine>(story: &Story<E>, text: &str) -> u64 {
    let statement = Statement::parse(text, None).unwrap();
    E::connect(&story.options).await.unwrap().run_statement(&statement, "{}").await.unwrap()
}

async fn create<E: Engine>(story: &Story<E>) {
    let text = match E::NAME {
        "sqlite" => {
            "CREATE TABLE t_order (id INTEGER PRIMARY KEY, order_sn VARCHAR(64) COLLATE NOCASE NOT NULL UNIQUE,
                                   pay_amount DECIMAL(10, 2) NOT NULL, status VARCHAR(16) NOT NULL,
                                   pay_time DATETIME, transaction_id VARCHAR(64))"
        }
        "postgres" => {
            "CREATE TABLE t_order (id bigserial PRIMARY KEY, order_sn varchar(64) NOT NULL UNIQUE,
                                   pay_amount numeric(10, 2) NOT NULL, status varchar(16) NOT NULL,
                                   pay_time timestamp, transaction_id varchar(64))"
        }
        _ => {
            "CREATE TABLE t_order (id BIGINT PRIMARY KEY AUTO_INCREMENT,
                                   order_sn VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL UNIQUE,
                                   pay_amount DECIMAL(10, 2) NOT NULL, status VARCHAR(16) NOT NULL,
                                   pay_time DATETIME, transaction_id VARCHAR(64)) DEFAULT CHARACTER SET utf8mb4"
        }
    };
    say(story, text).await;
}

async fn insert<E: Engine>(story: &Story<E>, order: &str, yuan: &str, status: &str) {
    let text = format!("INSERT INTO t_order (order_sn, pay_amount, status) VALUES ('{order}', {yuan}, '{status}')");
    assert_eq!(say(story, &text).await, 1);
}

async fn set<E: Engine>(story: &Story<E>, order: &str, sets: &str) {
    assert_eq!(say(story, &format!("UPDATE t_order SET {sets} WHERE order_sn = '{order}'")).await, 1);
}

/// Status and transaction of their row.
async fn theirs<E: Engine>(story: &Story<E>, order: &str) -> (String, Option<String>) {
    let order_no = [OrderNo::new(order).unwrap()];
    let mut connection = E::connect(&story.options).await.unwrap();
    let mut rows = connection.own_rows(&table(), &order_no, false).await.unwrap();
    let row = rows.pop().unwrap();
    assert!(rows.is_empty());
    (row.status.unwrap(), row.trade_no)
}

async fn status<E: Engine>(story: &Story<E>, order: &str) -> String {
    theirs(story, order).await.0
}

async fn open<E: Engine>(options: E::Options) -> Story<E> {
    let story = open_with::<E>(options, mapped(table())).await;
    create(&story).await;
    story
}

const FITS: Outcome = Outcome::Applied(Disposition::Fits);
const LATE: Outcome = Outcome::Applied(Disposition::Late);
const ADOPTED: Outcome = Outcome::Applied(Disposition::Adopted);
const MISMATCHED: Outcome = Outcome::Applied(Disposition::Mismatched);

fn waits(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Held { reason: HoldReason::UnknownOrder, .. })
}

/// A payment of a row of theirs that nobody registered: both tables, once.
pub async fn their_order_is_paid_with_ours<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "19.90", "WAIT_PAY").await;
    assert_eq!(story.pay("O1", "T1", 1990).await, FITS);
    for _ in 0..3 {
        assert_eq!(story.pay("O1", "T1", 1990).await, Outcome::Repeated);
    }
    assert_eq!(theirs(&story, "O1").await, ("PAID".to_owned(), Some("T1".to_owned())));
    // 2026-01-01T19:04:07Z
    let at = "UPDATE t_order SET status = status WHERE order_sn = 'O1' AND pay_time = '2026-01-02 03:04:07'";
    assert_eq!(say(&story, at).await, 1, "the time by the clocks of Beijing");
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.order.paid, view.flow.len()), (OrderStatus::Paid, 1990, 1));
    assert_eq!((view.attempts.len(), view.effects.len()), (2, 2), "an attempt per merchant, as registration makes");
    // The same order on the other channel is a second payment, whatever their table says.
    assert_eq!(story.book_one(story.on_second_channel(story.payment("O1", "T2", 1990))).await, FITS);
    let view = story.view("O1").await;
    assert_eq!((view.order.paid, view.effects.len()), (3980, 3));
    assert_eq!(theirs(&story, "O1").await, ("PAID".to_owned(), Some("T1".to_owned())));
    // Many at once, with copies.
    for index in 0..70 {
        insert(&story, &format!("M{index:02}"), "1.00", "NEW").await;
    }
    let one = |index: usize| story.delivery(story.payment(&format!("M{index:02}"), &format!("TM{index}"), 100));
    let outcomes = story.book((0..70).chain(0..70).map(one).collect()).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == [FITS]).count(), 70);
    for index in [0, 31, 32, 33, 64, 69] {
        let want = ("PAID".to_owned(), Some(format!("TM{index}")));
        assert_eq!(theirs(&story, &format!("M{index:02}")).await, want);
    }
}

/// Another amount than their row's is booked beside the order, and their row is left alone.
pub async fn another_amount_than_theirs_touches_nothing<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "19.90", "NEW").await;
    assert_eq!(story.pay("O1", "T1", 1989).await, MISMATCHED);
    assert_eq!(theirs(&story, "O1").await, ("NEW".to_owned(), None));
    assert_eq!(story.pay("O1", "T2", 1990).await, FITS);
    assert_eq!(status(&story, "O1").await, "PAID");
    // Their price changed after the order was registered.
    insert(&story, "O2", "5.00", "NEW").await;
    story.register("O2", 500).await;
    set(&story, "O2", "pay_amount = 6").await;
    assert_eq!(story.pay("O2", "T3", 500).await, MISMATCHED);
    assert_eq!(status(&story, "O2").await, "NEW");
    // No amount at all.
    insert(&story, "O3", "0.00", "NEW").await;
    assert!(waits(story.pay("O3", "T4", 1).await));
}

/// Shipped meanwhile: the payment of an order that payonce had is booked, and their status is theirs.
pub async fn a_status_of_their_own_is_left_alone<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "1.00", "NEW").await;
    story.register("O1", 100).await;
    set(&story, "O1", "status = 'SHIPPED'").await;
    assert_eq!(story.pay("O1", "T1", 100).await, FITS);
    assert_eq!(theirs(&story, "O1").await, ("SHIPPED".to_owned(), None));
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.effects.len()), (OrderStatus::Paid, 2));
    // A full refund leaves it alone, too.
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 100), "R1")).await, FITS);
    assert_eq!(status(&story, "O1").await, "SHIPPED");
}

/// What was read before their program's commit cannot be written after it.
pub async fn their_commit_between_is_seen<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    for (order, becomes, outcome) in [("O1", "SHIPPED", FITS), ("O2", "CANCELLED", LATE), ("O3", "WAIT_PAY", FITS)] {
        insert(&story, order, "1.00", "NEW").await;
        story.register(order, 100).await;
        let payment = story.payment(order, &format!("T-{order}"), 100);
        let batch = Batch::of(vec![story.delivery(payment.clone())], story.now());
        let mut connection = E::connect(&story.options).await.unwrap();
        connection.begin().await.unwrap();
        let stale = crate::apply::read_plan(&mut connection, &batch, &story.rules).await.unwrap();
        connection.rollback().await.unwrap();
        set(&story, order, &format!("status = '{becomes}'")).await;
        connection.begin().await.unwrap();
        let written = crate::apply::write(&mut connection, &batch, stale, Repeats::CountNow).await;
        connection.rollback().await.unwrap();
        // Still one of the pending words: nothing is lost.
        assert_eq!(written.is_err_and(|error| error.is_conflict()), becomes != "WAIT_PAY", "{order}");
        assert_eq!(status(&story, order).await, becomes);
        assert_eq!(story.book_one(payment).await, outcome, "{order}");
        assert_eq!(status(&story, order).await, if becomes == "WAIT_PAY" { "PAID" } else { becomes });
    }
}

/// Closed by them: late, and theirs stays closed; under the policy `reopen` both are paid.
pub async fn their_closed_order_is_late_or_reopens<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "1.00", "EXPIRED").await;
    assert_eq!(story.pay("O1", "T1", 100).await, LATE);
    let view = story.view("O1").await;
    assert_eq!((view.order.status, view.order.paid, view.order.unapplied), (OrderStatus::Closed, 0, 100));
    assert_eq!(view.effects.iter().map(|effect| effect.event.as_str()).collect::<Vec<_>>(), ["payment.late"]);
    assert_eq!(theirs(&story, "O1").await, ("EXPIRED".to_owned(), None));
    insert(&story, "O2", "1.00", "CANCELLED").await;
    let reopen = Rules { late: LatePolicy::Reopen, ..mapped(table()) };
    let story = open_with::<E>(story.options, reopen).await;
    assert_eq!(story.pay("O2", "T2", 100).await, FITS);
    assert_eq!(theirs(&story, "O2").await, ("PAID".to_owned(), Some("T2".to_owned())));
    assert_eq!(story.view("O2").await.effects.len(), 2);
}

/// Paid before payonce came: the fact is booked, nothing is owed for it, and a second payment is money too much.
pub async fn an_order_paid_before_is_adopted<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    for (order, status) in [("O1", "PAID"), ("O2", "SHIPPED")] {
        insert(&story, order, "1.00", status).await;
        assert_eq!(story.pay(order, &format!("T-{order}"), 100).await, ADOPTED);
        assert_eq!(story.pay(order, &format!("T-{order}"), 100).await, Outcome::Repeated);
        let view = story.view(order).await;
        assert_eq!((view.order.status, view.order.paid, view.effects.len()), (OrderStatus::Paid, 100, 0));
        assert_eq!(view.flow[0].row.disposition, Disposition::Adopted);
        assert_eq!(theirs(&story, order).await, (status.to_owned(), None));
        assert_eq!(story.pay(order, &format!("T2-{order}"), 100).await, FITS);
        let view = story.view(order).await;
        assert_eq!(view.effects.iter().map(|effect| effect.event.as_str()).collect::<Vec<_>>(), ["payment.surplus"]);
    }
    // Their table knows by which transaction: another one is not adopted, the known one is.
    insert(&story, "O3", "1.00", "PAID").await;
    set(&story, "O3", "transaction_id = 'T-first'").await;
    assert_eq!(story.pay("O3", "T-second", 100).await, LATE);
    let view = story.view("O3").await;
    assert_eq!(view.effects.iter().map(|effect| effect.event.as_str()).collect::<Vec<_>>(), ["payment.surplus"]);
    assert_eq!((view.order.paid, view.order.unapplied), (0, 100));
    assert_eq!(story.pay("O3", "T-first", 100).await, ADOPTED);
    let view = story.view("O3").await;
    assert_eq!((view.order.status, view.order.paid, view.order.unapplied), (OrderStatus::Paid, 100, 100));
    assert_eq!(view.effects.len(), 1);
    assert_eq!(theirs(&story, "O3").await, ("PAID".to_owned(), Some("T-first".to_owned())));
}

/// A row that comes later tells nobody: the sweeper looks, or the platform's next copy.
pub async fn a_row_that_comes_later_is_found<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    assert!(waits(story.pay("O1", "T1", 100).await));
    assert!(waits(story.pay("O2", "T2", 100).await));
    assert!(waits(story.pay("never", "T3", 100).await));
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 0);
    insert(&story, "O1", "1.00", "NEW").await;
    insert(&story, "O2", "1.00", "NEW").await;
    assert_eq!(story.pay("O2", "T2", 100).await, FITS);
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 1);
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 0);
    for order in ["O1", "O2"] {
        let view = story.view(order).await;
        assert_eq!((view.order.status, view.effects.len(), view.held.len()), (OrderStatus::Paid, 2, 0));
        assert_eq!(view.attempts.len(), 2);
        assert_eq!(status(&story, order).await, "PAID");
    }
    assert_eq!(story.database.counts().await.unwrap().held, 1);
    // Waiting on both channels: one row of theirs is for both, and one attempt of it belongs to another order.
    for order in ["O4", "O5"] {
        assert!(waits(story.pay(order, "T4", 100).await));
    }
    assert!(waits(story.book_one(story.on_second_channel(story.payment("O4", "T5", 100))).await));
    let mut other = story.registration("other", 100);
    let taken =
        Number { out_trade_no: story.number("O5").out_trade_no, ..other.attempts.keys().next().unwrap().clone() };
    assert_ne!(taken, story.number("O5"), "the second channel's");
    other.attempts = [(taken, 100)].into();
    story.database.register(&other).await.unwrap().unwrap();
    insert(&story, "O4", "1.00", "NEW").await;
    insert(&story, "O5", "1.00", "NEW").await;
    assert_eq!(story.database.sweep(story.now()).await.unwrap(), 3);
    let (both, one) = (story.view("O4").await, story.view("O5").await);
    assert_eq!((both.order.paid, both.attempts.len(), both.held.len()), (200, 2, 0));
    assert_eq!((one.order.paid, one.attempts.len(), one.held.len()), (100, 1, 0));
}

/// Their collation finds `o1` for `O1`: that is another order.
pub async fn a_collation_that_folds_pays_no_other_order<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "Order1a", "1.00", "NEW").await;
    for other in ["order1a", "ORDER1A", "Order1A"] {
        assert!(waits(story.pay(other, "T1", 100).await), "{other}");
        // Registered, so that it is booked although their table has no such row.
        story.register(other, 100).await;
        assert_eq!(story.view(other).await.order.status, OrderStatus::Paid);
        assert_eq!(status(&story, "Order1a").await, "NEW");
    }
    assert_eq!(story.pay("Order1a", "T2", 100).await, FITS);
    assert_eq!(theirs(&story, "Order1a").await, ("PAID".to_owned(), Some("T2".to_owned())));
}

/// Without a unique index there may be rows that only their collation takes for one, and rows that are twice.
pub async fn without_a_unique_index_only_the_exact_row_is_paid<E: Engine>(options: E::Options) {
    let loose = OwnTable { table: TableName::new("t_loose").unwrap(), paid_at: None, trade_no: None, ..table() };
    let story = open_with::<E>(options, mapped(loose)).await;
    let folding = match E::NAME {
        "sqlite" => "COLLATE NOCASE",
        "postgres" => "",
        _ => "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    };
    let text =
        format!("CREATE TABLE t_loose (order_sn VARCHAR(64) {folding}, pay_amount DECIMAL(10, 2), status VARCHAR(16))");
    say(&story, &text).await;
    let rows = "('L1', 1, 'NEW'), ('l1', 1, 'NEW'), ('L2', 1, 'NEW'), ('L2', 1, 'NEW')";
    say(&story, &format!("INSERT INTO t_loose (order_sn, pay_amount, status) VALUES {rows}")).await;
    assert_eq!(story.pay("L1", "T1", 100).await, FITS);
    assert!(waits(story.pay("L2", "T2", 100).await), "nobody could say which is meant");
    assert_eq!(say(&story, "UPDATE t_loose SET status = 'PAID' WHERE status = 'PAID'").await, 1);
    assert_eq!(say(&story, "UPDATE t_loose SET status = 'NEW' WHERE status = 'NEW'").await, 3);
}

/// Whichever statement fails, nothing is left in their table or ours.
pub async fn a_failure_leaves_both_tables_untouched<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    let mut failures = 0;
    for statement in 0.. {
        let order = format!("O{statement}");
        insert(&story, &order, "1.00", "NEW").await;
        let payment = story.payment(&order, &format!("T{statement}"), 100);
        let batch = Batch::of(vec![story.delivery(payment.clone())], story.now());
        let mut connection = Faulty::new(E::connect(&story.options).await.unwrap(), statement);
        let booked = connection.book(&batch, &story.rules).await;
        drop(connection);
        if booked.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(theirs(&story, &order).await, ("NEW".to_owned(), None), "statement {statement}");
        let id = story.order_id(&order);
        assert!(story.database.order(&id.shop, &id.order_no).await.unwrap().is_none(), "statement {statement}");
        assert_eq!(story.book_one(payment).await, FITS);
        assert_eq!(status(&story, &order).await, "PAID");
    }
    assert!(failures >= 11, "only {failures} statements were failed");
}

/// Given back in full, or closed on every channel: their row says so; in part: it stays paid.
pub async fn refunds_and_closings_reach_their_row<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "1.00", "NEW").await;
    story.pay("O1", "T1", 100).await;
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 40), "R1")).await, FITS);
    assert_eq!(status(&story, "O1").await, "PAID");
    assert_eq!(story.book_one(refund(story.payment("O1", "T1", 60), "R2")).await, FITS);
    assert_eq!(theirs(&story, "O1").await, ("REFUNDED".to_owned(), Some("T1".to_owned())));
    assert_eq!(story.pay("O1", "T9", 100).await, LATE);
    // Payment and refund in one batch, the refund first.
    insert(&story, "O2", "1.00", "NEW").await;
    let both = vec![
        story.delivery(refund(story.payment("O2", "T2", 100), "R1")),
        story.delivery(story.payment("O2", "T2", 100)),
    ];
    story.book(both).await;
    assert_eq!(theirs(&story, "O2").await, ("REFUNDED".to_owned(), Some("T2".to_owned())));
    // One channel's word closes no order that the other can still pay.
    insert(&story, "O3", "1.00", "WAIT_PAY").await;
    let noted = Outcome::Applied(Disposition::Noted);
    assert_eq!(story.book_one(story.closed("O3")).await, noted);
    assert_eq!(status(&story, "O3").await, "WAIT_PAY");
    assert_eq!(story.book_one(story.on_second_channel(story.closed("O3"))).await, noted);
    assert_eq!(status(&story, "O3").await, "CANCELLED");
    assert_eq!(story.view("O3").await.order.status, OrderStatus::Closed);
}

/// Registration stays possible, with or without a row of theirs, and never with another amount.
pub async fn registration_and_their_row_agree<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "1.00", "NEW").await;
    let refused = story.database.register(&story.registration("O1", 101)).await.unwrap();
    assert_eq!(refused, Err(Refused::OrderTableDiffers(Some(crate::money::Money::cny(100).unwrap()))));
    let mut order = story.registration("O1", 100);
    let number = Number { out_trade_no: crate::ids::OutTradeNo::new("O1-try1").unwrap(), ..story.number("O1") };
    order.attempts = [(number, 100)].into();
    story.database.register(&order).await.unwrap().unwrap();
    assert_eq!(story.pay("O1-try1", "T1", 100).await, FITS);
    assert_eq!(theirs(&story, "O1").await, ("PAID".to_owned(), Some("T1".to_owned())));
    // Registered before their row is there; it is looked for when money comes.
    story.register("O2", 100).await;
    insert(&story, "O2", "1.00", "NEW").await;
    assert_eq!(story.pay("O2", "T2", 100).await, FITS);
    assert_eq!(status(&story, "O2").await, "PAID");
    // A number without a row of theirs that its registration releases.
    assert!(waits(story.pay("O3", "T3", 100).await));
    story.register("O3", 100).await;
    assert_eq!(story.view("O3").await.order.status, OrderStatus::Paid);
}

/// Their statuses as integers, fen, an instant as milliseconds.
pub async fn integers_are_mapped_like_texts<E: Engine>(options: E::Options) {
    let name = |text| Identifier::new(text).unwrap();
    let numbers = OwnTable {
        table: TableName::new("t_numbers").unwrap(),
        order_no: name("no"),
        amount: name("total_fee"),
        amount_unit: AmountUnit::Fen,
        status: name("state"),
        pending: vec![Word::Integer(0), Word::Integer(5)],
        paid: Word::Integer(1),
        closed: vec![Word::Integer(-1)],
        refunded: Some(Word::Integer(3)),
        paid_at: Some((name("paid_ms"), TimeForm::EpochMillis)),
        trade_no: None,
        ..table()
    };
    let story = open_with::<E>(options, mapped(numbers.clone())).await;
    let text = "CREATE TABLE t_numbers (no VARCHAR(40) PRIMARY KEY, total_fee INTEGER, state SMALLINT, paid_ms BIGINT)";
    say(&story, text).await;
    for (order, state) in [("N1", 0), ("N2", 5), ("N3", 2), ("N4", -1)] {
        say(&story, &format!("INSERT INTO t_numbers (no, total_fee, state) VALUES ('{order}', 100, {state})")).await;
    }
    let outcomes = [("N1", FITS), ("N2", FITS), ("N3", ADOPTED), ("N4", LATE)];
    for (order, outcome) in outcomes {
        assert_eq!(story.pay(order, &format!("T-{order}"), 100).await, outcome, "{order}");
    }
    let paid = "UPDATE t_numbers SET state = 1 WHERE state = 1 AND paid_ms = 1767294247000";
    assert_eq!(say(&story, paid).await, 2);
    assert_eq!(story.book_one(refund(story.payment("N1", "T-N1", 100), "R1")).await, FITS);
    assert_eq!(say(&story, "UPDATE t_numbers SET state = 3 WHERE state = 3").await, 1);
    let schema = E::connect(&story.options).await.unwrap().own_schema(&numbers).await.unwrap();
    assert!(schema.is_unique);
    assert_eq!(schema.statuses.iter().map(|(_, count)| count).sum::<i64>(), 4, "{:?}", schema.statuses);
    assert_eq!(schema.statements.len(), 4);
}

/// What `payonce doctor` looks at.
pub async fn their_table_is_described<E: Engine>(options: E::Options) {
    let story = open::<E>(options).await;
    insert(&story, "O1", "1.00", "NEW").await;
    insert(&story, "O2", "1.00", "SHIPPED").await;
    let schema = story.database.own_schema(&table()).await.unwrap();
    let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "order_sn", "pay_amount", "status", "pay_time", "transaction_id"]);
    assert!(schema.is_unique && schema.not_transactional.is_none(), "{schema:?}");
    assert_eq!(schema.statuses, [(Some("NEW".to_owned()), 1), (Some("SHIPPED".to_owned()), 1)]);
    let folds = schema.columns[1].folds.as_deref();
    match E::NAME {
        "sqlite" => assert_eq!(folds, Some("NOCASE")),
        "postgres" => assert_eq!(folds, None),
        _ => assert_eq!(folds, Some("utf8mb4_general_ci")),
    }
    let other = OwnTable { order_no: Identifier::new("transaction_id").unwrap(), ..table() };
    assert!(!story.database.own_schema(&other).await.unwrap().is_unique);
    let nothing = OwnTable { table: TableName::new("t_nothing").unwrap(), ..table() };
    assert!(story.database.own_schema(&nothing).await.unwrap().columns.is_empty());
}

/// An ENUM, and a time with a zone.
pub async fn an_enum_and_an_instant_are_written<E: Engine>(options: E::Options) {
    let name = |text| Identifier::new(text).unwrap();
    let mapping = OwnTable {
        table: TableName::new("t_enum").unwrap(),
        order_no: name("no"),
        amount: name("total"),
        amount_unit: AmountUnit::Fen,
        paid_at: Some((name("paid"), TimeForm::Timestamp)),
        trade_no: None,
        ..table()
    };
    let story = open_with::<E>(options, mapped(mapping.clone())).await;
    let words = "('NEW', 'WAIT_PAY', 'PAID', 'CANCELLED', 'EXPIRED', 'REFUNDED', 'SHIPPED')";
    let (status, instant, same) = match E::NAME {
        "sqlite" => ("TEXT".to_owned(), "TEXT", "paid = '2026-01-01 19:04:07'"),
        "postgres" => {
            say(&story, &format!("CREATE TYPE t_status AS ENUM {words}")).await;
            ("t_status".to_owned(), "timestamptz", "extract(epoch FROM paid) = 1767294247")
        }
        _ => (format!("ENUM{words}"), "TIMESTAMP NULL", "UNIX_TIMESTAMP(paid) = 1767294247"),
    };
    let text =
        format!("CREATE TABLE t_enum (no VARCHAR(40) PRIMARY KEY, total BIGINT, status {status}, paid {instant})");
    say(&story, &text).await;
    say(&story, "INSERT INTO t_enum (no, total, status) VALUES ('E1', 100, 'WAIT_PAY'), ('E2', 100, 'SHIPPED')").await;
    assert_eq!(story.pay("E1", "T1", 100).await, FITS);
    assert_eq!(story.pay("E2", "T2", 100).await, ADOPTED);
    let paid = format!("UPDATE t_enum SET status = 'PAID' WHERE no = 'E1' AND status = 'PAID' AND {same}");
    assert_eq!(say(&story, &paid).await, 1);
    let schema = story.database.own_schema(&mapping).await.unwrap();
    let status = schema.columns.iter().find(|column| column.name == "status").unwrap();
    assert_eq!(status.words.len(), if E::NAME == "sqlite" { 0 } else { 7 }, "{status:?}");
}

/// Two gateways with the same callbacks, and the shop's program at work in the same rows.
pub async fn their_program_works_in_the_same_rows<E: Engine>(options: E::Options) {
    const ORDERS: usize = 60;
    let story = open::<E>(options).await;
    let name = |index: usize| format!("R{index:02}");
    for index in 0..ORDERS {
        insert(&story, &name(index), "1.00", if index % 2 == 0 { "NEW" } else { "WAIT_PAY" }).await;
    }
    let gateway = async || {
        let rules = Arc::new(story.rules.clone());
        let database = crate::store::Database::<E>::open(story.options.clone(), rules).await.unwrap();
        for some in (0..ORDERS).collect::<Vec<_>>().chunks(7) {
            let one = |index: &usize| story.delivery(story.payment(&name(*index), &format!("T{index}"), 100));
            let batch = Batch::of(some.iter().map(one).collect(), story.now());
            let booked = database.book(&batch).await.unwrap();
            assert!(booked.outcomes().iter().flatten().all(|outcome| !matches!(outcome, Outcome::Undecided)));
        }
    };
    let shop = async || {
        let mut connection = E::connect(&story.options).await.unwrap();
        let mut cancelled = 0;
        for index in (0..ORDERS).rev() {
            let (from, to) = if index % 3 == 0 { ("'NEW', 'WAIT_PAY'", "CANCELLED") } else { ("'PAID'", "SHIPPED") };
            let order = name(index);
            let text = format!("UPDATE t_order SET status = '{to}' WHERE order_sn = '{order}' AND status IN ({from})");
            let statement = Statement::parse(&text, None).unwrap();
            let affected = connection.run_statement(&statement, "{}").await.unwrap();
            cancelled += if index % 3 == 0 { affected } else { 0 };
        }
        cancelled
    };
    let ((), (), cancelled) = futures_util::future::join3(gateway(), gateway(), shop()).await;
    let mut late = 0;
    for index in 0..ORDERS {
        let view = story.view(&name(index)).await;
        assert_eq!(view.flow.len(), 1, "{index}");
        let (status, trade_no) = theirs(&story, &name(index)).await;
        let disposition = view.flow[0].row.disposition;
        late += u64::from(disposition == Disposition::Late);
        match (status.as_str(), disposition) {
            ("PAID" | "SHIPPED", Disposition::Fits) => {
                assert_eq!((view.effects.len(), trade_no), (2, Some(format!("T{index}"))));
            }
            ("CANCELLED", Disposition::Late) => assert_eq!((view.effects.len(), trade_no), (1, None)),
            other => panic!("{index}: {other:?}"),
        }
    }
    assert_eq!(late, cancelled);
}
