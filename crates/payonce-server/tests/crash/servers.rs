//! The database server is killed in the middle of the work, and started again; the gateway goes on by itself.
//!
//! `kill -9` takes the server's processes and leaves the kernel's cache, so this is about crashes of the server, not of
//! its machine. Each test has a server of its own.

use std::{sync::Arc, time::Duration};

use payonce_sim::{
    Notification, Platform,
    courier::{Courier, Delivery, Plan},
};
use rand::Rng;

use crate::{
    databases::{Kind, own::OwnServer},
    support::{Books, Site, Storm, rounds, seeded},
};

/// A server that forgets the last commits when it is killed, unless its sessions ask for better, as ours do.
const ASYNCHRONOUS: &[&str] = &["--synchronous-commit=off"];

#[tokio::test(flavor = "multi_thread")]
async fn postgres_15_is_killed_under_load() {
    killed_under_load(Kind::Postgres15, ASYNCHRONOUS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_18_is_killed_under_load() {
    killed_under_load(Kind::Postgres18, ASYNCHRONOUS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_is_killed_under_load() {
    killed_under_load(Kind::Mariadb, &[]).await;
}

/// Orders of one round: some whose callbacks the platforms repeat until they are content, and some whose callback is
/// sent once and never again, so that nothing but the first acknowledgement can have brought it into the books.
struct Round {
    repeated: Vec<(Platform, String)>,
    once: Vec<(Platform, String)>,
}

impl Round {
    const REPEATED: usize = 4;
    const ONCE: usize = 120;

    fn new(number: u64) -> Self {
        let platform = |index: usize| [Platform::Wechat, Platform::Alipay][index % 2];
        let name = |word: &str, index: usize| format!("{word}-{number}-{index:03}");
        Self {
            repeated: (0..Self::REPEATED).map(|index| (platform(index), name("STORM", index))).collect(),
            once: (0..Self::ONCE).map(|index| (Platform::Wechat, name("ONCE", index))).collect(),
        }
    }
}

/// Issue 3, what it must show, 2: afterwards paid orders, facts, flow rows and effect sets agree, every acknowledged
/// fact is there, and meanwhile the platforms were told to come again, in their form.
async fn killed_under_load(kind: Kind, settings: &[&str]) {
    let mut server = OwnServer::start_new(kind, settings).await;
    let mut site = Site::on(server.database(), "").await.equipped().await;
    site.start().await;
    let (mut all, mut acknowledged, mut refused) = (Vec::new(), Vec::new(), 0);
    for number in 0..rounds(2) {
        let (seed, mut rng) = seeded(number);
        let round = Round::new(number);
        for (_, order_no) in round.repeated.iter().chain(&round.once) {
            site.register(order_no).await;
        }
        let storm = Storm::new(seed);
        let begin = |(platform, order_no): &(Platform, String)| {
            storm.begin(site.url(*platform), site.paid(*platform, order_no), 25, 5)
        };
        let storms: Vec<_> = round.repeated.iter().map(begin).collect();
        let events: Vec<Arc<dyn Notification>> =
            round.once.iter().map(|(platform, order_no)| site.paid(*platform, order_no)).collect();
        let urls = [site.url(Platform::Wechat)];
        let plan = Plan { times: 1, concurrency: 16, seed, ..Plan::default() };
        let last = rng.random_range(1..Round::ONCE - 32);
        let kill = |done, _| {
            if done == last {
                server.kill();
            }
        };
        let report = Courier.deliver_all(&urls, &events, plan, kill).await;
        eprintln!("seed {seed}: killed after {last} answers; {:?}", report.by_status);
        assert_eq!(report.failed, 0, "seed {seed}: the gateway did not answer: {:?}", report.by_status);
        refused += report.refused;
        report.deliveries.iter().for_each(|delivery| assert_form(delivery, Platform::Wechat));
        server.start().await;
        let mut books = site.books().await;
        for ((platform, order_no), taken) in round.once.iter().zip(&report.taken_by_event) {
            let (keys, flow, effects) = books.rows_of(order_no).await;
            assert!(
                keys == flow && effects == 3 * keys && keys <= 1,
                "seed {seed}: {order_no}: {keys}, {flow}, {effects}"
            );
            assert!(*taken == 0 || keys == 1, "seed {seed}: {order_no} was acknowledged and is gone");
            all.push((*platform, order_no.clone()));
            if *taken > 0 {
                acknowledged.push((*platform, order_no.clone()));
            }
        }
        for (storm, (platform, _)) in storms.into_iter().zip(&round.repeated) {
            let campaigns = storm.await.unwrap();
            assert!(campaigns.iter().all(|campaign| campaign.acknowledged), "seed {seed}: the platform gave up");
            let deliveries = campaigns.iter().flat_map(|campaign| &campaign.deliveries);
            deliveries.for_each(|delivery| assert_form(delivery, *platform));
        }
        all.extend(round.repeated.iter().cloned());
        acknowledged.extend(round.repeated);
    }
    assert!(refused > 0, "the server was never missed");
    site.settle().await;
    let mut books = site.books().await;
    for (_, order_no) in &acknowledged {
        assert_eq!(books.of(order_no).await, Books::once(), "{order_no}\n{}", site.log());
    }
    let paid = books.count("SELECT count(*) FROM payonce_order WHERE status = 'PAID'").await;
    for (table, each) in [("idempotency", 1), ("order_flow", 1), ("effect", 3)] {
        assert_eq!(books.count(&format!("SELECT count(*) FROM payonce_{table}")).await, each * paid, "{table}");
    }
    assert_eq!(site.audit(&all, &acknowledged).await, Vec::<String>::new());
    let (code, log) = site.stop().await;
    assert_eq!(code, Some(0), "{log}");
}

/// Success or failure in the platform's form, and within its patience.
fn assert_form(delivery: &Delivery, platform: Platform) {
    let answer = delivery.outcome.as_ref().unwrap();
    let body = String::from_utf8_lossy(&answer.body);
    let is_right = match (platform == Platform::Alipay, answer.status) {
        (true, 200) => body == "success",
        (true, 503) => body == "fail",
        (false, 204) => body.is_empty(),
        (false, 503) => body.contains("\"FAIL\""),
        _ => false,
    };
    assert!(is_right && delivery.elapsed < Duration::from_secs(5), "{answer:?} after {:?}", delivery.elapsed);
}
