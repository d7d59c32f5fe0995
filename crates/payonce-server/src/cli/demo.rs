//! `payonce demo`: the main job, shown on this machine in a few seconds.
//!
//! Here: arguments, the progress bar, starting the gateway like `serve` does, the exit code. Not here: what is played
//! and counted (`crate::demo`).

use std::{fs::File, sync::Mutex, time::Duration};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;
use zeroize::Zeroizing;

use super::{
    block_on,
    out::{self, Failure},
    serve::{self, Stop},
};
use crate::{
    config::{self, Config, Faults},
    demo::{self, Options, Scene, books, report::Report, stage::Stage, words::Lang},
    gateway::{self, Running},
};

const EXAMPLES: &str = "\
Examples:
  payonce demo
  payonce demo --lang zh
  payonce demo --times 1000 --concurrency 50 --seed 7
  payonce demo --keep               and look into the database afterwards
  payonce demo --serve              and talk to the gateway with curl
  payonce demo --json | jq .holds

Exit code 0: every figure is what it must be; 1: it is said which is not.";

/// Play WeChat Pay and Alipay against a gateway, and count what comes of it
///
/// Needs nothing: a gateway is started on free local ports with SQLite in a temporary folder and keys made just now.
/// Both platforms are played over real HTTP with real signatures: one callback a hundred times, forged and early ones,
/// callback and query answer at once. Then everything is counted, in the database, the stock table and a webhook.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Demo {
    /// Deliveries of each callback
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    times: u32,
    /// How many of them at once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    concurrency: u32,
    /// Repeat a run's random choices [default: a new one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The language of the texts [default: by LC_ALL, LC_MESSAGES, LANG]
    #[arg(long, value_enum)]
    lang: Option<Lang>,
    /// Keep the folder with database, configuration, keys and log
    #[arg(long)]
    keep: bool,
    /// Stay up afterwards, and say how to talk to the gateway; the folder is kept
    #[arg(long)]
    serve: bool,
    /// Print the figures as JSON instead
    #[arg(long, conflicts_with = "serve")]
    json: bool,
}

impl Demo {
    pub(super) fn run(&self) -> Result<(), Failure> {
        block_on(async {
            let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
            tokio::select! {
                done = self.play() => done,
                _ = &mut stop, if !self.serve => {
                    Err(Failure::new("stopped by Ctrl-C", "start it again; its folder is removed unless --keep was given"))
                }
            }
        })
    }

    async fn play(&self) -> Result<(), Failure> {
        let lang = self.lang.unwrap_or_else(Lang::of_environment);
        let seed = self.seed.unwrap_or_else(|| u64::from(rand::random::<u16>()));
        let options = Options { times: self.times as usize, concurrency: self.concurrency as usize, seed };
        if !self.json {
            out::line(lang.intro(&options));
        }
        let mut stage = Stage::set().await.map_err(hindered)?;
        if self.keep || self.serve {
            stage.keep();
        }
        let running = start(&stage).await?;
        let report = watched(&stage, &running, &options, lang).await.map_err(hindered)?;
        let (_, wrong) = report.wrong();
        let kept = self.keep || self.serve || !wrong.is_empty();
        if kept {
            stage.keep();
        }
        if self.json {
            let mut json = report.json();
            json["database"] = if kept { stage.database().display().to_string().into() } else { None::<&str>.into() };
            out::line(format_args!("{json:#}"));
        } else {
            out::line(lang.results(&report));
            out::line(lang.verdict(&report));
            out::line(lang.where_it_lies(&stage.database(), kept));
        }
        if self.serve {
            let stop = Stop::listen()?;
            let (public, admin) = (running.public.to_string(), running.admin.to_string());
            out::line(format_args!("\n{}", lang.serving(&public, &admin, &stage.token)));
            stop.asked().await;
        }
        if let Err(late) = running.shutdown().await {
            tracing::warn!(%late, "the demo's gateway");
        }
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Told) }
    }
}

/// A gateway from the configuration on the stage, put together as `serve` does it.
async fn start(stage: &Stage) -> Result<Running, Failure> {
    let config = configuration(stage)?;
    log_to(stage)?;
    let assembled = serve::assemble(&config).await?;
    books::make_stock(&stage.database()).await.map_err(hindered)?;
    gateway::start(assembled.settings).await.map_err(|error| hindered(error.into()))
}

/// Read as any configuration is, but not mixed with variables that are meant for somebody else's.
fn configuration(stage: &Stage) -> Result<Config, Failure> {
    let path = stage.config_file();
    let text = std::fs::read_to_string(&path).map_err(|error| hindered(error.into()))?;
    let loaded = config::read(&path, Zeroizing::new(text), &[]);
    if loaded.faults.is_empty() { Ok(loaded.config) } else { Err(Faults(loaded.faults).into()) }
}

/// The gateway's log lines, in a file beside its database.
fn log_to(stage: &Stage) -> Result<(), Failure> {
    let file = File::create(stage.log_file()).map_err(|error| hindered(error.into()))?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Mutex::new(file));
    lines.try_init().map_err(hindered)
}

/// Plays, with a progress bar where somebody can see it.
async fn watched(stage: &Stage, running: &Running, options: &Options, lang: Lang) -> demo::Result<Report> {
    let bar = ProgressBar::new(demo::steps(options));
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos:>5}/{len} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let watch = |scene: Scene, by: u64| {
        bar.set_message(lang.scene(scene));
        bar.inc(by);
    };
    let report = demo::play(stage, running, options, &watch).await;
    bar.finish_and_clear();
    report
}

/// Not a wrong figure: it could not be played.
fn hindered(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    let todo = "look at the temporary folder (TMPDIR), the disk, and the limit of open files (ulimit -n)";
    Failure::new(format!("the demo could not be played: {error}"), todo)
}
