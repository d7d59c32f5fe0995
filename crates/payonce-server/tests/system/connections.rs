//! Slow, silent and too many connections; and going down without losing anything.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::support::*;
use payonce_sim::courier::{Courier, Failure, Plan as Delivery};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn connect(house: &House) -> TcpStream {
    TcpStream::connect(house.running.public).await.unwrap()
}

/// Until the gateway has closed a connection on which we say no more.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it stays open").ok();
}

/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(300);

const ASK: &[u8] = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";

/// Asks, and says whether an answer came within so long.
async fn ask_within(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.write_all(ASK).await.unwrap();
    let mut buffer = [0; 1024];
    matches!(tokio::time::timeout(patience, stream.read(&mut buffer)).await, Ok(Ok(count)) if count > 0)
}

async fn ask(stream: &mut TcpStream) -> bool {
    ask_within(stream, PATIENCE).await
}

/// Silence and half-sent headers end after one time, which is not that of idle connections.
#[tokio::test(flavor = "multi_thread")]
async fn silence_and_half_sent_headers_end() {
    let mut plan = Plan::default();
    plan.limits.header_read_timeout = Duration::from_millis(200);
    plan.limits.keep_alive_idle = NEVER;
    let house = House::with(plan).await;
    let mut half = connect(&house).await;
    half.write_all(b"POST /notify/wx-main HTTP/1.1\r\nHost").await.unwrap();
    let mut trickling = connect(&house).await;
    let trickle = tokio::spawn(async move {
        // One byte now and then does not win time.
        loop {
            tokio::time::sleep(Duration::from_millis(40)).await;
            if trickling.write_all(b"G").await.is_err() {
                return;
            }
        }
    });
    let mut idle = connect(&house).await;
    assert!(ask(&mut idle).await);
    closed(connect(&house).await).await;
    closed(half).await;
    tokio::time::timeout(PATIENCE, trickle).await.expect("it wins time").unwrap();
    assert!(ask(&mut idle).await, "idle for longer than a header may take");
    idle.write_all(b"POST").await.unwrap();
    closed(idle).await;
}

/// Idle connections of a proxy end after a time of their own.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_end() {
    let mut plan = Plan::default();
    plan.limits.header_read_timeout = NEVER;
    plan.limits.keep_alive_idle = Duration::from_millis(200);
    let house = House::with(plan).await;
    let mut idle = connect(&house).await;
    assert!(ask(&mut idle).await);
    closed(idle).await;
}

/// Headers that are too large or too many are refused, and nobody calls that a success.
#[tokio::test(flavor = "multi_thread")]
async fn headers_are_bounded() {
    let house = House::start().await;
    let large = format!("POST /notify/wx-main HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(20_000));
    let (status, _, body) = house.raw(large.as_bytes()).await;
    assert_eq!((status, body.as_slice()), (431, b"".as_slice()));
    let lines: String = (0..150).map(|index| format!("X-{index}: 1\r\n")).collect();
    let many = format!("POST /notify/wx-main HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
    let (status, _, body) = house.raw(many.as_bytes()).await;
    assert_eq!((status, body.as_slice()), (431, b"".as_slice()));
    for broken in ["\x16\x03\x01\x02\x00\x01", "GET\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let (status, _, body) = house.raw(broken.as_bytes()).await;
        assert!(status == 0 || status >= 400, "{status}");
        assert!(body.is_empty());
    }
}

/// When all places are taken, a further connection waits until one is given up.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded() {
    let mut plan = Plan::default();
    plan.limits.connections = 2;
    plan.limits.header_read_timeout = NEVER;
    plan.limits.keep_alive_idle = NEVER;
    let house = House::with(plan).await;
    let (mut one, mut two) = (connect(&house).await, connect(&house).await);
    assert!(ask(&mut one).await && ask(&mut two).await);
    let mut three = connect(&house).await;
    assert!(!ask_within(&mut three, Duration::from_millis(300)).await, "no place");
    drop(one);
    let mut buffer = [0; 1024];
    let read = tokio::time::timeout(PATIENCE, three.read(&mut buffer)).await.unwrap().unwrap();
    assert!(read > 0, "it waited, and got the place");
    drop(two);
}

/// Where it is crowded, idle connections make place after a header's time, and not after 75 s.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_place() {
    let mut plan = Plan::default();
    plan.limits.connections = 2;
    plan.limits.header_read_timeout = Duration::from_millis(500);
    plan.limits.keep_alive_idle = NEVER;
    let house = House::with(plan).await;
    let (mut one, mut two) = (connect(&house).await, connect(&house).await);
    one.write_all(ASK).await.unwrap();
    two.write_all(ASK).await.unwrap();
    let mut three = connect(&house).await;
    assert!(ask(&mut three).await);
    drop((one, two));
}

/// F140: a shutdown answers what is in flight, refuses what comes, and loses nothing; many times, under load.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_drains() {
    let trouble = Arc::new(Trouble::default());
    let plan = || Plan { trouble: Some(Arc::clone(&trouble)), ..Plan::default() };
    let mut house = House::with(plan()).await;
    let mut owed = 0;
    for round in 0..rounds(4) {
        let order = fresh("F140-");
        house.order(&order, 100).await;
        owed += 2;
        trouble.delay_ms.store(400, Ordering::SeqCst);
        let begun = trouble.begun.load(Ordering::SeqCst);
        let urls = [house.notify_url("wx-main")];
        let plan_of =
            Delivery { times: 36, concurrency: 12, barrier: true, seed: u64::from(round), ..Delivery::default() };
        let event = Arc::new(wx_paid(&order, 100));
        let load = tokio::spawn(async move { Courier.deliver_many(&urls, event, plan_of, |_, _| {}).await });
        while trouble.begun.load(Ordering::SeqCst) == begun {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // The whole first wave is in: their last bytes went out together.
        tokio::time::sleep(Duration::from_millis(200)).await;
        house = house.restart(plan()).await;
        let report = load.await.unwrap();
        // Whoever got an answer got a true one; whoever came too late met a closed door, not a broken word.
        assert!(report.taken >= 12, "those in flight were answered: {:?}", report.by_status);
        assert_eq!(report.refused, 0, "{:?}", report.by_status);
        for failed in report.deliveries.iter().filter_map(|delivery| delivery.outcome.as_ref().err()) {
            assert!(matches!(failed, Failure::Unreachable(_) | Failure::Broken(_)), "{failed:?}");
        }
        trouble.delay_ms.store(0, Ordering::SeqCst);
        wx_acknowledged(&house.deliver("wx-main", &send_wx(&wx_paid(&order, 100))).await);
        let mut books = house.books().await;
        assert_eq!(books.of(&order).await, (1, 1, 2));
        // Between two gateways no effect is in the hands of one that is gone.
        house.effects_taken(owed).await;
        let open = "SELECT count(*) FROM payonce_effect WHERE state <> 'done'";
        let asked = Instant::now();
        // Recorded a moment after it was taken; a lease of somebody who is gone would last a minute.
        while books.count(open).await > 0 {
            assert!(asked.elapsed() < PATIENCE, "an effect is in the hands of nobody");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// F140: what does not finish in time is reported, was acknowledged to nobody, and does not keep the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_whatever_hangs() {
    let trouble = Arc::new(Trouble::default());
    let mut plan = Plan { trouble: Some(Arc::clone(&trouble)), ..Plan::default() };
    plan.limits.drain = Duration::from_millis(300);
    let house = House::with(plan).await;
    let order = fresh("F140H-");
    house.order(&order, 100).await;
    trouble.delay_ms.store(20_000, Ordering::SeqCst);
    let url = house.notify_url("wx-main");
    let waiting = tokio::spawn(async move {
        let request = send_wx(&wx_paid(&order, 100));
        Courier.deliver(&url, &request, PATIENCE).await
    });
    // And one that only half sent its headers.
    let mut half = connect(&house).await;
    half.write_all(b"POST /notify").await.unwrap();
    while trouble.begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let public = house.running.public;
    let started = Instant::now();
    let late = house.running.shutdown().await.unwrap_err();
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    assert!(late.0.contains(&"connections") && late.0.contains(&"bookings"), "{late}");
    assert!(waiting.await.unwrap().status().is_none(), "no answer, so the platform sends it again");
    assert!(TcpStream::connect(public).await.is_err());
}

/// An idle gateway with idle connections goes down at once.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_hold_up_no_shutdown() {
    let mut plan = Plan::default();
    plan.limits.drain = NEVER;
    plan.limits.header_read_timeout = NEVER;
    let house = House::with(plan).await;
    let mut idle = connect(&house).await;
    assert!(ask(&mut idle).await);
    let silent = connect(&house).await;
    // Let the gateway accept it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::timeout(PATIENCE, house.running.shutdown()).await.expect("at once").unwrap();
    drop(silent);
}
