//! Addresses: who can reach us, and whom we can reach.
//!
//! Here: the listeners, the notify URLs, and whether sinks take a connection. Not here: delivering, or
//! judging addresses (`crate::sink`).

use std::{net::IpAddr, time::Duration};

use reqwest::Url;

use super::Findings;
use crate::{
    config::{Config, HttpSink, SinkSettings},
    sink::is_private,
};

/// Alipay's limit for a notify URL (facts/alipay.md, 5.4).
const NOTIFY_URL_MAX: usize = 256;

pub(super) fn examine(findings: &mut Findings, config: &Config) {
    if !config.server.admin.ip().is_loopback() {
        findings.warning(
            "server",
            format!("the admin address {} can be reached from other machines", config.server.admin),
            "keep the world away from it (firewall, private network), or write admin = \"127.0.0.1:8081\"",
        );
    }
    notify_urls(findings, config);
    if config.effects.is_empty() {
        findings.warning(
            "effects",
            "none: payments are booked, and nobody is told",
            "write [[effects]] with on = \"order.paid\", or ask the admin API for orders",
        );
    }
}

fn notify_urls(findings: &mut Findings, config: &Config) {
    const AREA: &str = "notify URLs";
    let Some(text) = &config.server.public_url else {
        findings.warning(
            AREA,
            "public_url in [server] is not set, so the notify URLs for the platforms are not known",
            "write how the world reaches the public address: public_url = \"https://pay.example.com\"",
        );
        return;
    };
    let Ok(url) = Url::parse(text) else { return };
    if let Some(why) = unreachable(&url) {
        findings.fault(
            AREA,
            format!("public_url names {why}: the platforms cannot reach it"),
            "write a public name, or that of your tunnel",
        );
        return;
    }
    if url.scheme() != "https" {
        findings.warning(
            AREA,
            "public_url begins with http://: many WeChat products accept https only",
            "put TLS with a certificate of a public authority in front of it, and write https://",
        );
    }
    if url.port().is_some() {
        findings.warning(
            AREA,
            "public_url has a port of its own: whether the platforms call ports other than 443 and 80 is not documented",
            "use the usual port",
        );
    }
    for account in &config.accounts {
        let url = config.notify_url(account, text);
        if url.len() > NOTIFY_URL_MAX {
            let what = format!(
                "the one of account {} has {} characters, at most {NOTIFY_URL_MAX} are allowed",
                account.name,
                url.len()
            );
            findings.fault(AREA, what, "shorten public_url or the account's name");
        } else {
            findings.ok(AREA, format!("{}: {url}", account.name));
        }
    }
}

/// Why the world cannot reach a host, as far as its name tells.
fn unreachable(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_matches(['[', ']']);
    let private = match host.parse::<IpAddr>() {
        Ok(address) => is_private(address),
        Err(_) => {
            !host.contains('.') || [".local", ".internal", ".localhost", ".lan"].iter().any(|end| host.ends_with(end))
        }
    };
    private.then(|| format!("the private host {host}"))
}

pub(super) async fn sinks(findings: &mut Findings, config: &Config, online: bool) {
    for sink in &config.sinks {
        let area = format!("sink {}", sink.name);
        if !config.effects.iter().any(|effect| effect.sink == sink.name) {
            findings.warning(&area, "no effect goes there", "name it in [[effects]], or remove the section");
        }
        match &sink.settings {
            SinkSettings::Log => findings.ok(&area, "a log line per effect"),
            SinkSettings::Http(http) => http_sink(findings, &area, http, online).await,
        }
    }
}

async fn http_sink(findings: &mut Findings, area: &str, http: &HttpSink, online: bool) {
    let Ok(url) = Url::parse(&http.url) else { return };
    if url.scheme() == "http" && unreachable(&url).is_none() {
        findings.warning(
            area,
            format!("{} is sent unencrypted over a public network", http.shown_url()),
            "write https://; deliveries are signed, not encrypted",
        );
    }
    if !online {
        findings
            .ok(area, format!("{}, {} secrets; not tried (--online connects)", http.shown_url(), http.secrets.len()));
        return;
    }
    match connect(&url).await {
        Ok(()) => findings.ok(area, format!("{}: accepts connections", http.shown_url())),
        Err(why) => findings.fault(
            area,
            format!("{}: {why}", http.shown_url()),
            "start the receiver, or correct `url`; what is owed meanwhile waits and is tried again",
        ),
    }
}

/// A connection and nothing more: a request would be a delivery.
async fn connect(url: &Url) -> Result<(), String> {
    const WITHIN: Duration = Duration::from_secs(3);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    match tokio::time::timeout(WITHIN, tokio::net::TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("no connection: {error}")),
        Err(_) => Err(format!("no connection within {} s", WITHIN.as_secs())),
    }
}
