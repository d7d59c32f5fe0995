//! Seam 3: where effects go.
//!
//! Here: what a sink is, and the two that need no network (a log line, a closure). Not here: signed HTTP
//! and brokers (the server), and `sql`, which is a verb of the store.

use std::{fmt, future::Future};

use futures_util::future::BoxFuture;

use crate::store::Effect;

/// Why a delivery did not succeed. It is tried again by the effect's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryError(pub String);

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeliveryError {}

/// Delivers effects. Called outside of any transaction, at least once per effect, each time with the same
/// key and payload; a receiver that keeps keys is exactly-once.
pub trait Sink: Send + Sync {
    /// Delivers one effect. The worker puts a time limit around it.
    fn deliver<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<(), DeliveryError>>;
}

/// Writes one structured line per effect, with its key and no payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl Sink for LogSink {
    fn deliver<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<(), DeliveryError>> {
        Box::pin(async move {
            tracing::info!(effect_key = %effect.key, event = effect.event, name = effect.name, "effect");
            Ok(())
        })
    }
}

/// A closure of the embedding program.
pub struct ClosureSink<F>(F);

impl<F, Fut> ClosureSink<F>
where
    F: Fn(Effect) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), DeliveryError>> + Send + 'static,
{
    /// Calls `deliver` with each effect.
    pub const fn new(deliver: F) -> Self {
        Self(deliver)
    }
}

impl<F, Fut> Sink for ClosureSink<F>
where
    F: Fn(Effect) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), DeliveryError>> + Send + 'static,
{
    fn deliver<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<(), DeliveryError>> {
        Box::pin(self.0(effect.clone()))
    }
}

impl<F> fmt::Debug for ClosureSink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosureSink")
    }
}
