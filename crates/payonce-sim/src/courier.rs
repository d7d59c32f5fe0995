//! Carries notifications over real HTTP, in every disorder that the platforms are known for: repeated, concurrent,
//! released at one moment, cut off before the answer, again and again until acknowledged.
//!
//! Here: deliveries, and the verdict on each answer by the platform's rule. Not here: what the books say afterwards
//! (`auditor`), what is wrong inside a request (`faults`), delivery at full speed (`load`).

use crate::message::{Request, Response};
use crate::platform::{Notification, Platform};
use crate::text::now_unix;
use crate::wire::{self, Target};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngCore as _, SeedableRng as _};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Barrier, mpsc};
use tokio::time::timeout_at;

const fn secs<const N: usize>(seconds: [u64; N]) -> [Duration; N] {
    let mut gaps = [Duration::ZERO; N];
    let mut at = 0;
    while at < N {
        gaps[at] = Duration::from_secs(seconds[at]);
        at += 1;
    }
    gaps
}

/// WeChat Pay's gaps for payments, refunds, profit sharing and most products: 24 h 4 min in all.
pub const WECHAT_GAPS: [Duration; 15] =
    secs([15, 15, 30, 180, 600, 1200, 1800, 1800, 1800, 3600, 10_800, 10_800, 10_800, 21_600, 21_600]);

/// Alipay's gaps as its domestic notification page has them, first 4 minutes: 24 h 24 min in all.
pub const ALIPAY_GAPS_4M: [Duration; 7] = secs([240, 600, 600, 3600, 7200, 21_600, 54_000]);

/// Alipay's gaps as its message service has them, first 2 minutes: 24 h 22 min in all. Both were observed.
pub const ALIPAY_GAPS_2M: [Duration; 7] = secs([120, 600, 600, 3600, 7200, 21_600, 54_000]);

/// Why a delivery brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection, or not a URL that can be called.
    Unreachable(String),
    /// The connection broke, or what came back was not HTTP.
    Broken(String),
    /// No complete answer within the deadline.
    Deadline,
    /// We hung up on purpose.
    HungUp,
}

/// What came of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The answer, or why there is none.
    pub outcome: Result<Response, Failure>,
    /// From the first byte sent (at a barrier: from the release) to the end of the answer.
    pub elapsed: Duration,
    /// Which of the URLs it went to.
    pub url: usize,
    /// Which of the notifications it was.
    pub event: usize,
}

impl Delivery {
    /// The answer's status, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.outcome.as_ref().ok().map(|answer| answer.status)
    }

    /// Whether the platform takes it for an acknowledgement.
    #[must_use]
    pub fn taken(&self, platform: Platform) -> bool {
        self.outcome.as_ref().is_ok_and(|answer| platform.takes(answer))
    }
}

/// At which point the courier closes the connection instead of waiting for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// After so many bytes of the request, head included.
    AfterBytes(usize),
    /// After the whole request, and a pause in which the receiver may work on it.
    AfterRequest(Duration),
}

/// How many deliveries, and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Deliveries of each notification.
    pub times: usize,
    /// At most so many on the way at once, each on a connection of its own that is used again.
    pub concurrency: usize,
    /// Deliver in waves of `concurrency`: all connections open and all requests written but for their last byte, which
    /// then goes out on all of them together.
    pub barrier: bool,
    /// How long an answer may take.
    pub deadline: Duration,
    /// Hang up in this way instead of reading answers.
    pub hang_up: Option<HangUp>,
    /// Seed of nonces and of the order of deliveries; print it, so that a run can be repeated.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { times: 1, concurrency: 1, barrier: false, deadline: Duration::from_secs(5), hang_up: None, seed: 0 }
    }
}

/// What came of many deliveries.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every delivery in the order in which they ended.
    pub deliveries: Vec<Delivery>,
    /// Deliveries that the platform takes for acknowledged.
    pub taken: usize,
    /// Deliveries answered otherwise.
    pub refused: usize,
    /// Deliveries without an answer.
    pub failed: usize,
    /// Acknowledged deliveries per notification, by its place in the list.
    pub taken_by_event: Vec<usize>,
    /// Answers by status.
    pub by_status: BTreeMap<u16, usize>,
    /// From the first delivery to the last answer.
    pub elapsed: Duration,
}

impl Report {
    fn add(&mut self, delivery: Delivery, platform: Platform) {
        if delivery.taken(platform) {
            self.taken += 1;
            self.taken_by_event[delivery.event] += 1;
        } else if delivery.outcome.is_ok() {
            self.refused += 1;
        } else {
            self.failed += 1;
        }
        if let Some(status) = delivery.status() {
            *self.by_status.entry(status).or_default() += 1;
        }
        self.deliveries.push(delivery);
    }

    /// The first failure without an answer, for a message to the operator.
    #[must_use]
    pub fn first_failure(&self) -> Option<&Failure> {
        self.deliveries.iter().find_map(|delivery| delivery.outcome.as_ref().err())
    }
}

/// What came of sending until acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Each try, in order.
    pub deliveries: Vec<Delivery>,
    /// Whether the last one was taken.
    pub acknowledged: bool,
}

/// Carries notifications to receivers. Has no state of its own beyond the connections of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Courier;

impl Courier {
    /// Delivers one request on a new connection.
    pub async fn deliver(&self, url: &str, request: &Request, deadline: Duration) -> Delivery {
        deliver_once(&mut Connections::default(), url, request, deadline, None).await
    }

    /// Delivers one request, or part of it, and closes the connection without reading the answer.
    pub async fn deliver_and_hang_up(&self, url: &str, request: &Request, hang_up: HangUp) -> Delivery {
        let deadline = Duration::from_secs(5);
        deliver_once(&mut Connections::default(), url, request, deadline, Some(hang_up)).await
    }

    /// Delivers one notification many times, spread evenly over the URLs, each time made and signed anew.
    /// `on_progress` hears `(done, total)` after each.
    pub async fn deliver_many(
        &self,
        urls: &[String],
        event: Arc<dyn Notification>,
        plan: Plan,
        on_progress: impl FnMut(usize, usize),
    ) -> Report {
        self.deliver_all(urls, &[event], plan, on_progress).await
    }

    /// Delivers several notifications, each `plan.times` times, in an order mixed by the seed.
    pub async fn deliver_all(
        &self,
        urls: &[String],
        events: &[Arc<dyn Notification>],
        plan: Plan,
        on_progress: impl FnMut(usize, usize),
    ) -> Report {
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let mut order: Vec<usize> = (0..events.len()).flat_map(|event| vec![event; plan.times]).collect();
        order.shuffle(&mut rng);
        let jobs = order.iter().enumerate().map(|(at, &event)| Job {
            event,
            url: at % urls.len().max(1),
            seed: rng.next_u64(),
            notification: Arc::clone(&events[event]),
        });
        let round = Arc::new(Round {
            jobs: if urls.is_empty() { Vec::new() } else { jobs.collect() },
            urls: urls.to_vec(),
            plan,
            next: AtomicUsize::new(0),
        });
        round.run(events.len(), on_progress).await
    }

    /// Sends until acknowledged, waiting the gaps in between, `speed` times faster than given: with `speed` 3600 an hour
    /// takes a second. The first delivery comes at once; after the last gap it gives up, as the platforms do.
    /// Try number `n` goes to `urls[n % urls.len()]`. `on_try` hears each delivery.
    pub async fn until_acknowledged(
        &self,
        urls: &[String],
        event: &dyn Notification,
        gaps: &[Duration],
        speed: u32,
        plan: Plan,
        mut on_try: impl FnMut(&Delivery),
    ) -> Campaign {
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let mut connections = Connections::default();
        let mut campaign = Campaign::default();
        if urls.is_empty() {
            return campaign;
        }
        for attempt in 0..=gaps.len() {
            if attempt > 0 {
                tokio::time::sleep(gaps[attempt - 1] / speed.max(1)).await;
            }
            let url = attempt % urls.len();
            let request = event.request(now_unix(), &mut rng);
            let mut delivery = deliver_once(&mut connections, &urls[url], &request, plan.deadline, plan.hang_up).await;
            delivery.url = url;
            on_try(&delivery);
            campaign.acknowledged = delivery.taken(event.platform());
            campaign.deliveries.push(delivery);
            if campaign.acknowledged {
                break;
            }
        }
        campaign
    }
}

struct Job {
    event: usize,
    url: usize,
    seed: u64,
    notification: Arc<dyn Notification>,
}

impl Job {
    fn request(&self) -> Request {
        self.notification.request(now_unix(), &mut StdRng::seed_from_u64(self.seed))
    }
}

/// The jobs of one call, shared by its workers.
struct Round {
    jobs: Vec<Job>,
    urls: Vec<String>,
    plan: Plan,
    next: AtomicUsize,
}

impl Round {
    async fn run(self: Arc<Self>, events: usize, mut on_progress: impl FnMut(usize, usize)) -> Report {
        let total = self.jobs.len();
        let workers = self.plan.concurrency.clamp(1, total.max(1));
        let (sender, mut done) = mpsc::unbounded_channel();
        let started = Instant::now();
        if self.plan.barrier {
            tokio::spawn(Arc::clone(&self).waves(workers, sender));
        } else {
            for _ in 0..workers {
                tokio::spawn(Arc::clone(&self).work(sender.clone()));
            }
            drop(sender);
        }
        let mut report = Report { taken_by_event: vec![0; events], ..Report::default() };
        while let Some((delivery, platform)) = done.recv().await {
            report.add(delivery, platform);
            on_progress(report.deliveries.len(), total);
        }
        report.elapsed = started.elapsed();
        report
    }

    async fn work(self: Arc<Self>, done: mpsc::UnboundedSender<(Delivery, Platform)>) {
        let mut connections = Connections::default();
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let (deadline, hang_up) = (self.plan.deadline, self.plan.hang_up);
            let url = &self.urls[job.url];
            let mut delivery = deliver_once(&mut connections, url, &job.request(), deadline, hang_up).await;
            (delivery.url, delivery.event) = (job.url, job.event);
            // Nobody listens any more when the caller gave up: then there is nothing left to do.
            if done.send((delivery, job.notification.platform())).is_err() {
                return;
            }
        }
    }

    async fn waves(self: Arc<Self>, width: usize, done: mpsc::UnboundedSender<(Delivery, Platform)>) {
        for from in (0..self.jobs.len()).step_by(width) {
            let wave = from..self.jobs.len().min(from + width);
            let barrier = Arc::new(Barrier::new(wave.len()));
            let mut tasks = tokio::task::JoinSet::new();
            for at in wave {
                // Signed here, one after the other, and not in the tasks: the barrier should wait for the network only.
                let request = self.jobs[at].request();
                tasks.spawn(Arc::clone(&self).step_of_wave(at, request, Arc::clone(&barrier), done.clone()));
            }
            while tasks.join_next().await.is_some() {}
        }
    }

    async fn step_of_wave(
        self: Arc<Self>,
        at: usize,
        request: Request,
        barrier: Arc<Barrier>,
        done: mpsc::UnboundedSender<(Delivery, Platform)>,
    ) {
        let job = &self.jobs[at];
        let prepared = prepare(&self.urls[job.url], &request, self.plan.deadline).await;
        // Also who could not connect arrives at the barrier: otherwise all the others would wait for ever.
        barrier.wait().await;
        let started = Instant::now();
        let outcome = match prepared {
            Err(failure) => Err(failure),
            Ok((mut connection, last)) => {
                let deadline = tokio::time::Instant::now() + self.plan.deadline;
                let pause = match self.plan.hang_up {
                    Some(HangUp::AfterRequest(pause)) => Some(HangUp::AfterRequest(pause)),
                    // Nothing but the last byte is left to write.
                    Some(HangUp::AfterBytes(_)) => Some(HangUp::AfterBytes(0)),
                    None => None,
                };
                connection
                    .exchange(&last, deadline, pause)
                    .await
                    .map(|(answer, _)| answer)
                    .map_err(|(failure, _)| failure)
            }
        };
        let delivery = Delivery { outcome, elapsed: started.elapsed(), url: job.url, event: job.event };
        // As above: without a listener the result is of no use to anybody.
        let _ = done.send((delivery, job.notification.platform()));
    }
}

/// Opens a connection and writes all but the last byte.
async fn prepare(url: &str, request: &Request, deadline: Duration) -> Result<(Connection, Vec<u8>), Failure> {
    let target = Target::parse(url).map_err(Failure::Unreachable)?;
    let mut bytes = wire::request_bytes(&target, request);
    let last = bytes.split_off(bytes.len() - 1);
    let deadline = tokio::time::Instant::now() + deadline;
    let mut connection = Connection::open(&target, deadline).await?;
    match timeout_at(deadline, connection.stream.write_all(&bytes)).await {
        Err(_) => Err(Failure::Deadline),
        Ok(Err(error)) => Err(Failure::Broken(error.to_string())),
        Ok(Ok(())) => Ok((connection, last)),
    }
}

/// Open connections of one worker, one per host.
type Connections = HashMap<String, Connection>;

async fn deliver_once(
    connections: &mut Connections,
    url: &str,
    request: &Request,
    deadline: Duration,
    hang_up: Option<HangUp>,
) -> Delivery {
    let started = Instant::now();
    let outcome = attempt(connections, url, request, deadline, hang_up).await;
    Delivery { outcome, elapsed: started.elapsed(), url: 0, event: 0 }
}

async fn attempt(
    connections: &mut Connections,
    url: &str,
    request: &Request,
    deadline: Duration,
    hang_up: Option<HangUp>,
) -> Result<Response, Failure> {
    let target = Target::parse(url).map_err(Failure::Unreachable)?;
    let bytes = wire::request_bytes(&target, request);
    let deadline = tokio::time::Instant::now() + deadline;
    let kept = connections.remove(&target.authority);
    let mut reused = kept.is_some();
    let mut connection = match kept {
        Some(connection) => connection,
        None => Connection::open(&target, deadline).await?,
    };
    loop {
        match connection.exchange(&bytes, deadline, hang_up).await {
            Ok((answer, keep)) => {
                if keep {
                    connections.insert(target.authority, connection);
                }
                return Ok(answer);
            }
            // The receiver may have closed an idle connection at this very moment; that is no answer to this request.
            Err((Failure::Broken(_), true)) if reused => {
                reused = false;
                connection = Connection::open(&target, deadline).await?;
            }
            Err((failure, _)) => return Err(failure),
        }
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(target: &Target, deadline: tokio::time::Instant) -> Result<Self, Failure> {
        match timeout_at(deadline, TcpStream::connect(&target.authority)).await {
            Err(_) => Err(Failure::Deadline),
            Ok(Err(error)) => Err(Failure::Unreachable(format!("{}: {error}", target.authority))),
            Ok(Ok(stream)) => {
                // Without this, a request's last byte could wait for the acknowledgement of the others.
                stream.set_nodelay(true).map_err(|error| Failure::Broken(error.to_string()))?;
                Ok(Self { stream, buffer: Vec::new() })
            }
        }
    }

    /// Writes the bytes and reads an answer, or hangs up. An error says whether nothing at all had come back yet.
    async fn exchange(
        &mut self,
        bytes: &[u8],
        deadline: tokio::time::Instant,
        hang_up: Option<HangUp>,
    ) -> Result<(Response, bool), (Failure, bool)> {
        let bytes = match hang_up {
            Some(HangUp::AfterBytes(count)) => &bytes[..count.min(bytes.len())],
            _ => bytes,
        };
        let work = async {
            self.stream.write_all(bytes).await?;
            match hang_up {
                None => wire::read_response(&mut self.stream, &mut self.buffer).await.map(Some),
                Some(HangUp::AfterBytes(_)) => Ok(None),
                Some(HangUp::AfterRequest(pause)) => {
                    tokio::time::sleep(pause).await;
                    Ok::<_, io::Error>(None)
                }
            }
        };
        match timeout_at(deadline, work).await {
            Err(_) => Err((Failure::Deadline, false)),
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err((Failure::HungUp, false)),
            Ok(Err(error)) => Err((Failure::Broken(error.to_string()), self.buffer.is_empty())),
        }
    }
}

#[cfg(test)]
mod tests;
