//! Several gateways, each a process of its own, on one database.
//!
//! The platforms send each callback to both, as they do through a balancer; orders are registered before, while and
//! after their callbacks come, at both gateways at once. Not here: the interleavings one by one
//! (`crates/payonce/tests/it/databases.rs`).

use std::{sync::Arc, time::Duration};

use payonce_sim::{
    Platform,
    courier::{Courier, Plan},
};
use rand::Rng;

use crate::{
    databases::{Kind, on_each_database},
    support::{Books, Site, Storm, rounds, seeded},
};

on_each_database!(two_gateways_book_everything_once, two_gateways_start_at_once);

/// When an order is registered, as its callbacks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    During,
    After,
}

async fn two_gateways_book_everything_once(on: Kind) {
    const EACH: usize = 8;
    for round in 0..rounds(1) {
        let (seed, mut rng) = seeded(round);
        let mut one = Site::new(on).await;
        let mut other = one.beside();
        one.start().await;
        other.start().await;
        let sites = [Arc::new(one), Arc::new(other)];
        let platform = |index: usize| [Platform::Wechat, Platform::Alipay][index % 2];
        let mut orders: Vec<(When, Platform, String)> = Vec::new();
        for when in [When::Before, When::During, When::After] {
            orders.extend((0..EACH).map(|index| (when, platform(index), format!("TWO-{when:?}-{index}"))));
        }
        for (_, _, order_no) in &orders {
            sites[0].stock(order_no).await;
        }
        let register = async |order_no: &str| {
            let (one, other) = tokio::join!(sites[0].try_register(order_no), sites[1].try_register(order_no));
            let mut answers = [one, other];
            answers.sort_unstable();
            assert_eq!(answers, [200, 201], "seed {seed}: {order_no}\n{}\n{}", sites[0].log(), sites[1].log());
        };
        let of = |wanted: When| orders.iter().filter(move |(when, ..)| *when == wanted);
        for (.., order_no) in of(When::Before) {
            register(order_no).await;
        }
        // The same callbacks to both at once, and each that is refused goes to the other next.
        let storm = Storm::new(seed);
        let mut storms = Vec::new();
        for (_, platform, order_no) in &orders {
            for first in 0..2 {
                let urls = [first, 1 - first].map(|at: usize| sites[at].url(*platform));
                storms.push(storm.begin_at(urls.into(), sites[0].paid(*platform, order_no), 6, 3));
            }
        }
        for (.., order_no) in of(When::During) {
            register(order_no).await;
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
        }
        // What is left now is held, and refused each time.
        storm.reached(2 * EACH * 12).await;
        for (_, platform, order_no) in of(When::After) {
            // Copies without a pause, so that some are being held at the moment of the registration.
            let plan = Plan { times: 60, concurrency: 6, seed, ..Plan::default() };
            let urls = [0, 1].map(|at: usize| sites[at].url(*platform));
            let event = sites[0].paid(*platform, order_no);
            let burst = tokio::spawn(async move { Courier.deliver_many(&urls, event, plan, |_, _| {}).await });
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..60_000))).await;
            register(order_no).await;
            let report = burst.await.unwrap();
            assert_eq!(report.failed, 0, "seed {seed}: {:?}", report.by_status);
        }
        for storm in storms {
            let campaigns = storm.await.unwrap();
            assert!(campaigns.iter().all(|campaign| campaign.acknowledged), "seed {seed}: the platform gave up");
            let answers = campaigns.iter().flat_map(|campaign| &campaign.deliveries).map(|delivery| delivery.status());
            let strange: Vec<_> = answers.filter(|status| !matches!(status, Some(200 | 204 | 503))).collect();
            assert!(strange.is_empty(), "seed {seed}: {strange:?}\n{}\n{}", sites[0].log(), sites[1].log());
        }
        sites[0].settle().await;
        let mut books = sites[0].books().await;
        for (.., order_no) in &orders {
            assert_eq!(books.of(order_no).await, Books::once(), "seed {seed}: {order_no}");
        }
        assert_eq!(books.count("SELECT count(*) FROM payonce_quarantine WHERE state = 'held'").await, 0);
        let facts: Vec<(Platform, String)> =
            orders.iter().map(|(_, platform, order_no)| (*platform, order_no.clone())).collect();
        assert_eq!(sites[0].audit(&facts, &facts).await, Vec::<String>::new(), "seed {seed}");
        for site in &sites {
            assert_eq!(site.metric("payonce_swept_total").await, 0.0, "seed {seed}: the sweep had to help");
            let (code, log) = site.stop().await;
            assert_eq!(code, Some(0), "{log}");
            assert!(!log.contains("ERROR") && !log.contains("panicked"), "seed {seed}: {log}");
        }
    }
}

/// Both find an empty database, and one of them makes the tables.
async fn two_gateways_start_at_once(on: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let database = crate::databases::Database::fresh(on, dir.path()).await;
    let mut one = Site::on(database, "").await;
    let mut other = one.beside();
    tokio::join!(one.start(), other.start());
    for site in [&one, &other] {
        assert_eq!(site.try_register("FIRST").await / 100, 2, "{}", site.log());
        let (code, log) = site.stop().await;
        assert_eq!(code, Some(0), "{log}");
    }
    assert_eq!(one.books().await.count("SELECT count(*) FROM payonce_order").await, 1);
}
