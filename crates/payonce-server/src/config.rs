//! What the operator wants: `payonce.toml` and the environment, read, checked, and given types.
//!
//! Here: the settings with their defaults (`config.default.toml` is the same as a manual, and a test
//! compares the two), and `load`. Every fault is found in one go, with its place and what to do. No
//! secret is ever printed. Not here: acting on any of it (`cli`).
//!
//! The way of the data: `tree` (TOML and environment, with places) ─▶ `section` (keys by type) ─▶
//! `accounts`, `effects` (meaning) ─▶ `checks` (across sections).

mod accounts;
mod checks;
mod database_url;
mod effects;
mod fault;
mod order_table;
mod secret;
mod section;
mod tree;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use payonce::{
    batcher::BatcherOptions,
    ids::Shop,
    own_table::OwnTable,
    rules::{EffectRule, LatePolicy, Rules},
    worker::WorkerOptions,
};
use zeroize::Zeroizing;

pub use accounts::{Account, AlipaySettings, ChannelSettings, NamedKey, WechatSettings};
pub use effects::{HttpSink, Sink, SinkSettings};
pub use fault::{Fault, Faults};
pub use secret::Secret;
pub(crate) use section::{readable, reason};

use crate::{database, gateway::Limits};

use fault::{Place, Report, Show, quote};
use section::{Section, Told};
use tree::Member;

/// The manual of the settings, which are all commented out.
pub const MANUAL: &str = include_str!("config.default.toml");

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    /// `[server]`.
    pub server: Server,
    /// `[database]`.
    pub database: Database,
    /// `[shops.NAME]`; `default` alone unless configured.
    pub shops: Vec<Shop>,
    /// `[shops.NAME.order_table]`, with the number spaces of the shop's accounts.
    pub order_tables: BTreeMap<Shop, Arc<OwnTable>>,
    /// `[accounts.NAME]`, sorted by name.
    pub accounts: Vec<Account>,
    /// `[[effects]]`, in their order.
    pub effects: Vec<EffectRule>,
    /// `[sinks.NAME]`, sorted by name.
    pub sinks: Vec<Sink>,
    /// `[policy]`.
    pub policy: Policy,
    /// `[log]`.
    pub log: Log,
}

impl Config {
    /// What `apply` is told.
    pub fn rules(&self) -> Rules {
        let own_tables = self.order_tables.clone();
        Rules { effects: self.effects.clone(), late: self.policy.late_payment, own_tables }
    }

    /// The address to give to a platform; `base` is where this gateway listens, for want of a public one.
    pub fn notify_url(&self, account: &Account, base: &str) -> String {
        let base = self.server.public_url.as_deref().unwrap_or(base);
        format!("{}/notify/{}", base.trim_end_matches('/'), account.name)
    }
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where callbacks arrive.
    pub public: SocketAddr,
    /// Where the shop and the operator speak to the gateway.
    pub admin: SocketAddr,
    /// How the world reaches `public`, for the notify URLs.
    pub public_url: Option<String>,
    /// What requests to `admin` must carry. `None`: a file beside the database, made at the first start.
    pub admin_token: Option<Secret>,
    /// What strangers may cost, and how long anything may take.
    pub limits: Limits,
    /// Callbacks that may wait for the database.
    pub queue: usize,
    /// Callbacks that are booked in one transaction.
    pub batch: usize,
    /// Deliveries at once, for each sink.
    pub deliveries: usize,
}

impl Default for Server {
    fn default() -> Self {
        let batcher = BatcherOptions::default();
        Self {
            public: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080),
            admin: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081),
            public_url: None,
            admin_token: None,
            limits: Limits::default(),
            queue: batcher.queue,
            batch: batcher.batch,
            deliveries: WorkerOptions::default().concurrency,
        }
    }
}

/// `[database]`.
#[derive(Clone, Debug)]
pub struct Database {
    /// Where the books are.
    pub place: database::Place,
    /// Start although an acknowledgement would be less than durable.
    pub accept_unsafe_settings: bool,
}

/// `[policy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a payment of an unknown order is answered with failure, so that the platform repeats it.
    pub unknown_order_grace: Duration,
    /// What becomes of money for an order that was closed unpaid.
    pub late_payment: LatePolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self { unknown_order_grace: Duration::from_secs(600), late_payment: LatePolicy::Refund }
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// A level, or directives as in `RUST_LOG`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What came out of reading: everything that could be understood, and everything that is wrong.
#[derive(Debug)]
pub struct Loaded {
    /// With defaults in the place of what is wrong.
    pub config: Config,
    /// Empty if the configuration may be used.
    pub faults: Vec<Fault>,
    /// Every key that was looked for, as `accounts.*.mchid`.
    pub known: BTreeSet<String>,
}

/// Reads a file and the environment of this process. `named`: somebody gave this file's name, so it must
/// be there; otherwise the environment alone will do.
pub fn load(path: &Path, named: bool) -> Result<Config, Faults> {
    let loaded = examine(path, named)?;
    if loaded.faults.is_empty() { Ok(loaded.config) } else { Err(Faults(loaded.faults)) }
}

/// The same for `doctor`, which looks on after a fault. An error: there is nothing to be looked at.
pub fn examine(path: &Path, named: bool) -> Result<Loaded, Faults> {
    let variables: Vec<(OsString, OsString)> = env::vars_os().collect();
    let by_environment = !named && variables.iter().any(|(name, _)| name.to_string_lossy().starts_with(tree::PREFIX));
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Zeroizing::new).map_err(|_| {
            let todo = "save the file in UTF-8".to_owned();
            Faults(vec![Fault::general(path.display().to_string(), "is not UTF-8", todo)])
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && by_environment => Zeroizing::default(),
        Err(error) => {
            let todo = "`payonce init` writes a configuration; `--config FILE` names another";
            return Err(Faults(vec![Fault::general(path.display().to_string(), reason(&error), todo)]));
        }
    };
    Ok(read(path, text, &variables))
}

/// Reads a text as if it stood in `path`, with these variables laid over it.
pub fn read(path: &Path, text: Zeroizing<String>, variables: &[(OsString, OsString)]) -> Loaded {
    let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let text = match text.strip_prefix('\u{FEFF}') {
        Some(rest) => Zeroizing::new(rest.to_owned()),
        None => text,
    };
    let mut report = Report::new(path.display().to_string(), dir, text);
    let config = match tree::read(&mut report) {
        Some(mut members) => {
            tree::overlay(&mut members, &report, variables);
            sections(path, &report, members)
        }
        None => empty(path, &report),
    };
    let (faults, known) = report.finish();
    Loaded { config, faults, known }
}

fn empty(path: &Path, report: &Report) -> Config {
    Config {
        file: path.to_path_buf(),
        server: Server::default(),
        database: database_url::default(report),
        shops: vec![Shop::default_shop()],
        order_tables: BTreeMap::new(),
        accounts: Vec::new(),
        effects: Vec::new(),
        sinks: Vec::new(),
        policy: Policy::default(),
        log: Log::default(),
    }
}

fn sections(path: &Path, report: &Report, members: Vec<Member>) -> Config {
    let mut config = empty(path, report);
    let mut root = Section::root(report, members);
    config.server = server(root.section("server"));
    config.database = database_url::read(root.section("database"));
    config.policy = policy(root.section("policy"));
    config.log = log(root.section("log"));
    let (shops, mut order_tables) = shops(root.named("shops"));
    let (named_accounts, named_sinks) = (root.named("accounts"), root.named("sinks"));
    let counts = checks::Counts {
        accounts: named_accounts.len(),
        sinks: named_sinks.iter().map(|(name, _)| name.value.clone()).collect(),
    };
    let accounts = accounts::read(named_accounts, &shops);
    let sinks = effects::read_sinks(named_sinks);
    let rules = effects::read(root.listed("effects"));
    checks::across(report, &accounts, &rules, &counts);
    root.finish();
    if !shops.is_empty() {
        config.shops = shops;
    }
    for account in &accounts {
        if let (Some(table), Some(merchant)) = (order_tables.get_mut(&account.value.shop), account.value.merchant()) {
            table.merchants.insert(merchant);
        }
    }
    config.order_tables = order_tables.into_iter().map(|(shop, table)| (shop, Arc::new(table))).collect();
    config.accounts = accounts.into_iter().map(|told| told.value).collect();
    config.effects = rules.into_iter().map(|rule| rule.rule).collect();
    config.sinks = sinks.into_iter().map(|told| told.value).collect();
    config
}

fn server(mut section: Section<'_>) -> Server {
    let default = Server::default();
    let public = section.address("public", default.public);
    let admin = section.address("admin", default.admin);
    if public.value == admin.value && public.value.port() != 0 {
        let what = format!("`public` and `admin` are both {}", admin.value);
        let todo = "give `admin` a port of its own that the world does not reach";
        section.report.fault(&admin.place, Show::Plain, what, todo);
    }
    let public_url = section.text("public_url").and_then(|told| public_url(section.report, told));
    let admin_token = section.secret("admin_token", "admin_token_file").and_then(|told| {
        const LEAST: usize = 16;
        let bytes = told.value.expose().len();
        let ascii = told.value.expose().bytes().all(|byte| byte.is_ascii_graphic());
        if bytes < LEAST || !ascii {
            let what = if ascii {
                format!("the admin token has {bytes} characters, at least {LEAST} are needed")
            } else {
                "the admin token holds blanks or other characters than ASCII".to_owned()
            };
            let todo =
                "make a new one, for example with `openssl rand -hex 32`; or leave it out, then payonce makes one";
            section.report.fault(&told.place, Show::Masked, what, todo);
            return None;
        }
        Some(told.value)
    });
    let limits = limits(&mut section, default.limits);
    let mut size = |key, default: usize, most| section.integer(key, default as i64, 1..=most) as usize;
    let (queue, batch) = (size("queue", default.queue, 1_000_000), size("batch", default.batch, 10_000));
    let deliveries = size("deliveries", default.deliveries, 1024);
    let (public, admin) = (public.value, admin.value);
    let server = Server { public, admin, public_url, admin_token, limits, queue, batch, deliveries };
    section.finish();
    server
}

fn limits(section: &mut Section<'_>, default: Limits) -> Limits {
    const LEAST: Duration = Duration::from_millis(100);
    /// WeChat Pay has hung up after 5 s and does not hear the answer.
    const ANSWER_MOST: Duration = Duration::from_millis(4900);
    /// An hour is more than anything here can mean.
    const HOUR: Duration = Duration::from_secs(3600);
    let mut size = |key, default: usize, most| section.integer(key, default as i64, 1..=most) as usize;
    let body_bytes = size("max_body_bytes", default.body_bytes, 16 * 1024 * 1024);
    let connections = size("max_connections", default.connections, 100_000);
    let mut time = |key, default: Duration, range| section.duration(key, default, &readable(default), range);
    Limits {
        body_bytes,
        connections,
        answer_within: time("answer_within", default.answer_within, LEAST..=ANSWER_MOST),
        header_read_timeout: time("header_read_timeout", default.header_read_timeout, LEAST..=HOUR),
        body_read_timeout: time("body_read_timeout", default.body_read_timeout, LEAST..=HOUR),
        keep_alive_idle: time("keep_alive_idle", default.keep_alive_idle, LEAST..=HOUR),
        drain: time("drain", default.drain, Duration::ZERO..=HOUR),
        ..default
    }
}

/// The rules of both platforms for notify URLs: facts/wechat-pay-v3.md 1.8, facts/alipay.md 5.4. That a
/// platform cannot reach a private host is for `doctor` to say: behind a tunnel it is right.
fn public_url(report: &Report, told: Told<String>) -> Option<String> {
    let fail = |what: String| {
        let todo =
            "write how the world reaches `public`: public_url = \"https://pay.example.com\", and nothing behind it";
        report.fault(&told.place, Show::Masked, what, todo);
        None
    };
    let Ok(url) = reqwest::Url::parse(&told.value) else {
        return fail("`public_url` is no URL".to_owned());
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return fail("`public_url` must begin with https:// or http:// and name a host".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return fail("`public_url` has a query or fragment; the platforms refuse such notify URLs".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return fail("`public_url` has a user name or password; the platforms cannot log in".to_owned());
    }
    Some(told.value.trim_end_matches('/').to_owned())
}

fn policy(mut section: Section<'_>) -> Policy {
    let default = Policy::default();
    let day = Duration::from_secs(86_400);
    let late = [("refund", LatePolicy::Refund), ("reopen", LatePolicy::Reopen)];
    let policy = Policy {
        unknown_order_grace: section.duration(
            "unknown_order_grace",
            default.unknown_order_grace,
            "10m",
            Duration::ZERO..=day,
        ),
        late_payment: section.choice("late_payment", default.late_payment, &late),
    };
    section.finish();
    policy
}

fn log(mut section: Section<'_>) -> Log {
    let default = Log::default();
    let format = section.choice("format", default.format, &[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    let level = section.text("level").and_then(|told| {
        // A single word is a level and must be one; to the filter a misspelt level is the name of a module.
        let directives = told.value.contains('=') && told.value.parse::<tracing_subscriber::EnvFilter>().is_ok();
        let levels = ["error", "warn", "info", "debug", "trace", "off"].map(|level| (level, ()));
        (directives || section.as_choice("level", &told, &levels).is_some()).then_some(told.value)
    });
    section.finish();
    Log { format, level: level.unwrap_or(default.level) }
}

fn shops(found: Vec<(Told<String>, Section<'_>)>) -> (Vec<Shop>, BTreeMap<Shop, OwnTable>) {
    let (mut shops, mut order_tables) = (Vec::new(), BTreeMap::new());
    for (name, mut section) in found {
        let table = order_table::read(&mut section);
        if name_is_good(section.report, "shop", &name)
            && let Ok(shop) = Shop::new(name.value)
        {
            order_tables.extend(table.map(|table| (shop.clone(), table)));
            shops.push(shop);
        }
        section.finish();
    }
    (shops, order_tables)
}

/// Names of ours are in URLs, variables and keys, so they are plain.
fn name_is_good(report: &Report, what: &str, name: &Told<String>) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    let good = (1..=64).contains(&name.value.len()) && name.value.chars().all(plain) && !name.value.contains("__");
    if !good {
        let message = format!("{} cannot be the name of this {what}", quote(&name.value));
        let todo = "use 1 to 64 letters, digits, `-` and single `_`, since it stands in URLs and environment variables";
        report.fault(&name.place, Show::Masked, message, todo);
    }
    good
}

/// Names that differ only in case or `-` against `_` would be one in an environment variable.
fn names_differ(report: &Report, what: &str, names: &[(&str, &Place)]) {
    let folded = |name: &str| name.to_lowercase().replace('-', "_");
    for (index, (name, place)) in names.iter().enumerate() {
        if let Some((other, _)) = names[..index].iter().find(|(other, _)| folded(other) == folded(name)) {
            let message = format!("the {what}s {} and {} have almost the same name", quote(other), quote(name));
            report.fault(place, Show::Masked, message, "rename one of the two");
        }
    }
}
