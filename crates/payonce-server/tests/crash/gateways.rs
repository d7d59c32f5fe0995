//! Several gateways behind one address, on one database; the address is nginx, with the file that the docs show.
//!
//! What a platform sees of a gateway that is killed, and of a rolling restart: nothing. `cargo xtask gateways` runs the
//! first test with more of everything and shows what it tells. Not here: two gateways without anything in front of them
//! (`several`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use payonce_sim::{
    Platform,
    courier::{Campaign, Courier},
    text::now_unix,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    databases::{Kind, free_port, on_each_database},
    support::{Books, Site, Storm, seeded},
};

// SQLite is for one machine.
on_each_database!(@ postgres_15 Postgres15: behind_one_address, a_lost_answer_is_asked_for_again, a_refusal_is_passed_on);
on_each_database!(@ postgres_18 Postgres18: behind_one_address, a_lost_answer_is_asked_for_again, a_refusal_is_passed_on);
on_each_database!(@ mariadb Mariadb: behind_one_address, a_lost_answer_is_asked_for_again, a_refusal_is_passed_on);

const NGINX: &str = "/usr/sbin/nginx";
/// How long nginx leaves alone a gateway that failed (`fail_timeout`), and a little more.
const FORGIVEN: Duration = Duration::from_millis(1200);
const PATIENCE: Duration = Duration::from_secs(30);

/// nginx, in a folder of its own.
struct Front {
    dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Drop for Front {
    fn drop(&mut self) {
        // Not `kill -9`: the worker would outlive its master.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("nginx: {}", fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default());
        }
    }
}

impl Front {
    /// With the documented configuration, but for the addresses, TLS, and what `change` changes.
    async fn start(gateways: &[String], change: impl Fn(&str) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let shown = include_str!("../../../../examples/nginx/payonce.conf");
        fs::write(dir.path().join("payonce.conf"), change(&at_these_addresses(shown, gateways, port))).unwrap();
        let here = dir.path().display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = temporary.iter().map(|name| format!("  {name}_temp_path {here}/{name};\n")).collect();
        let main = format!(
            "daemon off;\nworker_processes 1;\npid {here}/pid;\nerror_log {here}/error.log notice;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n{temporary}  log_format way '$status $upstream_addr';\n  access_log {here}/access.log way;\n  \
             include {here}/payonce.conf;\n}}\n"
        );
        fs::write(dir.path().join("nginx.conf"), main).unwrap();
        let mut nginx = Command::new(NGINX);
        nginx.arg("-p").arg(dir.path()).arg("-c").arg(dir.path().join("nginx.conf"));
        let child = nginx.arg("-e").arg(dir.path().join("error.log")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap_or_else(|error| {
            panic!("{NGINX}: {error}; `cargo xtask test` installs it, or: apt-get install nginx-light")
        });
        let mut front = Self { dir, port, child };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            let ended = front.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "nginx did not start: {ended:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        front
    }

    fn url(&self, platform: Platform) -> String {
        let account = if platform == Platform::Wechat { "wechat" } else { "alipay" };
        format!("http://127.0.0.1:{}/notify/{account}", self.port)
    }

    /// What nginx did with each of so many requests: its answer's status, and the gateways that it asked. It writes that
    /// down after it has answered.
    async fn ways(&self, requests: usize) -> Vec<(String, Vec<String>)> {
        let until = Instant::now() + PATIENCE;
        let way = |line: &str| {
            let (status, asked) = line.split_once(' ').unwrap();
            (status.to_owned(), asked.split(", ").map(str::to_owned).collect())
        };
        loop {
            let log = fs::read_to_string(self.dir.path().join("access.log")).unwrap();
            let written = log.lines().count();
            if written == requests && log.ends_with('\n') {
                return log.lines().map(way).collect();
            }
            assert!(Instant::now() < until, "{requests} requests, and nginx knows of {written}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The same lines with as many gateways as there are, at their places, and a port without TLS.
fn at_these_addresses(shown: &str, gateways: &[String], port: u16) -> String {
    let mut lines = Vec::new();
    let mut placed = false;
    for line in shown.lines() {
        match line.trim() {
            text if text.starts_with("server 10.0.0.") => {
                let (_, how) = text.split_once(":8080").unwrap();
                let all = gateways.iter().map(|address| format!("    server {address}{how}"));
                lines.extend(all.filter(|_| !placed));
                placed = true;
            }
            "listen 443 ssl;" => lines.push(format!("    listen 127.0.0.1:{port};")),
            text if text.starts_with("ssl_") => {}
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

fn given(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// What happens to a gateway while callbacks come in.
#[derive(Clone, Copy, Debug)]
enum Event {
    Killed(usize),
    Restarted(usize),
}

/// Callbacks of both platforms at one address: a gateway is killed and comes back, then each is stopped and started
/// again. Every delivery is acknowledged at once, and everything has happened once.
async fn behind_one_address(on: Kind) {
    let (count, each) = (given("PAYONCE_GATEWAYS", 3), given("PAYONCE_GATEWAYS_ORDERS", 4));
    let (seed, mut rng) = seeded(0);
    let mut sites = vec![Site::new(on).await];
    sites.extend((1..count).map(|_| sites[0].beside()).collect::<Vec<_>>());
    for site in &mut sites {
        site.start().await;
    }
    let addresses: Vec<String> = sites.iter().map(Site::address).collect();
    let front = Front::start(&addresses, str::to_owned).await;
    eprintln!("{count} gateways on one database ({on:?}) behind 127.0.0.1:{}; seed {seed}", front.port);
    let events = std::iter::once(Event::Killed(0)).chain((0..count).map(Event::Restarted));
    let mut orders: Vec<(Platform, String)> = Vec::new();
    let mut deliveries = 0;
    for (round, event) in events.enumerate() {
        let new = orders.len();
        orders.extend((0..2 * each).map(|index| {
            let platform = [Platform::Wechat, Platform::Alipay][index % 2];
            (platform, format!("FRONT-{round}-{index:03}"))
        }));
        for (index, (_, order_no)) in orders.iter().enumerate().skip(new) {
            sites[index % count].register(order_no).await;
        }
        let storm = Storm::new(rng.random());
        // Each new callback in eight copies, each older one once more.
        let storms = orders.iter().enumerate().map(|(index, (platform, order_no))| {
            let times = if index < new { 1 } else { 8 };
            storm.begin(front.url(*platform), sites[0].paid(*platform, order_no), times, 2)
        });
        let storms: Vec<_> = storms.collect();
        storm.reached(rng.random_range(1..8 * each)).await;
        let at = storm.acknowledged();
        match event {
            Event::Killed(index) => sites[index].kill(),
            Event::Restarted(index) => {
                let (code, log) = sites[index].stop().await;
                assert_eq!(code, Some(0), "seed {seed}: {log}");
            }
        }
        let mut campaigns = Vec::new();
        for storm in storms {
            campaigns.extend(storm.await.unwrap());
        }
        deliveries += campaigns.len();
        eprintln!("{event:?} after {at} of {} callbacks", campaigns.len());
        unnoticed(&campaigns, &format!("seed {seed}: {event:?} after {at}"));
        let (Event::Killed(index) | Event::Restarted(index)) = event;
        sites[index].start().await;
        tokio::time::sleep(FORGIVEN).await;
    }
    sites[0].settle().await;
    let ways = front.ways(deliveries).await;
    let taken = taken_by(&ways, &addresses);
    let again = ways.iter().filter(|(_, asked)| asked.len() > 1).count();
    eprintln!("{deliveries} callbacks acknowledged, {again} of them by the second gateway that was asked");
    addresses.iter().zip(&taken).for_each(|(address, taken)| eprintln!("  {address} answered {taken}"));
    assert!(taken.iter().all(|taken| *taken > 0), "seed {seed}: one of them did nothing");
    let mut books = sites[0].books().await;
    for (_, order_no) in &orders {
        assert_eq!(books.of(order_no).await, Books::once(), "seed {seed}: {order_no}");
    }
    assert_eq!(sites[0].audit(&orders, &orders).await, Vec::<String>::new(), "seed {seed}");
    eprintln!(
        "audit: {} orders = facts = ledger rows = sets of three effects; nothing twice, nothing lost",
        orders.len()
    );
    for site in &sites {
        assert_eq!(site.stop().await.0, Some(0), "seed {seed}: {}", site.log());
    }
}

/// Each copy was acknowledged the first time it was sent.
fn unnoticed(campaigns: &[Campaign], when: &str) {
    let first = |campaign: &Campaign| campaign.deliveries.first().and_then(|delivery| delivery.status());
    let answers: BTreeSet<Option<u16>> = campaigns.iter().map(first).collect();
    assert!(answers.iter().all(|status| matches!(status, Some(200 | 204))), "{when}: {answers:?}");
    assert!(campaigns.iter().all(|campaign| campaign.deliveries.len() == 1), "{when}: a platform had to repeat");
}

/// How many requests each gateway answered: the last that was asked.
fn taken_by(ways: &[(String, Vec<String>)], addresses: &[String]) -> Vec<usize> {
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for last in ways.iter().filter_map(|(_, asked)| asked.last()) {
        *taken.entry(last).or_default() += 1;
    }
    addresses.iter().map(|address| taken.get(address.as_str()).copied().unwrap_or(0)).collect()
}

/// Passes requests on to a gateway, waits for its answers, and hangs up without passing those back: as if it died
/// right after the COMMIT. How many answers were swallowed.
async fn swallowing(gateway: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let swallowed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&swallowed);
    tokio::spawn(async move {
        loop {
            let (mut asking, _) = listener.accept().await.unwrap();
            let mut asked = TcpStream::connect(&gateway).await.unwrap();
            let (counter, mut buffer) = (Arc::clone(&counter), vec![0; 64 * 1024]);
            tokio::spawn(async move {
                let mut answer = [0];
                loop {
                    tokio::select! {
                        read = asking.read(&mut buffer) => match read {
                            Ok(length) if length > 0 => asked.write_all(&buffer[..length]).await.unwrap(),
                            _ => return,
                        },
                        Ok(1) = asked.read(&mut answer) => {
                            counter.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, swallowed)
}

/// The first gateway books and its answer is lost, so nginx asks the second: the platform is content, and it is booked
/// once. Without `non_idempotent` nginx may not ask again, and tells the platform 502.
async fn a_lost_answer_is_asked_for_again(on: Kind) {
    let mut one = Site::new(on).await;
    let mut other = one.beside();
    one.start().await;
    other.start().await;
    let (swallows, swallowed) = swallowing(one.address()).await;
    let places = [swallows, other.address()];
    let forbidden = |text: &str| text.replace(" non_idempotent", "");
    let fronts = [
        ("FRONT-AGAIN", Front::start(&places, str::to_owned).await, true),
        ("FRONT-ONCE", Front::start(&places, forbidden).await, false),
    ];
    let mut orders = Vec::new();
    for (name, front, may_ask_again) in &fronts {
        let mut sent = 0;
        for platform in [Platform::Wechat, Platform::Alipay] {
            let order_no = format!("{name}-{platform:?}");
            one.register(&order_no).await;
            let request = one.paid(platform, &order_no).request(now_unix(), &mut StdRng::seed_from_u64(1));
            let before = swallowed.load(Ordering::SeqCst);
            orders.push((platform, order_no.clone()));
            // nginx takes turns, but for a while not with a gateway that failed.
            let until = Instant::now() + PATIENCE;
            while swallowed.load(Ordering::SeqCst) == before {
                assert!(Instant::now() < until, "{order_no}: no answer was lost");
                sent += 1;
                let delivery = Courier.deliver(&front.url(platform), &request, PATIENCE).await;
                assert!(delivery.taken(platform) || !may_ask_again, "{order_no}: {:?}", delivery.status());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        let ways = front.ways(sent).await;
        let again = ways.iter().filter(|(_, asked)| asked.len() == 2).count();
        let lost = ways.iter().filter(|(status, _)| status == "502").count();
        assert_eq!((again > 0, lost > 0), (*may_ask_again, !may_ask_again), "{name}: {ways:?}");
    }
    one.settle().await;
    let mut books = one.books().await;
    for (_, order_no) in &orders {
        assert_eq!(books.of(order_no).await, Books::once(), "{order_no}");
    }
    assert_eq!(one.audit(&orders, &orders).await, Vec::<String>::new());
}

/// A payment of an order that nobody registered is refused, by the gateway that was asked and in the platform's form; the
/// next callback is taken. With `http_503`, nginx would take each refusal for a failure, until no gateway is left.
async fn a_refusal_is_passed_on(on: Kind) {
    let mut one = Site::new(on).await;
    let mut other = one.beside();
    one.start().await;
    other.start().await;
    let addresses = [one.address(), other.address()];
    let tempted = |text: &str| text.replace(" non_idempotent", " non_idempotent http_503");
    let fronts =
        [("KNOWN", Front::start(&addresses, str::to_owned).await), ("LATE", Front::start(&addresses, tempted).await)];
    for (index, (known, front)) in fronts.iter().enumerate() {
        one.register(known).await;
        let unknown = one.paid(Platform::Wechat, "NOBODYS").request(now_unix(), &mut StdRng::seed_from_u64(1));
        let known = one.paid(Platform::Wechat, known).request(now_unix(), &mut StdRng::seed_from_u64(2));
        let mut statuses = Vec::new();
        for request in [&unknown, &unknown, &unknown, &known] {
            let delivery = Courier.deliver(&front.url(Platform::Wechat), request, PATIENCE).await;
            statuses.push(delivery.status().unwrap());
        }
        let asked: Vec<usize> = front.ways(4).await.iter().map(|(_, asked)| asked.len()).collect();
        match index {
            0 => assert_eq!((statuses, asked), (vec![503, 503, 503, 204], vec![1; 4])),
            _ => assert_eq!((statuses[3], asked[0]), (502, 2), "{statuses:?}, {asked:?}"),
        }
    }
}
