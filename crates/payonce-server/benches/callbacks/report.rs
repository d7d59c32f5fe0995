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
    competitors::COMPETITORS,
    measure::Sample,
    words::Words,
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
    cpu_us: f64,
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

fn median(mut values: Vec<f64>) -> f64 {
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
    pub(crate) fn of(conditions: Vec<(String, String)>, plan: &Plan, samples: Vec<Sample>) -> Self {
        let mut rows = Vec::new();
        for competitor in &plan.competitors {
            for &kind in &plan.kinds {
                let of = |sample: &&Sample| sample.competitor == competitor.name && sample.kind == kind;
                rows.extend(Row::of(competitor.name, kind, &samples.iter().filter(of).collect::<Vec<_>>()));
            }
        }
        let ratios = ratios(plan, &samples);
        Self { conditions, connections: plan.connections.clone(), rows, ratios, samples }
    }

    pub(crate) fn print(&self) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut head = vec!["".to_owned(), "callbacks".to_owned()];
        for connections in &self.connections {
            head.extend([format!("{connections} conn /s"), "p50 ms".into(), "p99 ms".into(), "cpu us".into()]);
        }
        head.extend(["effects/s".into(), "peak MiB".into(), "failed".into()]);
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
                        format!("{:.1}", cell.cpu_us),
                    ]),
                    None => line.extend(std::iter::repeat_n("-".to_owned(), 4)),
                }
            }
            line.push(row.effects_per_second.map_or("-".into(), thousands));
            line.push(format!("{:.0}", row.peak_rss_mib));
            let doubles = row.double_shipments.map_or(String::new(), |count| format!(", {count} shipped twice"));
            line.push(format!("{}{doubles}", row.failed));
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

    /// Rewrites what stands between the two markers of a file.
    pub(crate) fn write_into(&self, file: &Path) -> Outcome<()> {
        const OPEN: &str = "<!-- callbacks: written by the benchmark -->\n";
        const CLOSE: &str = "<!-- callbacks: end -->";
        let text = fs::read_to_string(file)?;
        let parts = text.split_once(OPEN).and_then(|(before, rest)| Some((before, rest.split_once(CLOSE)?.1)));
        let (before, after) = parts.ok_or_else(|| {
            format!("{} has no place for a table: a line `{}` and after it `{CLOSE}`", file.display(), OPEN.trim())
        })?;
        fs::write(file, format!("{before}{OPEN}\n{}\n{CLOSE}{after}", self.markdown(Words::of(file))))?;
        Ok(())
    }

    fn markdown(&self, words: &Words) -> String {
        let mut text = format!("{}\n\n| {} | {} |", words.cell, words.who, words.what);
        for connections in &self.connections {
            text += &format!(" {connections} {} |", words.connections);
        }
        text += &format!(" {} | {} |\n|---|---|", words.effects, words.memory);
        text += &"---:|".repeat(self.connections.len() + 2);
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
            text +=
                &format!(" {} | {:.0} |", row.effects_per_second.map_or("–".to_owned(), thousands), row.peak_rss_mib);
        }
        text += &format!("\n\n| {} | {} | {} |\n|---|---:|---:|\n", words.ratio, words.value, words.aim);
        for ratio in &self.ratios {
            let aim = ratio.aim.map_or("–".to_owned(), Aim::text);
            text +=
                &format!("| {} | {:.2} ({:.2}–{:.2}) | {aim} |\n", ratio.name, ratio.value, ratio.least, ratio.most);
        }
        text += &format!("\n{}\n\n", words.conditions);
        for (name, what) in &self.conditions {
            let chinese = COMPETITORS.iter().find(|competitor| words.is_chinese && competitor.name == name);
            text += &format!("- {name}: {}\n", chinese.map_or(what.as_str(), |competitor| competitor.what_zh));
        }
        text
    }
}

impl Row {
    fn of(competitor: &'static str, kind: Kind, samples: &[&Sample]) -> Option<Self> {
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
            competitor,
            kind,
            cells,
            // The repeats owe next to none.
            effects_per_second: (kind == Kind::Unique && !effects.is_empty()).then(|| median(effects)),
            peak_rss_mib: most(&samples.iter().map(|sample| sample.peak_rss_mib).collect::<Vec<_>>()),
            failed: samples.iter().map(|sample| answered(sample) + sample.errors).sum(),
            double_shipments: samples.iter().filter_map(|sample| sample.double_shipments).max(),
        })
    }
}

fn thousands(value: f64) -> String {
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
    let ours = plan.competitors.iter().map(|competitor| competitor.name).filter(|name| name.starts_with("payonce"));
    let noun = |connections: usize| {
        if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
    };
    for one in ours {
        for &connections in &plan.connections {
            let at_full = |aim: f64| (connections == 256).then_some(Aim::AtLeast(aim));
            for (kind, other, aim) in [
                (Kind::Unique, "ceiling", at_full(0.4)),
                (Kind::Unique, "naive", at_full(10.0)),
                (Kind::Repeated, "ceiling", at_full(0.8)),
                (Kind::Repeated, "naive", None),
                (Kind::Again, "ceiling", None),
            ] {
                add(format!("{one} / {other}, {}, {}", kind.word(), noun(connections)), aim, &|round| {
                    let (ours, theirs) = (find(one, kind, connections, round)?, find(other, kind, connections, round)?);
                    (theirs.rate > 0.0).then(|| ours.rate / theirs.rate)
                });
            }
            let aim = (connections == 20).then_some(Aim::Below(2.0));
            add(format!("{one} p99 / naive p50, unique, {}", noun(connections)), aim, &|round| {
                let ours = find(one, Kind::Unique, connections, round)?;
                let theirs = find("naive", Kind::Unique, connections, round)?;
                (theirs.p50_ms > 0.0).then(|| ours.p99_ms / theirs.p50_ms)
            });
        }
    }
    ratios
}
