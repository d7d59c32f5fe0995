//! A database with its connections: opens transactions, starts over, and hides the engine behind `dyn`.
//!
//! Here: the bounded reruns, and the splitting that keeps one poisoned fact from failing its batch. Not here: SQL, or
//! what is decided; who holds which connection (`seats`).

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Notify,
};

use crate::{
    apply::{self, Batch, Committed, Digest, Repeats},
    error::Error,
    ids::{OrderNo, Shop},
    key::EffectKey,
    order::{Order, OrderId},
    own_table::OwnTable,
    register::{self, Refused, Registered, Registration},
    rules::Rules,
    statement::Statement,
    store::{
        Counts, Effect, EffectFilter, EffectState, Engine, Finished, KeyId, Lease, OrderUpdate, OrderView, OwnSchema,
        Repeat,
        seats::{InUse, Seats},
    },
    time::Micros,
};

/// What a program above needs of a database, whatever its engine.
pub trait Store: Send + Sync + 'static {
    /// Books a batch in one transaction (or, if it is poisoned, in several).
    fn book<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, Error>>;
    /// Registers an order, and books what waited for it.
    fn register<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<Result<Registered, Refused>, Error>>;
    /// Books held notices whose condition is met; how many. In a healthy system this is 0.
    fn sweep(&self, now: Micros) -> BoxFuture<'_, Result<usize, Error>>;
    /// Writes the repeat counters that wait for company.
    fn flush(&self) -> BoxFuture<'_, Result<(), Error>>;
    /// Claims effects for one sink.
    fn claim<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Vec<Effect>, Error>>;
    /// Records ends under the lease's token; affected rows.
    fn finish<'a>(&'a self, token: &'a str, finished: &'a [Finished], now: Micros)
    -> BoxFuture<'a, Result<u64, Error>>;
    /// Runs an `sql` effect: the user's statement and the mark commit together. `false`: the lease was lost.
    fn run_sql<'a>(
        &'a self,
        token: &'a str,
        effect: &'a Effect,
        statement: &'a Statement,
        now: Micros,
    ) -> BoxFuture<'a, Result<bool, Error>>;
    /// Makes a dead effect ready again, with its key; affected rows.
    fn retry<'a>(&'a self, key: &'a EffectKey, now: Micros) -> BoxFuture<'a, Result<u64, Error>>;
    /// Everything about one order.
    fn order<'a>(&'a self, shop: &'a Shop, order_no: &'a OrderNo) -> BoxFuture<'a, Result<Option<OrderView>, Error>>;
    /// Effects, by key.
    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> BoxFuture<'a, Result<Vec<Effect>, Error>>;
    /// One effect.
    fn effect<'a>(&'a self, key: &'a EffectKey) -> BoxFuture<'a, Result<Option<Effect>, Error>>;
    /// Gauges; also the answer to "is it there".
    fn counts(&self) -> BoxFuture<'_, Result<Counts, Error>>;
    /// Woken whenever something was booked that owes effects.
    fn owed(&self) -> &Notify;
    /// The engine's word.
    fn engine(&self) -> &'static str;
    /// How many batches it can book beside each other.
    fn writers(&self) -> usize;
}

/// Tries of one transaction before the caller is told "not now".
const TRIES: u32 = 8;

/// A database of one engine.
pub struct Database<E: Engine> {
    options: E::Options,
    rules: Arc<Rules>,
    writers: Seats<E>,
    readers: Seats<E>,
    deferred: std::sync::Mutex<BTreeMap<KeyId, Repeat>>,
    owed: Notify,
    /// The last batch was nothing but repeats: then the next probably is, and one read may tell. A guess about
    /// the way, never about the answer.
    expects_repeats: AtomicBool,
}

impl<E: Engine> Database<E> {
    /// Opens the database; the tables must be there (see [`Self::migrate`]).
    pub async fn open(options: E::Options, rules: Arc<Rules>) -> Result<Self, Error> {
        let database = Self {
            options,
            rules,
            writers: Seats::new(E::WRITERS),
            readers: Seats::new(1),
            deferred: std::sync::Mutex::default(),
            owed: Notify::new(),
            expects_repeats: AtomicBool::new(false),
        };
        database.writer().await?.put_back();
        Ok(database)
    }

    /// Brings the tables up to date; the numbers of the migrations applied now.
    pub async fn migrate(options: &E::Options) -> Result<Vec<i64>, Error> {
        E::connect(options).await?.migrate().await
    }

    /// Settings that would make an acknowledgement untrue.
    pub async fn doubts(&self) -> Result<Vec<String>, Error> {
        let mut writer = self.writer().await?;
        let doubts = writer.connection.doubts().await?;
        writer.put_back();
        Ok(doubts)
    }

    /// What a shop's own table is like, for `payonce doctor`.
    pub async fn own_schema(&self, table: &OwnTable) -> Result<OwnSchema, Error> {
        let mut reader = self.reader().await?;
        let schema = reader.connection.own_schema(table).await?;
        reader.put_back();
        Ok(schema)
    }

    async fn writer(&self) -> Result<InUse<'_, E>, Error> {
        self.writers.take(|| E::connect(&self.options)).await
    }

    async fn reader(&self) -> Result<InUse<'_, E>, Error> {
        self.readers.take(|| E::connect_reader(&self.options)).await
    }

    async fn try_book(&self, batch: &Batch) -> Result<Committed, (Error, Digest)> {
        let fail = |error| (error, 0);
        let mut writer = self.writer().await.map_err(fail)?;
        if !E::READS_BEFORE_DURABLE && self.expects_repeats.load(Ordering::Relaxed) {
            let recognised = apply::recognise_repeats(&mut writer.connection, batch).await.map_err(fail)?;
            if let Some(mut pending) = recognised {
                writer.put_back();
                self.defer(std::mem::take(&mut pending.repeats));
                return Ok(pending.after_commit());
            }
        }
        writer.connection.begin().await.map_err(fail)?;
        let when = if E::READS_BEFORE_DURABLE { Repeats::CountNow } else { Repeats::Defer };
        match apply::book(&mut writer.connection, batch, &self.rules, when).await {
            Ok(mut pending) => {
                writer.connection.commit().await.map_err(fail)?;
                writer.put_back();
                self.defer(std::mem::take(&mut pending.repeats));
                if pending.owes {
                    self.owed.notify_waiters();
                }
                let committed = pending.after_commit();
                self.expects_repeats.store(committed.is_all_repeats(), Ordering::Relaxed);
                Ok(committed)
            }
            Err(failed) => {
                writer.undo(&failed.0).await;
                Err(failed)
            }
        }
    }

    async fn try_register(&self, registration: &Registration) -> Result<Result<Registered, Refused>, (Error, Digest)> {
        let fail = |error| (error, 0);
        let mut writer = self.writer().await.map_err(fail)?;
        writer.connection.begin().await.map_err(fail)?;
        let done = register::register(&mut writer.connection, registration, &self.rules).await;
        let done = match done {
            Ok(Ok((registered, pending))) => {
                if E::READS_BEFORE_DURABLE && registered == Registered::Repeated {
                    touch(&mut writer.connection, &registration.id).await.map_err(fail)?;
                }
                writer.connection.commit().await.map_err(fail)?;
                if pending.owes {
                    self.owed.notify_waiters();
                }
                writer.put_back();
                return Ok(Ok(registered));
            }
            Ok(Err(refused)) => Ok(Err(refused)),
            Err(failed) => Err(failed),
        };
        match &done {
            Err((error, _)) => writer.undo(error).await,
            Ok(_) if writer.connection.rollback().await.is_ok() => writer.put_back(),
            Ok(_) => {}
        }
        done
    }

    fn defer(&self, repeats: Vec<Repeat>) {
        if repeats.is_empty() {
            return;
        }
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        for repeat in repeats {
            match deferred.entry(repeat.id.clone()) {
                std::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(repeat)),
                std::collections::btree_map::Entry::Occupied(mut have) => {
                    have.get_mut().times += repeat.times;
                    have.get_mut().last_seen = repeat.last_seen;
                }
            }
        }
    }

    async fn try_claim(&self, lease: &Lease) -> Result<Vec<Effect>, Error> {
        let mut writer = self.writer().await?;
        let claimed = writer.connection.claim(lease).await?;
        writer.put_back();
        Ok(claimed)
    }

    async fn try_finish(&self, token: &str, finished: &[Finished], now: Micros) -> Result<u64, Error> {
        let mut writer = self.writer().await?;
        let affected = writer.connection.finish(token, finished, now).await?;
        if finished.iter().any(|end| end.state == EffectState::Dead) {
            writer.connection.abandon_followers(now).await?;
        }
        writer.put_back();
        Ok(affected)
    }

    async fn try_run_sql(
        &self,
        token: &str,
        effect: &Effect,
        statement: &Statement,
        now: Micros,
    ) -> Result<bool, Error> {
        let done = Finished { key: effect.key.clone(), state: EffectState::Done, due_at: effect.due_at, error: None };
        let mut writer = self.writer().await?;
        writer.connection.begin().await?;
        // The fence first: whoever lost the lease does not get as far as the statement.
        let result = match writer.connection.finish(token, &[done], now).await {
            Ok(1) => writer.connection.run_statement(statement, &effect.payload).await.and_then(|affected| {
                match statement.expect_rows {
                    Some(expected) if expected != affected => Err(Error::permanent(format!(
                        "the statement affected {affected} rows, {expected} were expected"
                    ))),
                    _ => Ok(true),
                }
            }),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        match &result {
            Ok(true) => {
                writer.connection.commit().await?;
                writer.put_back();
            }
            Ok(false) if writer.connection.rollback().await.is_ok() => writer.put_back(),
            Ok(false) => {}
            Err(error) => writer.undo(error).await,
        }
        result
    }

    async fn book_or_split(&self, batch: &Batch) -> Result<Committed, Error> {
        let mut learned: Option<Digest> = None;
        let mut last = Error::conflict("not tried");
        for attempt in 0..TRIES {
            let (error, digest) = match self.try_book(batch).await {
                Ok(committed) => return Ok(committed),
                Err(failed) => failed,
            };
            // The same class of failure over the same readings is no race: the cause is in the batch.
            let hopeless = !error.is_transient() || (error.is_conflict() && learned == Some(digest) && digest != 0);
            last = error;
            if hopeless {
                return self.split(batch, last).await;
            }
            learned = Some(digest);
            pause(attempt).await;
        }
        Err(last)
    }

    /// Books the two halves apart, facts of one number always together, until the poison is alone.
    async fn split(&self, batch: &Batch, cause: Error) -> Result<Committed, Error> {
        let groups = groups(batch);
        if groups.len() < 2 {
            tracing::error!(error = %cause, "a fact cannot be booked");
            return Err(cause);
        }
        let (left, right) = groups.split_at(groups.len() / 2);
        let mut parts = Vec::new();
        let mut failed = None;
        for half in [left, right] {
            let indices: Vec<usize> = half.iter().flatten().copied().collect();
            let deliveries = indices.iter().filter_map(|&index| batch.deliveries.get(index).cloned()).collect();
            let part = Batch { deliveries, touched: Vec::new(), now: batch.now };
            match Box::pin(self.book_or_split(&part)).await {
                Ok(committed) => parts.push((indices, committed)),
                Err(error) => {
                    parts.push((indices, Committed::undecided(&part)));
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if parts.iter().all(|(_, part)| part.is_undecided()) => Err(error),
            _ => Ok(Committed::merge(parts, batch.deliveries.len(), batch.now)),
        }
    }
}

/// Writes to an order what it already is, one version on: an answer from what was only read must not leave
/// before the commit that was read is durable, and a write's own COMMIT covers it.
async fn touch<E: Engine>(connection: &mut E, id: &OrderId) -> Result<(), Error> {
    for order in connection.lock_orders(std::slice::from_ref(id)).await? {
        let (was_status, was_version) = (order.status, order.version);
        let order = Order { version: was_version + 1, ..order };
        connection.update_orders(&[OrderUpdate { order, was_status, was_version }]).await?;
    }
    Ok(())
}

/// Deliveries that share a number, by index.
fn groups(batch: &Batch) -> Vec<Vec<usize>> {
    let mut of_number = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, delivery) in batch.deliveries.iter().enumerate() {
        let numbers = delivery.notices.iter().map(|notice| (&notice.merchant, &notice.out_trade_no));
        let known: Vec<usize> = numbers.clone().filter_map(|number| of_number.get(&number).copied()).collect();
        let group = known.first().copied().unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        for &other in known.iter().skip(1).filter(|&&other| other != group) {
            let moved = std::mem::take(&mut groups[other]);
            groups[group].extend(moved);
            of_number.values_mut().filter(|at| **at == other).for_each(|at| *at = group);
        }
        groups[group].push(index);
        for number in numbers {
            of_number.insert(number, group);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Tries until it succeeds, or fails in a way that does not pass by itself.
async fn again<T, F: Future<Output = Result<T, Error>>>(work: impl Fn() -> F) -> Result<T, Error> {
    let mut attempt = 0;
    loop {
        match work().await {
            // A conflict of a user's own statement is theirs, and stays.
            Err(error) if error.is_transient() && !error.is_conflict() && attempt + 1 < TRIES => pause(attempt).await,
            done => return done,
        }
        attempt += 1;
    }
}

/// From the third try on a random pause of up to 2^n ms, at most 50.
async fn pause(attempt: u32) {
    if attempt >= 1 {
        let most = (1_u64 << attempt.min(6)).min(50);
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..=most * 1000))).await;
    }
}

/// A future whose polls compute stays off the threads that serve others: while it does, tokio has another thread
/// take over what this one would do. (On a runtime of one thread there is nobody to make room for.)
fn apart<'a, E: Engine, T>(work: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    let is_shared = || Handle::try_current().is_ok_and(|at| at.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !E::COMPUTES || !is_shared() {
        return Box::pin(work);
    }
    let mut work = Box::pin(work);
    Box::pin(poll_fn(move |context| tokio::task::block_in_place(|| work.as_mut().poll(context))))
}

impl<E: Engine> Store for Database<E> {
    fn book<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, Error>> {
        apart::<E, _>(self.book_or_split(batch))
    }

    fn register<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<Result<Registered, Refused>, Error>> {
        apart::<E, _>(async move {
            let mut last = Error::conflict("not tried");
            for attempt in 0..TRIES {
                match self.try_register(registration).await {
                    Ok(done) => return Ok(done),
                    Err((error, _)) if error.is_transient() => last = error,
                    Err((error, _)) => return Err(error),
                }
                pause(attempt).await;
            }
            Err(last)
        })
    }

    fn sweep(&self, now: Micros) -> BoxFuture<'_, Result<usize, Error>> {
        apart::<E, _>(async move {
            const AT_ONCE: i64 = 100;
            let mut reader = self.reader().await?;
            let mut touched = reader.connection.overdue(AT_ONCE).await?;
            for (shop, table) in &self.rules.own_tables {
                touched.extend(apply::own::arrived(&mut reader.connection, shop, table).await?);
            }
            reader.put_back();
            if touched.is_empty() {
                return Ok(0);
            }
            let batch = Batch { deliveries: Vec::new(), touched, now };
            Ok(self.book_or_split(&batch).await?.released())
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Error>> {
        apart::<E, _>(async move {
            let waiting = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
            if waiting.is_empty() {
                return Ok(());
            }
            let repeats: Vec<Repeat> = waiting.into_values().collect();
            let mut writer = self.writer().await?;
            writer.connection.begin().await?;
            writer.connection.count_repeats(&repeats).await?;
            writer.connection.commit().await?;
            writer.put_back();
            Ok(())
        })
    }

    fn claim<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Vec<Effect>, Error>> {
        apart::<E, _>(async move {
            // A look through the reader first: an idle outbox must not disturb the writer.
            let mut reader = self.reader().await?;
            let due = reader.connection.has_due(lease).await?;
            reader.put_back();
            if !due {
                return Ok(Vec::new());
            }
            again(|| self.try_claim(lease)).await
        })
    }

    fn finish<'a>(
        &'a self,
        token: &'a str,
        finished: &'a [Finished],
        now: Micros,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        // Here and below: the token makes a further try of the same end harmless.
        apart::<E, _>(again(move || self.try_finish(token, finished, now)))
    }

    fn run_sql<'a>(
        &'a self,
        token: &'a str,
        effect: &'a Effect,
        statement: &'a Statement,
        now: Micros,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        apart::<E, _>(again(move || self.try_run_sql(token, effect, statement, now)))
    }

    fn retry<'a>(&'a self, key: &'a EffectKey, now: Micros) -> BoxFuture<'a, Result<u64, Error>> {
        apart::<E, _>(async move {
            let mut writer = self.writer().await?;
            let affected = writer.connection.retry(key, now).await?;
            writer.put_back();
            self.owed.notify_waiters();
            Ok(affected)
        })
    }

    fn order<'a>(&'a self, shop: &'a Shop, order_no: &'a OrderNo) -> BoxFuture<'a, Result<Option<OrderView>, Error>> {
        apart::<E, _>(again(async move || {
            let mut reader = self.reader().await?;
            let view = reader.connection.order(shop, order_no).await?;
            reader.put_back();
            Ok(view)
        }))
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> BoxFuture<'a, Result<Vec<Effect>, Error>> {
        apart::<E, _>(again(async move || {
            let mut reader = self.reader().await?;
            let effects = reader.connection.effects(filter).await?;
            reader.put_back();
            Ok(effects)
        }))
    }

    fn effect<'a>(&'a self, key: &'a EffectKey) -> BoxFuture<'a, Result<Option<Effect>, Error>> {
        apart::<E, _>(again(async move || {
            let mut reader = self.reader().await?;
            let effect = reader.connection.effect(key).await?;
            reader.put_back();
            Ok(effect)
        }))
    }

    fn counts(&self) -> BoxFuture<'_, Result<Counts, Error>> {
        apart::<E, _>(again(async move || {
            let mut reader = self.reader().await?;
            let counts = reader.connection.counts().await?;
            reader.put_back();
            Ok(counts)
        }))
    }

    fn owed(&self) -> &Notify {
        &self.owed
    }

    fn engine(&self) -> &'static str {
        E::NAME
    }

    fn writers(&self) -> usize {
        E::WRITERS
    }
}
