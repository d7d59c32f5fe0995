//! Compares what the platforms did with what the receiver's books say, and names every difference.
//!
//! Here: the promise (an acknowledged fact is in the books, once, with its amount; what it owes is delivered and counts
//! once), as a pure function of both sides. Not here: how anybody keeps books, or who collected them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Which way money went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A payment.
    Payment,
    /// A refund.
    Refund,
}

/// Something that happened at the platform and that the receiver was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The receiver's name for it, such as `WXPAY:A1:PAY`.
    pub key: String,
    /// Payment or refund.
    pub kind: Kind,
    /// The order it is about.
    pub order_no: String,
    /// In fen, positive.
    pub amount: i64,
    /// Whether the platform got an acknowledgement at least once.
    pub acknowledged: bool,
}

/// One row of the receiver's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// The fact's name.
    pub key: String,
    /// Payment or refund.
    pub kind: Kind,
    /// The order it is booked to.
    pub order_no: String,
    /// In fen, positive.
    pub amount: i64,
}

impl FlowRow {
    fn is(&self, fact: &Fact) -> bool {
        (self.kind, &self.order_no, self.amount) == (fact.kind, &fact.order_no, fact.amount)
    }
}

/// One order in the receiver's books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// The order's number.
    pub order_no: String,
    /// What it costs, in fen.
    pub amount: i64,
    /// What was paid, in fen.
    pub paid: i64,
    /// What was refunded, in fen.
    pub refunded: i64,
    /// What arrived and does not fit, in fen.
    pub unapplied: i64,
    /// Whether the books say that it was ever paid in full.
    pub was_paid: bool,
}

/// One side effect that the books owe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRow {
    /// The effect's key.
    pub key: String,
    /// The order it belongs to.
    pub order_no: String,
    /// Its configured name, such as `ship`.
    pub name: String,
    /// How far it has come.
    pub state: EffectState,
    /// Whether it goes to the receiver whose deliveries are in [`Books::received`]. Effects inside the database, or to
    /// another sink, do not.
    pub to_receiver: bool,
}

/// How far a side effect has come, by the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectState {
    /// Not delivered yet.
    Open,
    /// Delivered.
    Done,
    /// Given up or cancelled: it may have arrived or not.
    Ended,
}

/// The receiver's view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// All orders.
    pub orders: Vec<OrderRow>,
    /// The ledger.
    pub flow: Vec<FlowRow>,
    /// Keys of the facts that wait in quarantine.
    pub quarantine: Vec<String>,
    /// All side effects owed.
    pub effects: Vec<EffectRow>,
    /// What the user's service received: per effect key, the body of each delivery in order.
    pub received: BTreeMap<String, Vec<Vec<u8>>>,
    /// Names of the effects that each fully paid order owes once.
    pub owed_when_paid: Vec<String>,
    /// Whether the effects were given the time to be delivered: only then is one that has not arrived a finding.
    pub delivered_all: bool,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// Something that must be there is not.
    Missing {
        /// What kind of thing: `flow`, `order`, `effect`, `delivery`.
        what: &'static str,
        /// Its key or number.
        key: String,
        /// More for a human.
        detail: String,
    },
    /// Something is there more than once.
    Double {
        /// What kind of thing.
        what: &'static str,
        /// Its key or number.
        key: String,
        /// How often.
        times: usize,
    },
    /// Something is there and differs from what it must be.
    Different {
        /// What kind of thing.
        what: &'static str,
        /// Its key or number.
        key: String,
        /// What must be.
        expected: String,
        /// What is.
        found: String,
    },
    /// Something is there that nobody ever did.
    Invented {
        /// What kind of thing.
        what: &'static str,
        /// Its key or number.
        key: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { what, key, detail } => write!(f, "{what} {key} is missing: {detail}"),
            Self::Double { what, key, times } => write!(f, "{what} {key} is there {times} times"),
            Self::Different { what, key, expected, found } => {
                write!(f, "{what} {key} should be {expected} and is {found}")
            }
            Self::Invented { what, key } => write!(f, "{what} {key} is there, but nothing of the kind ever happened"),
        }
    }
}

/// Every difference between what happened and what the books say, sorted. An empty list is the proof.
#[must_use]
pub fn audit(facts: &[Fact], books: &Books) -> Vec<Finding> {
    let mut findings = Vec::new();
    audit_flow(facts, books, &mut findings);
    audit_orders(books, &mut findings);
    audit_effects(books, &mut findings);
    audit_received(books, &mut findings);
    findings.sort();
    findings
}

/// An acknowledged fact is in the ledger or in quarantine; a booked one is there once, as it was, and did happen.
fn audit_flow(facts: &[Fact], books: &Books, findings: &mut Vec<Finding>) {
    let mut booked: BTreeMap<&str, Vec<&FlowRow>> = BTreeMap::new();
    for row in &books.flow {
        booked.entry(&row.key).or_default().push(row);
    }
    let held: BTreeSet<&str> = books.quarantine.iter().map(String::as_str).collect();
    let mut known: BTreeMap<&str, Vec<&Fact>> = BTreeMap::new();
    for fact in facts {
        known.entry(&fact.key).or_default().push(fact);
    }
    for (key, told) in &known {
        let rows = booked.get(key).map(Vec::as_slice).unwrap_or_default();
        let acknowledged = told.iter().any(|fact| fact.acknowledged);
        if rows.is_empty() && acknowledged && !held.contains(key) {
            let detail = "acknowledged, but neither booked nor held".into();
            findings.push(Finding::Missing { what: "flow", key: (*key).to_owned(), detail });
        }
        if rows.len() > 1 {
            findings.push(Finding::Double { what: "flow", key: (*key).to_owned(), times: rows.len() });
        }
        // Where the platform contradicted itself, each of its versions may be the booked one.
        if let Some(row) = rows.first()
            && !told.iter().any(|fact| row.is(fact))
        {
            let fact = told[0];
            let expected = (fact.kind, fact.order_no.as_str(), fact.amount);
            let found = (row.kind, row.order_no.as_str(), row.amount);
            differ("flow", key, &expected, &found, findings);
        }
    }
    for (key, _) in booked.iter().filter(|(key, _)| !known.contains_key(*key)) {
        findings.push(Finding::Invented { what: "flow", key: (*key).to_owned() });
    }
}

/// Each order appears once, and its sums are those of its ledger rows.
fn audit_orders(books: &Books, findings: &mut Vec<Finding>) {
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for row in &books.flow {
        let (paid, refunded) = sums.entry(&row.order_no).or_default();
        match row.kind {
            Kind::Payment => *paid += row.amount,
            Kind::Refund => *refunded += row.amount,
        }
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for order in &books.orders {
        *count.entry(&order.order_no).or_default() += 1;
        let (paid, refunded) = sums.get(order.order_no.as_str()).copied().unwrap_or_default();
        // Money that does not fit stands in the ledger as well, but counts as unapplied instead of paid.
        differ("sum paid of order", &order.order_no, &paid, &(order.paid + order.unapplied), findings);
        if order.unapplied == 0 {
            differ("sum refunded of order", &order.order_no, &refunded, &order.refunded, findings);
            differ("paid mark of order", &order.order_no, &(order.paid >= order.amount), &order.was_paid, findings);
        }
    }
    for (order_no, times) in &count {
        if *times > 1 {
            findings.push(Finding::Double { what: "order", key: (*order_no).to_owned(), times: *times });
        }
    }
    for order_no in sums.keys().filter(|order_no| !count.contains_key(*order_no)) {
        let detail = "the ledger has rows for it".into();
        findings.push(Finding::Missing { what: "order", key: (*order_no).to_owned(), detail });
    }
}

/// A paid order owes each configured effect exactly once, an unpaid one none.
fn audit_effects(books: &Books, findings: &mut Vec<Finding>) {
    let mut owed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for effect in &books.effects {
        *owed.entry((&effect.order_no, &effect.name)).or_default() += 1;
    }
    for order in &books.orders {
        for name in &books.owed_when_paid {
            let times = owed.get(&(order.order_no.as_str(), name.as_str())).copied().unwrap_or_default();
            let key = format!("{} {name}", order.order_no);
            match (order.was_paid, times) {
                (true, 0) => {
                    let detail = "the order is paid".into();
                    findings.push(Finding::Missing { what: "effect", key, detail });
                }
                (false, 1..) => findings.push(Finding::Invented { what: "effect", key }),
                (_, 2..) => findings.push(Finding::Double { what: "effect", key, times }),
                _ => {}
            }
        }
    }
}

/// Each effect that should have arrived did, always with the same body; nothing arrived that nobody owes.
fn audit_received(books: &Books, findings: &mut Vec<Finding>) {
    let mut keys = BTreeMap::new();
    for effect in &books.effects {
        let times = keys.entry(effect.key.as_str()).or_insert(0_usize);
        *times += 1;
        if *times == 2 {
            let times = books.effects.iter().filter(|other| other.key == effect.key).count();
            findings.push(Finding::Double { what: "effect", key: effect.key.clone(), times });
        }
        let arrived = books.received.get(&effect.key).is_some_and(|bodies| !bodies.is_empty());
        let detail = match effect.state {
            EffectState::Done => "the books call it done",
            EffectState::Open if books.delivered_all => "it was never delivered",
            EffectState::Open | EffectState::Ended => continue,
        };
        if effect.to_receiver && !arrived {
            let detail = detail.into();
            findings.push(Finding::Missing { what: "delivery", key: effect.key.clone(), detail });
        }
    }
    for (key, bodies) in &books.received {
        if !keys.contains_key(key.as_str()) {
            findings.push(Finding::Invented { what: "delivery", key: key.clone() });
        }
        let distinct: BTreeSet<&Vec<u8>> = bodies.iter().collect();
        if distinct.len() > 1 {
            let (expected, found) = ("the same body each time".into(), format!("{} different ones", distinct.len()));
            findings.push(Finding::Different { what: "delivery", key: key.clone(), expected, found });
        }
    }
}

fn differ<T: PartialEq + fmt::Debug>(
    what: &'static str,
    key: &str,
    expected: &T,
    found: &T,
    findings: &mut Vec<Finding>,
) {
    if expected != found {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        findings.push(Finding::Different { what, key: key.to_owned(), expected, found });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happened() -> Vec<Fact> {
        let fact =
            |key: &str, kind, amount| Fact { key: key.into(), kind, order_no: "O1".into(), amount, acknowledged: true };
        vec![fact("WXPAY:O1:PAY", Kind::Payment, 100), fact("WXPAY:O1:REFUND:R1", Kind::Refund, 30)]
    }

    fn in_order() -> Books {
        let row = |key: &str, kind, amount| FlowRow { key: key.into(), kind, order_no: "O1".into(), amount };
        Books {
            orders: vec![OrderRow {
                order_no: "O1".into(),
                amount: 100,
                paid: 100,
                refunded: 30,
                unapplied: 0,
                was_paid: true,
            }],
            flow: vec![row("WXPAY:O1:PAY", Kind::Payment, 100), row("WXPAY:O1:REFUND:R1", Kind::Refund, 30)],
            quarantine: vec![],
            effects: vec![EffectRow {
                key: "O1:ship".into(),
                order_no: "O1".into(),
                name: "ship".into(),
                state: EffectState::Done,
                to_receiver: true,
            }],
            received: BTreeMap::from([("O1:ship".to_owned(), vec![b"x".to_vec(), b"x".to_vec()])]),
            owed_when_paid: vec!["ship".into()],
            delivered_all: true,
        }
    }

    #[test]
    fn books_in_order_have_no_findings() {
        assert_eq!(audit(&happened(), &in_order()), []);
        assert_eq!(audit(&[], &Books::default()), []);
        // Held instead of booked is durable as well.
        let mut books = in_order();
        books.flow.pop();
        books.orders[0].refunded = 0;
        books.quarantine.push("WXPAY:O1:REFUND:R1".into());
        assert_eq!(audit(&happened(), &books), []);
    }

    #[test]
    fn what_may_differ_is_no_finding() {
        // The platform told two amounts: one of them is booked, the other is held.
        let mut facts = happened();
        facts.insert(0, Fact { amount: 99, acknowledged: false, ..facts[0].clone() });
        assert_eq!(audit(&facts, &in_order()), []);
        let mut books = in_order();
        books.received.clear();
        books.effects[0].state = EffectState::Ended;
        assert_eq!(audit(&happened(), &books), []);
        (books.effects[0].state, books.effects[0].to_receiver) = (EffectState::Done, false);
        assert_eq!(audit(&happened(), &books), []);
        // Not acknowledged: the platform will come again.
        let mut facts = happened();
        facts[1].acknowledged = false;
        let mut books = in_order();
        books.flow.pop();
        books.orders[0].refunded = 0;
        assert_eq!(audit(&facts, &books), []);
    }

    #[test]
    fn every_broken_promise_is_found() {
        type Break = fn(&mut Books);
        let cases: [(Break, &str); 12] = [
            (
                |b| {
                    b.effects[0].state = EffectState::Open;
                    b.received.clear();
                },
                "delivery O1:ship is missing: it was never",
            ),
            (|b| drop(b.flow.remove(1)), "flow WXPAY:O1:REFUND:R1 is missing"),
            (|b| b.flow.push(b.flow[0].clone()), "flow WXPAY:O1:PAY is there 2 times"),
            (|b| b.flow[0].amount = 99, "flow WXPAY:O1:PAY should be (Payment, \"O1\", 100)"),
            (|b| b.flow[0].key = "WXPAY:O9:PAY".into(), "flow WXPAY:O9:PAY is there, but nothing"),
            (|b| b.orders[0].paid = 200, "sum paid of order O1 should be 100 and is 200"),
            (|b| b.orders.clear(), "order O1 is missing"),
            (|b| b.orders[0].was_paid = false, "paid mark of order O1 should be true and is false"),
            (|b| b.effects.clear(), "effect O1 ship is missing"),
            (|b| b.effects.push(b.effects[0].clone()), "effect O1 ship is there 2 times"),
            (|b| b.received.clear(), "delivery O1:ship is missing: the books call it done"),
            (
                |b| b.received.values_mut().for_each(|v| v[1] = b"y".to_vec()),
                "delivery O1:ship should be the same body",
            ),
        ];
        for (spoil, expected) in cases {
            let mut books = in_order();
            spoil(&mut books);
            let findings: Vec<String> = audit(&happened(), &books).iter().map(ToString::to_string).collect();
            assert!(findings.iter().any(|finding| finding.starts_with(expected)), "{expected}: {findings:?}");
        }
    }
}
