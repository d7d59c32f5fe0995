//! `[[effects]]` and `[sinks.NAME]`: what a booking owes, and where it goes.
//!
//! Here: reading both. Not here: whether the names in them exist (`checks`), delivering (`sink`).

use std::{net::IpAddr, time::Duration};

use payonce::{
    ids::OrderKind,
    rules::{EffectRule, Event},
    statement::Statement,
};

use super::{
    fault::{Place, Report, Show, quote},
    name_is_good, names_differ,
    secret::Secret,
    section::{Section, Told},
};

/// An effect's rule, with the places that `checks` needs.
pub(super) struct Rule {
    pub(super) rule: EffectRule,
    pub(super) place: Place,
    pub(super) name: Place,
    pub(super) sink: Place,
    pub(super) after: Option<Place>,
}

/// Where effects go.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Its name in `[[effects]]`.
    pub name: String,
    /// What it is.
    pub settings: SinkSettings,
}

/// What a sink is.
#[derive(Clone, Debug)]
pub enum SinkSettings {
    /// `type = "log"`.
    Log,
    /// `type = "http"`.
    Http(HttpSink),
}

/// Signed HTTP deliveries (Standard Webhooks).
#[derive(Clone)]
pub struct HttpSink {
    /// Where to.
    pub url: String,
    /// What they are signed with; several around a change.
    pub secrets: Vec<Secret>,
    /// How long one delivery may take.
    pub timeout: Duration,
    /// Whether the host may be in a private network.
    pub allow_private: bool,
}

impl HttpSink {
    /// The URL without what may be secret in it.
    pub fn shown_url(&self) -> String {
        shown_url(&self.url)
    }
}

impl std::fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSink")
            .field("url", &self.shown_url())
            .field("secrets", &self.secrets)
            .field("timeout", &self.timeout)
            .field("allow_private", &self.allow_private)
            .finish()
    }
}

fn shown_url(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(
        |_| "a URL that cannot be read".to_owned(),
        |url| {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}/…", url.scheme(), url.host_str().unwrap_or_default())
        },
    )
}

/// Reads the effects in their order.
pub(super) fn read(found: Vec<Section<'_>>) -> Vec<Rule> {
    found.into_iter().filter_map(rule).collect()
}

fn rule(mut section: Section<'_>) -> Option<Rule> {
    let report = section.report;
    let events: Vec<(&'static str, Event)> = Event::ALL.iter().map(|event| (event.as_str(), *event)).collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
    let on = section.required("on", &format!("say which event owes it: {}", names.join(", ")));
    let on = on.and_then(|told| section.as_choice("on", &told, &events));
    let name = section.required("name", "give it a name, for example name = \"ship\"; it is part of the effect's key");
    let sink = section.required("sink", "say where it goes: a sink of yours, or sink = \"sql\"");
    let after = section.text("after");
    let mut when = section.section("when");
    let kind = when.text("kind");
    when.finish();
    let when_kind = kind.and_then(|told| {
        let kind = OrderKind::new(told.value.as_str());
        if let Err(error) = &kind {
            report.fault(
                &told.place,
                Show::Masked,
                format!("`when.kind`: {error}"),
                "write the kind of order as it is registered",
            );
        }
        kind.ok()
    });
    let delay = section.duration("delay", Duration::ZERO, "1m", Duration::ZERO..=Duration::from_secs(30 * 86_400));
    let retry = retry(&mut section);
    let statement = statement(&mut section, sink.as_ref());
    let place = section.place.clone();
    section.finish();
    let (on, name, sink) = (on?, name?, sink?);
    if !name_is_good(report, "effect", &name) {
        return None;
    }
    let rule = EffectRule {
        on,
        when_kind,
        name: name.value,
        sink: sink.value,
        after: after.as_ref().map(|told| told.value.clone()),
        delay,
        retry,
        statement,
    };
    Some(Rule { rule, place, name: name.place, sink: sink.place, after: after.map(|told| told.place) })
}

fn retry(section: &mut Section<'_>) -> Vec<Duration> {
    const MOST: usize = 32;
    if !section.was_given("retry") {
        section.texts("retry");
        return EffectRule::RETRY.to_vec();
    }
    let told = section.texts("retry");
    if let Some(more) = told.get(MOST) {
        let what = format!("`retry` has {} waits, at most {MOST} are allowed", told.len());
        section.report.fault(&more.place, Show::Masked, what, "make the waits longer instead");
    }
    told.iter().filter_map(|told| section.as_duration("retry", told, "5m")).collect()
}

fn statement(section: &mut Section<'_>, sink: Option<&Told<String>>) -> Option<Statement> {
    let text = section.text("statement");
    let rows = section.optional_integer("expect_rows", 1, 0..=i64::MAX);
    let is_sql = sink.is_some_and(|sink| sink.value == EffectRule::SQL);
    match (text, sink) {
        (Some(text), _) if is_sql => match Statement::parse(&text.value, rows.map(i64::unsigned_abs)) {
            Ok(statement) => Some(statement),
            Err(error) => {
                let todo = "name values as :order_no, :amount or :meta.sku; they are bound, never spliced";
                section.report.fault(&text.place, Show::Masked, format!("`statement`: {error}"), todo);
                None
            }
        },
        (Some(text), Some(_)) => {
            let todo = "write sink = \"sql\", or remove the statement";
            section.report.fault(&text.place, Show::Masked, "`statement` belongs to sink = \"sql\" only", todo);
            None
        }
        (None, Some(_)) if is_sql && !section.was_given("statement") => {
            section.missing(
                "statement",
                "write what is to be run, for example statement = \"UPDATE stock SET n = n - 1 WHERE sku = :meta.sku\"",
            );
            None
        }
        (None, Some(_)) if rows.is_some() && !is_sql => {
            section.report.fault(
                &section.place,
                Show::Masked,
                "`expect_rows` belongs to sink = \"sql\" only",
                "remove it",
            );
            None
        }
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Log,
}

/// Reads the sinks.
pub(super) fn read_sinks(found: Vec<(Told<String>, Section<'_>)>) -> Vec<Told<Sink>> {
    if let Some((_, section)) = found.first() {
        let names: Vec<(&str, &Place)> = found.iter().map(|(name, _)| (name.value.as_str(), &name.place)).collect();
        names_differ(section.report, "sink", &names);
    }
    found.into_iter().filter_map(|(name, section)| sink(name, section)).collect()
}

fn sink(name: Told<String>, mut section: Section<'_>) -> Option<Told<Sink>> {
    let report = section.report;
    let mut good = name_is_good(report, "sink", &name);
    if name.value == EffectRule::SQL {
        let todo = "rename it; sink = \"sql\" is the statement in payonce's own database and needs no section";
        report.fault(&name.place, Show::Masked, "`sql` cannot be the name of a sink", todo);
        good = false;
    }
    let kind = section.required("type", "write type = \"http\" or type = \"log\"");
    let kind = kind.and_then(|told| section.as_choice("type", &told, &[("http", Kind::Http), ("log", Kind::Log)]))?;
    let settings = match kind {
        Kind::Log => Some(SinkSettings::Log),
        Kind::Http => http(&mut section).map(SinkSettings::Http),
    };
    section.finish();
    let settings = settings.filter(|_| good)?;
    Some(Told { value: Sink { name: name.value, settings }, place: name.place })
}

fn http(section: &mut Section<'_>) -> Option<HttpSink> {
    let report = section.report;
    let url =
        section.required("url", "write where effects are to be sent, for example url = \"http://127.0.0.1:3000/paid\"");
    let before = report.count();
    let mut secrets = section.secrets("secret", "secret_file");
    secrets.extend(section.secret_list("secrets"));
    if secrets.is_empty() && report.count() == before {
        section.missing("secret", "name a file with a secret, so that the receiver can tell who is calling: secret_file = \"secrets/webhook-secret\"; `payonce init` makes one");
    }
    let secrets = secrets.into_iter().filter_map(|told| webhook_secret(report, told)).collect();
    let timeout = section.duration(
        "timeout",
        Duration::from_secs(10),
        "10s",
        Duration::from_millis(100)..=Duration::from_secs(300),
    );
    let allow_private = section.optional_flag("allow_private");
    let url = url.and_then(|told| sink_url(report, told))?;
    let is_private = names_private_host(&url.value);
    if allow_private == Some(false) && is_private {
        let todo = "remove `allow_private`, or name a host that the world can reach";
        report.fault(&url.place, Show::Masked, "`url` names a private host while allow_private = false", todo);
    }
    let (url, allow_private) = (url.value, allow_private.unwrap_or(is_private));
    Some(HttpSink { url: url.to_string(), secrets, timeout, allow_private })
}

fn sink_url(report: &Report, told: Told<String>) -> Option<Told<reqwest::Url>> {
    let fail = |what: String| {
        report.fault(
            &told.place,
            Show::Masked,
            what,
            "write a whole URL, for example url = \"http://127.0.0.1:3000/paid\"",
        );
        None
    };
    let Ok(url) = reqwest::Url::parse(&told.value) else {
        return fail("`url` is no URL".to_owned());
    };
    if !matches!(url.scheme(), "http" | "https") {
        return fail(format!("`url` begins with {}, only http and https are known", quote(url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return fail("`url` holds a user name or password; deliveries are signed instead".to_owned());
    }
    Some(Told { value: url, place: told.place })
}

/// Whether the operator named a host that can only be in a private network: then it is meant.
fn names_private_host(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let only_inside = |end| host.ends_with(end);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => !host.contains('.') || [".local", ".internal", ".localhost", ".lan"].into_iter().any(only_inside),
    }
}

/// Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes.
fn webhook_secret(report: &Report, told: Told<Secret>) -> Option<Secret> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let bytes = told.value.expose().strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
    let good = bytes.map(zeroize::Zeroizing::new).is_some_and(|bytes| (24..=64).contains(&bytes.len()));
    if good {
        return Some(told.value);
    }
    let what = format!("`{}` is no webhook secret", told.value.origin);
    let todo = "write whsec_ and the base64 of 24 to 64 random bytes, for example the output of: echo whsec_$(openssl rand -base64 32)";
    report.fault(&told.place, Show::Masked, what, todo);
    None
}
