//! The main job, played: both platforms against a running gateway, and then everything is counted.
//!
//! Here: the order of the scenes. `stage` is what they need (folder, keys, receiver), `play` carries callbacks,
//! `race` reruns the well-known race, `books` counts in the database, `report` holds the figures and what they
//! must be, `words` says it in two languages. Not here: starting the gateway, printing (`cli::demo`).
//!
//! The platforms and the receiver are payonce-sim's, which shares no code with the gateway. What is counted is
//! counted outside of the gateway: in the answers, in the receiver, in the database by a connection of its own.

pub(crate) mod books;
mod odd;
mod play;
mod race;
pub(crate) mod report;
pub(crate) mod stage;
pub(crate) mod words;

use std::{error::Error, time::Instant};

use crate::gateway::Running;
use books::Books;
use report::Report;
use stage::{Client, Stage};

/// Whatever keeps the demo from being played: no room on the disk, no port. A wrong figure is none.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Deliveries of each callback.
    pub(crate) times: usize,
    /// So many of them at once.
    pub(crate) concurrency: usize,
    /// Of every random choice.
    pub(crate) seed: u64,
}

/// The parts of the play, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// One callback, again and again.
    Repeats,
    /// Callbacks that are wrong.
    Odd,
    /// Callback and query answer at once.
    Meetings,
    /// The race without payonce.
    Race,
    /// Waiting for the last deliveries, and counting.
    Counting,
}

/// Who is told how far it has come.
pub(crate) type Watch<'a> = dyn Fn(Scene, u64) + Sync + 'a;

/// How many steps [`Watch`] will hear of.
pub(crate) fn steps(options: &Options) -> u64 {
    (2 * options.times + odd::CASES.len() + play::MEETINGS + race::ROUNDS * 2 * race::AT_ONCE.len() + 1) as u64
}

/// Plays everything against a gateway that was started on the stage.
pub(crate) async fn play(stage: &Stage, running: &Running, options: &Options, watch: &Watch<'_>) -> Result<Report> {
    let started = Instant::now();
    let client = Client::new(running, stage)?;
    let mut books = Books::open(&stage.database()).await?;
    let mut repeats = Vec::new();
    for platform in stage::PLATFORMS {
        repeats.push(play::repeats(stage, &client, options, platform, watch).await?);
    }
    let odd = odd::all(stage, &client, watch).await?;
    let meetings = play::meetings(stage, &client, options, watch).await?;
    let races = race::run(&stage.race_database(), watch).await?;
    watch(Scene::Counting, 0);
    play::settle(stage, &mut books).await?;
    let mut report = Report {
        seed: options.seed,
        times: options.times,
        concurrency: options.concurrency,
        repeats,
        odd,
        meetings,
        races,
        webhooks: play::webhooks(stage, &mut books).await?,
        facts: 0,
        audit: Vec::new(),
        seconds: 0.0,
    };
    play::count(stage, &mut books, &mut report).await?;
    report.seconds = started.elapsed().as_secs_f64();
    watch(Scene::Counting, 1);
    Ok(report)
}
