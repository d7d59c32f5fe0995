//! What is known about the numbers of a batch, read under locks in the one order.
//!
//! Here: the reads, in their order, and the values `decide` sees. Not here: any decision.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    apply::{
        decide::Case,
        own::{self, Own},
        plan::{FactId, Facts},
    },
    error::Error,
    key::{Agreement, Fingerprint, IdemKey},
    notice::{Fact, Notice},
    order::{Attempt, Number, Order, OrderId, Payment},
    rules::Rules,
    store::{FlowRow, Held, KeyId, Known, Ledger},
    time::Micros,
};

/// Everything a decision about these numbers may depend on.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// The rows of the numbers; a number that is missing here has none.
    pub attempts: BTreeMap<Number, Attempt>,
    /// Their orders, with the payments booked for each.
    pub cases: BTreeMap<OrderId, Case>,
    /// What is held about them.
    pub held: Vec<Held>,
    /// Which of the facts' keys are booked.
    pub keys: HashMap<KeyId, Fingerprint>,
    /// What the shops' own tables say.
    pub own: Own,
}

impl Books {
    /// Locks attempts, then orders, then held notices; then reads the keys of both batch and held notices,
    /// locks rows of the shops' own tables, and of orders that have something booked reads the ledger.
    pub(crate) async fn read<L: Ledger>(
        ledger: &mut L,
        numbers: &[Number],
        facts: &Facts,
        rules: &Rules,
        now: Micros,
    ) -> Result<Self, Error> {
        if numbers.is_empty() {
            return Ok(Self::default());
        }
        let keys: BTreeSet<KeyId> = facts.values().flat_map(|fact| keys_of(&fact.notice)).collect();
        let keys: Vec<KeyId> = keys.into_iter().collect();
        let (attempts, mut orders) = ledger.lock_numbers(numbers).await?;
        let mut attempts: BTreeMap<Number, Attempt> =
            attempts.into_iter().map(|attempt| (attempt.number.clone(), attempt)).collect();
        let Known { held, booked: mut keys } = ledger.known(numbers, &keys).await?;
        let candidates = own::candidates(rules, numbers, &attempts);
        let known: BTreeSet<&OrderId> = orders.iter().map(|order| &order.id).collect();
        let others: BTreeSet<OrderId> = candidates.values().filter(|id| !known.contains(id)).cloned().collect();
        if !others.is_empty() {
            let others: Vec<OrderId> = others.into_iter().collect();
            orders.extend(ledger.lock_orders(&others).await?);
        }
        let of_held: BTreeSet<KeyId> = held.iter().flat_map(|held| keys_of(&held.notice)).collect();
        if !of_held.is_empty() {
            let of_held: Vec<KeyId> = of_held.into_iter().collect();
            keys.extend(ledger.known(&[], &of_held).await?.booked);
        }
        let keys: HashMap<KeyId, Fingerprint> = keys.into_iter().collect();
        let closing = |fact: &Fact| *fact == Fact::Closed;
        let closed: BTreeSet<&Number> =
            (facts.iter().filter(|(_, fact)| closing(&fact.notice.fact)).map(|(id, _)| &id.number))
                .chain(held.iter().filter(|held| closing(&held.notice.fact)).map(|held| &held.number))
                .collect();
        // Repeats need no ledger: their keys say it all.
        let fresh = !held.is_empty() || facts.values().any(|fact| !is_repeat(&fact.notice, &keys));
        let mut own = Own::default();
        if fresh && !rules.own_tables.is_empty() {
            let live: BTreeSet<&Number> = (held.iter().map(|held| &held.number))
                .chain(facts.iter().filter(|(_, fact)| !is_repeat(&fact.notice, &keys)).map(|(id, _)| &id.number))
                .collect();
            own = Own::read(ledger, rules, &live, &candidates, (&mut attempts, &mut orders), now).await?;
        }
        let mut cases = if fresh {
            Self::read_cases(ledger, orders, &attempts, &closed).await?
        } else {
            cases_of(orders, &attempts, Vec::new())
        };
        for (id, case) in &mut cases {
            case.own = own.orders.get(id).cloned();
        }
        Ok(Self { attempts, cases, held, keys, own })
    }

    /// Adds the siblings' rows where a closing asks for them, and the ledger of orders that have one.
    async fn read_cases<L: Ledger>(
        ledger: &mut L,
        orders: Vec<Order>,
        attempts: &BTreeMap<Number, Attempt>,
        closed: &BTreeSet<&Number>,
    ) -> Result<BTreeMap<OrderId, Case>, Error> {
        let of_closed: BTreeSet<&OrderId> =
            closed.iter().filter_map(|number| attempts.get(*number)?.order.as_ref()).collect();
        let wanted: Vec<OrderId> = orders
            .iter()
            .filter(|order| order.version > 0 || of_closed.contains(&order.id))
            .map(|order| order.id.clone())
            .collect();
        if wanted.is_empty() {
            return Ok(cases_of(orders, attempts, Vec::new()));
        }
        let siblings = ledger.attempts_of(&wanted).await?;
        let numbers: Vec<Number> = siblings.iter().map(|attempt| attempt.number.clone()).collect();
        let flow = if numbers.is_empty() { Vec::new() } else { ledger.flow_of(&numbers).await? };
        let mut all = attempts.clone();
        all.extend(siblings.into_iter().map(|attempt| (attempt.number.clone(), attempt)));
        Ok(cases_of(orders, &all, flow))
    }

    /// What was read, as one number: keys booked, and the versions of the orders.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let keys: BTreeSet<&KeyId> = self.keys.keys().collect();
        keys.hash(&mut hasher);
        for case in self.cases.values() {
            (&case.order.id, case.order.version).hash(&mut hasher);
        }
        let attempts: Vec<_> = self.attempts.values().map(|attempt| (&attempt.number, &attempt.order)).collect();
        attempts.hash(&mut hasher);
        self.held.len().hash(&mut hasher);
        let own: Vec<_> = self.own.orders.iter().map(|(id, row)| (id, row.state, &row.trade_no, row.money)).collect();
        own.hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether every one of these facts is booked already, by their keys alone. What is read was committed, so on
/// an engine that shows only what is durable, and rows of which never expire, this is the last word about them.
pub(crate) async fn all_booked<L: Ledger>(ledger: &mut L, facts: &Facts) -> Result<bool, Error> {
    let keys: Vec<KeyId> = facts.values().filter_map(|fact| keys_of(&fact.notice).next()).collect();
    let booked: HashMap<KeyId, Fingerprint> = ledger.known(&[], &keys).await?.booked.into_iter().collect();
    Ok(facts.values().all(|fact| is_repeat(&fact.notice, &booked)))
}

/// The keys under which a notice could be booked: its own, and for a payment the one of a second transaction.
fn keys_of(notice: &Notice) -> impl Iterator<Item = KeyId> + use<> {
    let channel = notice.merchant.channel();
    let other: Option<IdemKey> = match (&notice.fact, &notice.trade_no) {
        (Fact::Payment, Some(trade_no)) => IdemKey::other_payment(channel, &notice.out_trade_no, trade_no).ok(),
        _ => None,
    };
    let merchant = notice.merchant.clone();
    notice.key().ok().into_iter().chain(other).map(move |key| KeyId { merchant: merchant.clone(), key })
}

fn is_repeat(notice: &Notice, keys: &HashMap<KeyId, Fingerprint>) -> bool {
    let booked = keys_of(notice).next().and_then(|key| keys.get(&key));
    booked.is_some_and(|booked| booked.compare(&notice.fingerprint()) == Agreement::Agree)
}

fn cases_of(orders: Vec<Order>, attempts: &BTreeMap<Number, Attempt>, flow: Vec<FlowRow>) -> BTreeMap<OrderId, Case> {
    let mut cases: BTreeMap<OrderId, Case> = orders
        .into_iter()
        .map(|order| (order.id.clone(), Case { order, attempts: Vec::new(), payments: Vec::new(), own: None }))
        .collect();
    for attempt in attempts.values() {
        if let Some(case) = attempt.order.as_ref().and_then(|id| cases.get_mut(id)) {
            case.attempts.push(attempt.clone());
        }
    }
    let (payments, others): (Vec<FlowRow>, Vec<FlowRow>) =
        flow.into_iter().partition(|row| row.kind == Fact::Payment.kind());
    for row in payments {
        if let Some(case) = cases.get_mut(&row.order) {
            case.payments.push(Payment {
                number: row.number,
                key: row.key,
                trade_no: row.trade_no,
                money: row.money,
                disposition: row.disposition,
                refunds: 0,
                fully_returned: false,
            });
        }
    }
    for row in others.iter().filter(|row| row.kind == "refund") {
        if let Some(case) = cases.get_mut(&row.order) {
            case.give_back(&row.number.merchant, row.trade_no.as_ref(), row.money.amount, row.full_refund);
        }
    }
    cases
}

/// The identity of a fact within a batch.
impl FactId {
    /// Of a notice; an error if its number is too long for a key.
    pub(crate) fn of(notice: &Notice) -> Result<Self, Error> {
        let key = notice.key().map_err(|error| Error::permanent(format!("a fact has no key: {error}")))?;
        let number = Number { merchant: notice.merchant.clone(), out_trade_no: notice.out_trade_no.clone() };
        Ok(Self { number, rank: rank(&notice.fact), key, fingerprint: notice.fingerprint().as_text() })
    }
}

/// Within one order: payments, then refunds, then closings, whatever the order of arrival.
const fn rank(fact: &Fact) -> u8 {
    match fact {
        Fact::Payment => 0,
        Fact::Refund { .. } => 1,
        Fact::RefundAbnormal { .. } | Fact::RefundClosed { .. } => 2,
        Fact::Closed => 3,
    }
}
