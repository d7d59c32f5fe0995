//! The figures, and what they must be.
//!
//! Here: plain data (it is the JSON of `--json`), and `Report::wrong`, which compares every figure with what was
//! promised. Not here: where a figure comes from (`play`, `odd`, `race`), how it is shown (`words`, `cli::demo`).

use std::collections::BTreeMap;

use payonce_sim::Platform;
use serde::Serialize;

use super::{
    odd::{CASES, Case},
    play::MEETINGS,
    race::{AT_ONCE, ROUNDS, Race},
    stage::{PLATFORMS, account},
};

/// Everything that was counted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) times: usize,
    pub(crate) concurrency: usize,
    pub(crate) repeats: Vec<Repeats>,
    pub(crate) odd: Vec<Odd>,
    pub(crate) meetings: Meetings,
    pub(crate) races: Vec<Race>,
    pub(crate) webhooks: Webhooks,
    /// Payments that really happened.
    pub(crate) facts: usize,
    /// What the auditor found; each a broken promise.
    pub(crate) audit: Vec<String>,
    pub(crate) seconds: f64,
}

/// One order whose callback was repeated.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Repeats {
    pub(crate) platform: &'static str,
    pub(crate) order_no: String,
    pub(crate) delivered: usize,
    pub(crate) acknowledged: usize,
    /// Answers by kind.
    pub(crate) answers: BTreeMap<String, usize>,
    pub(crate) slowest_ms: u128,
    pub(crate) idempotency_rows: i64,
    pub(crate) repeats_counted: i64,
    pub(crate) flow_rows: i64,
    pub(crate) status: String,
    pub(crate) stock_taken: i64,
    /// Distinct effect keys that the webhook received.
    pub(crate) webhook_keys: usize,
    pub(crate) webhook_deliveries: usize,
}

impl Repeats {
    pub(super) fn of(platform: Platform, order_no: String) -> Self {
        Self {
            platform: account(platform),
            order_no,
            delivered: 0,
            acknowledged: 0,
            answers: BTreeMap::new(),
            slowest_ms: 0,
            idempotency_rows: 0,
            repeats_counted: 0,
            flow_rows: 0,
            status: String::new(),
            stock_taken: 0,
            webhook_keys: 0,
            webhook_deliveries: 0,
        }
    }
}

/// One callback that was wrong, or early.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Odd {
    pub(crate) case: Case,
    pub(crate) platform: &'static str,
    pub(crate) order_no: String,
    pub(crate) answered: String,
    /// The gateway's word for it, from its metrics.
    pub(crate) word: String,
    pub(crate) status: String,
    pub(crate) idempotency_rows: i64,
    pub(crate) flow_rows: i64,
    pub(crate) stock_taken: i64,
    /// Webhooks owed.
    pub(crate) webhooks: usize,
    /// Of the unknown order: its status in the answer to its registration.
    pub(crate) status_when_registered: Option<String>,
    /// And how the callback was answered then.
    pub(crate) answered_again: Option<String>,
}

impl Odd {
    pub(super) fn of(case: Case, order_no: String) -> Self {
        Self {
            case,
            platform: account(case.platform()),
            order_no,
            answered: String::new(),
            word: String::new(),
            status: String::new(),
            idempotency_rows: 0,
            flow_rows: 0,
            stock_taken: 0,
            webhooks: 0,
            status_when_registered: None,
            answered_again: None,
        }
    }
}

/// Orders that were paid by callback and query answer at once; sums over all of them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Meetings {
    pub(crate) orders: usize,
    /// Of two entrances each.
    pub(crate) answered_well: usize,
    pub(crate) idempotency_rows: i64,
    pub(crate) flow_rows: i64,
    pub(crate) paid: usize,
    pub(crate) stock_taken: i64,
}

/// What the user's service received in all.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Webhooks {
    /// Effects in the books that go there.
    pub(crate) owed: i64,
    pub(crate) distinct: usize,
    pub(crate) deliveries: usize,
    pub(crate) badly_signed: usize,
    pub(crate) bodies_differ: usize,
}

/// A figure that has to be something certain. Its name in JSON is the variant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    Scenes,
    Delivered,
    Acknowledged,
    Answers,
    IdempotencyRows,
    RepeatsCounted,
    FlowRows,
    Status,
    StockTaken,
    WebhookKeys,
    Answered,
    Word,
    StatusWhenRegistered,
    AnsweredAgain,
    Paid,
    ConditionalShipments,
    BadlySigned,
    BodiesDiffer,
    Audit,
}

/// A figure that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Wrong {
    /// The order, or the part of the demo.
    pub(crate) subject: String,
    pub(crate) figure: Figure,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// What must come of a wrong callback.
struct Due {
    answered: &'static str,
    word: &'static str,
    status: &'static str,
    rows: i64,
    stock: i64,
    webhooks: usize,
}

const fn due(case: Case) -> Due {
    match case {
        Case::ForgedWechat => nothing("401 FAIL", "signature"),
        Case::ForgedAlipay => nothing("401 fail", "signature"),
        Case::Probe => nothing("401 FAIL", "probe"),
        Case::Stale => nothing("401 FAIL", "timestamp"),
        Case::Undecryptable => nothing("500 FAIL", "undecryptable"),
        Case::WrongSeller => nothing("403 fail", "foreign_identity"),
        // Money that arrived: booked beside the order and announced, but nothing is shipped for it.
        Case::WrongAmount => Due { rows: 1, webhooks: 1, ..nothing("204", "applied_mismatched") },
        // Held, and booked by the registration.
        Case::UnknownOrder => {
            Due { status: "PAID", rows: 1, stock: 1, webhooks: 2, ..nothing("503 fail", "held_unknown_order") }
        }
    }
}

const fn nothing(answered: &'static str, word: &'static str) -> Due {
    Due { answered, word, status: "PENDING", rows: 0, stock: 0, webhooks: 0 }
}

/// How the platform wants to be told "I have it".
fn success(platform: &str) -> &'static str {
    if platform == account(Platform::Wechat) { "204" } else { "200 success" }
}

/// Compares, and remembers.
#[derive(Default)]
struct Checks {
    done: usize,
    wrong: Vec<Wrong>,
}

impl Checks {
    fn is(&mut self, subject: &str, figure: Figure, found: impl ToString, expected: impl ToString) {
        self.done += 1;
        let (found, expected) = (found.to_string(), expected.to_string());
        if found != expected {
            self.wrong.push(Wrong { subject: subject.to_owned(), figure, expected, found });
        }
    }

    fn repeats(&mut self, repeats: &Repeats, times: usize) {
        let of = repeats.order_no.as_str();
        let answers: Vec<String> = repeats.answers.iter().map(|(kind, times)| format!("{times} x {kind}")).collect();
        self.is(of, Figure::Delivered, repeats.delivered, times);
        self.is(of, Figure::Acknowledged, repeats.acknowledged, times);
        self.is(of, Figure::Answers, answers.join(", "), format!("{times} x {}", success(repeats.platform)));
        self.is(of, Figure::IdempotencyRows, repeats.idempotency_rows, 1);
        self.is(of, Figure::RepeatsCounted, repeats.repeats_counted, times.saturating_sub(1));
        self.is(of, Figure::FlowRows, repeats.flow_rows, 1);
        self.is(of, Figure::Status, &repeats.status, "PAID");
        self.is(of, Figure::StockTaken, repeats.stock_taken, 1);
        self.is(of, Figure::WebhookKeys, repeats.webhook_keys, 2);
    }

    fn odd(&mut self, odd: &Odd) {
        let (of, due) = (odd.order_no.as_str(), due(odd.case));
        self.is(of, Figure::Answered, &odd.answered, due.answered);
        self.is(of, Figure::Word, &odd.word, due.word);
        self.is(of, Figure::Status, &odd.status, due.status);
        self.is(of, Figure::IdempotencyRows, odd.idempotency_rows, due.rows);
        self.is(of, Figure::FlowRows, odd.flow_rows, due.rows);
        self.is(of, Figure::StockTaken, odd.stock_taken, due.stock);
        self.is(of, Figure::WebhookKeys, odd.webhooks, due.webhooks);
        if odd.case == Case::UnknownOrder {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            self.is(of, Figure::StatusWhenRegistered, text(&odd.status_when_registered), "PAID");
            self.is(of, Figure::AnsweredAgain, text(&odd.answered_again), success(odd.platform));
        }
    }

    fn meetings(&mut self, meetings: &Meetings) {
        let of = "DEMO-BOTH-*";
        self.is(of, Figure::Scenes, meetings.orders, MEETINGS);
        self.is(of, Figure::Acknowledged, meetings.answered_well, 2 * MEETINGS);
        self.is(of, Figure::IdempotencyRows, meetings.idempotency_rows, MEETINGS);
        self.is(of, Figure::FlowRows, meetings.flow_rows, MEETINGS);
        self.is(of, Figure::Paid, meetings.paid, MEETINGS);
        self.is(of, Figure::StockTaken, meetings.stock_taken, MEETINGS);
    }
}

impl Report {
    /// How many figures were compared, and those that are wrong.
    pub(crate) fn wrong(&self) -> (usize, Vec<Wrong>) {
        let mut checks = Checks::default();
        checks.is("repeats", Figure::Scenes, self.repeats.len(), PLATFORMS.len());
        checks.is("odd", Figure::Scenes, self.odd.len(), CASES.len());
        checks.is("races", Figure::Scenes, self.races.len(), AT_ONCE.len());
        self.repeats.iter().for_each(|repeats| checks.repeats(repeats, self.times));
        self.odd.iter().for_each(|odd| checks.odd(odd));
        checks.meetings(&self.meetings);
        for race in &self.races {
            let shipments = race.conditional;
            let found = format!("{} ({}..{})", shipments.total, shipments.fewest, shipments.worst);
            let expected = format!("{ROUNDS} (1..1)");
            checks.is(&format!("race of {}", race.at_once), Figure::ConditionalShipments, found, expected);
        }
        checks.is("webhooks", Figure::WebhookKeys, self.webhooks.distinct, self.webhooks.owed);
        checks.is("webhooks", Figure::BadlySigned, self.webhooks.badly_signed, 0);
        checks.is("webhooks", Figure::BodiesDiffer, self.webhooks.bodies_differ, 0);
        checks.is("auditor", Figure::Audit, self.audit.join("; "), "");
        (checks.done, checks.wrong)
    }

    /// Whether this machine showed what look-then-update does. Chance decides, so it is no part of the verdict.
    pub(crate) fn race_shown(&self) -> bool {
        self.races.iter().any(|race| race.look_then_update.worst > 1)
    }

    /// The report of `--json`.
    pub(crate) fn json(&self) -> serde_json::Value {
        let (checked, wrong) = self.wrong();
        let mut json = serde_json::json!(self);
        json["holds"] = wrong.is_empty().into();
        json["checked"] = checked.into();
        json["wrong"] = serde_json::json!(wrong);
        json["race_shown"] = self.race_shown().into();
        json
    }
}

#[cfg(test)]
pub(super) mod tests;
