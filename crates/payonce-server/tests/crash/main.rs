//! The gateway as a process: killed in the middle of its work and started again, alone or beside another, on databases
//! that are killed, badly configured, or the shop's own.
//!
//! The real binary with a configuration file, real HTTP, and platforms that repeat what was not acknowledged. `kill -9`
//! takes the process and leaves the kernel's cache, so this is about crashes of the program, not of the machine.
//! Points are random by a seed that is printed; `PAYONCE_TEST_SEED` repeats a run, `PAYONCE_TEST_ROUNDS` makes it long.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed, and tells its seed")]
#![cfg(unix)]

#[path = "../databases/mod.rs"]
mod databases;
mod doubts;
mod encrypted;
mod gateways;
mod own_table;
mod servers;
mod several;
mod support;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use payonce_sim::{
    Notification, Platform,
    courier::{Courier, Plan},
};
use rand::Rng;

use databases::{Kind, on_each_database};
use support::{Books, Site, Storm, rounds, seeded};

on_each_database!(
    killed_in_the_middle_of_a_hundred_callbacks_twenty_at_once,
    what_was_acknowledged_is_in_the_books,
    stopped_and_started_again_during_traffic,
);

/// Issue 2, what it must show, 3; F063, F064, F065: a hundred copies of two callbacks, twenty at once, and the process
/// killed three times meanwhile. The platforms repeat, leases run out, and everything has happened once.
async fn killed_in_the_middle_of_a_hundred_callbacks_twenty_at_once(on: Kind) {
    const KILLS: usize = 3;
    for round in 0..rounds(2) {
        let (seed, mut rng) = seeded(round);
        let mut site = Site::new(on).await;
        let orders = [(Platform::Wechat, "CRASH-WX"), (Platform::Alipay, "CRASH-ALI")];
        site.start().await;
        for (_, order_no) in orders {
            site.register(order_no).await;
        }
        let storm = Storm::new(seed);
        let storms =
            orders.map(|(platform, order_no)| storm.begin(site.url(platform), site.paid(platform, order_no), 100, 20));
        let (mut told, mut leased) = (Vec::new(), 0);
        for kill in 0..KILLS {
            // The first falls into the first booking and its effects, the others anywhere.
            let (acknowledged, pause) = match kill {
                0 => (0, Duration::from_micros(rng.random_range(0..40_000))),
                _ => (rng.random_range(1..180), Duration::from_micros(rng.random_range(0..3000))),
            };
            storm.reached(acknowledged).await;
            tokio::time::sleep(pause).await;
            told.push(format!("{} acknowledged + {pause:?}", storm.acknowledged()));
            site.kill();
            leased += site.books().await.a_minute_passes().await;
            site.start().await;
        }
        eprintln!("seed {seed}: killed at {told:?}; {leased} effects were on their way");
        for storm in storms {
            let campaigns = storm.await.unwrap();
            assert_eq!(campaigns.len(), 100);
            assert!(campaigns.iter().all(|campaign| campaign.acknowledged), "seed {seed}: the platform gave up");
        }
        site.settle().await;
        let mut books = site.books().await;
        for (_, order_no) in orders {
            let once = books.of(order_no).await;
            assert_eq!(once, Books::once(), "seed {seed}: {order_no}, killed at {told:?}");
        }
        assert_eq!(site.audit(&orders, &orders).await, Vec::<String>::new(), "seed {seed}: killed at {told:?}");
        site.stop().await;
    }
}

/// F056: the process dies the moment an answer is out, and no platform repeats anything. What was acknowledged is in
/// the books, and what it owes is delivered after the restart.
async fn what_was_acknowledged_is_in_the_books(on: Kind) {
    const ORDERS: usize = 60;
    let mut site = Site::new(on).await;
    let (mut all, mut acknowledged, mut unanswered) = (Vec::new(), BTreeSet::new(), 0);
    for round in 0..rounds(5) {
        let (seed, mut rng) = seeded(round);
        site.start().await;
        let orders: Vec<String> = (0..ORDERS).map(|index| format!("ACK-{round:03}-{index:03}")).collect();
        for order_no in &orders {
            site.register(order_no).await;
        }
        let events: Vec<Arc<dyn Notification>> =
            orders.iter().map(|order_no| site.paid(Platform::Wechat, order_no)).collect();
        // So that there are twenty on the way, and some that are not sent yet.
        let last = rng.random_range(1..ORDERS - 25);
        let plan = Plan { times: 1, concurrency: 20, seed, ..Plan::default() };
        let urls = [site.url(Platform::Wechat)];
        let kill = |done, _| {
            if done == last {
                site.kill_now();
            }
        };
        let report = Courier.deliver_all(&urls, &events, plan, kill).await;
        site.kill();
        eprintln!("seed {seed}: killed after {last} answers; {} acknowledged", report.taken);
        assert!(report.taken >= last, "seed {seed}: {:?}", report.by_status);
        unanswered += report.failed;
        let mut books = site.books().await;
        for (order_no, taken) in orders.iter().zip(&report.taken_by_event) {
            let (keys, flow, _) = books.rows_of(order_no).await;
            assert!(keys == flow && keys <= 1, "seed {seed}: {order_no}: {keys} keys, {flow} flow rows");
            assert!(*taken == 0 || keys == 1, "seed {seed}: {order_no} was acknowledged and is gone");
            if *taken > 0 {
                acknowledged.insert(order_no.clone());
            }
        }
        books.a_minute_passes().await;
        all.extend(orders);
    }
    assert!(unanswered > 0, "nothing was in the middle of anything");
    site.start().await;
    site.settle().await;
    let mut books = site.books().await;
    for order_no in &acknowledged {
        assert_eq!(books.of(order_no).await, Books::once(), "{order_no}");
    }
    let platform = |order_no: &String| (Platform::Wechat, order_no.clone());
    let happened: Vec<(Platform, String)> = all.iter().map(platform).collect();
    let told: Vec<(Platform, String)> = acknowledged.iter().map(platform).collect();
    assert_eq!(site.audit(&happened, &told).await, Vec::<String>::new());
    site.stop().await;
}

/// F140: deployments during traffic. Each process ends by itself and well, leaves nothing claimed, and nothing is lost.
async fn stopped_and_started_again_during_traffic(on: Kind) {
    const ORDERS: usize = 30;
    for round in 0..rounds(1) {
        let (seed, mut rng) = seeded(round);
        let mut site = Site::new(on).await;
        site.start().await;
        let platform = |index: usize| [Platform::Wechat, Platform::Alipay][index % 2];
        let orders: Vec<(Platform, String)> =
            (0..ORDERS).map(|index| (platform(index), format!("DEPLOY-{index:02}"))).collect();
        for (_, order_no) in &orders {
            site.register(order_no).await;
        }
        let storm = Storm::new(seed);
        let begin = |(platform, order_no): &(Platform, String)| {
            storm.begin(site.url(*platform), site.paid(*platform, order_no), 12, 2)
        };
        let storms: Vec<_> = orders.iter().map(begin).collect();
        for deployment in 1..=4 {
            storm.reached(ORDERS * 12 * deployment / 6).await;
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..30_000))).await;
            let at = storm.acknowledged();
            let (code, log) = site.stop().await;
            assert_eq!(code, Some(0), "seed {seed}: stopped at {at}: {log}");
            let leased = site.books().await.leased().await;
            assert_eq!(leased, 0, "seed {seed}: stopped at {at}: effects are still claimed: {log}");
            site.start().await;
        }
        for storm in storms {
            let campaigns = storm.await.unwrap();
            assert!(campaigns.iter().all(|campaign| campaign.acknowledged), "seed {seed}: the platform gave up");
        }
        site.settle().await;
        let mut books = site.books().await;
        for (_, order_no) in &orders {
            assert_eq!(books.of(order_no).await, Books::once(), "seed {seed}: {order_no}");
        }
        assert_eq!(site.audit(&orders, &orders).await, Vec::<String>::new(), "seed {seed}");
        site.stop().await;
    }
}
