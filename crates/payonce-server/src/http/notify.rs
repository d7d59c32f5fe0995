//! `POST /notify/{account}`: where the platforms' callbacks arrive.
//!
//! Here: whose callback it is, its way through the channel and the batcher, and the exact bytes of the
//! answer. Not here: believing (`payonce-channels`), booking (`booking`), whether to acknowledge
//! (`payonce::outcome`).
//!
//! Whatever happens, the answer is never a redirect, and never a success that no COMMIT stands behind: a
//! `Verdict::Acknowledged` can be made by a COMMIT alone.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use payonce::{
    channel::{Callback, Headers, Reason, Reply},
    outcome::{Refusal, Verdict},
};
use tokio::time::Instant;

use crate::{
    gateway::{Door, Shared},
    http::{
        body::{self, BodyError},
        booking::{self, Message},
        metrics,
    },
};

type Answer = Response<Full<Bytes>>;

/// Answers any request on the public listener.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    let arrival = Instant::now();
    let door = match place(&shared, request.uri().path()) {
        Place::Of(door) => door,
        Place::Unknown => {
            metrics::count(None, "unknown_account");
            // Most likely a notify URL with a slip in it, so that payments are waiting: worth a line.
            tracing::warn!(path = ?shorten(request.uri().path()), "a callback for no account of ours");
            return no_account(StatusCode::NOT_FOUND, "no such account");
        }
        Place::Elsewhere => return no_account(StatusCode::NOT_FOUND, "nothing here"),
    };
    if request.method() != Method::POST {
        metrics::count(Some(&door), "method_not_allowed");
        let mut response = refuse(&door, Refusal::Rejected(Reason::Malformed));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let taken = AssertUnwindSafe(take(shared, Arc::clone(&door), request, arrival)).catch_unwind().await;
    ::metrics::histogram!(metrics::ANSWER_SECONDS).record(arrival.elapsed().as_secs_f64());
    taken.unwrap_or_else(|_| {
        metrics::count(Some(&door), "panicked");
        tracing::error!(account = door.account.name.as_str(), "the handler of a callback panicked");
        refuse(&door, Refusal::Internal)
    })
}

/// The way of one callback.
async fn take(shared: Arc<Shared>, door: Arc<Door>, request: Request<Incoming>, arrival: Instant) -> Answer {
    let deadline = arrival + shared.limits.answer_within;
    let (head, body) = request.into_parts();
    let body = match body::read(body, shared.limits.body_bytes, shared.limits.body_read_timeout).await {
        Ok(body) => body,
        Err(error) => return without_body(&door, error),
    };
    // The clock is read once, at the receipt: however late it is booked, it was in time if it was now.
    let now = (shared.clock)();
    let callback = Callback { headers: lines(&head.headers), body };
    let belief = door.account.channel.believe(&callback, now);
    let message = Message { headers: callback.headers, body: callback.body, received_at: now, source: "callback" };
    let parcel = match belief {
        Ok(belief) => message.parcel(&door, belief),
        Err(rejection) => Err(Box::new((message, rejection))),
    };
    let parcel = match parcel {
        Ok(parcel) => parcel,
        Err(not_believed) => {
            let (message, rejection) = *not_believed;
            booking::reject(&shared, &door, message, &rejection, deadline).await;
            return refuse(&door, Refusal::Rejected(rejection.reason));
        }
    };
    // Apart from the connection: a client that hangs up cancels nothing.
    let bookings = shared.bookings.clone();
    let booked = bookings.spawn(booking::book(shared, Arc::clone(&door), parcel, deadline)).await;
    match booked {
        Ok(Ok(booked)) => write(door.account.channel.reply(&booked.verdict)),
        Ok(Err(_)) => refuse(&door, Refusal::Busy),
        Err(_) => refuse(&door, Refusal::Internal),
    }
}

fn without_body(door: &Door, error: BodyError) -> Answer {
    let account = door.account.name.as_str();
    tracing::warn!(account, %error, "a callback without a body that can be read");
    let (word, refusal) = match error {
        BodyError::TooLarge => ("body_too_large", Refusal::TooLarge),
        BodyError::Slow => ("body_slow", Refusal::Rejected(Reason::Malformed)),
        BodyError::Broken => ("body_broken", Refusal::Rejected(Reason::Malformed)),
    };
    metrics::count(Some(door), word);
    let mut response = refuse(door, refusal);
    // What is left of it on this connection is of no use.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Header lines as the channel takes them.
pub(crate) fn lines(headers: &HeaderMap) -> Headers {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Where a path leads.
enum Place {
    /// To this account.
    Of(Arc<Door>),
    /// To an account that there is not.
    Unknown,
    /// Nowhere near a notify URL.
    Elsewhere,
}

/// The longest last part that can name an account: each byte of it escaped.
const NAME_BYTES_MAX: usize = 3 * payonce::ids::AccountName::MAX;

fn place(shared: &Shared, path: &str) -> Place {
    let Some(rest) = path.strip_prefix("/notify/") else { return Place::Elsewhere };
    let name = rest.strip_suffix('/').unwrap_or(rest);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('/') {
        return Place::Unknown;
    }
    match percent_decode(name).and_then(|name| shared.doors.get(&name)) {
        Some(door) => Place::Of(Arc::clone(door)),
        None => Place::Unknown,
    }
}

/// `None` if it is no UTF-8 text or an escape is broken.
fn percent_decode(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (high, low) = (digit(*more.first()?)?, digit(*more.get(1)?)?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
        rest = more.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

/// Paths of strangers are long only in order to fill logs.
fn shorten(path: &str) -> &str {
    const SHOWN: usize = 100;
    let end = (0..=SHOWN.min(path.len())).rev().find(|&at| path.is_char_boundary(at)).unwrap_or(0);
    &path[..end]
}

fn refuse(door: &Door, refusal: Refusal) -> Answer {
    write(door.account.channel.reply(&Verdict::Refused(refusal)))
}

/// Exactly what the channel spelled.
fn write(reply: Reply) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    // A channel's statuses are constants; an impossible one must not become a success.
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(content_type) = reply.content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// A refusal in nobody's form: no platform takes it for a success.
fn no_account(status: StatusCode, message: &'static str) -> Answer {
    let body = format!(r#"{{"code":"FAIL","message":"{message}"}}"#).into_bytes();
    write(Reply { status: status.as_u16(), content_type: Some("application/json"), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_once_and_strictly() {
        let table = [
            ("wx-main", Some("wx-main")),
            ("%E5%BA%97", Some("店")),
            ("a%2Fb", Some("a/b")),
            ("a%252Fb", Some("a%2Fb")),
            ("%00", Some("\0")),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%FF%FE", None),
        ];
        for (text, want) in table {
            assert_eq!(percent_decode(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn a_path_is_shortened_between_characters() {
        assert_eq!(shorten("/notify/x"), "/notify/x");
        assert_eq!(shorten(&"店".repeat(60)), "店".repeat(33));
    }
}
