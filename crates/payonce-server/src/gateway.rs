//! The gateway as one value: started with settings, running on two addresses, shut down with a drain.
//!
//! Here: what is started in which order, what the parts share, and the order of a shutdown. Not here: what
//! arrives over HTTP (`http`), reading a configuration (`config`), booking (`payonce`).

use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use payonce::{
    batcher::{Batcher, BatcherOptions},
    channel::Channel,
    ids::{AccountName, Merchant, Shop},
    rules::{EffectRule, Rules},
    sink::Sink,
    store::Store,
    time::Micros,
    worker::{Worker, WorkerOptions},
};
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::http::{self, accept::Served, metrics};

/// A merchant identity at a platform, and whose orders it may pay.
#[derive(Clone)]
pub struct Account {
    /// Its name, the last part of its notify URL.
    pub name: AccountName,
    /// The owner of the orders that it may pay.
    pub shop: Shop,
    /// Reads its callbacks and spells its answers.
    pub channel: Arc<dyn Channel>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("name", &self.name.as_str())
            .field("shop", &self.shop.as_str())
            .field("merchant", &self.channel.merchant().as_str())
            .finish()
    }
}

/// Bounds on what strangers may cost, and on how long anything may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A body may have so many bytes; real callbacks have 1 to 4 KiB.
    pub body_bytes: usize,
    /// Request line and headers may have so many bytes.
    pub header_bytes: usize,
    /// There may be so many header lines.
    pub header_count: usize,
    /// From a request's first byte to the end of its headers; also how long a new connection may be silent.
    pub header_read_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_read_timeout: Duration,
    /// Connections at once on the public listener. Further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Connections at once on the admin listener.
    pub admin_connections: usize,
    /// A callback is answered within this time: with failure if its COMMIT has not returned by then.
    /// WeChat Pay waits 5 s.
    pub answer_within: Duration,
    /// How long a connection may be idle between requests. Longer than nginx keeps its own idle upstream
    /// connections (60 s), so that no proxy sends a callback down a connection that is just being closed.
    /// When three quarters of the connections are taken it counts as `header_read_timeout`.
    pub keep_alive_idle: Duration,
    /// How long a shutdown waits for what is in flight.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 * 1024,
            header_bytes: 16 * 1024,
            header_count: 100,
            header_read_timeout: Duration::from_secs(5),
            body_read_timeout: Duration::from_secs(5),
            connections: 4096,
            admin_connections: 256,
            answer_within: Duration::from_millis(4500),
            keep_alive_idle: Duration::from_secs(75),
            drain: Duration::from_secs(10),
        }
    }
}

/// Everything a gateway is started with.
pub struct Settings {
    /// Where callbacks arrive. Port 0 takes a free one.
    pub public: SocketAddr,
    /// Where the shop's own programs and operators ask.
    pub admin: SocketAddr,
    /// Their bearer token.
    pub admin_token: String,
    /// The merchant identities.
    pub accounts: Vec<Account>,
    /// The database, migrated.
    pub store: Arc<dyn Store>,
    /// The configured effects and policies; the same that the store books by.
    pub rules: Arc<Rules>,
    /// Where effects go, by name.
    pub sinks: HashMap<String, Arc<dyn Sink>>,
    /// Bounds.
    pub limits: Limits,
    /// How effects are delivered.
    pub worker: WorkerOptions,
    /// How callbacks are booked together.
    pub batcher: BatcherOptions,
    /// The present; [`Micros::now`] outside of tests.
    pub clock: fn() -> Micros,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("public", &self.public)
            .field("admin", &self.admin)
            .field("accounts", &self.accounts)
            .field("store", &self.store.engine())
            .field("rules", &self.rules)
            .field("sinks", &self.sinks.keys())
            .field("limits", &self.limits)
            .field("worker", &self.worker)
            .field("batcher", &self.batcher)
            .finish_non_exhaustive()
    }
}

/// Why a gateway does not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// Which of the two.
        listener: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Two accounts have one name.
    SameAccount(AccountName),
    /// Two accounts share a number space and pay different shops, so that a number could mean two orders.
    NumberSpaceOfTwoShops {
        /// The number space.
        merchant: Merchant,
        /// One of the accounts.
        one: AccountName,
        /// The other.
        other: AccountName,
    },
    /// An effect goes to a sink that is not configured.
    UnknownSink {
        /// The effect's name.
        effect: String,
        /// The sink's name.
        sink: String,
    },
    /// The admin token is empty.
    NoAdminToken,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { listener, address, error } => {
                write!(f, "the {listener} listener cannot listen on {address}: {error}")
            }
            Self::SameAccount(name) => write!(f, "two accounts are named {name}"),
            Self::NumberSpaceOfTwoShops { merchant, one, other } => write!(
                f,
                "accounts {one} and {other} share the numbers of {merchant} and pay different shops; give both the same shop"
            ),
            Self::UnknownSink { effect, sink } => {
                write!(f, "effect {effect} goes to sink {sink}, which is not configured")
            }
            Self::NoAdminToken => f.write_str("the admin token is empty"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// An account with what is needed each time a callback arrives for it.
pub(crate) struct Door {
    pub(crate) account: Account,
    /// The name as a metric's label.
    pub(crate) label: ::metrics::SharedString,
}

/// What every request may need. Dropped when the last of them has ended: then the batcher drains and ends.
pub(crate) struct Shared {
    pub(crate) doors: HashMap<String, Arc<Door>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) batcher: Batcher,
    pub(crate) limits: Limits,
    /// How long a worker's lease is, for the operator who meets one.
    pub(crate) lease: Duration,
    pub(crate) clock: fn() -> Micros,
    /// Bookings, which outlive the connection that they came by.
    pub(crate) bookings: TaskTracker,
    pub(crate) admin_token_digest: [u8; 32],
    stopping: AtomicBool,
}

impl Shared {
    /// The accounts of a shop, by name.
    pub(crate) fn doors_of(&self, shop: &Shop) -> Vec<&Arc<Door>> {
        let mut doors: Vec<&Arc<Door>> = self.doors.values().filter(|door| door.account.shop == *shop).collect();
        doors.sort_by(|a, b| a.account.name.cmp(&b.account.name));
        doors
    }

    /// Whether a shutdown has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// A running gateway. Dropping it stops everything at once, without a drain.
pub struct Running {
    /// Where callbacks arrive, with the real port.
    pub public: SocketAddr,
    /// Where the admin API is, with the real port.
    pub admin: SocketAddr,
    shared: Arc<Shared>,
    /// Stops accepting, workers and housekeeping.
    stop: DropGuard,
    /// Ends connections that are still open.
    kill: DropGuard,
    listeners: [JoinHandle<Served>; 2],
    workers: Vec<JoinHandle<()>>,
    housekeeping: JoinHandle<()>,
    batcher: JoinHandle<()>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("public", &self.public).field("admin", &self.admin).finish_non_exhaustive()
    }
}

/// What a shutdown did not wait for. Nothing of it was acknowledged; the platforms send it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDrained(pub Vec<&'static str>);

impl fmt::Display for NotDrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not finished in time: {}", self.0.join(", "))
    }
}

impl std::error::Error for NotDrained {}

/// Starts a gateway: both listeners, the batcher, one worker per sink, and housekeeping.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let doors = check(&settings)?;
    let public = listen("public", settings.public).await?;
    let admin = listen("admin", settings.admin).await?;
    metrics::install();

    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let (batcher, batcher_task) = Batcher::start(Arc::clone(&settings.store), settings.batcher, settings.clock);
    let workers = start_workers(&settings, &stop);
    let housekeeping = tokio::spawn(keep_house(Arc::clone(&settings.store), settings.clock, stop.clone()));
    let shared = Arc::new(Shared {
        doors,
        store: settings.store,
        batcher,
        limits: settings.limits,
        lease: settings.worker.lease,
        clock: settings.clock,
        bookings: TaskTracker::new(),
        admin_token_digest: http::token_digest(settings.admin_token.as_bytes()),
        stopping: AtomicBool::new(false),
    });
    let (public_address, admin_address) = (public.1, admin.1);
    let listeners = [
        tokio::spawn(http::serve_public(public.0, Arc::clone(&shared), stop.clone(), kill.clone())),
        tokio::spawn(http::serve_admin(admin.0, Arc::clone(&shared), stop.clone(), kill.clone())),
    ];
    tracing::info!(public = %public_address, admin = %admin_address, store = shared.store.engine(), "payonce is ready");
    Ok(Running {
        public: public_address,
        admin: admin_address,
        shared,
        stop: stop.drop_guard(),
        kill: kill.drop_guard(),
        listeners,
        workers,
        housekeeping,
        batcher: batcher_task,
    })
}

fn check(settings: &Settings) -> Result<HashMap<String, Arc<Door>>, StartError> {
    if settings.admin_token.is_empty() {
        return Err(StartError::NoAdminToken);
    }
    for rule in &settings.rules.effects {
        if rule.sink != EffectRule::SQL && !settings.sinks.contains_key(&rule.sink) {
            return Err(StartError::UnknownSink { effect: rule.name.clone(), sink: rule.sink.clone() });
        }
    }
    let mut doors = HashMap::new();
    let mut owners: BTreeMap<Merchant, &Account> = BTreeMap::new();
    for account in &settings.accounts {
        let merchant = account.channel.merchant().clone();
        let owner = owners.entry(merchant.clone()).or_insert(account);
        if owner.shop != account.shop {
            let (one, other) = (owner.name.clone(), account.name.clone());
            return Err(StartError::NumberSpaceOfTwoShops { merchant, one, other });
        }
        let label = ::metrics::SharedString::from_shared(account.name.as_str().into());
        let door = Arc::new(Door { account: account.clone(), label });
        if doors.insert(account.name.as_str().to_owned(), door).is_some() {
            return Err(StartError::SameAccount(account.name.clone()));
        }
    }
    Ok(doors)
}

async fn listen(listener: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { listener, address, error };
    let bound = TcpListener::bind(address).await.map_err(failed)?;
    let real = bound.local_addr().map_err(failed)?;
    Ok((bound, real))
}

fn start_workers(settings: &Settings, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
    let mut sinks: Vec<(String, Option<Arc<dyn Sink>>)> =
        settings.sinks.iter().map(|(name, sink)| (name.clone(), Some(Arc::clone(sink)))).collect();
    if settings.rules.effects.iter().any(|rule| rule.sink == EffectRule::SQL) {
        sinks.push((EffectRule::SQL.to_owned(), None));
    }
    let start = |(name, sink)| {
        let (store, rules) = (Arc::clone(&settings.store), Arc::clone(&settings.rules));
        let worker = Worker::new(store, rules, name, sink, settings.worker, settings.clock);
        let stop = stop.clone();
        tokio::spawn(async move { worker.run(stop.cancelled_owned()).await })
    };
    sinks.into_iter().map(start).collect()
}

/// How often held notices whose condition is met are looked for. In a healthy system there are none.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// How often repeat counters that found no company are written.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

async fn keep_house(store: Arc<dyn Store>, clock: fn() -> Micros, stop: CancellationToken) {
    let (mut flush, mut sweep) = (tokio::time::interval(FLUSH_EVERY), tokio::time::interval(SWEEP_EVERY));
    for interval in [&mut flush, &mut sweep] {
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = flush.tick() => {
                if let Err(error) = store.flush().await {
                    tracing::warn!(%error, "repeat counters were not written");
                }
                metrics::upkeep();
            }
            _ = sweep.tick() => match store.sweep(clock()).await {
                Ok(0) => {}
                Ok(swept) => {
                    ::metrics::counter!(metrics::SWEPT).increment(swept as u64);
                    tracing::warn!(swept, "held notices were found to wait for something present");
                }
                Err(error) => tracing::warn!(%error, "held notices were not looked for"),
            },
        }
    }
}

impl Running {
    /// Stops accepting, answers what is in flight, lets the batcher and each worker finish, and writes the
    /// counters that wait; at most [`Limits::drain`] in all.
    pub async fn shutdown(self) -> Result<(), NotDrained> {
        let until = Instant::now() + self.shared.limits.drain;
        let mut late = Vec::new();
        self.shared.stopping.store(true, Ordering::Relaxed);
        drop(self.stop);

        let (store, bookings) = (Arc::clone(&self.shared.store), self.shared.bookings.clone());
        drop(self.shared);
        let mut open = Vec::new();
        for mut listener in self.listeners {
            if tokio::time::timeout_at(until, &mut listener).await.is_err() {
                late.push("connections");
                open.push(listener);
            }
        }
        drop(self.kill);
        for listener in open {
            // Told to end at once, so it does; what came by its connections goes on in `bookings`.
            let _ = listener.await;
        }
        bookings.close();
        if tokio::time::timeout_at(until, bookings.wait()).await.is_err() {
            late.push("bookings");
        }
        // All entrances of the queue are gone now, so it drains and ends; unless the database hangs.
        finish("batcher", self.batcher, until, &mut late).await;
        for worker in self.workers {
            finish("deliveries", worker, until, &mut late).await;
        }
        finish("housekeeping", self.housekeeping, until, &mut late).await;
        match tokio::time::timeout_at(until.max(Instant::now() + Duration::from_millis(500)), store.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "repeat counters were not written"),
            Err(_) => late.push("repeat counters"),
        }
        late.dedup();
        if late.is_empty() {
            tracing::info!("payonce has stopped; everything in flight was finished");
            Ok(())
        } else {
            tracing::warn!(not_finished = ?late, "payonce has stopped before everything was finished");
            Err(NotDrained(late))
        }
    }
}

async fn finish(what: &'static str, mut task: JoinHandle<()>, until: Instant, late: &mut Vec<&'static str>) {
    if tokio::time::timeout_at(until, &mut task).await.is_err() {
        late.push(what);
        task.abort();
    }
}
