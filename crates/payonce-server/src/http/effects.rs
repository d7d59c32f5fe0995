//! `/api/effects`: what is owed, and trying a dead effect again.
//!
//! Here: reading the request, and an effect as JSON. Not here: delivering (`payonce::worker`), which states
//! there are (`payonce::store`).

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use payonce::{
    key::EffectKey,
    store::{Effect, EffectFilter, EffectState},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    error::{ApiError, Code},
    gateway::Shared,
    http::{apart, time},
};

/// As part of an order.
pub(crate) fn brief(effect: &Effect) -> Value {
    json!({
        "key": effect.key.as_str(),
        "event": effect.event,
        "name": effect.name,
        "sink": effect.sink,
        "state": effect.state.as_str(),
        "after": effect.after.as_ref().map(EffectKey::as_str),
        "tries": effect.tries,
        "due_at": time(Some(effect.due_at)),
        "done_at": time(effect.done_at),
        "last_error": effect.last_error,
    })
}

/// By itself: with its order, its fact and (unless listed) what is delivered.
fn full(effect: &Effect, with_payload: bool) -> Value {
    let mut out = brief(effect);
    out["shop"] = json!(effect.order.shop);
    out["order_no"] = json!(effect.order.order_no);
    out["merchant"] = json!(effect.fact.merchant);
    out["idem_key"] = json!(effect.fact.key.as_str());
    out["created_at"] = json!(time(Some(effect.created_at)));
    if with_payload {
        out["payload"] = serde_json::from_str(&effect.payload).unwrap_or(Value::Null);
    }
    out
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    state: Option<String>,
    after: Option<String>,
    limit: Option<i64>,
}

const LIMIT_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 500;

/// `GET /api/effects?state=&after=&limit=`: by key; `next` is what `after` should be for the next page.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let invalid = |message: String| ApiError::new(Code::InvalidRequest, message);
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(invalid(format!("limit is {limit}; it must be from 1 to {LIMIT_MAX}")));
    }
    let state = match query.state {
        None => None,
        Some(word) => Some(EffectState::parse(&word).ok_or_else(|| {
            let known: Vec<&str> = EffectState::ALL.iter().map(|state| state.as_str()).collect();
            invalid(format!("state is {word:?}; there are {}", known.join(", ")))
        })?),
    };
    // One more than asked for tells whether there is a next page.
    let filter = EffectFilter { state, after_key: query.after, limit: limit + 1 };
    let mut effects = shared.store.effects(&filter).await?;
    let more = effects.len() as i64 > limit;
    effects.truncate(limit as usize);
    let next = effects.last().filter(|_| more).map(|effect| effect.key.as_str().to_owned());
    let effects: Vec<Value> = effects.iter().map(|effect| full(effect, false)).collect();
    Ok(Json(json!({"effects": effects, "next": next})))
}

async fn find(shared: &Shared, key: &EffectKey) -> Result<Effect, ApiError> {
    let found = shared.store.effect(key).await?;
    found.ok_or_else(|| ApiError::new(Code::EffectNotFound, format!("there is no effect {key}")))
}

/// `GET /api/effects/{key}`
pub(crate) async fn show(State(shared): State<Arc<Shared>>, Path(key): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(full(&find(&shared, &EffectKey::from_books(key)).await?, true)))
}

/// `POST /api/effects/{key}/retry`: a dead effect becomes ready again, with its key and payload.
pub(crate) async fn retry(State(shared): State<Arc<Shared>>, Path(key): Path<String>) -> Result<Json<Value>, ApiError> {
    let key = EffectKey::from_books(key);
    let effect = find(&shared, &key).await?;
    let not_dead = |state: EffectState| {
        ApiError::new(Code::EffectNotDead, format!("the effect is {}, only a dead one is retried", state.as_str()))
    };
    match effect.state {
        EffectState::Dead => {}
        EffectState::Leased => {
            let message = format!("a worker has the effect; its lease is {} s long", shared.lease.as_secs());
            return Err(ApiError::new(Code::EffectLeased, message));
        }
        state => return Err(not_dead(state)),
    }
    let (store, now, of) = (Arc::clone(&shared.store), (shared.clock)(), key.clone());
    let affected = apart(&shared, async move { store.retry(&of, now).await }).await??;
    let effect = find(&shared, &key).await?;
    if affected == 0 {
        return Err(not_dead(effect.state));
    }
    tracing::info!(effect_key = %key, "a dead effect is tried again by hand");
    Ok(Json(full(&effect, true)))
}
