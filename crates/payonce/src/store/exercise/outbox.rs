//! The outbox's part of the exercise: leases, fences, followers, statements.
//!
//! Here: what must be true of effects on every engine. Not here: the worker's schedule (`worker` tests).

use super::*;
use crate::{statement::Statement, store::Effect};

fn lease(now: Micros, token: &str, seconds: u64) -> Lease {
    let until = now.plus(Duration::from_secs(seconds));
    Lease { sink: "log".to_owned(), token: token.to_owned(), now, until, limit: 100 }
}

fn ended(effect: &Effect, state: EffectState) -> Finished {
    Finished { key: effect.key.clone(), state, due_at: effect.due_at, error: None }
}

async fn paid<E: Engine>(options: E::Options, orders: &[&str]) -> Story<E> {
    let story = open::<E>(options).await;
    for order in orders {
        story.register(order, 100).await;
        story.pay(order, &format!("T-{order}"), 100).await;
    }
    story
}

/// F065: a worker that dies leaves a lease that runs out; the token is the fence.
pub async fn an_effect_is_claimed_by_one_and_recorded_by_its_holder<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O1"]).await;
    let now = story.now();
    let claimed = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    assert_eq!(claimed.iter().map(|effect| effect.key.as_str()).collect::<Vec<_>>(), ["default:O1:order-paid:ship"]);
    assert_eq!((claimed[0].state, claimed[0].tries), (EffectState::Leased, 1));
    assert!(story.database.claim(&lease(now, "b", 60)).await.unwrap().is_empty(), "it is a's");
    let after = now.plus(Duration::from_secs(61));
    let stolen = story.database.claim(&lease(after, "b", 60)).await.unwrap();
    assert_eq!((stolen[0].key.clone(), stolen[0].tries), (claimed[0].key.clone(), 2), "the same key, a further try");
    assert_eq!(stolen[0].payload, claimed[0].payload);
    let done = [ended(&claimed[0], EffectState::Done)];
    assert_eq!(story.database.finish("a", &done, after).await.unwrap(), 0, "a lost its lease");
    assert_eq!(story.database.finish("b", &done, after).await.unwrap(), 1);
    assert_eq!(story.database.finish("b", &done, after).await.unwrap(), 0, "once");
    let ship = story.database.effect(&claimed[0].key).await.unwrap().unwrap();
    assert_eq!((ship.state, ship.done_at), (EffectState::Done, Some(after)));
    assert_eq!(story.pay("O1", "T-O1", 100).await, Outcome::Repeated);
    let ship = story.database.effect(&claimed[0].key).await.unwrap().unwrap();
    assert_eq!(ship.state, EffectState::Done, "F049: a repeat resets nothing");
}

/// `points` is configured after `ship`.
pub async fn an_effect_waits_for_the_one_before_it<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O1", "O2"]).await;
    let now = story.now();
    let first = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|effect| effect.name == "ship"));
    let ends = [ended(&first[0], EffectState::Done), ended(&first[1], EffectState::Dead)];
    assert_eq!(story.database.finish("a", &ends, now).await.unwrap(), 2);
    let second = story.database.claim(&lease(now, "b", 60)).await.unwrap();
    assert_eq!(second.len(), 1);
    assert_eq!((second[0].name.as_str(), &second[0].order), ("points", &first[0].order));
    let dead = story
        .database
        .effects(&EffectFilter { state: Some(EffectState::Dead), after_key: None, limit: 10 })
        .await
        .unwrap();
    assert_eq!(dead.len(), 2, "what waited for a dead effect is dead too");
    assert!(dead.iter().any(|effect| effect.last_error.as_deref().is_some_and(|why| why.contains("order-paid:ship"))));
}

/// F134: every sender, every try: one key, one payload. Only what is dead can be retried.
pub async fn a_dead_effect_is_retried_with_its_key_and_payload<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O1"]).await;
    let now = story.now();
    let claimed = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    let key = claimed[0].key.clone();
    assert_eq!(story.database.retry(&key, now).await.unwrap(), 0, "a leased effect is somebody's");
    story.database.finish("a", &[ended(&claimed[0], EffectState::Dead)], now).await.unwrap();
    assert!(story.database.claim(&lease(now, "b", 60)).await.unwrap().is_empty());
    assert_eq!(story.database.retry(&key, now).await.unwrap(), 2, "with what died of it");
    let again = story.database.claim(&lease(now, "c", 60)).await.unwrap();
    assert_eq!((again.len(), &again[0].key, &again[0].payload), (1, &key, &claimed[0].payload));
    story.database.finish("c", &[ended(&again[0], EffectState::Done)], now).await.unwrap();
    assert_eq!(story.database.retry(&key, now).await.unwrap(), 0, "a done effect is done");
}

/// The fence comes first, so whoever lost the lease never reaches the statement.
pub async fn a_statement_runs_exactly_once_even_after_a_stolen_lease<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O1"]).await;
    let take =
        Statement::parse("UPDATE payonce_attempt SET amount = amount + 1 WHERE out_trade_no = :order_no", Some(2))
            .unwrap();
    let now = story.now();
    let claimed = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    let late = now.plus(Duration::from_secs(61));
    let stolen = story.database.claim(&lease(late, "b", 60)).await.unwrap();
    assert!(!story.database.run_sql("a", &claimed[0], &take, late).await.unwrap(), "lost");
    assert!(story.database.run_sql("b", &stolen[0], &take, late).await.unwrap());
    assert!(!story.database.run_sql("b", &stolen[0], &take, late).await.unwrap(), "done is done");
    let amounts: Vec<_> = story.view("O1").await.attempts.iter().map(|attempt| attempt.amount).collect();
    assert_eq!(amounts, [Some(101), Some(101)]);
}

/// No stock row, no shipment marked done.
pub async fn a_statement_that_hits_other_rows_than_expected_is_undone<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O1"]).await;
    let now = story.now();
    let claimed = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    let wrong =
        Statement::parse("UPDATE payonce_attempt SET amount = amount + 1 WHERE out_trade_no = :order_no", Some(1))
            .unwrap();
    let error = story.database.run_sql("a", &claimed[0], &wrong, now).await.unwrap_err();
    assert!(error.to_string().contains("affected 2 rows, 1 were expected"), "{error}");
    let broken = Statement::parse("UPDATE no_such_table SET x = 1", None).unwrap();
    assert!(story.database.run_sql("a", &claimed[0], &broken, now).await.is_err());
    let effect = story.database.effect(&claimed[0].key).await.unwrap().unwrap();
    assert_eq!(effect.state, EffectState::Leased, "the mark was undone with the statement");
    let amounts: Vec<_> = story.view("O1").await.attempts.iter().map(|attempt| attempt.amount).collect();
    assert_eq!(amounts, [Some(100), Some(100)]);
}

/// F128: rows are chosen because they are ready, not because they are newer than the last one seen.
pub async fn effects_are_selected_by_state_never_by_a_watermark<E: Engine>(options: E::Options) {
    let story = paid::<E>(options, &["O2"]).await;
    let now = story.now();
    let late = story.database.claim(&lease(now, "a", 60)).await.unwrap();
    story.database.finish("a", &[ended(&late[0], EffectState::Done)], now).await.unwrap();
    let mut older = story.foreign_effect("default:A0:order-paid:ship");
    older.sink = "log".to_owned();
    older.created_at = Micros(1);
    older.due_at = Micros(1);
    story.owe(older).await;
    let claimed = story.database.claim(&lease(now, "b", 60)).await.unwrap();
    assert!(claimed.iter().any(|effect| effect.key.as_str() == "default:A0:order-paid:ship"));
}
