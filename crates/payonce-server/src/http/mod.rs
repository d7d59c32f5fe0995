//! Where callbacks arrive (public listener) and where the shop's own programs and operators ask (admin listener).
//!
//! Here: the two services, the routes of the admin API, and who may use it. Not here: accepting connections
//! (`accept`), what one route does (a file each), failures as HTTP (`error`).
//!
//! The public listener has one route and the hot path, so it is a plain hyper service; verifying a signature
//! takes 20 us and stays in the handler, which is less than handing it to another thread would take.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use aws_lc_rs::{constant_time, digest};
use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use futures_util::FutureExt as _;
use hyper::{body::Incoming, header};
use payonce::time::Micros;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    error::{ApiError, Code},
    gateway::Shared,
    http::{
        accept::{Served, accept},
        body::BodyError,
    },
};

pub(crate) mod accept;
mod answers;
mod body;
mod booking;
mod effects;
mod health;
pub(crate) mod metrics;
mod notify;
mod orders;

/// Serves callbacks until stopped.
pub(crate) async fn serve_public(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
    kill: CancellationToken,
) -> Served {
    let limits = shared.limits;
    let answer = move |request: hyper::Request<Incoming>| notify::answer(Arc::clone(&shared), request);
    accept(listener, "public", answer, limits, limits.connections, stop, kill).await
}

/// Serves the admin API until stopped.
pub(crate) async fn serve_admin(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
    kill: CancellationToken,
) -> Served {
    let limits = shared.limits;
    let router = admin_routes(shared);
    let answer = move |request: hyper::Request<Incoming>| {
        let answered = router.clone().oneshot(request.map(axum::body::Body::new));
        async move {
            match AssertUnwindSafe(answered).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => ApiError::new(Code::Internal, "the request failed inside the gateway").into_response(),
            }
        }
    };
    accept(listener, "admin", answer, limits, limits.admin_connections, stop, kill).await
}

fn admin_routes(shared: Arc<Shared>) -> Router {
    let with_token = middleware::from_fn_with_state(Arc::clone(&shared), with_token);
    let closed = Router::new()
        .route("/api/orders", post(orders::register))
        .route("/api/orders/{order_no}", get(orders::show))
        .route("/api/effects", get(effects::list))
        .route("/api/effects/{key}", get(effects::show))
        .route("/api/effects/{key}/retry", post(effects::retry))
        .route("/api/accounts/{account}/query-answer", post(answers::take))
        .route("/metrics", get(metrics::render))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        // Around the fallbacks too, so that a stranger does not learn which routes there are.
        .layer(with_token);
    let open = Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    closed.merge(open).with_state(shared)
}

async fn no_route() -> ApiError {
    ApiError::new(Code::NotFound, "there is nothing at this path").hint("the routes are listed in the API's page")
}

async fn no_method() -> ApiError {
    ApiError::new(Code::MethodNotAllowed, "this path does not take this method")
}

/// The digest by which tokens are compared.
pub(crate) fn token_digest(token: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
    out
}

/// Lets a request pass that bears the token. Compared by digest and in constant time, so that neither the
/// length nor a right beginning can be told from how long it takes.
async fn with_token(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut lines = request.headers().get_all(header::AUTHORIZATION).iter();
    let given = match (lines.next(), lines.next()) {
        (Some(line), None) => line.as_bytes(),
        _ => b"",
    };
    let scheme_fits = given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Bearer "));
    let token = if scheme_fits { &given[7..] } else { b"" };
    let equal = constant_time::verify_slices_are_equal(&token_digest(token), &shared.admin_token_digest).is_ok();
    if equal && !token.is_empty() {
        return next.run(request).await;
    }
    ApiError::new(Code::Unauthorized, "the admin token is missing or wrong")
        .hint("send the header `Authorization: Bearer TOKEN` with the configured admin token")
        .into_response()
}

/// The whole body of an admin request.
async fn api_body(shared: &Shared, body: axum::body::Body) -> Result<Vec<u8>, ApiError> {
    let read = body::read(body, shared.limits.body_bytes, shared.limits.body_read_timeout).await;
    read.map_err(|error| {
        let code = if error == BodyError::TooLarge { Code::TooLarge } else { Code::BodyTimeout };
        ApiError::new(code, error.to_string())
    })
}

/// An admin request may wait so long for the database.
const ADMIN_WITHIN: Duration = Duration::from_secs(30);

/// Runs a write apart from the connection: a caller who hangs up leaves no half-done transaction behind.
async fn apart<T: Send + 'static>(
    shared: &Shared,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::time::timeout(ADMIN_WITHIN, shared.bookings.spawn(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(ApiError::new(Code::Internal, "the request failed inside the gateway")),
        Err(_) => Err(ApiError::new(Code::NotKnown, "the database did not answer in time")),
    }
}

/// RFC 3339 in UTC.
fn time(at: Option<Micros>) -> Option<String> {
    at.map(|at| at.to_string())
}
