//! How the rate changes while the tables grow: the same measurement on databases with a longer and longer past.
//!
//! Here: for each engine all sizes are made first and then alternate round by round, so that a noisy minute hits all
//! of them; each round is a new process on the database that the last one left. Not here: the past itself (`history`),
//! the picture (`curve`).

use std::{fs, path::Path, path::PathBuf};

use serde::Serialize;

use crate::{
    Outcome,
    competitors::Competitor,
    curve::{Curve, Line},
    engines::{Database, Engine},
    history,
    measure::{Bench, Sample, Turn},
    report::{median, thousands, write_between},
    words::Words,
};

/// As they are operated: effects are delivered meanwhile.
pub(crate) const COMPETITORS: [&str; 3] = ["payonce", "payonce-pg", "payonce-mariadb"];

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    conditions: Vec<(String, String)>,
    connections: usize,
    sizes: Vec<usize>,
    rows: Vec<Row>,
}

/// One competitor.
#[derive(Debug, Serialize)]
struct Row {
    competitor: &'static str,
    engine: &'static str,
    /// In the order of the sizes.
    points: Vec<Point>,
}

/// One competitor on one size.
#[derive(Debug, Serialize)]
struct Point {
    facts: usize,
    /// Of the database before the first callback.
    mib: f64,
    rate: f64,
    p99_ms: f64,
    samples: Vec<Sample>,
}

/// A database under way.
struct Grown {
    facts: usize,
    database: Database,
    folder: PathBuf,
    mib: f64,
    /// Facts that are booked, and unique callbacks that are used.
    booked: u64,
    used: usize,
    samples: Vec<Sample>,
}

pub(crate) fn run(bench: &mut Bench, sizes: &[usize]) -> Outcome<Growth> {
    bench.find_servers()?;
    let connections = bench.plan.connections.first().copied().unwrap_or(256);
    let mut rows = Vec::new();
    for competitor in bench.plan.competitors.clone() {
        let mut grown = Vec::new();
        for &facts in sizes {
            // The large ones take long.
            bench.refresh(120.0)?;
            let first = bench.callbacks.take_first();
            grown.push(make(bench, competitor, facts, &first)?);
        }
        bench.refresh(bench.plan.expected() * sizes.len() as f64)?;
        // It is booked already.
        bench.callbacks.take_first();
        for round in 1..=bench.plan.rounds {
            for one in &mut grown {
                let turn = Turn { competitor, connections, round };
                println!("{:>14} {} facts in the tables beforehand:", "", thousands(one.facts as f64));
                let (samples, used) = bench
                    .take(&turn, &one.folder, &one.database, one.booked, one.used)
                    .map_err(|error| format!("{}, {} facts: {error}", turn.title(), one.facts))?;
                one.used = used;
                one.booked = samples.last().map_or(one.booked, |sample| sample.facts.unsigned_abs());
                one.samples.extend(samples);
            }
        }
        for one in &grown {
            if !bench.plan.keep {
                bench.runtime.block_on(bench.servers.drop(&one.database))?;
                fs::remove_dir_all(&one.folder)?;
            }
        }
        let points = grown.into_iter().map(Point::of).collect();
        rows.push(Row { competitor: competitor.name, engine: competitor.engine.name(), points });
    }
    Ok(Growth { conditions: bench.conditions.clone(), connections, sizes: sizes.to_vec(), rows })
}

fn make(bench: &mut Bench, competitor: &Competitor, facts: usize, first: &[u8]) -> Outcome<Grown> {
    let folder = bench.folder.join(format!("{}-{facts}-facts", competitor.name));
    fs::create_dir(&folder)?;
    let begin = std::time::Instant::now();
    let (orders, keys) = (bench.plan.orders, &bench.callbacks.keys);
    let made = bench.runtime.block_on(async {
        let database = bench.servers.create(competitor.engine, &folder.join("database.db")).await?;
        history::prepare(&database, facts, orders, first, &folder, keys).await?;
        let mib = size(&database).await?;
        Outcome::Ok((database, mib))
    });
    let (database, mib) = made.map_err(|error| format!("{}, {facts} facts: {error}", competitor.name))?;
    let took = begin.elapsed().as_secs_f64();
    println!("{:>14} {}: {} facts, {mib:.0} MiB, made in {took:.0} s", "", competitor.name, thousands(facts as f64));
    // The model of the copies is a fact too, also where no past was asked for.
    let booked = facts.max(1) as u64;
    Ok(Grown { facts, database, folder, mib, booked, used: 0, samples: Vec::new() })
}

/// In MiB.
async fn size(database: &Database) -> Outcome<f64> {
    let query = match database.engine {
        Engine::Sqlite => return Ok(fs::metadata(&database.address)?.len() as f64 / f64::from(1 << 20)),
        Engine::Postgres => "SELECT pg_database_size(current_database())",
        Engine::Mariadb => {
            "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = database()"
        }
    };
    let mut connection = database.open().await?;
    let bytes = connection.number(query).await?;
    connection.close().await?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

impl Point {
    fn of(grown: Grown) -> Self {
        let figure = |figure: fn(&Sample) -> f64| median(grown.samples.iter().map(figure).collect());
        Self {
            facts: grown.facts,
            mib: grown.mib,
            rate: figure(|sample| sample.rate),
            p99_ms: figure(|sample| sample.p99_ms),
            samples: grown.samples,
        }
    }
}

impl Growth {
    pub(crate) fn print(&self) {
        println!("\nunique callbacks per second at {} connections, medians of the rounds\n", self.connections);
        for row in &self.rows {
            for point in &row.points {
                let facts = thousands(point.facts as f64);
                let share = share(row, point);
                let (rate, p99, mib) = (thousands(point.rate), point.p99_ms, point.mib);
                println!(
                    "{:<20} {facts:>12} facts  {rate:>8}/s {share:>5.0}%  p99 {p99:>7.2} ms  {mib:>7.0} MiB",
                    row.competitor
                );
            }
        }
        println!();
    }

    /// Rewrites the table of a page in `docs/<language>`, with the picture above it.
    pub(crate) fn write_into(&self, file: &Path, picture: Option<&Path>) -> Outcome<()> {
        let words = Words::of(file);
        let within = picture.and_then(|picture| picture.strip_prefix("docs").ok());
        let shown = within.map(|path| format!("![{}](../{})\n\n", words.curve, path.display()));
        write_between(file, "growth", &(shown.unwrap_or_default() + &self.markdown(words)))
    }

    fn markdown(&self, words: &Words) -> String {
        let mut text = format!("{}\n\n| {} |", words.growth.replace("{}", &self.connections.to_string()), words.facts);
        let mut line = "|---:|".to_owned();
        for row in &self.rows {
            text += &format!(" {} |", row.engine);
            line += "---:|";
        }
        text += &format!("\n{line}");
        for (index, size) in self.sizes.iter().enumerate() {
            text += &format!("\n| {} |", thousands(*size as f64));
            for row in &self.rows {
                let point = &row.points[index];
                let (rate, share) = (thousands(point.rate), share(row, point));
                text += &format!(" {rate} ({share:.0} %) · {:.2} · {} |", point.p99_ms, thousands(point.mib));
            }
        }
        text
    }

    pub(crate) fn picture(&self) -> String {
        let line = |row: &Row| Line {
            name: row.engine.to_owned(),
            values: row.points.iter().map(|point| point.rate).collect(),
        };
        Curve { at: self.sizes.iter().map(|size| short(*size)).collect(), lines: self.rows.iter().map(line).collect() }
            .svg()
    }
}

/// Of the rate on the smallest database, in percent.
fn share(row: &Row, point: &Point) -> f64 {
    let first = row.points.first().map_or(0.0, |first| first.rate);
    if first > 0.0 { point.rate / first * 100.0 } else { 0.0 }
}

/// `100 k`, `1 M`.
fn short(size: usize) -> String {
    match size {
        1_000_000.. => format!("{} M", size as f64 / 1e6),
        1_000.. => format!("{} k", size as f64 / 1e3),
        _ => size.to_string(),
    }
}
