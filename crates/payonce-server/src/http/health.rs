//! Whether the process lives, and whether it should be sent callbacks.
//!
//! Here: the two questions, and how long the database may take. Not here: numbers (`metrics`), faults of the
//! configuration (`payonce doctor`).

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, response::IntoResponse};
use serde_json::json;

use crate::{
    error::{ApiError, Code},
    gateway::Shared,
};

/// A database that takes longer is not there.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// `GET /healthz`: the process lives. It asks nobody, so that a database that is away does not have us restarted.
pub(crate) async fn healthz() -> impl IntoResponse {
    Json(json!({"status": "alive", "version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /readyz`: the database answers, and no shutdown has begun.
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> Result<impl IntoResponse, ApiError> {
    if shared.is_stopping() {
        return Err(ApiError::new(Code::NotReady, "the gateway is going down"));
    }
    match tokio::time::timeout(READY_WITHIN, shared.store.counts()).await {
        Ok(Ok(_)) => Ok(Json(json!({"status": "ready"}))),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(ApiError::new(Code::NotReady, "the database does not answer"))
        }
        Err(_) => Err(ApiError::new(Code::NotReady, "the database does not answer in time")),
    }
}
