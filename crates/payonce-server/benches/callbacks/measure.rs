//! Measuring: for each number of connections, round by round, one competitor after the other.
//!
//! Here: the steps of one turn (fresh copy of the orders, start, warm up, send, let effects end, stop, audit)
//! and what is noted. Each turn has a process and a database of its own, so nobody inherits a cache, a
//! long log or a backlog. Not here: what the numbers come to (`report`).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
    books::{Audit, Books, Sent},
    child::{Running, last_lines},
    competitors::{Competitor, Effects, TOKEN},
    engines::{Connection, Database, Engine},
    machine::{self, Cpu, Probe},
    presigned::{self, Callbacks},
    servers::Servers,
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
    /// Processor time of the database server per callback, until the last answer.
    pub(crate) server_cpu_us: Option<f64>,
    /// Processor time of the load generator per callback.
    pub(crate) load_cpu_us: f64,
    /// Effects delivered, and per second from the first callback to the last effect.
    pub(crate) effects: Option<(i64, f64)>,
    /// Deliveries per transaction.
    pub(crate) batch: Option<f64>,
    pub(crate) peak_rss_mib: f64,
    pub(crate) anonymous_mib: f64,
    /// What the books held after the whole turn.
    pub(crate) facts: i64,
    pub(crate) effects_in_all: i64,
    /// Shipments beyond the first of an order.
    pub(crate) double_shipments: Option<i64>,
}

/// A benchmark under way.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) conditions: Vec<(String, String)>,
    pub(crate) callbacks: Callbacks,
    pub(crate) folder: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) servers: Servers,
    client: reqwest::Client,
    templates: HashMap<(Engine, Books), Database>,
    /// The first process of each engine's server.
    processes: HashMap<Engine, Option<u32>>,
}

impl Bench {
    pub(crate) fn new(plan: Plan, callbacks: Callbacks, folder: PathBuf) -> Outcome<Self> {
        // reqwest wants a provider in any case, even for plain HTTP.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let callbacks = callbacks.set_apart(plan.warm_up);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let (conditions, templates, processes) = (Vec::new(), HashMap::new(), HashMap::new());
        let servers = Servers::find(&crate::target());
        Ok(Self { plan, conditions, callbacks, folder, runtime, servers, client, templates, processes })
    }

    /// Callbacks that are valid for so many seconds more; they may have grown old meanwhile.
    pub(crate) fn refresh(&mut self, seconds: f64) -> Outcome<()> {
        let callbacks = presigned::load_or_sign(&crate::home(), self.plan.callbacks, seconds)?;
        self.callbacks = callbacks.set_apart(self.plan.warm_up);
        Ok(())
    }

    /// Notes the conditions.
    pub(crate) fn describe(&mut self) {
        let mut note = |name: &str, text: String| self.conditions.push((name.to_owned(), text));
        for (name, text) in machine::describe(&self.folder) {
            note(name, text);
        }
        let profile = if cfg!(debug_assertions) { "debug build, so no measurement" } else { "release build" };
        note("version", format!("payonce {}, {profile}", env!("CARGO_PKG_VERSION")));
        note("orders", format!("{} registered beforehand, in each database", self.plan.orders));
        note("request", format!("{} bytes with headers, signed beforehand", self.callbacks.bytes));
        note("load", "one thread on the same cores, keep-alive, one request under way per connection".to_owned());
        note("rounds", format!("{} of {} s, alternating", self.plan.rounds, self.plan.seconds));
        for competitor in &self.plan.competitors {
            note(competitor.name, competitor.what.to_owned());
        }
    }

    /// Makes the databases that each turn gets a copy of.
    pub(crate) fn prepare(&mut self) -> Outcome<()> {
        self.find_servers()?;
        for competitor in self.plan.competitors.clone() {
            let (engine, tables) = (competitor.engine, competitor.books.tables());
            if tables == Books::None {
                continue;
            }
            if !self.templates.contains_key(&(engine, tables)) {
                let folder = self.folder.join(format!("template-{engine:?}-{tables:?}"));
                fs::create_dir(&folder)?;
                let (orders, keys) = (self.plan.orders, &self.callbacks.keys);
                let template = self.runtime.block_on(async {
                    let database = self.servers.create(engine, &folder.join("template.db")).await?;
                    tables.prepare(&database, orders, &folder, keys).await?;
                    Outcome::Ok(database)
                });
                let template =
                    template.map_err(|error| format!("{} for {}: {error}", engine.name(), competitor.name))?;
                self.templates.insert((engine, tables), template);
            }
            let said = self.runtime.block_on(competitor.books.settings(&self.templates[&(engine, tables)]))?;
            if let Some(settings) = said {
                let ours = self.plan.competitors.iter().filter(|other| other.is_payonce() && other.engine == engine);
                let names = ours.map(|other| other.name).collect::<Vec<_>>().join(", ");
                self.note_once("durable", &format!("{names}: {settings}"));
            }
        }
        Ok(())
    }

    /// Where the servers' processes are; and nothing is left there of runs that were killed.
    pub(crate) fn find_servers(&mut self) -> Outcome<()> {
        let of_server = |competitor: &&&'static Competitor| competitor.books != Books::None;
        let engines: BTreeSet<Engine> = self.plan.competitors.iter().filter(of_server).map(|one| one.engine).collect();
        for engine in engines.into_iter().filter(|engine| *engine != Engine::Sqlite) {
            let found = self.runtime.block_on(async {
                self.servers.sweep(engine).await?;
                let mut connection = self.servers.home(engine)?.open().await?;
                let process = connection.server_process().await?;
                connection.close().await?;
                Outcome::Ok(process)
            });
            self.processes.insert(engine, found.map_err(|error| format!("{}: {error}", engine.name()))?);
        }
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
        let path = folder.join("database.db");
        let database = match self.templates.get(&(turn.competitor.engine, turn.competitor.books.tables())) {
            Some(template) => self.runtime.block_on(self.servers.copy(template, &path))?,
            None => Database::file(path),
        };
        let samples = self.take(turn, &folder, &database, 0, 0)?.0;
        if !self.plan.keep {
            self.runtime.block_on(self.servers.drop(&database))?;
            fs::remove_dir_all(&folder)?;
        }
        Ok(samples)
    }

    /// One process on one database, from its start to its audit. `before` facts are in the books already, and of the
    /// unique callbacks those before `from` have been used; the second value is where they go on.
    pub(crate) fn take(
        &mut self,
        turn: &Turn,
        folder: &Path,
        database: &Database,
        before: u64,
        from: usize,
    ) -> Outcome<(Vec<Sample>, usize)> {
        let log = folder.join("log");
        let command = turn.competitor.command(database, folder, &self.callbacks.keys)?;
        let running = Running::start(command, &log, turn.competitor.is_payonce())?;
        if let Some(settings) = &running.durable {
            self.note_once("durable", &format!("{}: {settings}", turn.competitor.name));
        }
        let own = match turn.competitor.books {
            Books::None => None,
            _ => Some(self.runtime.block_on(database.open())?),
        };
        let sent = Sent { before, ..Sent::default() };
        let mut at = Place { running: &running, own, folder, log: &log, sent, used: from };
        let mut samples = Vec::new();
        let warm_up = if from == 0 {
            Arc::clone(&self.callbacks.warm_up)
        } else {
            at.used = (from + self.plan.warm_up).min(self.callbacks.unique.len());
            Arc::new(self.callbacks.unique[from..at.used].to_vec())
        };
        let warm_up = Source::Unique { requests: warm_up, from: 0 };
        let warmed = load::run(running.callbacks, &warm_up, turn.connections.min(20), Duration::from_secs(30))?;
        self.judge(turn, &mut at, &warmed, Kind::Unique)?;
        self.wait_for_effects(turn, &mut at)?;
        for &kind in &self.plan.kinds {
            let sample = self.measure(turn, &mut at, kind)?;
            println!("{}", sample.line());
            samples.push(sample);
        }
        let (sent, used) = (at.sent, at.used);
        if let Some(own) = at.own {
            self.runtime.block_on(own.close())?;
        }
        let audit = self.finish(turn, running, database, folder, sent)?;
        for sample in &mut samples {
            sample.facts = audit.facts;
            sample.effects_in_all = audit.effects;
            sample.double_shipments = audit.double_shipments;
        }
        Ok((samples, used))
    }

    fn note_once(&mut self, name: &str, text: &str) {
        if !self.conditions.iter().any(|(_, have)| have == text) {
            println!("{name:<16} {text}");
            self.conditions.push((name.to_owned(), text.to_owned()));
        }
    }

    fn measure(&self, turn: &Turn, at: &mut Place<'_>, kind: Kind) -> Outcome<Sample> {
        let source = match kind {
            Kind::Unique => Source::Unique { requests: Arc::clone(&self.callbacks.unique), from: at.used },
            Kind::Repeated => Source::Repeated(self.callbacks.repeated.clone()),
            Kind::Again => {
                let requests = self.callbacks.unique[..at.used].to_vec();
                Source::Unique { requests: Arc::new(requests), from: 0 }
            }
        };
        let before = machine::probe(&self.folder, Duration::from_secs(self.plan.patience), self.plan.look)?;
        let batches = self.batches(at.running)?;
        let effects = self.effects(turn, at)?;
        let (all, own, theirs, start) = (Cpu::now(), machine::cpu_of("self"), at.running.cpu(), Instant::now());
        let server = self.server_cpu(turn);
        let duration = Duration::from_secs_f64(self.plan.seconds);
        let report = load::run(at.running.callbacks, &source, turn.connections, duration)?;
        let (own, receiver) = (machine::cpu_of("self") - own, at.running.cpu() - theirs);
        let server = server.zip(self.server_cpu(turn)).map(|(before, after)| after.saturating_sub(before));
        let others = Cpu::now().others_since(all, own + receiver + server.unwrap_or_default());
        let batch = match (batches, self.batches(at.running)?) {
            (Some(before), Some(after)) if after.0 > before.0 => Some((after.1 - before.1) / (after.0 - before.0)),
            _ => None,
        };
        if kind == Kind::Unique {
            at.used = report.used;
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
            server_cpu_us: server.map(per_callback),
            load_cpu_us: per_callback(own),
            effects: delivered,
            batch,
            peak_rss_mib: memory.0,
            anonymous_mib: memory.1,
            facts: 0,
            effects_in_all: 0,
            double_shipments: None,
        })
    }

    /// Processor time of the server that the competitor's books are on.
    fn server_cpu(&self, turn: &Turn) -> Option<Duration> {
        let process = self.processes.get(&turn.competitor.engine).copied().flatten()?;
        (turn.competitor.books != Books::None).then(|| machine::cpu_of_family(process))
    }

    /// Counts what was acknowledged; an answer that is none is an error of whoever must not fail.
    fn judge(&self, turn: &Turn, at: &mut Place<'_>, report: &LoadReport, kind: Kind) -> Outcome<u64> {
        let acknowledged = report.by_status.get(&204).copied().unwrap_or(0);
        let unknown = report.sent - acknowledged + report.errors;
        if unknown > 0 && !turn.competitor.may_fail() {
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
    fn effects(&self, turn: &Turn, at: &mut Place<'_>) -> Outcome<Option<i64>> {
        match &mut at.own {
            Some(own) if turn.competitor.effects == Effects::Delivered => {
                self.runtime.block_on(turn.competitor.books.done_effects(own, at.folder)).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn wait_for_effects(&self, turn: &Turn, at: &mut Place<'_>) -> Outcome<()> {
        let Some(own) = at.own.as_mut().filter(|_| turn.competitor.effects == Effects::Delivered) else {
            return Ok(());
        };
        let until = Instant::now() + EFFECTS_WITHIN;
        loop {
            let open = self.runtime.block_on(turn.competitor.books.open_effects(own))?;
            if open == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("{open} effects were not delivered within {EFFECTS_WITHIN:?}").into());
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
    fn finish(&self, turn: &Turn, running: Running, database: &Database, folder: &Path, sent: Sent) -> Outcome<Audit> {
        let ended = running.stop()?;
        if turn.competitor.is_payonce() && !ended.success() {
            return Err(format!("ended with {ended}; {}", last_lines(&folder.join("log"))).into());
        }
        let audit = turn.competitor.books.audit(database, folder, sent, turn.competitor.effects);
        let audit = self.runtime.block_on(audit).map_err(|error| format!("audit: {error}"))?;
        if turn.competitor.books != Books::None {
            println!("{:>14} books of {}: {}", "", turn.competitor.name, audit.line(turn.competitor.effects));
        }
        Ok(audit)
    }
}

impl Drop for Bench {
    /// Also when something failed: databases on a server would stay.
    fn drop(&mut self) {
        if self.plan.keep {
            self.servers.made().for_each(|address| println!("kept: {address}"));
        } else if let Err(error) = self.runtime.block_on(self.servers.drop_all()) {
            eprintln!("callbacks: databases are left on the servers: {error}");
        }
    }
}

impl Audit {
    fn line(&self, effects: Effects) -> String {
        let (facts, word) = (self.facts, if effects == Effects::Delivered { "executed" } else { "stored" });
        let line = format!("{facts} facts, paid orders and flow rows, {} effects {word}", self.effects);
        match self.double_shipments {
            None => line,
            Some(0) => format!("{line}; no order shipped twice this time, but nothing prevents it"),
            Some(count) => format!("{line}; WRONG: {count} shipments too many"),
        }
    }
}

/// Whose turn it is.
pub(crate) struct Turn {
    pub(crate) competitor: &'static Competitor,
    pub(crate) connections: usize,
    pub(crate) round: usize,
}

impl Turn {
    pub(crate) fn title(&self) -> String {
        format!("{} {} connections round {}", self.competitor.name, self.connections, self.round)
    }
}

/// A running competitor with what surrounds it, and what it was sent.
struct Place<'a> {
    running: &'a Running,
    /// The benchmark's own connection to its database.
    own: Option<Connection>,
    folder: &'a Path,
    log: &'a Path,
    sent: Sent,
    /// Unique callbacks that were sent already.
    used: usize,
}

impl Sample {
    /// One line as soon as it is measured.
    fn line(&self) -> String {
        let mut line = format!(
            "{:>4} conn {:<8} #{} {:<20} {:>7.0}/s  p50 {:>7.2} p99 {:>7.2} ms  cpu {:>5.1} us  idle {:>3.0}% sync {:>5.0}/s others {:>2.0}%",
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
        if let Some(server) = self.server_cpu_us {
            line += &format!("  server {server:.1} us");
        }
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
