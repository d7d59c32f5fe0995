//! Measuring: for each number of connections, round by round, one competitor after the other.
//!
//! Here: the steps of one turn (fresh copy of the orders, start, warm up, send, let effects end, stop, audit)
//! and what is noted. Each turn has a process and a database of its own, so nobody inherits a cache, a
//! long log or a backlog. Not here: what the numbers come to (`report`).

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use payonce_sim::load::{self, LoadReport, Source};
use serde::Serialize;

use crate::{
    Outcome,
    args::{Kind, Plan},
    books::{Books, Sent},
    child::{Running, last_lines},
    competitors::{Competitor, Effects, TOKEN},
    machine::{self, Cpu, Probe},
    presigned::Callbacks,
};

/// How long effects may take after the last callback.
const EFFECTS_WITHIN: Duration = Duration::from_secs(180);

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) competitor: &'static str,
    pub(crate) connections: usize,
    pub(crate) kind: Kind,
    pub(crate) round: usize,
    pub(crate) before: Probe,
    /// Share of the processors that was used by others meanwhile.
    pub(crate) others: f64,
    /// Acknowledged callbacks per second.
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: u64,
    /// Processor time of the receiver per callback, in microseconds: until the last answer, and until the
    /// last effect.
    pub(crate) cpu_us: f64,
    pub(crate) cpu_with_effects_us: f64,
    /// Processor time of the load generator per callback.
    pub(crate) load_cpu_us: f64,
    /// Effects delivered, and per second from the first callback to the last effect.
    pub(crate) effects: Option<(i64, f64)>,
    /// Deliveries per transaction.
    pub(crate) batch: Option<f64>,
    pub(crate) peak_rss_mib: f64,
    pub(crate) anonymous_mib: f64,
    /// Shipments beyond the first of an order, of the whole turn.
    pub(crate) double_shipments: Option<i64>,
}

/// A benchmark under way.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) conditions: Vec<(String, String)>,
    callbacks: Callbacks,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    templates: HashMap<Books, PathBuf>,
}

impl Bench {
    pub(crate) fn new(plan: Plan, callbacks: Callbacks, folder: PathBuf) -> Outcome<Self> {
        // reqwest wants a provider in any case, even for plain HTTP.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let callbacks = callbacks.set_apart(plan.warm_up);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let (conditions, templates) = (Vec::new(), HashMap::new());
        Ok(Self { plan, conditions, callbacks, folder, runtime, client, templates })
    }

    /// Makes the databases that each turn gets a copy of, and notes the conditions.
    pub(crate) fn prepare(&mut self) -> Outcome<()> {
        let orders = self.plan.orders;
        let mut note = |name: &str, text: String| self.conditions.push((name.to_owned(), text));
        for (name, text) in machine::describe(&self.folder) {
            note(name, text);
        }
        let profile = if cfg!(debug_assertions) { "debug build, so no measurement" } else { "release build" };
        note("payonce", format!("{}, {profile}", env!("CARGO_PKG_VERSION")));
        note("orders", format!("{orders} registered beforehand, in each database"));
        note("request", format!("{} bytes with headers, signed beforehand", self.callbacks.bytes));
        note("load", "one thread on the same cores, keep-alive, one request under way per connection".to_owned());
        let mut said = Vec::new();
        for competitor in self.plan.competitors.clone() {
            said.push((competitor.name, competitor.what.to_owned()));
            if competitor.books == Books::None || self.templates.contains_key(&competitor.books) {
                continue;
            }
            let path = self.folder.join(format!("template-{:?}.db", competitor.books));
            let made = competitor.books.prepare(&path, orders, &self.callbacks.keys);
            if let Some(settings) = self.runtime.block_on(made)? {
                said.push(("durable", settings));
            }
            self.templates.insert(competitor.books, path);
        }
        self.conditions.extend(said.into_iter().map(|(name, text)| (name.to_owned(), text)));
        Ok(())
    }

    pub(crate) fn print_conditions(&self) {
        for (name, text) in &self.conditions {
            println!("{name:<16} {text}");
        }
        println!();
    }

    pub(crate) fn run(&mut self) -> Outcome<Vec<Sample>> {
        let mut samples = Vec::new();
        let plan = self.plan.clone();
        for &connections in &plan.connections {
            for round in 1..=plan.rounds {
                for competitor in &plan.competitors {
                    let turn = Turn { competitor, connections, round };
                    let done = self.turn(&turn).map_err(|error| format!("{}: {error}", turn.title()))?;
                    samples.extend(done);
                }
            }
        }
        Ok(samples)
    }

    fn turn(&mut self, turn: &Turn) -> Outcome<Vec<Sample>> {
        let folder = self.folder.join(turn.title().replace(' ', "-"));
        fs::create_dir(&folder)?;
        let database = turn.competitor.database(&folder);
        if let Some(template) = self.templates.get(&turn.competitor.books) {
            fs::copy(template, &database)?;
            // On the disk now, and not while something is measured.
            fs::File::open(&database)?.sync_all()?;
        }
        let log = folder.join("log");
        let command = turn.competitor.command(&folder, &self.callbacks.keys)?;
        let running = Running::start(command, &log, turn.competitor.books == Books::Payonce)?;
        if let Some(settings) = &running.durable {
            self.note_once("durable", &format!("{}: {settings}", turn.competitor.name));
        }
        let mut at = Place { running: &running, database: &database, log: &log, sent: Sent::default() };
        let mut samples = Vec::new();
        let warm_up = Source::Unique { requests: Arc::clone(&self.callbacks.warm_up), from: 0 };
        let warmed = load::run(running.callbacks, &warm_up, turn.connections.min(20), Duration::from_secs(30))?;
        self.judge(turn, &mut at, &warmed, Kind::Unique)?;
        self.wait_for_effects(turn, &at)?;
        let mut unique = 0;
        for &kind in &self.plan.kinds {
            let sample = self.measure(turn, &mut at, kind, &mut unique)?;
            println!("{}", sample.line());
            samples.push(sample);
        }
        let sent = at.sent;
        self.finish(turn, running, &database, &log, sent, &mut samples)?;
        if !self.plan.smoke {
            fs::remove_dir_all(&folder)?;
        }
        Ok(samples)
    }

    fn note_once(&mut self, name: &str, text: &str) {
        if !self.conditions.iter().any(|(_, have)| have == text) {
            println!("{name:<16} {text}");
            self.conditions.push((name.to_owned(), text.to_owned()));
        }
    }

    fn measure(&self, turn: &Turn, at: &mut Place<'_>, kind: Kind, unique: &mut usize) -> Outcome<Sample> {
        let source = match kind {
            Kind::Unique => Source::Unique { requests: Arc::clone(&self.callbacks.unique), from: 0 },
            Kind::Repeated => Source::Repeated(self.callbacks.repeated.clone()),
            Kind::Again => {
                let requests = self.callbacks.unique[..*unique].to_vec();
                Source::Unique { requests: Arc::new(requests), from: 0 }
            }
        };
        let before = machine::probe(&self.folder, Duration::from_secs(self.plan.patience), self.plan.look)?;
        let batches = self.batches(at.running)?;
        let effects = self.effects(turn, at)?;
        let (all, own, theirs, start) = (Cpu::now(), machine::cpu_of("self"), at.running.cpu(), Instant::now());
        let duration = Duration::from_secs_f64(self.plan.seconds);
        let report = load::run(at.running.callbacks, &source, turn.connections, duration)?;
        let (own, receiver) = (machine::cpu_of("self") - own, at.running.cpu() - theirs);
        let others = Cpu::now().others_since(all, own + receiver);
        let batch = match (batches, self.batches(at.running)?) {
            (Some(before), Some(after)) if after.0 > before.0 => Some((after.1 - before.1) / (after.0 - before.0)),
            _ => None,
        };
        if kind == Kind::Unique {
            *unique = report.used;
        }
        let acknowledged = self.judge(turn, at, &report, kind)?;
        self.wait_for_effects(turn, at)?;
        let took = start.elapsed().as_secs_f64();
        let delivered = match (effects, self.effects(turn, at)?) {
            (Some(before), Some(after)) if after > before => Some((after - before, (after - before) as f64 / took)),
            _ => None,
        };
        let memory = at.running.memory();
        let per_callback = |time: Duration| time.as_secs_f64() * 1e6 / (report.sent.max(1) as f64);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(Sample {
            competitor: turn.competitor.name,
            connections: turn.connections,
            kind,
            round: turn.round,
            before,
            others,
            rate: acknowledged as f64 / report.seconds.max(1e-9),
            seconds: report.seconds,
            p50_ms: ms(report.p50),
            p99_ms: ms(report.p99),
            max_ms: ms(report.max),
            statuses: report.by_status.clone(),
            errors: report.errors,
            cpu_us: per_callback(receiver),
            cpu_with_effects_us: per_callback(at.running.cpu() - theirs),
            load_cpu_us: per_callback(own),
            effects: delivered,
            batch,
            peak_rss_mib: memory.0,
            anonymous_mib: memory.1,
            double_shipments: None,
        })
    }

    /// Counts what was acknowledged; an answer that is none is an error of whoever must not fail.
    fn judge(&self, turn: &Turn, at: &mut Place<'_>, report: &LoadReport, kind: Kind) -> Outcome<u64> {
        let acknowledged = report.by_status.get(&204).copied().unwrap_or(0);
        let unknown = report.sent - acknowledged + report.errors;
        if unknown > 0 && !turn.competitor.may_fail {
            let error = report.first_error.as_deref().unwrap_or("none");
            let (statuses, log) = (&report.by_status, last_lines(at.log));
            return Err(format!("not acknowledged: {unknown}; answers {statuses:?}, first error {error}; {log}").into());
        }
        let facts = match kind {
            Kind::Unique => acknowledged,
            Kind::Repeated => acknowledged.min(1),
            Kind::Again => 0,
        };
        at.sent.facts += facts;
        at.sent.repeats += acknowledged - facts;
        at.sent.unknown += unknown;
        Ok(acknowledged)
    }

    /// Effects delivered so far, of those who deliver.
    fn effects(&self, turn: &Turn, at: &Place<'_>) -> Outcome<Option<i64>> {
        if turn.competitor.effects != Effects::Delivered {
            return Ok(None);
        }
        Ok(Some(self.runtime.block_on(turn.competitor.books.effects(at.database))?.1))
    }

    fn wait_for_effects(&self, turn: &Turn, at: &Place<'_>) -> Outcome<()> {
        if turn.competitor.effects != Effects::Delivered {
            return Ok(());
        }
        let until = Instant::now() + EFFECTS_WITHIN;
        loop {
            let (open, done) = self.runtime.block_on(turn.competitor.books.effects(at.database))?;
            if open == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("{open} effects were not delivered in time, {done} were").into());
            }
            std::thread::sleep(Duration::from_millis(if open > 2_000 { 200 } else { 20 }));
        }
    }

    /// Number of transactions and of deliveries in them, as the gateway's own metrics have them.
    fn batches(&self, running: &Running) -> Outcome<Option<(f64, f64)>> {
        let Some(admin) = running.admin else { return Ok(None) };
        let page = self.runtime.block_on(async {
            let request = self.client.get(format!("http://{admin}/metrics")).bearer_auth(TOKEN);
            request.send().await?.error_for_status()?.text().await
        })?;
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<f64>().ok())
        };
        let (count, sum) = (value("payonce_batch_deliveries_count "), value("payonce_batch_deliveries_sum "));
        Ok(count.zip(sum).or(Some((0.0, 0.0))))
    }

    /// Ends the process and audits what it left.
    fn finish(
        &self,
        turn: &Turn,
        running: Running,
        database: &Path,
        log: &Path,
        sent: Sent,
        samples: &mut [Sample],
    ) -> Outcome<()> {
        let ended = running.stop()?;
        if turn.competitor.books == Books::Payonce && !ended.success() {
            return Err(format!("ended with {ended}; {}", last_lines(log)).into());
        }
        let audit = turn.competitor.books.audit(database, sent, turn.competitor.effects);
        let double_shipments = self.runtime.block_on(audit).map_err(|error| format!("audit: {error}"))?;
        for sample in samples {
            sample.double_shipments = double_shipments;
        }
        Ok(())
    }
}

/// Whose turn it is.
struct Turn {
    competitor: &'static Competitor,
    connections: usize,
    round: usize,
}

impl Turn {
    fn title(&self) -> String {
        format!("{} {} connections round {}", self.competitor.name, self.connections, self.round)
    }
}

/// A running competitor with what surrounds it, and what it was sent.
struct Place<'a> {
    running: &'a Running,
    database: &'a Path,
    log: &'a Path,
    sent: Sent,
}

impl Sample {
    /// One line as soon as it is measured.
    fn line(&self) -> String {
        let mut line = format!(
            "{:>4} conn {:<8} #{} {:<16} {:>7.0}/s  p50 {:>7.2} p99 {:>7.2} ms  cpu {:>5.1} us  idle {:>3.0}% sync {:>5.0}/s others {:>2.0}%",
            self.connections,
            self.kind.word(),
            self.round,
            self.competitor,
            self.rate,
            self.p50_ms,
            self.p99_ms,
            self.cpu_us,
            self.before.idle * 100.0,
            self.before.fdatasync,
            self.others * 100.0,
        );
        if let Some(batch) = self.batch {
            line += &format!("  batch {batch:.1}");
        }
        if let Some((count, rate)) = self.effects {
            line += &format!("  {count} effects {rate:.0}/s (cpu {:.1} us)", self.cpu_with_effects_us);
        }
        let failed: u64 = self.statuses.iter().filter(|(status, _)| **status != 204).map(|(_, count)| count).sum();
        if failed + self.errors > 0 {
            line += &format!("  failed {}", failed + self.errors);
        }
        line
    }
}
