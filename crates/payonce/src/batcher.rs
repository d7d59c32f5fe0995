//! Group commit: whatever queued while the previous transaction committed is booked in the next.
//!
//! Here: the queue, its bound and its deadlines. There is no timer: a lone callback is booked at once.
//! Not here: the transaction (`store`), HTTP (the server).

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::{
    apply::{Batch, Delivery},
    outcome::{Outcome, Verdict},
    store::Store,
    time::Micros,
};

/// How large the queue and a batch may become.
#[derive(Clone, Copy, Debug)]
pub struct BatcherOptions {
    /// Deliveries that may wait; beyond that the answer is "busy" at once.
    pub queue: usize,
    /// Deliveries of one transaction.
    pub batch: usize,
    /// How long an unknown order is answered with failure.
    pub grace: Duration,
}

impl Default for BatcherOptions {
    fn default() -> Self {
        Self { queue: 4096, batch: 512, grace: Duration::from_secs(600) }
    }
}

/// What became of a delivery.
#[derive(Debug)]
pub struct Booked {
    /// What the platform is to be told.
    pub verdict: Verdict,
    /// What was said about each notice.
    pub outcomes: Vec<Outcome>,
}

/// Why nothing is known about a delivery. It may still have been booked: the platform's repeat will tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKnown {
    /// The queue is full; it was not taken.
    QueueFull,
    /// The deadline passed first.
    Deadline,
    /// The database failed.
    Failed,
    /// The gateway is going down.
    Stopped,
}

impl NotKnown {
    /// The word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::Failed => "database_failed",
            Self::Stopped => "stopped",
        }
    }
}

struct Job {
    delivery: Delivery,
    deadline: Instant,
    answer: oneshot::Sender<Result<Booked, NotKnown>>,
}

/// The entrance of the queue; cheap to clone. When the last one is dropped, the queue drains and ends.
#[derive(Clone, Debug)]
pub struct Batcher {
    jobs: mpsc::Sender<Job>,
}

impl Batcher {
    /// Starts the one task that books.
    pub fn start(store: Arc<dyn Store>, options: BatcherOptions, clock: fn() -> Micros) -> (Self, JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let task = tokio::spawn(run(store, options, clock, queue));
        (Self { jobs }, task)
    }

    /// Hands in a delivery and waits for its COMMIT, at most until `deadline`. The booking goes on if the
    /// caller stops waiting.
    pub async fn book(&self, delivery: Delivery, deadline: Instant) -> Result<Booked, NotKnown> {
        let (answer, booked) = oneshot::channel();
        self.jobs.try_send(Job { delivery, deadline, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotKnown::QueueFull,
            mpsc::error::TrySendError::Closed(_) => NotKnown::Stopped,
        })?;
        match tokio::time::timeout_at(deadline, booked).await {
            Ok(Ok(booked)) => booked,
            Ok(Err(_)) => Err(NotKnown::Failed),
            Err(_) => Err(NotKnown::Deadline),
        }
    }

    /// How many deliveries wait.
    pub fn waiting(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }
}

/// A batch beside one that is under way has to be worth its own turns to the database and its own COMMIT: a few
/// deliveries are sooner booked together with what comes meanwhile.
const WORTH_A_WRITER: usize = 32;

async fn run(store: Arc<dyn Store>, options: BatcherOptions, clock: fn() -> Micros, mut queue: mpsc::Receiver<Job>) {
    let most = options.batch.max(1);
    let mut jobs = Vec::with_capacity(most);
    let mut under_way = JoinSet::new();
    let mut is_open = true;
    while is_open || !under_way.is_empty() {
        let room = most - jobs.len();
        tokio::select! {
            taken = queue.recv_many(&mut jobs, room), if is_open && room > 0 => is_open = taken > 0,
            Some(ended) = under_way.join_next() => {
                // A panic drops the connection with its transaction; the callers are told that nothing is known.
                if ended.is_err() {
                    tracing::error!("booking panicked");
                }
            }
        }
        let others = under_way.len();
        if !jobs.is_empty() && (others == 0 || (others < store.writers() && jobs.len() >= WORTH_A_WRITER)) {
            let batch = std::mem::replace(&mut jobs, Vec::with_capacity(most));
            under_way.spawn(book(Arc::clone(&store), options.grace, clock(), batch));
        }
    }
}

async fn book(store: Arc<dyn Store>, grace: Duration, now: Micros, mut jobs: Vec<Job>) {
    // Nobody waits for these any more, and nothing has begun: the platform sends them again.
    let instant = Instant::now();
    jobs.retain(|job| job.deadline > instant && !job.answer.is_closed());
    metrics::histogram!("payonce_batch_deliveries").record(jobs.len() as f64);
    let (deliveries, answers): (Vec<Delivery>, Vec<_>) = jobs.into_iter().map(|job| (job.delivery, job.answer)).unzip();
    if deliveries.is_empty() {
        return;
    }
    let batch = Batch::of(deliveries, now);
    match store.book(&batch).await {
        Ok(committed) => {
            for (index, answer) in answers.into_iter().enumerate() {
                let outcomes = committed.outcomes().get(index).cloned().unwrap_or_default();
                let booked = Booked { verdict: committed.verdict(index, grace), outcomes };
                if answer.send(Ok(booked)).is_err() {
                    metrics::counter!("payonce_committed_late_total").increment(1);
                }
            }
        }
        Err(error) => {
            tracing::error!(error = %error, deliveries = batch.deliveries.len(), "a batch was not booked");
            answers.into_iter().for_each(|answer| drop(answer.send(Err(NotKnown::Failed))));
        }
    }
}
