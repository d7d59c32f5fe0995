//! What is asked for, and what follows from it.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::{
    Outcome,
    competitors::{COMPETITORS, Competitor},
    growth,
};

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench                                       everything, about a quarter of an hour
  cargo xtask bench --only payonce-pg-stored,axum-pg,node-pg --connections 256
  cargo xtask bench --only payonce,ceiling --seconds 1 --rounds 1
  cargo xtask bench --smoke                               whether it works; measures nothing
  cargo xtask bench --markdown docs/en/performance.md --markdown docs/zh/performance.md
  cargo xtask bench --growth                              how the rate changes while the tables grow
  cargo xtask bench --growth --picture docs/assets/growth.svg --markdown docs/en/performance.md
  cargo xtask bench --growth 0,1000000,10000000 --only payonce-pg

`cargo xtask bench` installs what the chosen competitors need (npm and PyPI, into target/bench) and starts the servers
(PostgreSQL 18, MariaDB). Each turn has a process and a database of its own, which are dropped afterwards. After each
turn the books are audited: paid orders = distinct facts = flow rows, effects = 2 x facts, or the run fails.

Ratios are taken within a round; on a machine that does other things, only those mean anything. `idle`, `sync` and
`others` of each line say how quiet it was: idle processors and 4 KiB fdatasyncs per second before, and the share
of the processors that went to neither side meanwhile. Servers of the tests that nobody needs cost time too:
`cargo xtask services --stop` ends them, and the benchmark starts its own again.";

/// Callbacks per second through the gateway on SQLite, PostgreSQL and MariaDB, beside what else one could do
///
/// One load program sends pre-signed callbacks to one competitor after the other, round by round, on the same cores.
/// `--list` names them.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask bench", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Length of one measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often everything is measured, alternating between competitors; medians are reported
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections at once, each with one request under way [default: 1,20,256; with --growth 256]
    #[arg(long, value_delimiter = ',')]
    connections: Vec<usize>,
    /// Which callbacks
    #[arg(long, value_delimiter = ',', default_value = "unique,repeated")]
    kinds: Vec<Kind>,
    /// Only these competitors (`--list` names them all)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Orders registered beforehand, at least as many as callbacks
    #[arg(long, default_value_t = 200_000)]
    orders: usize,
    /// How many seconds to wait at most for a quiet machine before each measurement
    #[arg(long, default_value_t = 10)]
    patience: u64,
    /// Everything once with tiny numbers: shows that it works, measures nothing
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Instead: payonce on each database with so many paid orders and booked facts in its tables beforehand, made by
    /// SQL within the engine [default: 0,100000,1000000]
    ///
    /// From 2,000,000 on the rows of the evidence have neither headers nor bodies. For each million and
    /// engine reckon with 5 GB, 3 without bodies, and one to five minutes.
    #[arg(long, value_delimiter = ',', num_args = 0..=1, value_name = "FACTS",
          default_missing_value = "0,100000,1000000")]
    pub(crate) growth: Option<Vec<usize>>,
    /// With --growth: write the curve as SVG
    #[arg(long, value_name = "FILE", requires = "growth")]
    pub(crate) picture: Option<PathBuf>,
    /// Rewrite the table between the markers of this file; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Vec<PathBuf>,
    /// Keep the databases and logs of the run
    #[arg(long)]
    pub(crate) keep: bool,
    /// Name the competitors and end
    #[arg(long)]
    list: bool,
    /// What must be installed and running, one `needs NAME` a line: `cargo xtask bench` asks so.
    #[arg(long, hide = true)]
    pub(crate) needs: bool,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
    /// Be a control instead: how this program starts its children.
    #[arg(long, hide = true)]
    pub(crate) control: Option<String>,
    /// Where the control's files are.
    #[arg(long, hide = true)]
    pub(crate) folder: Option<PathBuf>,
    /// Where the control's database is.
    #[arg(long, hide = true)]
    pub(crate) database: Option<String>,
}

/// Which callbacks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Each of another order.
    Unique,
    /// The same one again and again.
    Repeated,
    /// All that were sent as `unique` once more, so that every one is the repeat of another fact.
    Again,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Repeated => "repeated",
            Self::Again => "again",
        }
    }
}

/// What will be measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) connections: Vec<usize>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) competitors: Vec<&'static Competitor>,
    pub(crate) orders: usize,
    pub(crate) callbacks: usize,
    pub(crate) warm_up: usize,
    pub(crate) patience: u64,
    /// How long the machine is looked at before each measurement.
    pub(crate) look: Duration,
    pub(crate) keep: bool,
}

/// More than any competitor takes on this sort of machine; one that runs out of callbacks stops early, and
/// its rate is still right.
const CALLBACKS_PER_SECOND: f64 = 40_000.0;

/// The same for `--growth`.
const GROWTH_PER_SECOND: f64 = 30_000.0;

impl Args {
    pub(crate) fn plan(&self) -> Outcome<Plan> {
        if self.list {
            for competitor in &COMPETITORS {
                let mark = if competitor.by_default { "" } else { "  (only if asked for)" };
                println!("{:<16} {}{mark}", competitor.name, competitor.what);
            }
            std::process::exit(0);
        }
        let unknown = self.only.iter().find(|name| COMPETITORS.iter().all(|have| have.name != name.as_str()));
        if let Some(name) = unknown {
            return Err(format!("there is no competitor {name}; `--list` names them all").into());
        }
        let chosen = |competitor: &&'static Competitor| match (self.only.is_empty(), &self.growth) {
            (true, Some(_)) => growth::COMPETITORS.contains(&competitor.name),
            (true, None) => competitor.by_default || self.smoke,
            (false, _) => self.only.iter().any(|name| name == competitor.name),
        };
        let competitors: Vec<_> = COMPETITORS.iter().filter(chosen).collect();
        if self.growth.is_some() && competitors.iter().any(|competitor| !competitor.is_payonce()) {
            return Err("--growth measures payonce only".into());
        }
        let mut kinds = if self.growth.is_some() { vec![Kind::Unique] } else { self.kinds.clone() };
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.contains(&Kind::Again) && !kinds.contains(&Kind::Unique) {
            return Err("`again` repeats what `unique` sent: ask for both".into());
        }
        let rounds = self.rounds.max(1);
        let (connections, callbacks): (&[usize], f64) = match self.growth {
            // The rounds use the same database.
            Some(_) => (&[256], GROWTH_PER_SECOND * rounds as f64),
            None => (&[1, 20, 256], CALLBACKS_PER_SECOND),
        };
        let callbacks = ((self.seconds * callbacks) as usize).max(2_000 * rounds);
        let plan = Plan {
            seconds: self.seconds,
            rounds,
            connections: if self.connections.is_empty() { connections.into() } else { self.connections.clone() },
            kinds,
            competitors,
            orders: self.orders.max(callbacks),
            callbacks,
            warm_up: 500,
            patience: self.patience,
            look: Duration::from_millis(250),
            keep: self.keep,
        };
        Ok(if self.smoke { plan.tiny() } else { plan })
    }
}

impl Plan {
    /// Everything of it, and nothing for long.
    fn tiny(self) -> Self {
        Self {
            seconds: 0.2,
            rounds: 1,
            connections: vec![1, 8],
            orders: 2_000,
            callbacks: 1_500,
            warm_up: 20,
            patience: 0,
            look: Duration::from_millis(20),
            ..self
        }
    }

    /// Services and packages that the competitors need.
    pub(crate) fn needs(&self) -> BTreeSet<&'static str> {
        self.competitors.iter().flat_map(|competitor| competitor.needs()).collect()
    }

    /// How many seconds the run may take; generous, because signatures have to be valid until its end.
    pub(crate) fn expected(&self) -> f64 {
        let starts = (self.rounds * self.connections.len() * self.competitors.len()) as f64;
        starts * (4.0 + self.kinds.len() as f64 * (self.seconds * 3.0 + self.patience as f64 / 3.0))
    }
}
