//! `payonce serve`: the gateway, from the configuration to the end of its drain.
//!
//! Here: putting the parts together, what is printed at the start, signals. Not here: the parts
//! (`gateway`).

use std::{collections::HashMap, fs, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use payonce::{
    batcher::BatcherOptions,
    sink::{LogSink, Sink},
    store::Store,
    time::Micros,
    worker::WorkerOptions,
};

use super::{
    ConfigFile, block_on, migrate,
    out::{self, Failure},
    random_bytes, write_private,
};
use crate::{
    config::{Config, Secret, SinkSettings, reason},
    gateway::{self, Running, Settings},
    logging,
    sink::{WebhookConfig, WebhookSink},
};

const EXAMPLES: &str = "\
Examples:
  payonce serve
  PAYONCE__LOG__FORMAT=json payonce serve
  PAYONCE__SERVER__PUBLIC=127.0.0.1:9000 payonce serve

SIGTERM or Ctrl-C stops it: what is in flight is finished first (`drain` in [server]); a second
signal stops it at once. Nothing acknowledged is lost either way.";

/// Receive callbacks, book them, and deliver what they owe
///
/// Brings the database up to date, prints the notify URL of each account, and runs until it is told
/// to stop. It refuses to start with anything that would make an acknowledgement untrue.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {}

impl Serve {
    pub(super) fn run(&self, file: &ConfigFile) -> Result<(), Failure> {
        let config = file.load()?;
        logging::init(&config.log).map_err(|error| Failure::new(error, "correct it, for example RUST_LOG=info"))?;
        block_on(serve(config))
    }
}

async fn serve(config: Config) -> Result<(), Failure> {
    let Assembled { settings, applied, token_file } = assemble(&config).await?;
    // Before anything is printed, so that whoever reads the lines may send a signal at once.
    let stop = Stop::listen()?;
    let running = gateway::start(settings).await.map_err(|error| {
        Failure::new(
            error,
            "if an address is taken, another payonce may be running; otherwise change `public` or `admin` in [server]",
        )
    })?;
    print_start(&config, &running, &applied, token_file.as_ref());
    stop.asked().await;
    tokio::select! {
        drained = running.shutdown() => {
            if let Err(late) = drained {
                tracing::warn!(%late, "stopped; the platforms send it again");
            }
        }
        () = stop.asked() => tracing::warn!("stopped at once by a second signal"),
    }
    Ok(())
}

/// What a gateway is started with, and what happened on the way.
pub(super) struct Assembled {
    pub(super) settings: Settings,
    /// Migrations that were applied.
    pub(super) applied: Vec<i64>,
    /// Where the admin token is, if nobody configured one.
    pub(super) token_file: Option<PathBuf>,
}

/// From a configuration to everything that a gateway needs, with the database brought up to date.
pub(super) async fn assemble(config: &Config) -> Result<Assembled, Failure> {
    let rules = Arc::new(config.rules());
    let applied = migrate::apply(config).await?;
    let store = open(config, &rules).await?;
    let (token, token_file) = admin_token(config)?;
    let (sinks, slowest) = sinks(config)?;
    let settings = Settings {
        public: config.server.public,
        admin: config.server.admin,
        admin_token: token.expose().to_owned(),
        accounts: accounts(config)?,
        store,
        rules,
        sinks,
        limits: config.server.limits,
        worker: worker_options(config, slowest),
        batcher: BatcherOptions {
            queue: config.server.queue,
            batch: config.server.batch,
            grace: config.policy.unknown_order_grace,
        },
        clock: Micros::now,
    };
    Ok(Assembled { settings, applied, token_file })
}

async fn open(config: &Config, rules: &Arc<payonce::rules::Rules>) -> Result<Arc<dyn Store>, Failure> {
    let place = &config.database.place;
    let failed = |error: payonce::Error| migrate::failed(place, "opened", &error);
    let books = place.door().open(Arc::clone(rules)).await.map_err(failed)?;
    let doubts = books.doubts().await.map_err(failed)?;
    judge(&doubts, config.database.accept_unsafe_settings)?;
    Ok(books)
}

/// Settings that could make an acknowledgement untrue keep the gateway from starting, unless somebody wrote that
/// they are accepted. Then they are said each time.
fn judge(doubts: &[String], accepted: bool) -> Result<(), Failure> {
    if doubts.is_empty() {
        return Ok(());
    }
    if !accepted {
        let todo = "change the database's settings; or, if losing acknowledged payments is acceptable, write accept_unsafe_settings = true in [database]";
        return Err(Failure::new(format!("the database is not safe enough: {}", doubts.join("; ")), todo));
    }
    for doubt in doubts {
        tracing::warn!(doubt, "accepted by accept_unsafe_settings: what is acknowledged can be lost");
    }
    Ok(())
}

fn accounts(config: &Config) -> Result<Vec<gateway::Account>, Failure> {
    let build = |account: &crate::config::Account| {
        let channel = account.channel().map_err(|error| {
            Failure::new(format!("[accounts.{}]: {}", account.name, error.setting()), error.message())
        })?;
        Ok(gateway::Account { name: account.name.clone(), shop: account.shop.clone(), channel })
    };
    config.accounts.iter().map(build).collect()
}

type Sinks = HashMap<String, Arc<dyn Sink>>;

/// The sinks, and the longest time-out among them.
fn sinks(config: &Config) -> Result<(Sinks, Option<Duration>), Failure> {
    let mut sinks = Sinks::new();
    let mut slowest = None;
    for sink in &config.sinks {
        let built: Arc<dyn Sink> = match &sink.settings {
            SinkSettings::Log => Arc::new(LogSink),
            SinkSettings::Http(http) => {
                slowest = slowest.max(Some(http.timeout));
                let webhook = WebhookSink::new(WebhookConfig {
                    url: http.url.clone(),
                    secrets: http.secrets.iter().map(|secret| secret.expose().to_owned()).collect(),
                    timeout: http.timeout,
                    allow_private: http.allow_private,
                });
                Arc::new(webhook.map_err(|error| {
                    Failure::new(
                        format!("[sinks.{}]: {error}", sink.name),
                        "correct the section; `payonce doctor` says more",
                    )
                })?)
            }
        };
        sinks.insert(sink.name.clone(), built);
    }
    Ok((sinks, slowest))
}

/// No delivery may outlive half its lease, so the slowest sink decides how long a lease is.
fn worker_options(config: &Config, slowest: Option<Duration>) -> WorkerOptions {
    let default = WorkerOptions::default();
    let delivery_timeout = slowest.unwrap_or(default.delivery_timeout).max(default.delivery_timeout);
    // A second for what happens around the request itself.
    let delivery_timeout = delivery_timeout + Duration::from_secs(1);
    let lease = default.lease.max(delivery_timeout * 2);
    WorkerOptions { lease, delivery_timeout, concurrency: config.server.deliveries, ..default }
}

/// The configured token, or that of a file, which is made at the first start: beside the database, or, if that is on
/// a server, beside the configuration.
fn admin_token(config: &Config) -> Result<(Secret, Option<PathBuf>), Failure> {
    if let Some(token) = &config.server.admin_token {
        return Ok((token.clone(), None));
    }
    let path = match config.database.place.as_file() {
        Some(file) => {
            let mut path = file.as_os_str().to_owned();
            path.push(".admin-token");
            PathBuf::from(path)
        }
        None => config.file.with_file_name("payonce.admin-token"),
    };
    let failed = |error: &std::io::Error| {
        let what = format!("the admin token's file {}: {}", path.display(), reason(error));
        Failure::new(what, "make the folder writable, or name a token: admin_token_file = \"…\" in [server]")
    };
    let token: String = random_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    match write_private(&path, &format!("{token}\n")) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&error)),
    }
    let text = zeroize::Zeroizing::new(fs::read_to_string(&path).map_err(|error| failed(&error))?);
    if text.trim().len() < 16 {
        let what = format!("the admin token's file {} is empty or cut off", path.display());
        return Err(Failure::new(what, "remove it, then a new one is made at the next start"));
    }
    Ok((Secret::new(text.trim(), "admin_token_file", Some(path.clone())), Some(path)))
}

fn print_start(config: &Config, running: &Running, applied: &[i64], token_file: Option<&PathBuf>) {
    out::line(format_args!("payonce {} is ready", env!("CARGO_PKG_VERSION")));
    out::line(format_args!("  callbacks    http://{}", running.public));
    out::line(format_args!("  admin        http://{}", running.admin));
    let migrated = if applied.is_empty() { String::new() } else { format!(" (applied {})", migrate::list(applied)) };
    out::line(format_args!("  database     {}{migrated}", config.database.place));
    if let Some(path) = token_file {
        out::line(format_args!("  admin token  in {}", path.display()));
    }
    let base = format!("http://{}", running.public);
    out::line("Notify URLs, to be given to the platforms with each order:");
    for account in &config.accounts {
        let word = account.channel_word();
        out::line(format_args!("  {} ({word})  {}", account.name, config.notify_url(account, &base)));
    }
    if config.server.public_url.is_none() {
        out::line("  (public_url in [server] is not set: the platforms need the address that the world sees)");
    }
}

/// The signals that mean "stop".
#[cfg(unix)]
pub(super) struct Stop(tokio::sync::Mutex<[tokio::signal::unix::Signal; 2]>);

#[cfg(unix)]
impl Stop {
    pub(super) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let on = |kind| signal(kind).map_err(|error| Failure::new(format!("signals: {error}"), "start it again"));
        Ok(Self(tokio::sync::Mutex::new([on(SignalKind::terminate())?, on(SignalKind::interrupt())?])))
    }

    pub(super) async fn asked(&self) {
        let mut signals = self.0.lock().await;
        let [terminate, interrupt] = &mut *signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// The signals that mean "stop".
#[cfg(not(unix))]
pub(super) struct Stop;

#[cfg(not(unix))]
impl Stop {
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(super) async fn asked(&self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same judgement for every engine: SQLite's settings are our own, so there it can be seen nowhere else.
    #[test]
    fn doubtful_settings_are_refused_unless_accepted() {
        let doubts = ["SQLite: synchronous = 1".to_owned(), "another".to_owned()];
        assert!(judge(&[], false).is_ok() && judge(&[], true).is_ok() && judge(&doubts, true).is_ok());
        let Err(Failure::One { what, todo }) = judge(&doubts, false) else { panic!("it was accepted") };
        assert!(what.contains("synchronous = 1; another"), "{what}");
        assert!(todo.contains("accept_unsafe_settings = true"), "{todo}");
    }
}
