//! The embedder's surface: their business write and the booking commit together, or neither does.

use std::{sync::Arc, time::Duration};

use payonce::{
    apply::{Batch, apply},
    outcome::{Disposition, Outcome, Verdict},
    rules::Rules,
    store::Store,
};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{NOW, delivery, fresh, open, payment, registration, rule, view};

#[tokio::test]
async fn their_write_and_the_booking_are_one_transaction() {
    let options = fresh("embed");
    let rules = Arc::new(Rules { effects: vec![rule("ship", "log")], ..Rules::default() });
    let store = open(&options, &rules).await;
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    let mut theirs =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&options.path)).await.unwrap();
    sqlx::query("CREATE TABLE seat (order_no TEXT PRIMARY KEY)").execute(&mut theirs).await.unwrap();
    let batch = Batch::of(vec![delivery(payment("O1", "T1", 100))], NOW);

    for commits in [false, true] {
        let mut transaction = theirs.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("INSERT INTO seat VALUES ('O1')").execute(&mut *transaction).await.unwrap();
        let pending = apply(&mut transaction, &batch, &rules).await.unwrap();
        assert_eq!(pending.outcomes(), [[Outcome::Applied(Disposition::Fits)]]);
        if commits {
            let committed = pending.commit(transaction).await.unwrap();
            assert!(matches!(committed.verdict(0, Duration::ZERO), Verdict::Acknowledged(_)));
        } else {
            transaction.rollback().await.unwrap();
        }
        let seats: i64 = sqlx::query("SELECT count(*) FROM seat").fetch_one(&mut theirs).await.unwrap().get(0);
        let booked = view(store.as_ref(), "O1").await;
        assert_eq!((seats, booked.flow.len(), booked.effects.len()), if commits { (1, 1, 1) } else { (0, 0, 0) });
    }
    // The gateway's copy of the same callback is a repeat of what the embedder booked.
    assert_eq!(store.book(&batch).await.unwrap().outcomes(), [[Outcome::Repeated]]);
}
