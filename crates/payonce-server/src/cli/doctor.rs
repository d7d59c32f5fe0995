//! `payonce doctor`: looks at everything that callbacks will depend on, before they come.
//!
//! Here: the list of examinations, the table, the exit code. Not here: what is looked at, which is in
//! `doctor/keys` (keys and secrets), `doctor/machine` (clock, disk), `doctor/database`, `doctor/order_table` (the
//! shops' own tables) and `doctor/reach` (addresses, notify URLs, sinks).
//!
//! It changes nothing. No secret is shown; public keys are shown by fingerprint.

mod database;
mod keys;
mod machine;
mod order_table;
mod reach;

use clap::Args;
use comfy_table::{ContentArrangement, Table};
use payonce::time::Micros;
use serde::Serialize;

use super::{
    ConfigFile, block_on,
    out::{self, Failure},
};
use crate::config::{self, Config};

const EXAMPLES: &str = "\
Examples:
  payonce doctor
  payonce doctor --online           also connect to the sinks (nothing is delivered)
  payonce doctor --json | jq '.findings[] | select(.level == \"fault\")'

Exit code 0: no faults (warnings are possible); 1: at least one fault.";

/// Look at configuration, keys, clock, database and addresses, and say what to do about each fault
///
/// Changes nothing and needs no running gateway. Keys are read, measured and compared: the mistakes that
/// people make with the keys of both platforms are recognised where they can be.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Doctor {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Also open connections to the configured sinks; nothing is delivered
    #[arg(long)]
    online: bool,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Fault,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    area: String,
    level: Level,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, area: &str, what: impl Into<String>) {
        self.0.push(Finding { area: area.to_owned(), level: Level::Ok, what: what.into(), todo: None });
    }

    fn warning(&mut self, area: &str, what: impl Into<String>, todo: impl Into<String>) {
        let todo = Some(todo.into());
        self.0.push(Finding { area: area.to_owned(), level: Level::Warning, what: what.into(), todo });
    }

    fn fault(&mut self, area: &str, what: impl Into<String>, todo: impl Into<String>) {
        let todo = Some(todo.into());
        self.0.push(Finding { area: area.to_owned(), level: Level::Fault, what: what.into(), todo });
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}

impl Doctor {
    pub(super) fn run(&self, file: &ConfigFile) -> Result<(), Failure> {
        let findings = block_on(self.examine(file))?;
        if self.json {
            print_json(&findings)?;
        } else {
            print_table(&findings);
        }
        if findings.count(Level::Fault) > 0 { Err(Failure::Told) } else { Ok(()) }
    }

    async fn examine(&self, file: &ConfigFile) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        let loaded = match config::examine(&file.path, file.named) {
            Ok(loaded) => loaded,
            Err(faults) => {
                let faults = faults.0.into_iter();
                faults.for_each(|fault| {
                    findings.fault("configuration", format!("{}: {}", fault.place, fault.what), fault.todo)
                });
                return Ok(findings);
            }
        };
        for fault in &loaded.faults {
            findings.fault("configuration", format!("{}: {}", fault.place, fault.what), fault.todo.clone());
        }
        let config = &loaded.config;
        if loaded.faults.is_empty() {
            findings.ok("configuration", summary(config));
        }
        let now = Micros::now();
        keys::examine(&mut findings, config, now);
        machine::clock(&mut findings, config, now);
        database::examine(&mut findings, config).await;
        order_table::examine(&mut findings, config).await;
        reach::examine(&mut findings, config);
        reach::sinks(&mut findings, config, self.online).await;
        Ok(findings)
    }
}

fn summary(config: &Config) -> String {
    let many = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}: {}, {}, {}, {}",
        config.file.display(),
        many(config.shops.len(), "shop"),
        many(config.accounts.len(), "account"),
        many(config.effects.len(), "effect"),
        many(config.sinks.len(), "sink")
    )
}

fn print_json(findings: &Findings) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Answer<'a> {
        ok: bool,
        faults: usize,
        warnings: usize,
        findings: &'a [Finding],
    }
    let (faults, warnings) = (findings.count(Level::Fault), findings.count(Level::Warning));
    let answer = Answer { ok: faults == 0, faults, warnings, findings: &findings.0 };
    let text = serde_json::to_string_pretty(&answer);
    out::line(text.map_err(|error| Failure::new(error, "leave --json out"))?);
    Ok(())
}

fn print_table(findings: &Findings) {
    /// Wide enough for a fingerprint beside its key, unless the terminal says otherwise.
    const WIDTH: u16 = 110;
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns.unwrap_or(WIDTH).max(60));
    table.set_header(["", "area", "finding"]);
    for finding in &findings.0 {
        let word = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Fault => "FAULT",
        };
        let text = match &finding.todo {
            Some(todo) => format!("{}\nto do: {todo}", finding.what),
            None => finding.what.clone(),
        };
        table.add_row([word, &finding.area, &text]);
    }
    out::line(table);
    let (faults, warnings) = (findings.count(Level::Fault), findings.count(Level::Warning));
    let many = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    out::line(format_args!("{}, {}", many(faults, "fault"), many(warnings, "warning")));
}
