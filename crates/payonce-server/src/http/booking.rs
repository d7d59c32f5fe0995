//! From a belief to the books, and from there to words in the log and numbers in the metrics.
//!
//! Here: what is kept of a message as evidence, the one call to the batcher, and what is said about its
//! outcome. Callbacks and query answers come here alike. Not here: how a sender is answered.

use std::{borrow::Cow, sync::Arc};

use aws_lc_rs::digest;
use payonce::{
    apply::Delivery,
    batcher::{Booked, NotKnown},
    channel::{Bearing, Belief, Headers, Reason, Rejection},
    outcome::{Disposition, HoldReason, Outcome},
    store::Evidence,
    time::Micros,
};
use tokio::time::Instant;

use crate::{
    gateway::{Door, Shared},
    http::metrics,
};

/// A message as it arrived.
pub(crate) struct Message {
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
    pub(crate) received_at: Micros,
    /// `callback` or `query`.
    pub(crate) source: &'static str,
}

/// What is ready to be booked, and under which names it will be spoken of.
pub(crate) struct Parcel {
    delivery: Delivery,
    pub(crate) keys: Vec<String>,
    bearing: Bearing,
    source: &'static str,
    /// The signing rule that matched, for the log: what a platform really signs is learned there.
    rule: &'static str,
}

impl Message {
    /// Makes a belief ready to be booked. A fact whose key cannot be spelled is not believed after all.
    pub(crate) fn parcel(self, door: &Door, belief: Belief) -> Result<Parcel, Box<(Self, Rejection)>> {
        metrics::count_key(door, &belief.key_id);
        let mut keys = Vec::with_capacity(belief.notices.len());
        for notice in &belief.notices {
            match notice.key() {
                Ok(key) => keys.push(String::from(key.as_str())),
                Err(error) => {
                    let rejection = Rejection::new(Reason::MissingField, error.to_string());
                    return Err(Box::new((self, rejection.verified_by(&belief.key_id))));
                }
            }
        }
        let source = self.source;
        let (verdict, keep) = match &belief.bearing {
            Bearing::Facts => (Some("booked".to_owned()), false),
            // Nothing to book and nothing to prove; the next message about it will be final.
            Bearing::NotFinal(_) => (None, false),
            Bearing::Unsupported(kind) => (Some(format!("unsupported:{kind}")), true),
        };
        let evidence = verdict.map(|verdict| self.evidence(door, verdict, Some(belief.key_id)));
        let delivery = Delivery { notices: belief.notices, evidence, keep };
        Ok(Parcel { delivery, keys, bearing: belief.bearing, source, rule: belief.rule })
    }

    /// Bytes that were signed and cannot be believed, to be kept.
    fn unbelieved(self, door: &Door, rejection: &Rejection) -> Delivery {
        let evidence = self.evidence(door, rejection.reason.code().to_owned(), rejection.key_id.clone());
        Delivery { notices: Vec::new(), evidence: Some(evidence), keep: true }
    }

    fn evidence(self, door: &Door, verdict: String, key_id: Option<String>) -> Evidence {
        Evidence {
            id: uuid::Uuid::now_v7().to_string(),
            account: door.account.name.clone(),
            received_at: self.received_at,
            headers: headers_json(&self.headers),
            body_hash: sha256_hex(&self.body),
            body: self.body,
            verdict,
            key_id,
        }
    }
}

/// Header lines that are nobody's evidence: they let their reader in somewhere.
const NOT_KEPT: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

fn headers_json(headers: &Headers) -> String {
    let lines: Vec<(&str, Cow<'_, str>)> = headers
        .iter()
        .filter(|(name, _)| !NOT_KEPT.iter().any(|not| name.eq_ignore_ascii_case(not)))
        .map(|(name, value)| (name, String::from_utf8_lossy(value)))
        .collect();
    // Strings only: it cannot fail, and evidence without headers would still be evidence.
    serde_json::to_string(&lines).unwrap_or_else(|_| "[]".to_owned())
}

/// SHA-256 as 64 hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = digest::digest(&digest::SHA256, bytes);
    let nibbles = hash.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}

/// Books, apart from whoever waits for it: run it as a task.
pub(crate) async fn book(
    shared: Arc<Shared>,
    door: Arc<Door>,
    parcel: Parcel,
    deadline: Instant,
) -> Result<Booked, NotKnown> {
    let booked = shared.batcher.book(parcel.delivery, deadline).await;
    match &booked {
        Ok(booked) => {
            say_bearing(&door, &parcel.bearing, parcel.source);
            for (key, outcome) in parcel.keys.iter().zip(&booked.outcomes) {
                say_outcome(&door, key, *outcome, (parcel.source, parcel.rule));
            }
        }
        Err(not_known) => {
            metrics::count(Some(&door), not_known.word());
            let (account, keys, why) = (door.account.name.as_str(), &parcel.keys, not_known.word());
            tracing::warn!(account, ?keys, why, source = parcel.source, "not answered with success: not known yet");
        }
    }
    booked
}

fn say_bearing(door: &Door, bearing: &Bearing, source: &'static str) {
    let account = door.account.name.as_str();
    match bearing {
        Bearing::Facts => {}
        Bearing::NotFinal(state) => {
            metrics::count(Some(door), "not_final");
            tracing::info!(account, ?state, source, outcome = "not_final", "nothing to book");
        }
        Bearing::Unsupported(kind) => {
            metrics::count(Some(door), "unsupported");
            tracing::warn!(account, ?kind, source, outcome = "unsupported", "kept and acknowledged, not booked");
        }
    }
}

fn say_outcome(door: &Door, key: &str, outcome: Outcome, (source, rule): (&'static str, &'static str)) {
    let (account, word) = (door.account.name.as_str(), outcome.word());
    metrics::count(Some(door), word);
    match outcome {
        Outcome::Applied(Disposition::Mismatched | Disposition::Late) => {
            tracing::warn!(account, key, source, rule, outcome = word, "booked beside the order: somebody should look");
        }
        Outcome::Applied(_) => tracing::info!(account, key, source, rule, outcome = word, "booked"),
        Outcome::Repeated => tracing::info!(account, key, source, rule, outcome = word, "a repeat"),
        Outcome::Held { reason: HoldReason::Contradiction, .. } => {
            tracing::error!(account, key, source, rule, outcome = word, "held: it contradicts what is booked");
        }
        Outcome::Held { .. } => tracing::warn!(account, key, source, rule, outcome = word, "held"),
        Outcome::Undecided => tracing::error!(account, key, source, rule, outcome = word, "could not be decided"),
    }
}

/// Says that a message is not believed: one line, without anything of the message but its size and hash.
/// Those that the platform did sign are an alarm, and their bytes are kept, as well as can be by `deadline`.
pub(crate) async fn reject(
    shared: &Arc<Shared>,
    door: &Arc<Door>,
    message: Message,
    rejection: &Rejection,
    by: Instant,
) {
    metrics::count_rejection(door, rejection.reason);
    if let Some(key_id) = &rejection.key_id {
        metrics::count_key(door, key_id);
    }
    let (account, reason, source) = (door.account.name.as_str(), rejection.reason.code(), message.source);
    let (body_bytes, body_sha256) = (message.body.len(), sha256_hex(&message.body));
    // The detail may quote what a stranger sent: written as a literal, so that it stays one line.
    let detail = &rejection.detail;
    if rejection.reason == Reason::Probe {
        tracing::info!(account, reason, ?detail, source, body_bytes, body_sha256, "a probe, refused as it should be");
    } else if rejection.reason.is_signed() {
        tracing::error!(
            account,
            reason,
            ?detail,
            source,
            body_bytes,
            body_sha256,
            "signed by the platform and not understood: somebody should look"
        );
        let (shared, door) = (Arc::clone(shared), Arc::clone(door));
        let delivery = message.unbelieved(&door, rejection);
        let bookings = shared.bookings.clone();
        let kept = bookings.spawn(async move { shared.batcher.book(delivery, by).await });
        if !matches!(kept.await, Ok(Ok(_))) {
            tracing::error!(account, body_sha256, "its bytes may not have been kept");
        }
    } else {
        tracing::warn!(account, reason, ?detail, source, body_bytes, body_sha256, "not believed");
    }
}
