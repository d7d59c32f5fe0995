//! Effects as signed HTTP requests, by Standard Webhooks (github.com/standard-webhooks/standard-webhooks).
//!
//! Here: the request, its signatures (one per secret, so that a secret can be changed without a gap), and
//! what counts as delivered. Not here: when to try again (`payonce::worker`), where it must not go (`guard`).

use std::{error::Error as _, fmt, net::IpAddr, time::Duration};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use payonce::{
    sink::{DeliveryError, Sink},
    store::Effect,
    time::Micros,
};
use reqwest::{Url, header, redirect};

use crate::sink::guard;

/// How a webhook is configured.
#[derive(Clone)]
pub struct WebhookConfig {
    /// Where effects are posted to.
    pub url: String,
    /// What they are signed with: `whsec_` and base64 of 24 to 64 bytes. Every one signs every delivery.
    pub secrets: Vec<String>,
    /// How long one delivery may take in all.
    pub timeout: Duration,
    /// Whether it may go to addresses of private networks and of this machine.
    pub allow_private: bool,
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig")
            .field("secrets", &format_args!("{} secrets, not shown", self.secrets.len()))
            .field("timeout", &self.timeout)
            .field("allow_private", &self.allow_private)
            // A URL may hold a password or a token of its own.
            .finish_non_exhaustive()
    }
}

/// Why a webhook cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfigError(String);

impl fmt::Display for WebhookConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WebhookConfigError {}

/// Posts effects to one URL.
pub struct WebhookSink {
    client: reqwest::Client,
    url: Url,
    keys: Vec<hmac::Key>,
}

impl fmt::Debug for WebhookSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSink").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// Of an answer's body so much is read.
const ANSWER_BYTES: usize = 4096;
/// Of that so much is kept as the reason of a failure.
const REASON_CHARS: usize = 200;

impl WebhookSink {
    /// Checks the configuration; nothing is sent.
    pub fn new(config: WebhookConfig) -> Result<Self, WebhookConfigError> {
        let wrong = |why: String| WebhookConfigError(why);
        let url = Url::parse(&config.url).map_err(|error| wrong(format!("url: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong(format!("url: the scheme {} is neither http nor https", url.scheme())));
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        // A literal address is never looked up, so the guard of names does not see it.
        if let Ok(address) = host.parse::<IpAddr>()
            && !config.allow_private
            && guard::is_private(address)
        {
            return Err(wrong(format!("url: {address} is a private address; set allow_private if that is meant")));
        }
        if config.secrets.is_empty() {
            return Err(wrong(
                "secrets: at least one is needed, so that the receiver can tell us from a stranger".to_owned(),
            ));
        }
        let keys = config
            .secrets
            .iter()
            .enumerate()
            .map(|(index, secret)| key_of(secret).map_err(|why| wrong(format!("secrets[{index}]: {why}"))));
        let keys = keys.collect::<Result<_, _>>()?;
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(config.timeout)
            .user_agent(concat!("payonce/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(guard::Names { allow_private: config.allow_private });
        let client = client.build().map_err(|error| wrong(format!("no HTTP client: {}", chain(&error))))?;
        Ok(Self { client, url, keys })
    }

    async fn post(&self, effect: &Effect) -> Result<(), DeliveryError> {
        let id = effect.key.as_str();
        let timestamp = (Micros::now().0 / 1_000_000).to_string();
        let sent = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", &timestamp)
            .header("webhook-signature", signatures(&self.keys, id, &timestamp, effect.payload.as_bytes()))
            .body(effect.payload.clone())
            .send()
            .await;
        let mut answer = sent.map_err(|error| DeliveryError(chain(&error.without_url())))?;
        let status = answer.status();
        // Read also when it does not matter, so that the connection can be used again.
        let mut body = Vec::new();
        while let Ok(Some(piece)) = answer.chunk().await {
            body.extend_from_slice(&piece[..piece.len().min(ANSWER_BYTES - body.len())]);
            if body.len() == ANSWER_BYTES {
                break;
            }
        }
        if status.is_success() { Ok(()) } else { Err(DeliveryError(reason(status, &body))) }
    }
}

impl Sink for WebhookSink {
    fn deliver<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<(), DeliveryError>> {
        Box::pin(self.post(effect))
    }
}

fn key_of(secret: &str) -> Result<hmac::Key, String> {
    let Some(base64) = secret.strip_prefix("whsec_") else {
        return Err("does not begin with whsec_".to_owned());
    };
    let bytes = STANDARD.decode(base64).map_err(|_| "is not base64 after whsec_".to_owned())?;
    if !(24..=64).contains(&bytes.len()) {
        return Err(format!("has {} bytes; Standard Webhooks asks for 24 to 64", bytes.len()));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn signatures(keys: &[hmac::Key], id: &str, timestamp: &str, payload: &[u8]) -> String {
    let signed = keys.iter().map(|key| {
        let mut context = hmac::Context::with_key(key);
        [id.as_bytes(), b".", timestamp.as_bytes(), b".", payload].iter().for_each(|part| context.update(part));
        format!("v1,{}", STANDARD.encode(context.sign().as_ref()))
    });
    signed.collect::<Vec<_>>().join(" ")
}

/// Status and the beginning of what the receiver says, on one line.
fn reason(status: reqwest::StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_CHARS).collect();
    let plain = plain.trim();
    if plain.is_empty() {
        format!("answered {}", status.as_u16())
    } else {
        format!("answered {}: {plain}", status.as_u16())
    }
}

/// An error with everything behind it: what matters ("connection refused") stands last.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> String {
        format!("whsec_{}", STANDARD.encode([byte; 32]))
    }

    fn config(url: &str, secrets: &[String]) -> WebhookConfig {
        WebhookConfig {
            url: url.to_owned(),
            secrets: secrets.to_vec(),
            timeout: Duration::from_secs(2),
            allow_private: false,
        }
    }

    /// Second opinion: the reference implementation accepts what we sign, under each of two secrets.
    #[test]
    fn the_reference_implementation_accepts_every_signature() {
        let secrets = [secret(1), secret(2)];
        let keys: Vec<hmac::Key> = secrets.iter().map(|secret| key_of(secret).unwrap()).collect();
        let (id, payload) = ("default:A-1:order-paid:ship", r#"{"version":1,"名":"值"}"#);
        let timestamp = (Micros::now().0 / 1_000_000).to_string();
        let value = signatures(&keys, id, &timestamp, payload.as_bytes());
        let headers = |signature: &str| {
            let mut headers = axum::http::HeaderMap::new();
            for (name, text) in
                [("webhook-id", id), ("webhook-timestamp", &timestamp), ("webhook-signature", signature)]
            {
                headers.insert(name, text.parse().unwrap());
            }
            headers
        };
        for secret in &secrets {
            let oracle = standardwebhooks::Webhook::new(secret).unwrap();
            oracle.verify(payload.as_bytes(), &headers(&value)).unwrap();
            assert!(oracle.verify(b"{}", &headers(&value)).is_err(), "another body");
            // Ours is the very text that the oracle would write.
            let alone = signatures(&[key_of(secret).unwrap()], id, &timestamp, payload.as_bytes());
            assert_eq!(oracle.sign(id, timestamp.parse().unwrap(), payload.as_bytes()).unwrap(), alone);
        }
        let stranger = standardwebhooks::Webhook::new(&secret(3)).unwrap();
        assert!(stranger.verify(payload.as_bytes(), &headers(&value)).is_err());
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused() {
        let good = [secret(1)];
        let short = [format!("whsec_{}", STANDARD.encode([1; 8]))];
        let bare = [STANDARD.encode([1; 32])];
        let table: &[(&str, &[String], &str)] = &[
            ("shop.example/hook", &good, "url: "),
            ("ftp://shop.example/hook", &good, "url: the scheme ftp"),
            ("http://127.0.0.1/hook", &good, "url: 127.0.0.1 is a private address"),
            ("http://[::1]/hook", &good, "url: ::1 is a private address"),
            ("http://[::ffff:10.0.0.1]/hook", &good, "url: ::ffff:10.0.0.1 is a private address"),
            ("http://0x7f000001/hook", &good, "url: 127.0.0.1 is a private address"),
            ("https://shop.example/hook", &[], "secrets: at least one"),
            ("https://shop.example/hook", &short, "secrets[0]: has 8 bytes"),
            ("https://shop.example/hook", &bare, "secrets[0]: does not begin with whsec_"),
        ];
        for (url, secrets, want) in table {
            let error = WebhookSink::new(config(url, secrets)).unwrap_err().to_string();
            assert!(error.starts_with(want), "{url}: {error}");
            assert!(secrets.iter().all(|secret| !error.contains(secret)), "{error}");
        }
        let sink = WebhookSink::new(config("https://shop.example/hook?token=secret", &good)).unwrap();
        assert!(!format!("{sink:?}").contains("token"));
    }

    #[test]
    fn a_reason_is_short_and_has_one_line() {
        let status = reqwest::StatusCode::from_u16(503).unwrap();
        assert_eq!(reason(status, b""), "answered 503");
        assert_eq!(reason(status, b"down\r\nfor \x1b[31mgood\x00"), "answered 503: down  for  [31mgood");
        assert_eq!(reason(status, "忙".repeat(300).as_bytes()).chars().count(), "answered 503: ".len() + 200);
    }
}
