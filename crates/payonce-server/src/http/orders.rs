//! `/api/orders`: the shop says what it expects to be paid, and asks how far that has come.
//!
//! Here: reading the request strictly, which accounts may pay, and the order as JSON. Not here: what
//! registering does (`payonce::register`).

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    http::StatusCode,
};
use payonce::{
    ids::{OrderKind, OrderNo, OutTradeNo, Shop},
    money::{Currency, Money},
    order::{Number, OrderId},
    register::{Registered, Registration},
    store::{FlowView, Held, OrderView},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    error::{ApiError, Code},
    gateway::{Door, Shared},
    http::{apart, api_body, effects, time},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderIn {
    shop: Option<String>,
    order_no: String,
    kind: Option<String>,
    amount: i64,
    currency: Option<String>,
    attempts: Option<Vec<AttemptIn>>,
    /// Kept as written: a number in it may be larger than any of ours.
    meta: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttemptIn {
    account: String,
    out_trade_no: String,
    amount: Option<i64>,
}

/// `POST /api/orders`
pub(crate) async fn register(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let body = api_body(&shared, request.into_body()).await?;
    let order: OrderIn = serde_json::from_slice(&body)?;
    let registration = order.into_registration(&shared)?;
    let id = registration.id.clone();
    let store = Arc::clone(&shared.store);
    let registered = apart(&shared, async move { store.register(&registration).await }).await??;
    let registered = registered.map_err(|refused| ApiError::new(Code::of_refused(&refused), refused.to_string()))?;
    tracing::info!(shop = %id.shop, order_no = %id.order_no, ?registered, "an order was registered");
    let status = if registered == Registered::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(find(&shared, &id).await?)))
}

impl OrderIn {
    fn into_registration(self, shared: &Shared) -> Result<Registration, ApiError> {
        let shop = self.shop.map_or_else(|| Ok(Shop::default_shop()), Shop::new)?;
        let order_no = OrderNo::new(self.order_no)?;
        let kind = OrderKind::new(self.kind.unwrap_or_else(|| "goods".to_owned()))?;
        let currency = self.currency.as_deref().map_or(Ok(Currency::CNY), Currency::parse);
        let currency = currency.map_err(|error| invalid(format!("currency: {error}")))?;
        let amount = above_zero("amount", self.amount)?;
        let attempts = match self.attempts {
            None => one_per_account(shared, &shop, &order_no, amount)?,
            Some(listed) => as_listed(shared, &shop, listed, amount)?,
        };
        let meta = self.meta.map_or_else(|| Ok("{}".to_owned()), |raw| meta_text(&raw))?;
        let money = Money { amount, currency };
        Ok(Registration { id: OrderId { shop, order_no }, kind, money, attempts, meta, now: (shared.clock)() })
    }
}

/// The deepest nesting of a `meta`: whoever reads it inside an effect must get through as well.
const META_DEPTH_MAX: usize = 32;

/// Kept as written, after a look whether everybody will be able to read it.
fn meta_text(raw: &RawValue) -> Result<String, ApiError> {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(value) if !value.is_object() => Err(invalid("meta must be an object")),
        Ok(value) if depth(&value) > META_DEPTH_MAX => {
            Err(invalid(format!("meta is nested more than {META_DEPTH_MAX} deep")))
        }
        Ok(_) => Ok(raw.get().to_owned()),
        Err(error) => Err(invalid(format!("meta: {error}"))),
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(Code::InvalidRequest, message)
}

fn above_zero(what: &str, amount: i64) -> Result<i64, ApiError> {
    if amount > 0 {
        Ok(amount)
    } else {
        Err(invalid(format!("{what} is {amount}; it must be above zero, in minor units (fen for CNY)")))
    }
}

/// The order's own number on every account that may pay it.
fn one_per_account(
    shared: &Shared,
    shop: &Shop,
    order_no: &OrderNo,
    amount: i64,
) -> Result<BTreeMap<Number, i64>, ApiError> {
    let doors = shared.doors_of(shop);
    if doors.is_empty() {
        return Err(ApiError::new(Code::ShopWithoutAccount, format!("no account pays orders of shop {shop}")));
    }
    let out_trade_no = OutTradeNo::new(order_no.as_str()).map_err(|error| {
        invalid(format!("the order number cannot be the number on the platform: {error}"))
            .hint("list the attempts, each with the out_trade_no that you send to the platform")
    })?;
    let number = |door: &Arc<Door>| Number {
        merchant: door.account.channel.merchant().clone(),
        out_trade_no: out_trade_no.clone(),
    };
    Ok(doors.into_iter().map(|door| (number(door), amount)).collect())
}

fn as_listed(
    shared: &Shared,
    shop: &Shop,
    listed: Vec<AttemptIn>,
    order_amount: i64,
) -> Result<BTreeMap<Number, i64>, ApiError> {
    let mut attempts = BTreeMap::new();
    for (index, attempt) in listed.into_iter().enumerate() {
        let Some(door) = shared.doors.get(&attempt.account) else {
            let message = format!("attempts[{index}].account: there is no account {:?}", attempt.account);
            return Err(ApiError::new(Code::UnknownAccount, message));
        };
        if door.account.shop != *shop {
            let message = format!(
                "attempts[{index}].account: {} pays orders of shop {}, not of {shop}",
                attempt.account, door.account.shop
            );
            return Err(ApiError::new(Code::AccountOfOtherShop, message));
        }
        let amount = match attempt.amount {
            Some(amount) => above_zero(&format!("attempts[{index}].amount"), amount)?,
            None => order_amount,
        };
        let out_trade_no = OutTradeNo::new(attempt.out_trade_no)
            .map_err(|error| invalid(format!("attempts[{index}].out_trade_no: {error}")))?;
        let number = Number { merchant: door.account.channel.merchant().clone(), out_trade_no };
        if attempts.insert(number, amount).is_some_and(|before| before != amount) {
            return Err(invalid(format!("attempts[{index}]: the number is listed before, with another amount")));
        }
    }
    Ok(attempts)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShopQuery {
    shop: Option<String>,
}

/// `GET /api/orders/{order_no}?shop=`
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Path(order_no): Path<String>,
    query: Result<Query<ShopQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let shop = query.shop.map_or_else(|| Ok(Shop::default_shop()), Shop::new)?;
    let id = OrderId { shop, order_no: OrderNo::new(order_no)? };
    Ok(Json(find(&shared, &id).await?))
}

async fn find(shared: &Arc<Shared>, id: &OrderId) -> Result<Value, ApiError> {
    match shared.store.order(&id.shop, &id.order_no).await? {
        Some(view) => Ok(order_json(shared, &view)),
        None => Err(ApiError::new(
            Code::OrderNotFound,
            format!("no order {} is registered for shop {}", id.order_no, id.shop),
        )),
    }
}

fn order_json(shared: &Shared, view: &OrderView) -> Value {
    let order = &view.order;
    let doors = shared.doors_of(&order.id.shop);
    let account_of = |number: &Number| {
        doors.iter().find(|door| *door.account.channel.merchant() == number.merchant).map(|door| &door.account.name)
    };
    let attempts: Vec<Value> = view
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "account": account_of(&attempt.number),
                "merchant": attempt.number.merchant,
                "out_trade_no": attempt.number.out_trade_no,
                "amount": attempt.amount,
                "state": attempt.state.as_str(),
                "closed_at": time(attempt.closed_at),
            })
        })
        .collect();
    json!({
        "shop": order.id.shop,
        "order_no": order.id.order_no,
        "kind": order.kind,
        "amount": order.money.amount,
        "currency": order.money.currency,
        "status": order.status.as_str(),
        "paid": order.paid,
        "refunded": order.refunded,
        "unapplied": order.unapplied,
        "paid_at": time(order.paid_at),
        "closed_at": time(order.closed_at),
        "created_at": time(Some(order.created_at)),
        "meta": serde_json::from_str::<Value>(&order.meta).unwrap_or(Value::Null),
        "attempts": attempts,
        "flow": view.flow.iter().map(flow_json).collect::<Vec<_>>(),
        "effects": view.effects.iter().map(effects::brief).collect::<Vec<_>>(),
        "held": view.held.iter().map(held_json).collect::<Vec<_>>(),
        "callbacks": view.callbacks.iter().map(|callback| json!({
            "id": callback.id,
            "account": callback.account,
            "received_at": time(Some(callback.received_at)),
            "verdict": callback.verdict,
            "key_id": callback.key_id,
            "body_bytes": callback.body_bytes,
        })).collect::<Vec<_>>(),
    })
}

fn flow_json(view: &FlowView) -> Value {
    let row = &view.row;
    json!({
        "key": row.key.as_str(),
        "kind": row.kind,
        "disposition": row.disposition.as_str(),
        "amount": row.money.amount,
        "currency": row.money.currency,
        "trade_no": row.trade_no,
        "account": row.account,
        "out_trade_no": row.number.out_trade_no,
        "callback_id": row.callback_id,
        "occurred_at": time(row.occurred_at),
        "booked_at": time(Some(row.booked_at)),
        "source": view.source,
        "repeats": view.repeats,
    })
}

fn held_json(held: &Held) -> Value {
    let notice = &held.notice;
    json!({
        "key": held.key.as_str(),
        "reason": held.reason.as_str(),
        "kind": notice.fact.kind(),
        "amount": notice.money.map(|money| money.amount),
        "currency": notice.money.map(|money| money.currency),
        "trade_no": notice.trade_no,
        "account": notice.account,
        "source": notice.source.as_str(),
        "callback_id": held.callback_id,
        "seen": held.seen,
        "first_seen": time(Some(held.first_seen)),
        "last_seen": time(Some(held.last_seen)),
    })
}
