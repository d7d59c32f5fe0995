//! `[database]`: where the books are.
//!
//! Here: the URL, given here, in a file or by a variable, and what is wrong with it. It may hold a password, so no
//! message shows any part of it but names that are known. Not here: which engines there are (`database`).

use std::path::PathBuf;

use super::{
    Database, Secret,
    fault::{Report, Show},
    section::{Section, Told},
};
use crate::database::{ENGINES, Engine, Place, engine_of};

/// The embedded database's file unless configured.
const FILE: &str = "payonce.db";

const EXAMPLE: &str = "write url = \"sqlite:payonce.db\", or postgres://USER:PASSWORD@HOST/DATABASE, or mysql://…";

/// Without any setting.
pub(super) fn default(report: &Report) -> Database {
    Database { place: Place::sqlite(report.dir().join(FILE)), accept_unsafe_settings: false }
}

/// Reads the section.
pub(super) fn read(mut section: Section<'_>) -> Database {
    let default = default(section.report);
    let mut urls = section.secrets("url", "url_file");
    if let Some(second) = urls.get(1) {
        section.report.fault(&second.place, Show::Masked, "`url` must be one text, not a list", EXAMPLE);
    }
    urls.truncate(1);
    let place = urls.pop().and_then(|told| place(section.report, &told)).unwrap_or(default.place);
    let accept_unsafe_settings = section.flag("accept_unsafe_settings", default.accept_unsafe_settings);
    section.finish();
    Database { place, accept_unsafe_settings }
}

/// Whatever is wrong with the URL, in a sentence, and what to do.
type Wrong = (String, String);

fn wrong(what: impl Into<String>, todo: impl Into<String>) -> Wrong {
    (what.into(), todo.into())
}

fn place(report: &Report, told: &Told<Secret>) -> Option<Place> {
    let url = told.value.expose();
    let place = match url.split_once(':') {
        None => Err(wrong("a database URL begins with its kind", EXAMPLE)),
        Some((scheme, rest)) => match engine_of(scheme) {
            None => Err(unknown(scheme)),
            Some(engine) if engine.is_file => file(rest).map(|path| Place::sqlite(report.dir().join(path))),
            Some(engine) => shown(engine, url).map(|shown| Place::server(engine, told.value.clone(), shown)),
        },
    };
    let complain = |(what, todo): Wrong| report.fault(&told.place, Show::Masked, format!("`url`: {what}"), todo);
    place.map_err(complain).ok()
}

fn unknown(scheme: &str) -> Wrong {
    const SERVERS: [&str; 4] = ["postgres", "postgresql", "mysql", "mariadb"];
    match SERVERS.iter().find(|server| **server == scheme) {
        Some(server) => {
            let has: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
            let todo = "build payonce with its default features";
            wrong(format!("{server} is not in this build, which has {}", has.join(", ")), todo)
        }
        None => wrong("this kind of database is not known", EXAMPLE),
    }
}

fn file(rest: &str) -> Result<PathBuf, Wrong> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    if rest.contains('?') || rest.contains('#') {
        return Err(wrong(
            "has a query; there is nothing to be set that way",
            "remove it, what is safe is the default",
        ));
    }
    if rest.is_empty() || rest.starts_with(":memory:") {
        return Err(wrong("a database in memory forgets what was acknowledged", "write url = \"sqlite:payonce.db\""));
    }
    Ok(PathBuf::from(rest))
}

/// A server's URL as it may be seen: without parameters and password, nor the user, who may be a password that lost
/// its colon.
fn shown(engine: &Engine, url: &str) -> Result<String, Wrong> {
    let form = format!("write {}://USER:PASSWORD@HOST:PORT/DATABASE", engine.schemes[0]);
    // An `@` behind the host is the end of a password that holds a `/`.
    let parsed = reqwest::Url::parse(url).ok().filter(|parsed| !parsed.path().contains('@'));
    let Some(mut parsed) = parsed else {
        let todo = format!(
            "{form}; in a password, `@`, `:`, `/`, `?`, `#` and `%` are written %40, %3A, %2F, %3F, %23 and %25"
        );
        return Err(wrong("is no URL", todo));
    };
    if parsed.fragment().is_some() {
        return Err(wrong("holds a `#`", "in a password it is written %23"));
    }
    let known = || engine.parameters.join(", ");
    if parsed.query_pairs().any(|(name, _)| !engine.parameters.contains(&name.as_ref())) {
        let what = "has a parameter that is not known or not for here";
        return Err(wrong(what, format!("remove it; known are {}", known())));
    }
    let elsewhere = parsed.query_pairs().any(|(name, _)| matches!(name.as_ref(), "host" | "socket"));
    if parsed.host_str().is_none_or(str::is_empty) && !elsewhere {
        return Err(wrong("names no host", form));
    }
    if parsed.path().trim_matches('/').is_empty() {
        return Err(wrong("names no database", form));
    }
    parsed.set_query(None);
    // A URL without host can have neither.
    let _ = parsed.set_password(None);
    let _ = parsed.set_username("");
    Ok(parsed.to_string())
}
