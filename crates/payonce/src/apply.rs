//! The one home of idempotency: notices go in, each fact changes the books once.
//!
//! Here: read, decide, write, in one open transaction, for one notice or five hundred alike. What is read
//! is locked in one order everywhere (attempts, orders, held notices, keys), `decide` is a pure function,
//! and the writes are judged: the unique index on the keys and the affected rows of the conditional
//! UPDATE make it right, the locks only make it quick. Not here: SQL (`store`), starting over (`store`'s
//! `Database`, or an embedder's own loop), whether the platform may stop (`outcome`).

use std::{collections::BTreeSet, time::Duration};

use sqlx::Transaction;

use crate::{
    error::Error,
    notice::Notice,
    order::Number,
    outcome::{Acknowledgement, Outcome, Refusal, Verdict},
    rules::Rules,
    store::{Evidence, Ledger, Repeat},
    time::Micros,
};

mod books;
mod decide;
pub(crate) mod own;
mod plan;

use books::Books;
pub use decide::{Booking, Case, Decision, decide};
use plan::Plan;

/// What one callback (or query answer, or operator) brings to the books.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Its facts; none for a message that says nothing to book.
    pub notices: Vec<Notice>,
    /// Its bytes, kept if one of its facts is booked or held.
    pub evidence: Option<Evidence>,
    /// Keep the bytes although no fact stands for them (an unsupported kind, a signed message that could
    /// not be believed): once, and only so many per account and hour.
    pub keep: bool,
}

/// How many messages without a fact are kept per account and hour.
pub const UNBELIEVED_PER_HOUR: i64 = 200;

/// Deliveries that are booked together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The deliveries; outcomes come back in the same order.
    pub deliveries: Vec<Delivery>,
    /// Numbers whose held notices are to be decided again, although nothing new came for them.
    pub touched: Vec<Number>,
    /// The present.
    pub now: Micros,
}

impl Batch {
    /// Of deliveries only.
    pub fn of(deliveries: Vec<Delivery>, now: Micros) -> Self {
        Self { deliveries, touched: Vec::new(), now }
    }
}

/// Booked, and not committed yet: it can answer no platform.
#[derive(Debug)]
#[must_use = "nothing is acknowledged before `commit`"]
pub struct Pending {
    pub(crate) outcomes: Vec<Vec<Outcome>>,
    pub(crate) released: usize,
    /// An effect is due already: whoever delivers need not wait for its next look.
    pub(crate) owes: bool,
    /// Copies that were only read, not counted; whoever commits decides when they are.
    pub(crate) repeats: Vec<Repeat>,
    now: Micros,
}

impl Pending {
    /// What was said about each delivery's notices.
    pub fn outcomes(&self) -> &[Vec<Outcome>] {
        &self.outcomes
    }

    /// Commits the caller's transaction. Only its success makes the outcomes answerable; after an error
    /// nobody knows, and nobody may be acknowledged.
    pub async fn commit<DB: sqlx::Database>(self, transaction: Transaction<'_, DB>) -> Result<Committed, Error> {
        transaction.commit().await.map_err(|error| Error::from(error).during("commit"))?;
        Ok(self.after_commit())
    }

    pub(crate) fn after_commit(self) -> Committed {
        Committed { outcomes: self.outcomes, released: self.released, now: self.now }
    }
}

/// Outcomes whose transaction has committed: the only source of an acknowledgement.
#[derive(Debug)]
pub struct Committed {
    outcomes: Vec<Vec<Outcome>>,
    released: usize,
    now: Micros,
}

impl Committed {
    /// What was said about each delivery's notices.
    pub fn outcomes(&self) -> &[Vec<Outcome>] {
        &self.outcomes
    }

    /// How many held notices found what they waited for.
    pub fn released(&self) -> usize {
        self.released
    }

    /// What the platform is told about one delivery: to stop only if every part would be told so.
    /// `grace` is how long an unknown order is answered with failure.
    pub fn verdict(&self, delivery: usize, grace: Duration) -> Verdict {
        let outcomes = self.outcomes.get(delivery).map_or(&[][..], Vec::as_slice);
        if outcomes.iter().all(|outcome| outcome.is_acknowledged(self.now, grace)) {
            Verdict::Acknowledged(Acknowledgement::after_commit())
        } else if outcomes.contains(&Outcome::Undecided) {
            Verdict::Refused(Refusal::Internal)
        } else {
            Verdict::Refused(Refusal::NotYet)
        }
    }

    /// Joins the parts of a batch that had to be booked apart.
    pub(crate) fn merge(parts: Vec<(Vec<usize>, Self)>, deliveries: usize, now: Micros) -> Self {
        let mut merged = Self { outcomes: vec![Vec::new(); deliveries], released: 0, now };
        for (indices, part) in parts {
            merged.released += part.released;
            for (index, outcomes) in indices.into_iter().zip(part.outcomes) {
                if let Some(slot) = merged.outcomes.get_mut(index) {
                    *slot = outcomes;
                }
            }
        }
        merged
    }

    pub(crate) fn is_all_repeats(&self) -> bool {
        self.outcomes.iter().flatten().all(|outcome| *outcome == Outcome::Repeated)
    }

    pub(crate) fn is_undecided(&self) -> bool {
        self.outcomes.iter().flatten().all(|outcome| *outcome == Outcome::Undecided)
    }

    /// A batch about which nothing could be decided.
    pub(crate) fn undecided(batch: &Batch) -> Self {
        let outcomes = batch.deliveries.iter().map(|delivery| vec![Outcome::Undecided; delivery.notices.len().max(1)]);
        Self { outcomes: outcomes.collect(), released: 0, now: batch.now }
    }
}

/// Books into the caller's own transaction, so that their business write and the booking commit together.
///
/// It never starts over: an error with [`Error::is_conflict`] means that another transaction was first,
/// and that the caller should roll back and run its closure again in a new transaction. The transaction
/// should be at READ COMMITTED (SQLite: begun with `BEGIN IMMEDIATE`).
pub async fn apply<DB>(transaction: &mut Transaction<'_, DB>, batch: &Batch, rules: &Rules) -> Result<Pending, Error>
where
    DB: sqlx::Database,
    DB::Connection: Ledger,
{
    // The caller's COMMIT is not ours to time, so repeats are counted at once.
    book(&mut **transaction, batch, rules, Repeats::CountNow).await.map_err(|(error, _)| error)
}

/// When copies of booked facts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// In this transaction, so that its COMMIT covers what was only read.
    CountNow,
    /// With the next batch that writes anyway: a batch of repeats costs no sync.
    Defer,
}

/// What a failed try had read: a rerun that reads the same has learned nothing, so it was no race.
pub(crate) type Digest = u64;

/// Books into an open transaction.
pub(crate) async fn book<L: Ledger>(
    ledger: &mut L,
    batch: &Batch,
    rules: &Rules,
    repeats: Repeats,
) -> Result<Pending, (Error, Digest)> {
    let (plan, digest) = read(ledger, batch, rules).await.map_err(|error| (error, 0))?;
    write(ledger, batch, plan, repeats).await.map_err(|error| (error, digest))
}

/// A batch of nothing but repeats, recognised by one read and outside of any transaction; `None` if there is
/// anything else in it. Only for engines that show a row no sooner than it is durable.
pub(crate) async fn recognise_repeats<L: Ledger>(ledger: &mut L, batch: &Batch) -> Result<Option<Pending>, Error> {
    let facts = plan::gather(batch)?;
    let has_other_work =
        !batch.touched.is_empty() || batch.deliveries.iter().any(|delivery| delivery.notices.is_empty());
    if facts.is_empty() || has_other_work || !books::all_booked(ledger, &facts).await? {
        return Ok(None);
    }
    Ok(Some(plan::repeats_only(batch, &facts)))
}

/// Reads what is known, and decides.
async fn read<L: Ledger>(ledger: &mut L, batch: &Batch, rules: &Rules) -> Result<(Plan, Digest), Error> {
    let facts = plan::gather(batch)?;
    let mut numbers: BTreeSet<Number> =
        facts.keys().map(|id| id.number.clone()).chain(batch.touched.iter().cloned()).collect();
    own::with_siblings(rules, &mut numbers);
    let numbers: Vec<Number> = numbers.into_iter().collect();
    let books = Books::read(ledger, &numbers, &facts, rules, batch.now).await?;
    let digest = books.digest();
    Ok((Plan::of(batch, facts, books, rules), digest))
}

/// For the exercise: a plan made from what is read now, to be written too late.
#[cfg(feature = "exercise")]
pub(crate) async fn read_plan<L: Ledger>(ledger: &mut L, batch: &Batch, rules: &Rules) -> Result<Plan, Error> {
    Ok(read(ledger, batch, rules).await?.0)
}

/// Writes a plan, in the one lock order. Orders that exist are locked since they were read, so their figures may be
/// written with the rest.
pub(crate) async fn write<L: Ledger>(
    ledger: &mut L,
    batch: &Batch,
    plan: Plan,
    repeats: Repeats,
) -> Result<Pending, Error> {
    let writes = plan.writes();
    write_orders(ledger, &plan).await?;
    if !plan.hold.is_empty() {
        ledger.hold(&plan.hold).await?;
    }
    if !plan.release.is_empty() {
        judge("held notices", ledger.release(&plan.release, batch.now).await?, plan.release.len())?;
    }
    let entries = plan.entries();
    if !(entries.orders.is_empty() && entries.keys.is_empty() && entries.evidence.is_empty()) {
        judge("orders", ledger.book_entries(&entries).await?, entries.orders.len())?;
    }
    if !plan.unbelieved.is_empty() {
        ledger.keep_unbelieved(&plan.unbelieved, UNBELIEVED_PER_HOUR).await?;
    }
    let mut left = plan.repeats;
    if !left.is_empty() && (repeats == Repeats::CountNow || writes) {
        ledger.count_repeats(&left).await?;
        left.clear();
    }
    let owes = plan.effects.iter().any(|effect| effect.due_at <= batch.now);
    Ok(Pending { outcomes: plan.outcomes, released: plan.release.len(), owes, repeats: left, now: batch.now })
}

/// The part of a plan that is about attempts, new orders, and the shops' own.
async fn write_orders<L: Ledger>(ledger: &mut L, plan: &Plan) -> Result<(), Error> {
    if !plan.new_attempts.is_empty() {
        ledger.insert_attempts(&plan.new_attempts).await?;
    }
    if !plan.filled.is_empty() {
        judge("attempts", ledger.update_attempts(&plan.filled).await?, plan.filled.len())?;
    }
    if !plan.attempts.is_empty() {
        judge("attempts", ledger.update_attempts(&plan.attempts).await?, plan.attempts.len())?;
    }
    if !plan.new_orders.is_empty() {
        ledger.insert_orders(&plan.new_orders).await?;
    }
    for ((_, change), (table, rows)) in &plan.own {
        judge("your orders", ledger.update_own(table, *change, rows).await?, rows.len())?;
    }
    Ok(())
}

/// The conditional UPDATE's verdict: fewer rows than expected means that another transaction was first.
pub(crate) fn judge(what: &str, affected: u64, expected: usize) -> Result<(), Error> {
    if affected == expected as u64 {
        Ok(())
    } else {
        Err(Error::conflict(format!("{what}: {affected} of {expected} rows were still as read")))
    }
}
