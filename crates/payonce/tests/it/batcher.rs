//! Group commit: queue, deadlines, and callers that go away.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use payonce::{
    batcher::{Batcher, BatcherOptions, NotKnown},
    outcome::{Outcome, Verdict},
    rules::Rules,
    store::Store,
};
use tokio::time::Instant;

use crate::support::{delivery, fresh, now, open, payment, registration, rule, view};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// F038: fifty at once, one booking, fifty acknowledgements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_are_one_booking() {
    let rules = Arc::new(Rules { effects: vec![rule("ship", "log")], ..Rules::default() });
    let store = open(&fresh("fifty"), &rules).await;
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    let (batcher, task) = Batcher::start(store.clone(), BatcherOptions::default(), now);
    let calls = (0..50).map(|_| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.book(delivery(payment("O1", "T1", 100)), soon()).await.unwrap() })
    });
    let mut applied = 0;
    for call in calls.collect::<Vec<_>>() {
        let booked = call.await.unwrap();
        assert!(matches!(booked.verdict, Verdict::Acknowledged(_)));
        applied += usize::from(matches!(booked.outcomes[..], [Outcome::Applied(_)]));
    }
    drop(batcher);
    task.await.unwrap();
    let view = view(store.as_ref(), "O1").await;
    assert_eq!((applied, view.flow.len(), view.effects.len()), (1, 1, 1));
}

/// F060: whoever stops waiting cancels nothing.
#[tokio::test]
async fn a_caller_that_goes_away_cancels_nothing() {
    let store = open(&fresh("gone"), &Arc::new(Rules::default())).await;
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    let (batcher, task) = Batcher::start(store.clone(), BatcherOptions::default(), now);
    let call = batcher.book(delivery(payment("O1", "T1", 100)), soon());
    // Polled once, so that the job is handed in, then dropped.
    assert!(call.now_or_never().is_none());
    drop(batcher);
    task.await.unwrap();
    let flow = view(store.as_ref(), "O1").await.flow.len();
    assert!(flow <= 1, "booked whole or not at all");
    assert_eq!(
        store
            .book(&payonce::apply::Batch::of(vec![delivery(payment("O1", "T1", 100))], now()))
            .await
            .unwrap()
            .outcomes()
            .len(),
        1
    );
    assert_eq!(view(store.as_ref(), "O1").await.flow.len(), 1);
}

/// F042: the database is locked by another program. The tries are bounded, the answer is a failure at once or by
/// its deadline, nothing is acknowledged, and it heals by itself. Backpressure is an answer at once, not a wait.
#[tokio::test]
async fn a_full_queue_answers_at_once_and_a_deadline_is_kept() {
    let options = fresh("full");
    let store = open(&options, &Arc::new(Rules::default())).await;
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    // Another process holds the file.
    let mut other = <sqlx::SqliteConnection as payonce::store::Engine>::connect(&options).await.unwrap();
    payonce::store::Ledger::begin(&mut other).await.unwrap();
    let (batcher, _task) =
        Batcher::start(store.clone(), BatcherOptions { queue: 2, batch: 1, ..BatcherOptions::default() }, now);
    let deadline = Instant::now() + Duration::from_millis(300);
    let calls: Vec<_> = (0..8)
        .map(|index| {
            let batcher = batcher.clone();
            tokio::spawn(async move { (index, batcher.book(delivery(payment("O1", "T1", 100)), deadline).await) })
        })
        .collect();
    let mut words = Vec::new();
    for call in calls {
        words.push(call.await.unwrap().1.err());
    }
    assert!(words.contains(&Some(NotKnown::QueueFull)), "{words:?}");
    assert!(words.contains(&Some(NotKnown::Deadline)), "{words:?}");
    assert!(words.iter().all(Option::is_some), "nothing is acknowledged while the database is held: {words:?}");
    payonce::store::Ledger::rollback(&mut other).await.unwrap();
    let booked = batcher.book(delivery(payment("O1", "T1", 100)), soon()).await.unwrap();
    assert!(matches!(booked.verdict, Verdict::Acknowledged(_)), "it heals by itself");
    assert_eq!(view(store.as_ref(), "O1").await.flow.len(), 1);
}

/// What nobody waits for any more is not begun: the platform sends it again.
#[tokio::test]
async fn what_is_past_its_deadline_is_not_begun() {
    let options = fresh("past");
    let store = open(&options, &Arc::new(Rules::default())).await;
    store.register(&registration("O1", 100)).await.unwrap().unwrap();
    store.register(&registration("O2", 100)).await.unwrap().unwrap();
    let mut other = <sqlx::SqliteConnection as payonce::store::Engine>::connect(&options).await.unwrap();
    payonce::store::Ledger::begin(&mut other).await.unwrap();
    let (batcher, task) = Batcher::start(store.clone(), BatcherOptions { batch: 1, ..BatcherOptions::default() }, now);
    let first = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.book(delivery(payment("O1", "T1", 100)), soon()).await }
    });
    tokio::task::yield_now().await;
    let soon_over = Instant::now() + Duration::from_millis(50);
    let second = batcher.book(delivery(payment("O2", "T2", 100)), soon_over).await;
    assert_eq!(second.unwrap_err(), NotKnown::Deadline);
    payonce::store::Ledger::rollback(&mut other).await.unwrap();
    assert!(first.await.unwrap().is_ok());
    drop(batcher);
    task.await.unwrap();
    assert_eq!(view(store.as_ref(), "O1").await.flow.len(), 1);
    assert_eq!(view(store.as_ref(), "O2").await.flow.len(), 0, "it was not begun");
}
