//! Seam 2: what a database must offer.
//!
//! Here: the verbs, in the order in which `apply` uses them, and the rows they move. Not here: any SQL
//! (`store/<engine>.rs`), or any question whether something has happened already (`apply`).
//!
//! The verbs are implemented directly on an engine's sqlx connection, so that an embedder's own
//! `sqlx::Transaction` is a ledger too. Every verb takes a whole set, whatever its size. `exercise` is the definition of the seam: every engine passes it.

use std::future::Future;

use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    ids::{AccountName, OrderNo, Shop},
    key::{EffectKey, Fingerprint, IdemKey},
    money::Money,
    notice::{Notice, Source},
    order::{Attempt, Number, Order, OrderId, OrderStatus},
    outcome::{Disposition, HoldReason},
    statement::Statement,
    time::Micros,
};

mod database;
#[cfg(feature = "exercise")]
pub mod exercise;
mod json;
#[cfg(feature = "mysql")]
pub mod mysql;
mod own_table;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod rows;
mod seats;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod server;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use database::{Database, Store};
pub use own_table::{OwnColumn, OwnSchema, OwnTables};
pub use rows::Cells;

/// The primary key of a booked fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// The scope.
    pub merchant: crate::ids::Merchant,
    /// The name of the fact.
    pub key: IdemKey,
}

/// A key to be claimed: the row whose unique index is the arbiter.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// The key.
    pub id: KeyId,
    /// What later copies must agree on.
    pub fingerprint: Fingerprint,
    /// The order it was booked for.
    pub order: OrderId,
    /// The entrance it came through.
    pub source: Source,
    /// Copies met so far beside the first.
    pub repeats: i64,
    /// Now.
    pub at: Micros,
}

/// Copies of a booked fact, to be counted.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// The key.
    pub id: KeyId,
    /// How many.
    pub times: i64,
    /// When the last came.
    pub last_seen: Micros,
    /// What they said: a part that the booked row lacks is filled from it.
    pub fingerprint: Fingerprint,
}

/// One row of the append-only ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    /// The number the fact is about.
    pub number: Number,
    /// The fact.
    pub key: IdemKey,
    /// `payment`, `refund` …
    pub kind: String,
    /// How it stands to the order.
    pub disposition: Disposition,
    /// The order.
    pub order: OrderId,
    /// How much; zero for facts that move no money.
    pub money: Money,
    /// The platform's transaction.
    pub trade_no: Option<crate::ids::TradeNo>,
    /// A refund after which nothing of the payment is left.
    pub full_refund: bool,
    /// The account that told us.
    pub account: AccountName,
    /// The bytes behind it.
    pub callback_id: Option<String>,
    /// By the platform's clock.
    pub occurred_at: Option<Micros>,
    /// By ours; nothing is decided by it.
    pub booked_at: Micros,
}

/// A notice in quarantine.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The number it is about.
    pub number: Number,
    /// Its key.
    pub key: IdemKey,
    /// Its fingerprint as text, part of the primary key.
    pub fingerprint: String,
    /// What it waits for.
    pub reason: HoldReason,
    /// The notice itself.
    pub notice: Notice,
    /// The bytes behind it.
    pub callback_id: Option<String>,
    /// Copies met so far, this one included.
    pub seen: i64,
    /// When the first came.
    pub first_seen: Micros,
    /// When the last came.
    pub last_seen: Micros,
}

/// An order's new figures, and what they were when they were read.
#[derive(Clone, Debug)]
pub struct OrderUpdate {
    /// The row to be; its `version` is already one higher.
    pub order: Order,
    /// The status that was read.
    pub was_status: OrderStatus,
    /// The version that was read.
    pub was_version: i64,
}

/// An attempt's new row, and the order it had when it was read.
#[derive(Clone, Debug)]
pub struct AttemptUpdate {
    /// The row to be.
    pub attempt: Attempt,
    /// `None`: it had no order.
    pub had_order: Option<OrderId>,
}

/// The bytes behind a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// A UUID v7.
    pub id: String,
    /// Where it arrived.
    pub account: AccountName,
    /// When it arrived.
    pub received_at: Micros,
    /// The header lines, a JSON array of `[name, value]`.
    pub headers: String,
    /// The body as received.
    pub body: Vec<u8>,
    /// Its SHA-256, hex.
    pub body_hash: String,
    /// `booked`, or why no fact stands for it.
    pub verdict: String,
    /// The key that verified it.
    pub key_id: Option<String>,
}

/// What is known about a batch beside its numbers and orders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Notices that wait.
    pub held: Vec<Held>,
    /// Keys that are booked.
    pub booked: Vec<(KeyId, Fingerprint)>,
}

/// The orders that attempts name, sorted.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
fn orders_of(attempts: &[Attempt]) -> Vec<OrderId> {
    let orders: std::collections::BTreeSet<OrderId> =
        attempts.iter().filter_map(|attempt| attempt.order.clone()).collect();
    orders.into_iter().collect()
}

/// What facts that are booked together write. Each part may be empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entries<'a> {
    /// Their orders' new figures.
    pub orders: &'a [OrderUpdate],
    /// Their keys.
    pub keys: &'a [KeyRow],
    /// Their rows of the ledger.
    pub flow: &'a [FlowRow],
    /// What they owe.
    pub effects: &'a [Effect],
    /// The bytes behind them.
    pub evidence: &'a [Evidence],
}

/// Where an effect is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// Owed, due at `due_at`.
    Ready,
    /// A worker has it until `lease_until`.
    Leased,
    /// Delivered.
    Done,
    /// Given up after its last try; a person may retry it, with the same key.
    Dead,
    /// No longer owed.
    Cancelled,
}

impl EffectState {
    /// Every state, for the diagram in the docs.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Leased, Self::Done, Self::Dead, Self::Cancelled];

    /// As stored and printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// The reverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// One side effect that a booked fact owes. Key and payload are frozen when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Its name for ever.
    pub key: EffectKey,
    /// The fact that owes it.
    pub fact: KeyId,
    /// The order of that fact.
    pub order: OrderId,
    /// The event.
    pub event: String,
    /// The configured name.
    pub name: String,
    /// Where it goes.
    pub sink: String,
    /// The JSON that is delivered, byte for byte the same each time.
    pub payload: String,
    /// Where it is in its life.
    pub state: EffectState,
    /// The effect that must be done first.
    pub after: Option<EffectKey>,
    /// Tries so far.
    pub tries: i64,
    /// When it is (or was) due.
    pub due_at: Micros,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// When it was booked.
    pub created_at: Micros,
    /// When it was delivered.
    pub done_at: Option<Micros>,
}

/// How a try ended, for the effect that the token's holder claimed.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The effect.
    pub key: EffectKey,
    /// `Done`, `Ready` (again at `due_at`) or `Dead`.
    pub state: EffectState,
    /// When it is due again.
    pub due_at: Micros,
    /// Why it failed.
    pub error: Option<String>,
}

/// A lease on effects: whoever records an end must name the token.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Only effects that go there.
    pub sink: String,
    /// A random token, new for each claim.
    pub token: String,
    /// Now.
    pub now: Micros,
    /// When others may take over.
    pub until: Micros,
    /// At most so many.
    pub limit: i64,
}

/// A callback as the order's page lists it.
#[derive(Clone, Debug)]
pub struct CallbackView {
    /// Its id.
    pub id: String,
    /// Where it arrived.
    pub account: String,
    /// When.
    pub received_at: Micros,
    /// `booked`, or why not.
    pub verdict: String,
    /// The key that verified it.
    pub key_id: Option<String>,
    /// Bytes in its body.
    pub body_bytes: i64,
}

/// A booked fact with its repeat counter.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// The ledger row.
    pub row: FlowRow,
    /// The entrance of the copy that was booked.
    pub source: String,
    /// Copies since.
    pub repeats: i64,
}

/// Everything about one order.
#[derive(Clone, Debug)]
pub struct OrderView {
    /// The order.
    pub order: Order,
    /// Its numbers.
    pub attempts: Vec<Attempt>,
    /// What was booked.
    pub flow: Vec<FlowView>,
    /// What is owed.
    pub effects: Vec<Effect>,
    /// What waits.
    pub held: Vec<Held>,
    /// The bytes behind it.
    pub callbacks: Vec<CallbackView>,
}

/// Which effects to list.
#[derive(Clone, Debug, Default)]
pub struct EffectFilter {
    /// Only in this state.
    pub state: Option<EffectState>,
    /// Only keys greater than this (for paging).
    pub after_key: Option<String>,
    /// At most so many.
    pub limit: i64,
}

/// Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Notices that wait.
    pub held: i64,
    /// Effects that are due or will be.
    pub effects_ready: i64,
    /// Effects a worker has.
    pub effects_leased: i64,
    /// Effects given up.
    pub effects_dead: i64,
    /// When the oldest open effect was due.
    pub oldest_due: Option<Micros>,
    /// Messages kept that no fact stands for.
    pub callbacks_unbelieved: i64,
}

/// What a transaction offers, in the order in which `apply` uses it.
///
/// `lock_*` read with row locks where the engine has them, sorted by key. Writes report conflicts as
/// errors with [`Error::is_conflict`]; conditional updates report affected rows, for the caller to judge.
pub trait Ledger: OwnTables {
    /// Starts a transaction at READ COMMITTED (SQLite: BEGIN IMMEDIATE).
    fn begin(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
    /// Commits. An error means that the outcome is unknown.
    fn commit(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
    /// Rolls back.
    fn rollback(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Locks and reads the rows of these numbers, then the orders that they name.
    fn lock_numbers(
        &mut self,
        numbers: &[Number],
    ) -> impl Future<Output = Result<(Vec<Attempt>, Vec<Order>), Error>> + Send;
    /// Locks and reads these orders.
    fn lock_orders(&mut self, orders: &[OrderId]) -> impl Future<Output = Result<Vec<Order>, Error>> + Send;
    /// Reads all attempts of these orders; their order rows are locked.
    fn attempts_of(&mut self, orders: &[OrderId]) -> impl Future<Output = Result<Vec<Attempt>, Error>> + Send;
    /// Locks and reads what is held about these numbers, and reads which of these keys are booked, and as what.
    fn known(&mut self, numbers: &[Number], keys: &[KeyId]) -> impl Future<Output = Result<Known, Error>> + Send;
    /// Reads all that was booked under these numbers.
    fn flow_of(&mut self, numbers: &[Number]) -> impl Future<Output = Result<Vec<FlowRow>, Error>> + Send;

    /// Inserts attempts. A number that has a row is a conflict.
    fn insert_attempts(&mut self, attempts: &[Attempt]) -> impl Future<Output = Result<(), Error>> + Send;
    /// Inserts orders. One that exists is a conflict.
    fn insert_orders(&mut self, orders: &[Order]) -> impl Future<Output = Result<(), Error>> + Send;
    /// Updates orders that still have status and version as read; affected rows.
    fn update_orders(&mut self, orders: &[OrderUpdate]) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Updates attempts that still have the order as read; affected rows.
    fn update_attempts(&mut self, attempts: &[AttemptUpdate]) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Inserts held notices, or counts a further copy of one that is held.
    fn hold(&mut self, notices: &[Held]) -> impl Future<Output = Result<(), Error>> + Send;
    /// Marks held notices as released; affected rows.
    fn release(&mut self, notices: &[Held], at: Micros) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Keeps bytes that no fact stands for: once per body, at most `per_hour` per account and hour.
    fn keep_unbelieved(
        &mut self,
        evidence: &[Evidence],
        per_hour: i64,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Enters what was decided: updates orders as [`Self::update_orders`] does, claims keys (THE arbiter: one that is
    /// taken is a conflict), appends to the ledger, inserts effects (one that exists is a conflict), keeps the bytes
    /// behind them. Affected orders.
    fn book_entries(&mut self, entries: &Entries<'_>) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Counts copies of booked facts.
    fn count_repeats(&mut self, repeats: &[Repeat]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Numbers whose held notices wait for something that is present.
    fn overdue(&mut self, limit: i64) -> impl Future<Output = Result<Vec<Number>, Error>> + Send;
}

/// The outbox: claim, deliver outside any transaction, record with the lease's token as fence.
pub trait Outbox: Send {
    /// Whether anything is to be claimed: a look that disturbs no writer.
    fn has_due(&mut self, lease: &Lease) -> impl Future<Output = Result<bool, Error>> + Send;
    /// Claims effects that are due, or whose lease has run out, and whose `after` is done.
    fn claim(&mut self, lease: &Lease) -> impl Future<Output = Result<Vec<Effect>, Error>> + Send;
    /// Records ends; affected rows (fewer: a lease was lost).
    fn finish(
        &mut self,
        token: &str,
        finished: &[Finished],
        now: Micros,
    ) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Ends what waited for an effect that is dead or cancelled, with the reason; affected rows.
    fn abandon_followers(&mut self, now: Micros) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Makes a dead effect (and what died with it) ready again; affected rows.
    fn retry(&mut self, key: &EffectKey, now: Micros) -> impl Future<Output = Result<u64, Error>> + Send;
    /// Runs the user's statement (verb `sql`) with the values of a payload bound; affected rows.
    fn run_statement(
        &mut self,
        statement: &Statement,
        payload: &str,
    ) -> impl Future<Output = Result<u64, Error>> + Send;
}

/// Reads for people; never part of a decision.
pub trait Views: Send {
    /// Everything about one order.
    fn order(
        &mut self,
        shop: &Shop,
        order_no: &OrderNo,
    ) -> impl Future<Output = Result<Option<OrderView>, Error>> + Send;
    /// Effects, by key.
    fn effects(&mut self, filter: &EffectFilter) -> impl Future<Output = Result<Vec<Effect>, Error>> + Send;
    /// One effect.
    fn effect(&mut self, key: &EffectKey) -> impl Future<Output = Result<Option<Effect>, Error>> + Send;
    /// The body of a kept callback.
    fn callback_body(&mut self, id: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + Send;
    /// Gauges.
    fn counts(&mut self) -> impl Future<Output = Result<Counts, Error>> + Send;
}

/// What a server says of itself, for `payonce doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// PostgreSQL, MariaDB, MySQL or OceanBase.
    pub product: &'static str,
    /// As it names it, with whatever its packager added.
    pub version: String,
    /// Migrations that were applied.
    pub applied: Vec<i64>,
    /// Migrations that this program has.
    pub known: Vec<i64>,
}

/// An engine: how to connect, to migrate, and what is to be known of its temper.
pub trait Engine: Ledger + Outbox + Views + Sized + Send + 'static {
    /// Where and how to connect.
    type Options: Clone + Send + Sync + 'static;
    /// The engine's word.
    const NAME: &'static str;
    /// Other processes can only write in a writer's pauses: after `.0` of unbroken commits it rests for `.1`.
    const BREATHER: Option<(std::time::Duration, std::time::Duration)>;
    /// How many transactions of one process go on beside each other.
    const WRITERS: usize;
    /// A row can be seen before it is durable, so an answer from what was read must be covered by a write.
    const READS_BEFORE_DURABLE: bool;
    /// A connection that was idle for longer is opened anew instead of being trusted; `None`: always trusted.
    const TRUSTED_IDLE: Option<std::time::Duration>;

    /// Its calls compute, and return when they are done: they belong on no thread that serves others.
    const COMPUTES: bool;

    /// A connection that writes.
    fn connect(options: &Self::Options) -> impl Future<Output = Result<Self, Error>> + Send;
    /// A connection that only reads.
    fn connect_reader(options: &Self::Options) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Brings the tables up to date; the numbers of the migrations that were applied now.
    fn migrate(&mut self) -> impl Future<Output = Result<Vec<i64>, Error>> + Send;
    /// Settings that would make an acknowledgement untrue, each as a sentence.
    fn doubts(&mut self) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
}
