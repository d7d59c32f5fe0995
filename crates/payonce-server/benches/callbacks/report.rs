//! What the samples come to: medians, ratios, and the same as a table, as JSON and as Markdown.
//!
//! Here: a ratio is taken within a round, where both sides had the same minute, and then the median of the
//! rounds. The aims are printed beside; on a noisy machine they mean nothing, so missing one is no failure.

use std::{collections::BTreeMap, fs, path::Path};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    Outcome,
    args::{Kind, Plan},
    competitors::{self, Competitor, Effects},
    engines::Engine,
    measure::Sample,
    words::{self, Words},
};

/// Everything, as it is written to `report.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    conditions: Vec<(String, String)>,
    connections: Vec<usize>,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    samples: Vec<Sample>,
}

/// One competitor with one kind of callbacks.
#[derive(Debug, Serialize)]
struct Row {
    competitor: &'static str,
    kind: Kind,
    /// By number of connections.
    cells: BTreeMap<usize, Cell>,
    effects_per_second: Option<f64>,
    effects: &'static str,
    peak_rss_mib: f64,
    failed: u64,
    double_shipments: Option<i64>,
}

/// Medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    rate: f64,
    least: f64,
    most: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Processor time per callback: of the competitor's processes, and of the database server's.
    cpu_us: f64,
    server_cpu_us: Option<f64>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
struct Ratio {
    name: String,
    value: f64,
    least: f64,
    most: f64,
    aim: Option<Aim>,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Aim {
    AtLeast(f64),
    Below(f64),
}

impl Aim {
    fn text(self) -> String {
        match self {
            Self::AtLeast(value) => format!("≥ {value}"),
            Self::Below(value) => format!("< {value}"),
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::Below(most) => value < most,
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

impl Report {
    pub(crate) fn of(conditions: &[(String, String)], plan: &Plan, samples: Vec<Sample>) -> Self {
        let mut rows = Vec::new();
        for competitor in &plan.competitors {
            for &kind in &plan.kinds {
                let of = |sample: &&Sample| sample.competitor == competitor.name && sample.kind == kind;
                rows.extend(Row::of(competitor, kind, &samples.iter().filter(of).collect::<Vec<_>>()));
            }
        }
        let ratios = ratios(plan, &samples);
        Self { conditions: conditions.to_vec(), connections: plan.connections.clone(), rows, ratios, samples }
    }

    pub(crate) fn print(&self) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut head = vec!["".to_owned(), "callbacks".to_owned()];
        for connections in &self.connections {
            head.extend([format!("{connections} conn /s"), "p50 ms".into(), "p99 ms".into(), "cpu+server us".into()]);
        }
        head.extend(["effects".into(), "peak MiB".into(), "failed".into()]);
        let columns = head.len();
        table.set_header(head);
        for row in &self.rows {
            let mut line = vec![row.competitor.to_owned(), row.kind.word().to_owned()];
            for connections in &self.connections {
                match row.cells.get(connections) {
                    Some(cell) => line.extend([
                        thousands(cell.rate),
                        format!("{:.2}", cell.p50_ms),
                        format!("{:.2}", cell.p99_ms),
                        cell.cpu(),
                    ]),
                    None => line.extend(std::iter::repeat_n("-".to_owned(), 4)),
                }
            }
            line.push(row.effects(&words::ENGLISH));
            line.push(format!("{:.0}", row.peak_rss_mib));
            line.push(row.failed.to_string());
            table.add_row(line);
        }
        for index in 2..columns {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("\nmedians of the rounds\n{table}\n");
        for ratio in &self.ratios {
            let aim = ratio.aim.map_or(String::new(), |aim| {
                let word = if aim.is_met(ratio.value) { "reached" } else { "missed" };
                format!("  aim {} {word}", aim.text())
            });
            println!("{:<62} {:>6.2}  ({:.2} to {:.2}){aim}", ratio.name, ratio.value, ratio.least, ratio.most);
        }
    }

    /// Nothing measured is a failure; a ratio is not.
    pub(crate) fn verdict(&self) -> Outcome<()> {
        match self.samples.iter().find(|sample| sample.rate <= 0.0) {
            Some(sample) => Err(format!("{}: nothing was acknowledged", sample.competitor).into()),
            None => Ok(()),
        }
    }

    /// Rewrites the table of a page.
    pub(crate) fn write_into(&self, file: &Path) -> Outcome<()> {
        write_between(file, "callbacks", &self.markdown(Words::of(file)))
    }

    fn markdown(&self, words: &Words) -> String {
        let most = self.connections.iter().max().copied().unwrap_or_default();
        let mut text = format!("{}\n\n| {} | {} |", words.cell, words.who, words.what);
        for connections in &self.connections {
            text += &format!(" {connections} {} |", words.connections);
        }
        text += &format!(
            " {} | {} | {} |\n|---|---|",
            words.cpu.replace("{}", &most.to_string()),
            words.effects,
            words.memory
        );
        text += &"---:|".repeat(self.connections.len() + 3);
        for row in &self.rows {
            let kind = match row.kind {
                Kind::Unique => words.unique,
                Kind::Repeated => words.repeated,
                Kind::Again => words.again,
            };
            text += &format!("\n| `{}` | {kind} |", row.competitor);
            for connections in &self.connections {
                text += &row.cells.get(connections).map_or(" – |".to_owned(), |cell| {
                    format!(" {} · {:.2} / {:.2} |", thousands(cell.rate), cell.p50_ms, cell.p99_ms)
                });
            }
            let cpu = row.cells.get(&most).map_or("–".to_owned(), Cell::cpu);
            text += &format!(" {cpu} | {} | {:.0} |", row.effects(words), row.peak_rss_mib);
        }
        text += &format!("\n\n| {} | {} | {} |\n|---|---:|---:|\n", words.ratio, words.value, words.aim);
        // Those without an aim are printed, and in the report's file; here they would bury the others.
        for ratio in self.ratios.iter() {
            let Some(aim) = ratio.aim else { continue };
            let word = if aim.is_met(ratio.value) { words.reached } else { words.missed };
            let (name, aim) = (&ratio.name, aim.text());
            text +=
                &format!("| {name} | {:.2} ({:.2}–{:.2}) | {aim}, {word} |\n", ratio.value, ratio.least, ratio.most);
        }
        text += &format!("\n{}\n\n", words.conditions);
        for (name, what) in &self.conditions {
            let chinese = competitors::find(name).filter(|_| words.is_chinese);
            text += &format!("- {name}: {}\n", chinese.map_or(what.as_str(), |competitor| competitor.what_zh));
        }
        text
    }
}

/// Rewrites what stands between the two markers of this name in a file.
pub(crate) fn write_between(file: &Path, name: &str, table: &str) -> Outcome<()> {
    let (open, close) = (format!("<!-- {name}: written by the benchmark -->\n"), format!("<!-- {name}: end -->"));
    let text = fs::read_to_string(file)?;
    let parts = text.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) = parts.ok_or_else(|| {
        format!("{} has no place for a table: a line `{}` and after it `{close}`", file.display(), open.trim())
    })?;
    fs::write(file, format!("{before}{open}\n{}\n\n{close}{after}", table.trim_end()))?;
    Ok(())
}

impl Cell {
    /// `24.1`, or `24.1 + 260.3` with a database server.
    fn cpu(&self) -> String {
        let own = format!("{:.0}", self.cpu_us);
        self.server_cpu_us.map_or(own.clone(), |server| format!("{own} + {server:.0}"))
    }
}

impl Row {
    fn of(competitor: &Competitor, kind: Kind, samples: &[&Sample]) -> Option<Self> {
        let mut cells = BTreeMap::new();
        for connections in samples.iter().map(|sample| sample.connections) {
            let those: Vec<&&Sample> = samples.iter().filter(|sample| sample.connections == connections).collect();
            let all = |figure: fn(&Sample) -> f64| those.iter().map(|sample| figure(sample)).collect::<Vec<_>>();
            let rates = all(|sample| sample.rate);
            let cell = Cell {
                least: least(&rates),
                most: most(&rates),
                rate: median(rates),
                p50_ms: median(all(|sample| sample.p50_ms)),
                p99_ms: median(all(|sample| sample.p99_ms)),
                cpu_us: median(all(|sample| sample.cpu_us)),
                server_cpu_us: samples[0]
                    .server_cpu_us
                    .map(|_| median(all(|sample| sample.server_cpu_us.unwrap_or(0.0)))),
            };
            cells.insert(connections, cell);
        }
        if cells.is_empty() {
            return None;
        }
        let effects: Vec<f64> = samples.iter().filter_map(|sample| Some(sample.effects?.1)).collect();
        let answered = |sample: &&Sample| {
            sample.statuses.iter().filter(|(status, _)| **status != 204).map(|(_, n)| n).sum::<u64>()
        };
        Some(Self {
            competitor: competitor.name,
            kind,
            cells,
            effects: match competitor.effects {
                Effects::None => "none",
                Effects::Stored => "stored",
                Effects::Delivered => "executed",
            },
            // The repeats owe next to none.
            effects_per_second: (kind == Kind::Unique && !effects.is_empty()).then(|| median(effects)),
            peak_rss_mib: most(&samples.iter().map(|sample| sample.peak_rss_mib).collect::<Vec<_>>()),
            failed: samples.iter().map(|sample| answered(sample) + sample.errors).sum(),
            double_shipments: samples.iter().filter_map(|sample| sample.double_shipments).max(),
        })
    }

    /// What becomes of its effects; that goods were shipped twice where they were.
    fn effects(&self, words: &Words) -> String {
        match (self.effects, self.double_shipments, self.effects_per_second) {
            (_, Some(count), _) if self.kind == Kind::Repeated => words.shipped_twice.replace("{}", &count.to_string()),
            (_, _, Some(rate)) => words.executed.replace("{}", &thousands(rate)),
            ("stored", ..) if self.kind == Kind::Unique => words.stored.to_owned(),
            _ => "–".to_owned(),
        }
    }
}

pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What each of ours is compared with, by its engine.
const fn rivals(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Sqlite => &["ceiling", "naive"],
        Engine::Postgres => &["ceiling", "axum-pg", "node-pg", "fastapi", "node-graphile-worker"],
        Engine::Mariadb => &["ceiling", "axum-mariadb"],
    }
}

/// What the rate of ours should be, as a multiple of the other's.
fn aim(engine: Engine, other: &str, kind: Kind, connections: usize) -> Option<Aim> {
    let least = match (engine, other, kind, connections) {
        (_, "ceiling", Kind::Repeated, 256) => 0.8,
        (Engine::Sqlite, "ceiling", Kind::Unique, 256) => 0.4,
        (Engine::Sqlite, "naive", Kind::Unique, 256) => 10.0,
        (Engine::Postgres, "node-pg", Kind::Unique, 256) => 9.0,
        (Engine::Postgres, "node-pg", Kind::Unique, 20) => 4.0,
        (Engine::Postgres, "axum-pg", Kind::Unique, 256) => 5.0,
        (Engine::Postgres, "axum-pg", Kind::Unique, 20) => 2.0,
        (Engine::Postgres, "axum-pg", Kind::Unique, 1) => 0.7,
        (Engine::Mariadb, "axum-mariadb", Kind::Unique, 256) => 3.0,
        _ => return None,
    };
    Some(Aim::AtLeast(least))
}

/// The ratios that were asked for, as far as both sides were measured.
fn ratios(plan: &Plan, samples: &[Sample]) -> Vec<Ratio> {
    let find = |name: &str, kind: Kind, connections: usize, round: usize| {
        samples.iter().find(|sample| {
            sample.competitor == name
                && sample.kind == kind
                && sample.connections == connections
                && sample.round == round
        })
    };
    let mut ratios = Vec::new();
    let mut add = |name: String, aim: Option<Aim>, of: &dyn Fn(usize) -> Option<f64>| {
        let values: Vec<f64> = (1..=plan.rounds).filter_map(of).collect();
        if !values.is_empty() {
            ratios.push(Ratio { name, least: least(&values), most: most(&values), value: median(values), aim });
        }
    };
    let noun = |connections: usize| {
        if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
    };
    for ours in plan.competitors.iter().filter(|competitor| competitor.is_payonce()) {
        for &connections in &plan.connections {
            for (&kind, other) in
                plan.kinds.iter().flat_map(|kind| rivals(ours.engine).iter().map(move |other| (kind, *other)))
            {
                let name = format!("{} / {other}, {}, {}", ours.name, kind.word(), noun(connections));
                add(name, aim(ours.engine, other, kind, connections), &|round| {
                    let ours = find(ours.name, kind, connections, round)?;
                    let theirs = find(other, kind, connections, round)?;
                    (theirs.rate > 0.0).then(|| ours.rate / theirs.rate)
                });
            }
            let below = (connections == 20).then_some(Aim::Below(2.0)).filter(|_| ours.engine == Engine::Sqlite);
            for &other in rivals(ours.engine).iter().filter(|other| other.starts_with("axum") || **other == "naive") {
                add(format!("{} p99 / {other} p50, unique, {}", ours.name, noun(connections)), below, &|round| {
                    let ours = find(ours.name, Kind::Unique, connections, round)?;
                    let theirs = find(other, Kind::Unique, connections, round)?;
                    (theirs.p50_ms > 0.0).then(|| ours.p99_ms / theirs.p50_ms)
                });
            }
        }
    }
    ratios
}
