//! Delivers what is owed: `run` around `run_once`.
//!
//! Here: lease, deliver outside of any transaction, record with the lease's token as fence, back off. One
//! worker per sink, so that a slow sink holds up nobody else. Not here: what a delivery is (`sink`).

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::{
    error::Error,
    rules::{EffectRule, Rules},
    sink::{DeliveryError, Sink},
    store::{Effect, EffectState, Finished, Lease, Store},
    time::Micros,
};

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// How long a claimed effect is nobody else's.
    pub lease: Duration,
    /// How long one delivery may take; at most half the lease.
    pub delivery_timeout: Duration,
    /// Deliveries under way at once.
    pub concurrency: usize,
    /// Effects claimed at once.
    pub claim: i64,
    /// How often to look when nothing wakes the worker.
    pub poll: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            delivery_timeout: Duration::from_secs(10),
            concurrency: 8,
            claim: 64,
            poll: Duration::from_secs(1),
        }
    }
}

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Claimed.
    pub claimed: usize,
    /// Delivered and recorded.
    pub done: usize,
    /// To be tried again.
    pub again: usize,
    /// Given up.
    pub dead: usize,
    /// Done, but the lease was lost meanwhile: somebody else records it.
    pub lost: usize,
}

/// Delivers the effects of one sink.
pub struct Worker {
    store: Arc<dyn Store>,
    rules: Arc<Rules>,
    name: String,
    /// `None` for `sql`, whose effects the store runs.
    sink: Option<Arc<dyn Sink>>,
    options: WorkerOptions,
    clock: fn() -> Micros,
}

impl Worker {
    /// For a sink of this name; `sink` is `None` for the statements of `sql`.
    pub fn new(
        store: Arc<dyn Store>,
        rules: Arc<Rules>,
        name: impl Into<String>,
        sink: Option<Arc<dyn Sink>>,
        options: WorkerOptions,
        clock: fn() -> Micros,
    ) -> Self {
        Self { store, rules, name: name.into(), sink, options, clock }
    }

    /// Runs until `stop` is ready, then finishes the round under way.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        loop {
            // Registered before the look, so that what is booked meanwhile is not slept over.
            let owed = self.store.owed().notified();
            tokio::pin!(owed);
            owed.as_mut().enable();
            let busy = match self.run_once().await {
                Ok(round) => round.claimed as i64 >= self.options.claim,
                Err(error) => {
                    tracing::warn!(sink = self.name, error = %error, "effects could not be claimed or recorded");
                    false
                }
            };
            let wait = if busy { Duration::ZERO } else { self.options.poll };
            tokio::select! {
                () = &mut stop => return,
                () = &mut owed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Claims, delivers, records.
    pub async fn run_once(&self) -> Result<Round, Error> {
        // The lease is counted from before the claim was sent.
        let started = Instant::now();
        let now = (self.clock)();
        let lease = Lease {
            sink: self.name.clone(),
            token: uuid::Uuid::now_v7().simple().to_string(),
            now,
            until: now.plus(self.options.lease),
            limit: self.options.claim,
        };
        let effects = self.store.claim(&lease).await?;
        let mut round = Round { claimed: effects.len(), ..Round::default() };
        if effects.is_empty() {
            return Ok(round);
        }
        match &self.sink {
            Some(sink) => self.deliver(sink.as_ref(), &lease, effects, started, &mut round).await?,
            None => self.run_statements(&lease, effects, &mut round).await?,
        }
        Ok(round)
    }

    async fn deliver(
        &self,
        sink: &dyn Sink,
        lease: &Lease,
        effects: Vec<Effect>,
        started: Instant,
        round: &mut Round,
    ) -> Result<(), Error> {
        let timeout = self.options.delivery_timeout.min(self.options.lease / 2);
        // Whatever has not begun by then is left to the next holder, so that no delivery outlives its lease.
        let begin_until = started + self.options.lease / 2;
        let mut ends = stream::iter(effects)
            .map(|effect| async move {
                if Instant::now() > begin_until {
                    return None;
                }
                let delivered = tokio::time::timeout(timeout, sink.deliver(&effect)).await;
                let delivered =
                    delivered.unwrap_or_else(|_| Err(DeliveryError(format!("no answer within {timeout:?}"))));
                Some(self.end_of(&effect, delivered))
            })
            .buffer_unordered(self.options.concurrency.max(1))
            .ready_chunks(self.options.claim.max(1) as usize);
        while let Some(chunk) = ends.next().await {
            let finished: Vec<Finished> = chunk.into_iter().flatten().collect();
            if !finished.is_empty() {
                self.record(lease, &finished, round).await?;
            }
        }
        Ok(())
    }

    async fn run_statements(&self, lease: &Lease, effects: Vec<Effect>, round: &mut Round) -> Result<(), Error> {
        for effect in effects {
            let statement = self.rules.find(&effect.event, &effect.name).and_then(|rule| rule.statement.as_ref());
            let failed = match statement {
                None => DeliveryError("no statement is configured for it any more".to_owned()),
                Some(statement) => match self.store.run_sql(&lease.token, &effect, statement, (self.clock)()).await {
                    Ok(true) => {
                        round.done += 1;
                        count("done", &self.name);
                        continue;
                    }
                    Ok(false) => {
                        round.lost += 1;
                        continue;
                    }
                    Err(error) if error.is_transient() => {
                        // The database went away, or a row was taken: that says nothing of the statement.
                        let (due_at, error) = ((self.clock)().plus(SOON), Some(error.to_string()));
                        let end = Finished { key: effect.key.clone(), state: EffectState::Ready, due_at, error };
                        self.record(lease, &[end], round).await?;
                        continue;
                    }
                    Err(error) => DeliveryError(error.to_string()),
                },
            };
            let end = self.end_of(&effect, Err(failed));
            self.record(lease, &[end], round).await?;
        }
        Ok(())
    }

    /// What a try comes to: done, again by the effect's schedule (with up to a tenth of jitter), or dead.
    fn end_of(&self, effect: &Effect, delivered: Result<(), DeliveryError>) -> Finished {
        let key = effect.key.clone();
        let Err(error) = delivered else {
            return Finished { key, state: EffectState::Done, due_at: effect.due_at, error: None };
        };
        let default = EffectRule::RETRY.to_vec();
        let retry = self.rules.find(&effect.event, &effect.name).map_or(&default, |rule| &rule.retry);
        let wait = usize::try_from(effect.tries - 1).ok().and_then(|index| retry.get(index));
        let now = (self.clock)();
        tracing::warn!(effect_key = %key, tries = effect.tries, error = %error, dead = wait.is_none(), "an effect was not delivered");
        match wait {
            Some(wait) => {
                let jitter = wait.mul_f64(rand::random_range(0.0..0.1));
                let due_at = now.plus(*wait).plus(jitter);
                Finished { key, state: EffectState::Ready, due_at, error: Some(error.0) }
            }
            None => Finished { key, state: EffectState::Dead, due_at: now, error: Some(error.0) },
        }
    }

    async fn record(&self, lease: &Lease, finished: &[Finished], round: &mut Round) -> Result<(), Error> {
        let affected = self.store.finish(&lease.token, finished, (self.clock)()).await? as usize;
        for end in finished {
            let (slot, word) = match end.state {
                EffectState::Done => (&mut round.done, "done"),
                EffectState::Dead => (&mut round.dead, "dead"),
                _ => (&mut round.again, "again"),
            };
            *slot += 1;
            count(word, &self.name);
        }
        if affected < finished.len() {
            let lost = finished.len() - affected;
            round.lost += lost;
            tracing::warn!(sink = self.name, lost, "leases ran out before their deliveries were recorded");
        }
        Ok(())
    }
}

/// When a statement is tried again that the database had no time for.
const SOON: Duration = Duration::from_secs(2);

fn count(end: &'static str, sink: &str) {
    metrics::counter!("payonce_effects_total", "sink" => sink.to_owned(), "end" => end).increment(1);
}
