//! The user's service that side effects arrive at.
//!
//! Here: a small HTTP server on a free port that writes down every delivery, checks its Standard Webhooks signature with
//! code of its own, and can be slow, fail or hang up when told to. Not here: which effects are owed (`auditor` compares).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the receiver treats deliveries. The default takes everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Fail so many deliveries, whatever they are, from now on.
    pub fail_next: usize,
    /// Fail the first so many deliveries of each `webhook-id`.
    pub fail_each: usize,
    /// Close the connection without an answer for so many deliveries from now on. They are recorded: the receiver may
    /// well have done its work.
    pub hang_up_next: usize,
    /// Status of a failure.
    pub fail_status: u16,
    /// Wait so long before the answer.
    pub delay: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { fail_next: 0, fail_each: 0, hang_up_next: 0, fail_status: 500, delay: Duration::ZERO }
    }
}

/// One delivery as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Path and query.
    pub path: String,
    /// All headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// `webhook-id`, or empty.
    pub id: String,
    /// `webhook-timestamp`, or empty.
    pub timestamp: String,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// Whether the signature was right; `None` when the receiver has no secret.
    pub signed: Option<bool>,
    /// What was answered; 0 for hanging up.
    pub answered: u16,
}

/// What arrived so far, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries.
    pub deliveries: usize,
    /// Deliveries answered with success.
    pub taken: usize,
    /// Different `webhook-id`s.
    pub distinct: usize,
    /// Different `webhook-id`s among the deliveries answered with success.
    pub distinct_taken: usize,
    /// `webhook-id`s that came with more than one body.
    pub bodies_differ: usize,
    /// Deliveries with a wrong or missing signature.
    pub badly_signed: usize,
}

/// A running receiver; it stops when dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Receiver {
    /// Listens on a free port of the loopback address. `secret` is `whsec_` and base64; with it signatures are checked.
    ///
    /// # Errors
    /// When no port can be opened, or the secret is not base64.
    pub async fn start(secret: Option<&str>) -> io::Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), secret).await
    }

    /// As [`Receiver::start`], on a given address, to come back where one has stopped.
    ///
    /// # Errors
    /// When the port cannot be opened, or the secret is not base64.
    pub async fn start_at(address: SocketAddr, secret: Option<&str>) -> io::Result<Self> {
        let secret = secret.map(secret_bytes).transpose()?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { secret, state: Mutex::default() });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, server })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL to deliver to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Changes how deliveries are treated from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }

    /// Everything that arrived so far.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Received> {
        self.shared.state().received.clone()
    }

    /// Per `webhook-id`, the body of each delivery, as the auditor wants it.
    #[must_use]
    pub fn bodies_by_id(&self) -> BTreeMap<String, Vec<Vec<u8>>> {
        let mut bodies: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for delivery in &self.shared.state().received {
            bodies.entry(delivery.id.clone()).or_default().push(delivery.body.clone());
        }
        bodies
    }

    /// What arrived so far, in numbers.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.shared.state();
        let taken = |delivery: &&Received| (200..300).contains(&delivery.answered);
        let mut bodies: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
        for delivery in &state.received {
            bodies.entry(&delivery.id).or_default().insert(&delivery.body);
        }
        let ids_taken: BTreeSet<&str> = state.received.iter().filter(taken).map(|d| d.id.as_str()).collect();
        Counts {
            deliveries: state.received.len(),
            taken: state.received.iter().filter(taken).count(),
            distinct: bodies.len(),
            distinct_taken: ids_taken.len(),
            bodies_differ: bodies.values().filter(|bodies| bodies.len() > 1).count(),
            badly_signed: state.received.iter().filter(|delivery| delivery.signed == Some(false)).count(),
        }
    }

    /// Waits until the counts satisfy `enough`; gives the last ones, satisfying or not, after `patience`.
    pub async fn wait_for(&self, patience: Duration, enough: impl Fn(&Counts) -> bool) -> Counts {
        let until = Instant::now() + patience;
        loop {
            let counts = self.counts();
            if enough(&counts) || Instant::now() >= until {
                return counts;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Forgets what arrived, counting from zero again. How it behaves stays.
    pub fn forget(&self) {
        let mut state = self.shared.state();
        state.received.clear();
        state.seen.clear();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Debug)]
struct Shared {
    secret: Option<Vec<u8>>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain data behind, which is as good as before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    behaviour: Behaviour,
    received: Vec<Received>,
    seen: BTreeMap<String, usize>,
}

impl State {
    /// The status for this delivery, 0 for hanging up; uses up what was promised to go wrong.
    fn decide(&mut self, id: &str) -> u16 {
        let seen = self.seen.entry(id.to_owned()).or_default();
        *seen += 1;
        let behaviour = &mut self.behaviour;
        if behaviour.hang_up_next > 0 {
            behaviour.hang_up_next -= 1;
            0
        } else if behaviour.fail_next > 0 {
            behaviour.fail_next -= 1;
            behaviour.fail_status
        } else if *seen <= behaviour.fail_each {
            behaviour.fail_status
        } else {
            204
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with this task, so that a dropped receiver is really gone.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&shared)))),
                // Out of file handles, most likely: others will be closed in a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let answers = service_fn(move |request| answer(request, Arc::clone(&shared)));
    // A connection that ends badly was either ended by us, on purpose, or by its other side.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answers).await;
}

async fn answer(
    request: hyper::Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<hyper::Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let header =
        |name: &str| headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.clone()).unwrap_or_default();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let signed = shared
        .secret
        .as_ref()
        .map(|secret| signature_matches(secret, &id, &timestamp, &body, &header("webhook-signature")));
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (status, delay) = {
        let mut state = shared.state();
        let status = if signed == Some(false) { 401 } else { state.decide(&id) };
        let body = body.to_vec();
        state.received.push(Received { path, headers, id, timestamp, body, signed, answered: status });
        (status, state.behaviour.delay)
    };
    tokio::time::sleep(delay).await;
    match hyper::StatusCode::from_u16(status) {
        Ok(code) => {
            let mut response = hyper::Response::new(Full::new(Bytes::new()));
            *response.status_mut() = code;
            Ok(response)
        }
        // An error is hyper's word for closing the connection without an answer.
        Err(_) => Err(io::Error::other("hanging up on purpose")),
    }
}

/// The signature of a delivery by Standard Webhooks, `v1,<base64>`. `secret` is what stands after `whsec_`, decoded.
#[must_use]
pub fn signature(secret: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let text = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text);
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

/// The bytes of a secret `whsec_<base64>`.
///
/// # Errors
/// When it is not base64.
pub fn secret_bytes(secret: &str) -> io::Result<Vec<u8>> {
    let base64 = secret.strip_prefix("whsec_").unwrap_or(secret);
    STANDARD.decode(base64).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Whether one of the space-separated signatures in the header is right.
fn signature_matches(secret: &[u8], id: &str, timestamp: &str, body: &[u8], header: &str) -> bool {
    let expected = signature(secret, id, timestamp, body);
    !id.is_empty() && !timestamp.is_empty() && header.split(' ').any(|given| given == expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::courier::{Courier, Failure};
    use crate::message::Request;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn delivery(id: &str, body: &str) -> Request {
        let signature = signature(&secret_bytes(SECRET).unwrap(), id, "1614265330", body.as_bytes());
        let headers = [("webhook-id", id), ("webhook-timestamp", "1614265330"), ("webhook-signature", &signature)];
        Request { headers: headers.map(|(n, v)| (n.to_owned(), v.to_owned())).into(), body: body.into() }
    }

    #[test]
    fn signs_like_the_published_example() {
        // The example that the Standard Webhooks libraries test themselves with.
        let secret = secret_bytes(SECRET).unwrap();
        let signature = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[tokio::test]
    async fn records_counts_and_misbehaves() {
        let receiver = Receiver::start(Some(SECRET)).await.unwrap();
        let send = async |request: &Request| Courier.deliver(&receiver.url(), request, Duration::from_secs(2)).await;

        receiver.behave(Behaviour { fail_each: 1, fail_status: 503, ..Behaviour::default() });
        assert_eq!(send(&delivery("a", "1")).await.status(), Some(503));
        assert_eq!(send(&delivery("a", "1")).await.status(), Some(204));
        receiver.behave(Behaviour { hang_up_next: 1, ..Behaviour::default() });
        assert!(matches!(send(&delivery("b", "1")).await.outcome, Err(Failure::Broken(_))));
        assert_eq!(send(&delivery("b", "2")).await.status(), Some(204));
        let mut forged = delivery("c", "1");
        forged.body = b"2".to_vec();
        assert_eq!(send(&forged).await.status(), Some(401));

        let counts = receiver.wait_for(Duration::from_secs(1), |counts| counts.deliveries == 5).await;
        let expected =
            Counts { deliveries: 5, taken: 2, distinct: 3, distinct_taken: 2, bodies_differ: 1, badly_signed: 1 };
        assert_eq!(counts, expected);
        assert_eq!(receiver.bodies_by_id()["a"], [b"1", b"1"]);
        assert_eq!(receiver.deliveries()[0].path, "/hook");

        receiver.behave(Behaviour { delay: Duration::from_millis(200), ..Behaviour::default() });
        let slow = Courier.deliver(&receiver.url(), &delivery("d", "1"), Duration::from_millis(20)).await;
        assert_eq!(slow.outcome, Err(Failure::Deadline));
        receiver.forget();
        assert_eq!(receiver.counts(), Counts::default());

        let address = receiver.address();
        drop(receiver);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(Receiver::start_at(address, None).await.is_ok());
    }
}
