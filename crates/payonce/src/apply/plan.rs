//! From facts and books to the rows that are to be written. Pure, like `decide`, which it calls per fact.
//!
//! Here: equal facts merged, recognised by their keys, decided in one order per order, and everything that
//! follows from it. Not here: reads (`books`) and writes (`apply`).

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde::Serialize;

use crate::{
    apply::{Batch, Booking, Case, Decision, Pending, books::Books, decide, decide::own_change},
    error::Error,
    ids::Shop,
    key::{Agreement, EffectKey, Fingerprint, IdemKey},
    notice::{Fact, Notice},
    order::{Attempt, AttemptState, Number, Order, OrderId},
    outcome::{HoldReason, Outcome},
    own_table::{OwnChange, OwnTable, OwnUpdate},
    rules::{EffectRule, Event, Rules},
    store::{AttemptUpdate, Effect, EffectState, Entries, Evidence, FlowRow, Held, KeyId, KeyRow, OrderUpdate, Repeat},
    time::Micros,
};

/// What makes two notices of a batch one fact, and the order in which facts are decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FactId {
    pub number: Number,
    pub rank: u8,
    pub key: IdemKey,
    pub fingerprint: String,
}

/// One fact, with every copy of it in the batch.
#[derive(Clone, Debug)]
pub(crate) struct FactEntry {
    pub notice: Notice,
    /// Which notice of which delivery; empty for a fact that only lies in quarantine.
    pub copies: Vec<(usize, usize)>,
}

pub(crate) type Facts = BTreeMap<FactId, FactEntry>;

/// Merges equal facts (equal key *and* fingerprint), sorted.
pub(crate) fn gather(batch: &Batch) -> Result<Facts, Error> {
    let mut facts = Facts::new();
    for (delivery, content) in batch.deliveries.iter().enumerate() {
        for (index, notice) in content.notices.iter().enumerate() {
            let entry = facts
                .entry(FactId::of(notice)?)
                .or_insert_with(|| FactEntry { notice: notice.clone(), copies: Vec::new() });
            entry.copies.push((delivery, index));
        }
    }
    Ok(facts)
}

/// What is said about a batch whose facts are all booked.
pub(crate) fn repeats_only(batch: &Batch, facts: &Facts) -> Pending {
    let repeat = |(id, entry): (&FactId, &FactEntry)| Repeat {
        id: KeyId { merchant: id.number.merchant.clone(), key: id.key.clone() },
        times: entry.copies.len() as i64,
        last_seen: batch.now,
        fingerprint: entry.notice.fingerprint(),
    };
    Pending {
        outcomes: batch.deliveries.iter().map(|delivery| vec![Outcome::Repeated; delivery.notices.len()]).collect(),
        released: 0,
        owes: false,
        repeats: facts.iter().map(repeat).collect(),
        now: batch.now,
    }
}

/// The rows to be written, and what is said about each notice.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub new_attempts: Vec<Attempt>,
    /// Attempts that get their order, before anything else is written to them.
    pub filled: Vec<AttemptUpdate>,
    pub attempts: Vec<AttemptUpdate>,
    pub new_orders: Vec<Order>,
    pub orders: Vec<OrderUpdate>,
    /// Rows of the shops' own tables.
    pub own: BTreeMap<(Shop, OwnChange), (Arc<OwnTable>, Vec<OwnUpdate>)>,
    pub hold: Vec<Held>,
    pub release: Vec<Held>,
    pub keys: Vec<KeyRow>,
    pub flow: Vec<FlowRow>,
    pub effects: Vec<Effect>,
    pub evidence: Vec<Evidence>,
    pub unbelieved: Vec<Evidence>,
    pub repeats: Vec<Repeat>,
    pub outcomes: Vec<Vec<Outcome>>,
}

impl Plan {
    /// Whether anything but repeat counters is to be written.
    pub(crate) fn writes(&self) -> bool {
        !(self.new_attempts.is_empty()
            && self.filled.is_empty()
            && self.new_orders.is_empty()
            && self.attempts.is_empty()
            && self.orders.is_empty()
            && self.hold.is_empty()
            && self.release.is_empty()
            && self.keys.is_empty()
            && self.effects.is_empty()
            && self.evidence.is_empty()
            && self.unbelieved.is_empty())
    }

    /// What the booked facts write.
    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries {
            orders: &self.orders,
            keys: &self.keys,
            flow: &self.flow,
            effects: &self.effects,
            evidence: &self.evidence,
        }
    }

    pub(crate) fn of(batch: &Batch, facts: Facts, books: Books, rules: &Rules) -> Self {
        let mut planner = Planner::new(batch, rules, &books);
        let mut unknown: Vec<(FactId, FactEntry)> = Vec::new();
        let mut by_order: BTreeMap<OrderId, Vec<(FactId, FactEntry)>> = BTreeMap::new();
        for (id, entry) in planner.with_held(facts, &books.held) {
            match books.attempts.get(&id.number).and_then(|attempt| attempt.order.clone()) {
                Some(order) => by_order.entry(order).or_default().push((id, entry)),
                None => unknown.push((id, entry)),
            }
        }
        for (id, entry) in unknown {
            planner.unknown_order(&id, &entry, &books);
        }
        planner.plan.new_orders = books.own.new_orders;
        planner.plan.new_attempts.extend(books.own.new_attempts);
        planner.plan.filled = books.own.filled;
        let mut cases = books.cases;
        for (order, mut facts) in by_order {
            let Some(case) = cases.remove(&order) else {
                // An attempt that names an order without a row: damage, and no reason to lose the fact.
                facts.into_iter().for_each(|(id, entry)| planner.unknown_order(&id, &entry, &Books::default()));
                continue;
            };
            facts.sort_by_cached_key(|(id, entry)| {
                // Whoever knows the amount goes first, so that a copy that does not is its repeat.
                let notice = &entry.notice;
                (id.rank, notice.money.is_none(), notice.occurred_at, id.clone())
            });
            planner.order(case, facts);
        }
        planner.finish()
    }
}

struct Planner<'a> {
    batch: &'a Batch,
    rules: &'a Rules,
    keys: HashMap<KeyId, Fingerprint>,
    held: HashMap<FactId, Held>,
    keeps_evidence: Vec<bool>,
    plan: Plan,
}

/// How a fact stands to what is booked.
enum Recognition {
    Fresh(IdemKey),
    Repeat(IdemKey),
    Contradiction,
}

impl<'a> Planner<'a> {
    fn new(batch: &'a Batch, rules: &'a Rules, books: &Books) -> Self {
        let outcomes = batch.deliveries.iter().map(|delivery| vec![Outcome::Undecided; delivery.notices.len()]);
        let plan = Plan { outcomes: outcomes.collect(), ..Plan::default() };
        let held = books.held.iter().filter_map(|held| Some((FactId::of(&held.notice).ok()?, held.clone())));
        Self {
            batch,
            rules,
            keys: books.keys.clone(),
            held: held.collect(),
            keeps_evidence: vec![false; batch.deliveries.len()],
            plan,
        }
    }

    /// Held notices are decided afresh, together with what came.
    fn with_held(&self, mut facts: Facts, held: &[Held]) -> Facts {
        for held in held {
            if let Ok(id) = FactId::of(&held.notice) {
                facts.entry(id).or_insert_with(|| FactEntry { notice: held.notice.clone(), copies: Vec::new() });
            }
        }
        facts
    }

    /// Order unknown: asked before anything else. The row of the number is what the hold leaves, and what a
    /// registration meets; where it exists already, it was read under its lock.
    fn unknown_order(&mut self, id: &FactId, entry: &FactEntry, books: &Books) {
        let known = books.attempts.contains_key(&id.number)
            || self.plan.new_attempts.iter().any(|attempt| attempt.number == id.number);
        if !known {
            self.plan.new_attempts.push(Attempt {
                number: id.number.clone(),
                order: None,
                amount: None,
                state: AttemptState::Open,
                closed_at: None,
            });
        }
        self.hold(id, entry, HoldReason::UnknownOrder);
    }

    /// All facts of one order, chained; its row is written once.
    fn order(&mut self, mut case: Case, facts: Vec<(FactId, FactEntry)>) {
        let before = case.clone();
        let mut touched = false;
        let mut paid_by: Option<&Notice> = None;
        for (id, entry) in &facts {
            touched |= match self.recognise(&entry.notice) {
                Recognition::Repeat(key) => {
                    self.repeat(id, entry, key);
                    false
                }
                Recognition::Contradiction => self.hold(id, entry, HoldReason::Contradiction),
                Recognition::Fresh(key) => self.fresh(&mut case, id, entry, key),
            };
            if case.order.paid_at.is_some() && before.order.paid_at.is_none() {
                paid_by.get_or_insert(&entry.notice);
            }
        }
        for (attempt, was) in case.attempts.iter().zip(&before.attempts) {
            if attempt != was {
                self.plan.attempts.push(AttemptUpdate { attempt: attempt.clone(), had_order: was.order.clone() });
            }
        }
        if touched {
            self.own(&before, &case, paid_by);
            let (was_status, was_version) = (before.order.status, before.order.version);
            case.order.version = was_version + 1;
            self.plan.orders.push(OrderUpdate { order: case.order, was_status, was_version });
        }
    }

    /// What becomes of the shop's own row.
    fn own(&mut self, before: &Case, after: &Case, paid_by: Option<&Notice>) {
        let id = &after.order.id;
        let Some(table) = self.rules.own_tables.get(&id.shop) else { return };
        let Some(change) = own_change(table, &before.order, after) else { return };
        let booked = after.payments.iter().find(|payment| payment.disposition.counts());
        let trade_no = match paid_by {
            Some(notice) => notice.trade_no.clone(),
            None => booked.and_then(|payment| payment.trade_no.clone()),
        };
        let paid_at = paid_by.and_then(|notice| notice.occurred_at).or(after.order.paid_at);
        let update = OwnUpdate { order_no: id.order_no.clone(), paid_at, trade_no };
        let rows = self.plan.own.entry((id.shop.clone(), change));
        rows.or_insert_with(|| (Arc::clone(table), Vec::new())).1.push(update);
    }

    /// Compares with what is booked, or was booked earlier in this batch.
    fn recognise(&self, notice: &Notice) -> Recognition {
        let Ok(key) = notice.key() else { return Recognition::Contradiction };
        let fingerprint = notice.fingerprint();
        match self.agreement(notice, &key, &fingerprint) {
            None => Recognition::Fresh(key),
            Some(Agreement::Agree) => Recognition::Repeat(key),
            Some(Agreement::OtherTrade) if notice.fact == Fact::Payment => {
                // A second, different transaction under the same number: real money, under a key of its own.
                let Some(trade_no) = &notice.trade_no else { return Recognition::Contradiction };
                let channel = notice.merchant.channel();
                let Ok(key) = IdemKey::other_payment(channel, &notice.out_trade_no, trade_no) else {
                    return Recognition::Contradiction;
                };
                match self.agreement(notice, &key, &fingerprint) {
                    None => Recognition::Fresh(key),
                    Some(Agreement::Agree) => Recognition::Repeat(key),
                    Some(_) => Recognition::Contradiction,
                }
            }
            Some(_) => Recognition::Contradiction,
        }
    }

    fn agreement(&self, notice: &Notice, key: &IdemKey, fingerprint: &Fingerprint) -> Option<Agreement> {
        let id = KeyId { merchant: notice.merchant.clone(), key: key.clone() };
        self.keys.get(&id).map(|booked| booked.compare(fingerprint))
    }

    /// Decides about a fact that is not booked. `true` if the order's row is to be written.
    fn fresh(&mut self, case: &mut Case, id: &FactId, entry: &FactEntry, key: IdemKey) -> bool {
        let mut next = case.clone();
        let decided =
            catch_unwind(AssertUnwindSafe(|| decide(&mut next, &entry.notice, &key, self.rules.late, self.batch.now)));
        match decided {
            Ok(Decision::Book(booking)) => {
                *case = next;
                self.book(&case.order, id, entry, key, &booking);
                true
            }
            Ok(Decision::Hold(reason)) => self.hold(id, entry, reason),
            // A bug fails its own fact alone; its copies get a failing answer, and nothing is written for it.
            Err(_) => {
                tracing::error!(key = %id.key, "deciding about a fact panicked");
                false
            }
        }
    }

    fn book(&mut self, order: &Order, id: &FactId, entry: &FactEntry, key: IdemKey, booking: &Booking) {
        let notice = &entry.notice;
        let now = self.batch.now;
        let key_id = KeyId { merchant: notice.merchant.clone(), key: key.clone() };
        let fingerprint = notice.fingerprint();
        self.keys.insert(key_id.clone(), fingerprint.clone());
        let callback_id = self.evidence(id, entry);
        let copies = entry.copies.len().max(1) as i64;
        self.plan.keys.push(KeyRow {
            id: key_id.clone(),
            fingerprint,
            order: order.id.clone(),
            source: notice.source,
            repeats: copies - 1 + self.held.get(id).map_or(0, |held| held.seen - i64::from(entry.copies.is_empty())),
            at: now,
        });
        self.plan.flow.push(FlowRow {
            number: id.number.clone(),
            key,
            kind: notice.fact.kind().to_owned(),
            disposition: booking.disposition,
            order: order.id.clone(),
            money: booking.money,
            trade_no: notice.trade_no.clone(),
            full_refund: matches!(notice.fact, Fact::Refund { full: true, .. }),
            account: notice.account.clone(),
            callback_id,
            occurred_at: notice.occurred_at,
            booked_at: now,
        });
        for (event, amount) in &booking.events {
            self.owe(order, &key_id, notice, *event, *amount);
        }
        self.release(id);
        self.say(entry, Outcome::Applied(booking.disposition), Outcome::Repeated);
    }

    /// The effects that an event owes, with key and payload frozen now.
    fn owe(&mut self, order: &Order, fact: &KeyId, notice: &Notice, event: Event, amount: i64) {
        let key_of = |name: &str| match event {
            Event::OrderPaid => EffectKey::once_per_order(&order.id.shop, &order.id.order_no, "order-paid", name),
            _ => EffectKey::of_fact(&fact.merchant, &fact.key, name),
        };
        for rule in self.rules.owed(event, &order.kind) {
            let key = key_of(&rule.name);
            self.plan.effects.push(Effect {
                payload: payload(&key, rule, order, fact, notice, amount),
                after: rule.after.as_deref().map(key_of),
                due_at: self.batch.now.plus(rule.delay),
                key,
                fact: fact.clone(),
                order: order.id.clone(),
                event: event.as_str().to_owned(),
                name: rule.name.clone(),
                sink: rule.sink.clone(),
                state: EffectState::Ready,
                tries: 0,
                last_error: None,
                created_at: self.batch.now,
                done_at: None,
            });
        }
    }

    fn repeat(&mut self, id: &FactId, entry: &FactEntry, key: IdemKey) {
        let notice = &entry.notice;
        if !entry.copies.is_empty() {
            self.plan.repeats.push(Repeat {
                id: KeyId { merchant: notice.merchant.clone(), key },
                times: entry.copies.len() as i64,
                last_seen: self.batch.now,
                fingerprint: notice.fingerprint(),
            });
        }
        self.release(id);
        self.say(entry, Outcome::Repeated, Outcome::Repeated);
    }

    /// Keeps or keeps on. `true` for a new hold: it writes what it read, so its order's version moves.
    fn hold(&mut self, id: &FactId, entry: &FactEntry, reason: HoldReason) -> bool {
        let before = self.held.get(id).cloned();
        let is_new = before.is_none();
        let callback_id = if is_new { self.evidence(id, entry) } else { None };
        let now = self.batch.now;
        let changed = before.as_ref().is_some_and(|held| held.reason != reason);
        let first_seen = before.as_ref().map_or(now, |held| held.first_seen);
        if is_new || changed || !entry.copies.is_empty() {
            self.plan.hold.push(Held {
                number: id.number.clone(),
                key: id.key.clone(),
                fingerprint: id.fingerprint.clone(),
                reason,
                notice: entry.notice.clone(),
                callback_id,
                seen: entry.copies.len() as i64,
                first_seen,
                last_seen: now,
            });
        }
        let outcome = Outcome::Held { reason, first_seen };
        self.say(entry, outcome, outcome);
        is_new
    }

    fn release(&mut self, id: &FactId) {
        if let Some(held) = self.held.get(id) {
            self.plan.release.push(held.clone());
        }
    }

    /// The bytes to keep for a fact: of its first copy, or those kept when it was held.
    fn evidence(&mut self, id: &FactId, entry: &FactEntry) -> Option<String> {
        let Some(&(delivery, _)) = entry.copies.first() else {
            return self.held.get(id).and_then(|held| held.callback_id.clone());
        };
        let evidence = self.batch.deliveries.get(delivery)?.evidence.as_ref()?;
        if let Some(kept) = self.keeps_evidence.get_mut(delivery)
            && !*kept
        {
            *kept = true;
            self.plan.evidence.push(evidence.clone());
        }
        Some(evidence.id.clone())
    }

    fn say(&mut self, entry: &FactEntry, first: Outcome, others: Outcome) {
        for (copy, &(delivery, index)) in entry.copies.iter().enumerate() {
            if let Some(slot) = self.plan.outcomes.get_mut(delivery).and_then(|outcomes| outcomes.get_mut(index)) {
                *slot = if copy == 0 { first } else { others };
            }
        }
    }

    fn finish(mut self) -> Plan {
        for delivery in &self.batch.deliveries {
            if let (true, true, Some(evidence)) = (delivery.keep, delivery.notices.is_empty(), &delivery.evidence) {
                self.plan.unbelieved.push(evidence.clone());
            }
        }
        // One lock order for every writer: sorted by bytes.
        self.plan.keys.sort_by(|a, b| a.id.cmp(&b.id));
        self.plan.hold.sort_by(|a, b| (&a.number, &a.key, &a.fingerprint).cmp(&(&b.number, &b.key, &b.fingerprint)));
        self.plan.flow.sort_by(|a, b| (&a.number, &a.key).cmp(&(&b.number, &b.key)));
        self.plan.effects.sort_by(|a, b| a.key.cmp(&b.key));
        self.plan.attempts.sort_by(|a, b| a.attempt.number.cmp(&b.attempt.number));
        if !self.plan.new_orders.is_empty() {
            self.plan.new_attempts.sort_by(|a, b| a.number.cmp(&b.number));
            self.plan.new_orders.sort_by(|a, b| a.id.cmp(&b.id));
        }
        self.plan
    }
}

/// The JSON of design section 11, frozen with the effect.
fn payload(key: &EffectKey, rule: &EffectRule, order: &Order, fact: &KeyId, notice: &Notice, amount: i64) -> String {
    #[derive(Serialize)]
    struct FactPart<'a> {
        key: &'a str,
        r#type: &'static str,
        amount: Option<i64>,
        trade_no: Option<&'a str>,
        channel: &'a str,
        account: &'a str,
        out_trade_no: &'a str,
        channel_data: &'a serde_json::Map<String, serde_json::Value>,
    }
    #[derive(Serialize)]
    struct Payload<'a> {
        version: u8,
        key: &'a str,
        event: &'static str,
        name: &'a str,
        shop: &'a str,
        order_no: &'a str,
        kind: &'a str,
        amount: i64,
        currency: &'a str,
        occurred_at: Option<String>,
        fact: FactPart<'a>,
        meta: Box<serde_json::value::RawValue>,
    }
    let meta = serde_json::value::RawValue::from_string(order.meta.clone())
        .unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned());
    let payload = Payload {
        version: 1,
        key: key.as_str(),
        event: rule.on.as_str(),
        name: &rule.name,
        shop: order.id.shop.as_str(),
        order_no: order.id.order_no.as_str(),
        kind: order.kind.as_str(),
        amount,
        currency: order.money.currency.as_str(),
        occurred_at: notice.occurred_at.as_ref().map(Micros::to_string),
        fact: FactPart {
            key: fact.key.as_str(),
            r#type: notice.fact.kind(),
            amount: notice.money.map(|money| money.amount),
            trade_no: notice.trade_no.as_ref().map(|trade_no| trade_no.as_str()),
            channel: notice.merchant.channel(),
            account: notice.account.as_str(),
            out_trade_no: notice.out_trade_no.as_str(),
            channel_data: &notice.channel_data,
        },
        meta,
    };
    serde_json::to_string(&payload).unwrap_or_default()
}
