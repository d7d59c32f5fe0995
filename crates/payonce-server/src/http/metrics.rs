//! What is counted, under which names, and the page that shows it.
//!
//! Here: names, labels, and the one recorder of the process. Not here: when something is counted (where it
//! happens), and what the batcher and the worker count by themselves (`payonce`).
//!
//! Labels are bounded: accounts, outcomes and reasons come from closed sets, and whatever a stranger makes up
//! shares the label `-`.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{extract::State, http::header, response::IntoResponse};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use payonce::channel::Reason;

use crate::gateway::{Door, Shared};

pub(crate) const CALLBACKS: &str = "payonce_callbacks_total";
pub(crate) const REJECTIONS: &str = "payonce_rejections_total";
pub(crate) const PROBES: &str = "payonce_probes_total";
pub(crate) const KEY_VERIFIED: &str = "payonce_key_verified_total";
pub(crate) const ANSWER_SECONDS: &str = "payonce_answer_seconds";
pub(crate) const CONNECTIONS: &str = "payonce_connections";
pub(crate) const SWEPT: &str = "payonce_swept_total";
const QUEUE: &str = "payonce_queue_deliveries";
const HELD: &str = "payonce_held_notices";
const EFFECTS: &str = "payonce_effects";
const OLDEST_DUE: &str = "payonce_effects_oldest_due_seconds";

/// The label of everything that belongs to no account.
pub(crate) const NO_ACCOUNT: &str = "-";

static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Installs the recorder, once per process. An embedding program that has one keeps its own.
pub(crate) fn install() {
    HANDLE.get_or_init(|| {
        let answers = Matcher::Full(ANSWER_SECONDS.to_owned());
        let batches = Matcher::Full("payonce_batch_deliveries".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(answers, &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 4.5])
            .and_then(|builder| builder.set_buckets_for_metric(batches, &[1.0, 4.0, 16.0, 64.0, 256.0, 512.0]))
            .ok()?
            .build_recorder();
        let handle = recorder.handle();
        ::metrics::set_global_recorder(recorder).ok()?;
        describe();
        Some(handle)
    });
}

fn describe() {
    ::metrics::describe_counter!(CALLBACKS, "Callbacks (one per notice that they carried), by outcome.");
    ::metrics::describe_counter!(REJECTIONS, "Messages that were not believed, by reason.");
    ::metrics::describe_counter!(PROBES, "Signatures that the platform made wrong on purpose.");
    ::metrics::describe_counter!(KEY_VERIFIED, "Messages that a configured key verified.");
    ::metrics::describe_histogram!(ANSWER_SECONDS, "From a callback's headers to its answer.");
    ::metrics::describe_gauge!(CONNECTIONS, "Open connections.");
    ::metrics::describe_counter!(SWEPT, "Held notices that the sweeper booked; should stay 0.");
    ::metrics::describe_gauge!(QUEUE, "Deliveries that wait for the next transaction.");
    ::metrics::describe_gauge!(HELD, "Notices in quarantine.");
    ::metrics::describe_gauge!(EFFECTS, "Open effects, by state.");
    ::metrics::describe_gauge!(OLDEST_DUE, "How long the oldest open effect has been due.");
}

/// Bounds the memory of histograms between two looks at the page.
pub(crate) fn upkeep() {
    if let Some(Some(handle)) = HANDLE.get() {
        handle.run_upkeep();
    }
}

/// Counts a callback's outcome.
pub(crate) fn count(door: Option<&Door>, outcome: &'static str) {
    let account = door.map_or(::metrics::SharedString::const_str(NO_ACCOUNT), |door| door.label.clone());
    ::metrics::counter!(CALLBACKS, "account" => account, "outcome" => outcome).increment(1);
}

/// Counts a rejection.
pub(crate) fn count_rejection(door: &Door, reason: Reason) {
    if reason == Reason::Probe {
        ::metrics::counter!(PROBES, "account" => door.label.clone()).increment(1);
    } else {
        ::metrics::counter!(REJECTIONS, "account" => door.label.clone(), "reason" => reason.code()).increment(1);
    }
}

/// Counts the use of a key. There are as many as are configured; none for an answer that nobody signs.
pub(crate) fn count_key(door: &Door, key_id: &str) {
    if key_id.is_empty() {
        return;
    }
    ::metrics::counter!(KEY_VERIFIED, "account" => door.label.clone(), "key" => key_id.to_owned()).increment(1);
}

/// A scrape must not hang on a database that does.
const GAUGES_WITHIN: Duration = Duration::from_millis(500);

/// `GET /metrics`.
pub(crate) async fn render(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ::metrics::gauge!(QUEUE).set(shared.batcher.waiting() as f64);
    if let Ok(Ok(counts)) = tokio::time::timeout(GAUGES_WITHIN, shared.store.counts()).await {
        ::metrics::gauge!(HELD).set(counts.held as f64);
        for (state, count) in
            [("ready", counts.effects_ready), ("leased", counts.effects_leased), ("dead", counts.effects_dead)]
        {
            ::metrics::gauge!(EFFECTS, "state" => state).set(count as f64);
        }
        let oldest = counts.oldest_due.map_or(Duration::ZERO, |due| (shared.clock)().since(due));
        ::metrics::gauge!(OLDEST_DUE).set(oldest.as_secs_f64());
    }
    let text = match HANDLE.get() {
        Some(Some(handle)) => handle.render(),
        _ => "# this process has another metrics recorder\n".to_owned(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
