//! The courier against small servers on the loopback address: judging, repeating, one moment, hanging up, schedules.

use super::*;
use crate::platform::custom;
use crate::receiver::{Behaviour, Receiver};
use std::sync::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(5);

fn numbered() -> Arc<dyn Notification> {
    let next = AtomicUsize::new(0);
    custom(Platform::Wechat, "n", move |_, _| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        Request { headers: vec![("webhook-id".into(), number.to_string())], body: b"hello".to_vec() }
    })
}

fn total(gaps: &[Duration]) -> Duration {
    gaps.iter().sum()
}

#[test]
fn schedules_are_the_official_ones() {
    let hours = |hours: u64, minutes: u64| Duration::from_secs(hours * 3600 + minutes * 60);
    assert_eq!((WECHAT_GAPS.len(), total(&WECHAT_GAPS)), (15, hours(24, 4)));
    assert_eq!((ALIPAY_GAPS_4M.len(), total(&ALIPAY_GAPS_4M)), (7, hours(24, 24)));
    assert_eq!((ALIPAY_GAPS_2M.len(), total(&ALIPAY_GAPS_2M)), (7, hours(24, 22)));
    assert_eq!(total(Platform::Wechat.gaps()), hours(24, 4));
}

#[tokio::test]
async fn delivers_many_and_counts() {
    let receivers = [Receiver::start(None).await.unwrap(), Receiver::start(None).await.unwrap()];
    receivers[1].behave(Behaviour { fail_next: 3, ..Behaviour::default() });
    let urls: Vec<String> = receivers.iter().map(Receiver::url).collect();
    let plan = Plan { times: 20, concurrency: 4, ..Plan::default() };
    let mut heard = Vec::new();
    let report = Courier.deliver_many(&urls, numbered(), plan, |done, total| heard.push((done, total))).await;
    assert_eq!((report.taken, report.refused, report.failed), (17, 3, 0));
    assert_eq!(report.by_status, BTreeMap::from([(204, 17), (500, 3)]));
    assert_eq!(report.taken_by_event, [17]);
    assert_eq!(heard, (1..=20).map(|done| (done, 20)).collect::<Vec<_>>());
    // Each delivery was made anew, and half of them went to each address.
    assert_eq!(receivers.each_ref().map(|receiver| receiver.counts().distinct), [10, 10]);
}

#[tokio::test]
async fn says_why_there_is_no_answer() {
    let request = Request { headers: vec![], body: vec![] };
    let outcome = async |url: &str| Courier.deliver(url, &request, PATIENCE).await.outcome;
    assert!(matches!(outcome("https://127.0.0.1/").await, Err(Failure::Unreachable(_))));
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(matches!(outcome(&format!("http://{gone}/")).await, Err(Failure::Unreachable(_))));
    let report = Courier.deliver_many(&[], numbered(), Plan::default(), |_, _| {}).await;
    assert!(report.deliveries.is_empty() && report.first_failure().is_none());
}

/// A server that notes, for each connection, when how many bytes were there, and never answers until told how.
async fn listen(answer: &'static [u8]) -> (String, Arc<Mutex<Vec<usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&sizes);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let at = {
                let mut sizes = shared.lock().unwrap();
                sizes.push(0);
                sizes.len() - 1
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                while stream.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
                    shared.lock().unwrap()[at] = buffer.len();
                    if buffer.ends_with(b"\r\n\r\nhello") {
                        buffer.clear();
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (url, sizes)
}

#[tokio::test]
async fn a_barrier_holds_the_last_byte_back() {
    let (url, sizes) = listen(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let target = Target::parse(&url).unwrap();
    let request = numbered().request(0, &mut StdRng::seed_from_u64(0));
    let whole = wire::request_bytes(&target, &request).len();
    let (mut connection, last) = prepare(&url, &request, PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(*sizes.lock().unwrap(), [whole - 1]);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let (answer, _) = connection.exchange(&last, deadline, None).await.unwrap();
    assert_eq!(answer.status, 204);

    // Ten at once, twice: every wave has its own connections.
    let plan = Plan { times: 20, concurrency: 10, barrier: true, ..Plan::default() };
    let report = Courier.deliver_many(&[url], numbered(), plan, |_, _| {}).await;
    assert_eq!((report.taken, sizes.lock().unwrap().len()), (20, 21));
}

#[tokio::test]
async fn a_barrier_does_not_wait_for_whom_never_comes() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (url, _) = listen(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let plan = Plan { times: 4, concurrency: 4, barrier: true, ..Plan::default() };
    let report = Courier.deliver_many(&[url, format!("http://{gone}/")], numbered(), plan, |_, _| {}).await;
    assert_eq!((report.taken, report.failed), (2, 2));
}

#[tokio::test]
async fn hangs_up_when_told() {
    let (url, sizes) = listen(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let request = numbered().request(0, &mut StdRng::seed_from_u64(0));
    let whole = request.to_http(&url).unwrap().len();
    for (hang_up, size) in [(HangUp::AfterBytes(30), 30), (HangUp::AfterRequest(Duration::ZERO), whole)] {
        let delivery = Courier.deliver_and_hang_up(&url, &request, hang_up).await;
        assert_eq!(delivery.outcome, Err(Failure::HungUp));
        for _ in 0..100 {
            if sizes.lock().unwrap().last() == Some(&size) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(sizes.lock().unwrap().last(), Some(&size));
    }
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_opened_again() {
    // This one closes after each answer without saying so.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 1024];
            let read = stream.read(&mut buffer).await;
            let wrote = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess").await;
            assert!(read.is_ok() && wrote.is_ok());
        }
    });
    let plan = Plan { times: 5, ..Plan::default() };
    let report = Courier.deliver_many(&[url], numbered(), plan, |_, _| {}).await;
    assert_eq!((report.taken, report.failed), (5, 0));
}

#[tokio::test]
async fn sends_until_acknowledged_and_not_longer() {
    let receiver = Receiver::start(None).await.unwrap();
    receiver.behave(Behaviour { fail_next: 3, ..Behaviour::default() });
    let urls = [receiver.url()];
    let event = numbered();
    let fast = 1_000_000_000;
    let mut tries = 0;
    let send = Courier.until_acknowledged(&urls, &*event, &WECHAT_GAPS, fast, Plan::default(), |_| tries += 1);
    let campaign = send.await;
    assert!(campaign.acknowledged);
    assert_eq!((campaign.deliveries.len(), tries), (4, 4));

    receiver.behave(Behaviour { fail_next: 100, ..Behaviour::default() });
    let plan = Plan::default();
    let campaign = Courier.until_acknowledged(&urls, &*event, Platform::Alipay.gaps(), fast, plan, |_| {}).await;
    assert_eq!((campaign.acknowledged, campaign.deliveries.len()), (false, 8));
}

#[tokio::test]
async fn waits_the_gaps_in_scaled_time() {
    let receiver = Receiver::start(None).await.unwrap();
    receiver.behave(Behaviour { fail_next: 2, ..Behaviour::default() });
    let started = Instant::now();
    let gaps = [Duration::from_secs(15), Duration::from_secs(15)];
    let campaign =
        Courier.until_acknowledged(&[receiver.url()], &*numbered(), &gaps, 500, Plan::default(), |_| {}).await;
    assert!(campaign.acknowledged && started.elapsed() >= Duration::from_millis(60));
}
