//! `POST /api/accounts/{account}/query-answer`: the shop's own query code hands in what the platform answered.
//!
//! Here: reading the request, and what the shop is told about it. Not here: believing the answer
//! (`payonce-channels`), booking it (`booking`).
//!
//! Body and headers are the platform's signed answer as received; nobody has to believe the shop's reading
//! of it. It goes through the same batcher as a callback, so whichever is first books, and the other is a
//! repeat.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, header},
};
use payonce::{
    channel::{self, Bearing},
    outcome::Verdict,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    error::{ApiError, Code},
    gateway::Shared,
    http::{
        api_body,
        booking::{self, Message},
        notify,
    },
};

/// Which HTTP status the platform's answer had; 200 if it is not said.
const STATUS_HEADER: &str = "x-payonce-answer-status";

pub(crate) async fn take(
    State(shared): State<Arc<Shared>>,
    Path(account): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let deadline = Instant::now() + shared.limits.answer_within;
    let Some(door) = shared.doors.get(&account).cloned() else {
        return Err(ApiError::new(Code::UnknownAccount, format!("there is no account {account:?}")));
    };
    let (mut head, body) = request.into_parts();
    let body = api_body(&shared, body).await?;
    let status = status(&head.headers)?;
    // Ours, not the platform's.
    head.headers.remove(header::AUTHORIZATION);
    let answer = channel::Answer { status, headers: notify::lines(&head.headers), body };
    let now = (shared.clock)();
    let belief = door.account.channel.believe_answer(&answer, now);
    let message = Message { headers: answer.headers, body: answer.body, received_at: now, source: "query" };
    let (parcel, bearing) = match belief {
        Ok(belief) => {
            let bearing = belief.bearing.clone();
            (message.parcel(&door, belief), bearing)
        }
        Err(rejection) => (Err(Box::new((message, rejection))), Bearing::Facts),
    };
    let parcel = match parcel {
        Ok(parcel) => parcel,
        Err(not_believed) => {
            let (message, rejection) = *not_believed;
            booking::reject(&shared, &door, message, &rejection, deadline).await;
            return Err(ApiError::new(Code::AnswerNotBelieved, rejection.to_string()));
        }
    };
    let keys = parcel.keys.clone();
    let bookings = shared.bookings.clone();
    let booked = bookings.spawn(booking::book(shared, door, parcel, deadline)).await;
    let booked = booked
        .map_err(|_| ApiError::new(Code::Internal, "the booking failed inside the gateway"))?
        .map_err(|why| ApiError::new(Code::NotKnown, format!("not known yet: {}", why.word())))?;
    let facts: Vec<Value> = keys
        .iter()
        .zip(&booked.outcomes)
        .map(|(key, outcome)| json!({"key": key, "outcome": outcome.word()}))
        .collect();
    let (bearing, word) = match &bearing {
        Bearing::Facts => ("facts", None),
        Bearing::NotFinal(state) => ("not_final", Some(state)),
        Bearing::Unsupported(kind) => ("unsupported", Some(kind)),
    };
    let settled = matches!(booked.verdict, Verdict::Acknowledged(_));
    Ok(Json(json!({"account": account, "bearing": bearing, "word": word, "facts": facts, "acknowledged": settled})))
}

fn status(headers: &HeaderMap) -> Result<u16, ApiError> {
    let Some(value) = headers.get(STATUS_HEADER) else { return Ok(200) };
    let status = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|status| (100..600).contains(status));
    status.ok_or_else(|| {
        ApiError::new(Code::InvalidRequest, "X-Payonce-Answer-Status is no HTTP status, for example 200")
    })
}
