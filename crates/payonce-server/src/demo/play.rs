//! The scenes in which everything is genuine: one callback again and again, and two entrances at one moment.
//!
//! Here: carrying, waiting until all that is owed has arrived, and filling the report with what was counted. Not
//! here: messages that are wrong (`odd`), what the figures must be (`report`).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use payonce_sim::{
    Platform, Response,
    auditor::{self, Fact, Kind},
    courier::{Courier, Delivery, Plan},
    text::now_unix,
};
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::Barrier;

use super::{
    Options, Result, Scene, Watch,
    books::Books,
    odd,
    report::{Meetings, Repeats, Report, Webhooks},
    stage::{Client, FEN, PLATFORMS, Stage},
};

/// Orders that are paid by callback and query answer at once.
pub(super) const MEETINGS: usize = 10;

/// The order whose callback is repeated.
fn repeated(platform: Platform) -> String {
    match platform {
        Platform::Wechat => "DEMO-WX-1".to_owned(),
        Platform::Alipay => "DEMO-ALI-1".to_owned(),
    }
}

fn meeting(index: usize) -> (Platform, String) {
    (PLATFORMS[index % PLATFORMS.len()], format!("DEMO-BOTH-{:02}", index + 1))
}

/// Every order of the demo.
pub(super) fn order_numbers() -> Vec<String> {
    let repeated = PLATFORMS.into_iter().map(repeated);
    let odd = odd::CASES.into_iter().map(odd::Case::order_no);
    repeated.chain(odd).chain((0..MEETINGS).map(|index| meeting(index).1)).collect()
}

/// The books' name for a payment.
fn fact_key(platform: Platform, order_no: &str) -> String {
    let channel = match platform {
        Platform::Wechat => "WXPAY",
        Platform::Alipay => "ALIPAY",
    };
    format!("{channel}:{order_no}:PAY")
}

/// An answer in a few letters: `204`, `200 success`, `401 FAIL`.
pub(super) fn brief(answer: &Response) -> String {
    let code = serde_json::from_slice::<serde_json::Value>(&answer.body).ok();
    let code = code.and_then(|body| body["code"].as_str().map(str::to_owned));
    let text = code.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).chars().take(20).collect());
    format!("{} {text}", answer.status).trim_end().to_owned()
}

pub(super) fn answered(delivery: &Delivery) -> String {
    match &delivery.outcome {
        Ok(answer) => brief(answer),
        Err(failure) => format!("{failure:?}"),
    }
}

/// Registers an order and delivers its one callback so many times, in waves that are released at one moment.
pub(super) async fn repeats(
    stage: &Stage,
    client: &Client,
    options: &Options,
    platform: Platform,
    watch: &Watch<'_>,
) -> Result<Repeats> {
    watch(Scene::Repeats, 0);
    let order_no = repeated(platform);
    client.register(&order_no).await?;
    let plan = Plan {
        times: options.times,
        concurrency: options.concurrency,
        barrier: true,
        deadline: platform.deadline(),
        hang_up: None,
        seed: options.seed,
    };
    let (urls, event) = ([client.notify_url(platform)], stage.paid(platform, &order_no));
    let told = Courier.deliver_many(&urls, event, plan, |_, _| watch(Scene::Repeats, 1)).await;
    let mut repeats = Repeats::of(platform, order_no);
    repeats.delivered = told.deliveries.len();
    repeats.acknowledged = told.taken;
    repeats.slowest_ms = told.deliveries.iter().map(|delivery| delivery.elapsed).max().unwrap_or_default().as_millis();
    for delivery in &told.deliveries {
        *repeats.answers.entry(answered(delivery)).or_default() += 1;
    }
    Ok(repeats)
}

/// Callback and query answer for one payment, released at one barrier; order after order.
pub(super) async fn meetings(stage: &Stage, client: &Client, options: &Options, watch: &Watch<'_>) -> Result<Meetings> {
    watch(Scene::Meetings, 0);
    let mut meetings = Meetings::default();
    let mut rng = StdRng::seed_from_u64(options.seed);
    for index in 0..MEETINGS {
        let (platform, order_no) = meeting(index);
        client.register(&order_no).await?;
        let request = stage.paid(platform, &order_no).request(now_unix(), &mut rng);
        let answer = stage.query_answer(platform, &order_no);
        let barrier = Arc::new(Barrier::new(2));
        let callback = tokio::spawn({
            let (client, barrier) = (client.clone(), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                client.deliver(platform, &request).await
            }
        });
        barrier.wait().await;
        let settled = client.hand_in(platform, &answer).await?;
        let taken = callback.await?.taken(platform);
        meetings.orders += 1;
        meetings.answered_well += usize::from(settled) + usize::from(taken);
        watch(Scene::Meetings, 1);
    }
    Ok(meetings)
}

/// How long the last deliveries may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// And how long we look whether there comes more than there should.
const AFTERWARDS: Duration = Duration::from_millis(200);

/// Waits until nothing is owed any more, and the counters of repeats are written.
pub(super) async fn settle(stage: &Stage, books: &mut Books) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (open, owed) = (books.effects_open().await?, books.webhooks_owed().await?);
        let arrived = stage.receiver.counts().distinct_taken as i64;
        if (open == 0 && arrived >= owed) || Instant::now() > until {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Counters of repeats go with the next transaction, or after a second alone.
    tokio::time::sleep(AFTERWARDS).await;
    let mut before = i64::MIN;
    for platform in PLATFORMS.into_iter().cycle() {
        let tally = books.tally(&repeated(platform)).await?;
        if tally.repeats_counted == before || Instant::now() > until {
            return Ok(());
        }
        before = tally.repeats_counted;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(super) async fn webhooks(stage: &Stage, books: &mut Books) -> Result<Webhooks> {
    let counts = stage.receiver.counts();
    Ok(Webhooks {
        owed: books.webhooks_owed().await?,
        distinct: counts.distinct,
        deliveries: counts.deliveries,
        badly_signed: counts.badly_signed,
        bodies_differ: counts.bodies_differ,
    })
}

/// Fills in what the database and the receiver say, and lets the auditor compare all of it.
pub(super) async fn count(stage: &Stage, books: &mut Books, report: &mut Report) -> Result<()> {
    let received = stage.receiver.bodies_by_id();
    let mut facts = Vec::new();
    let mut happened = |platform, order_no: &str, amount, acknowledged| {
        let (key, order_no) = (fact_key(platform, order_no), order_no.to_owned());
        facts.push(Fact { key, kind: Kind::Payment, order_no, amount, acknowledged });
    };
    for (platform, repeats) in PLATFORMS.into_iter().zip(&mut report.repeats) {
        happened(platform, &repeats.order_no, FEN, repeats.acknowledged > 0);
        let tally = books.tally(&repeats.order_no).await?;
        let mine = received.iter().filter(|(key, _)| tally.webhook_keys.contains(key));
        repeats.webhook_deliveries = mine.clone().map(|(_, bodies)| bodies.len()).sum();
        repeats.webhook_keys = mine.count();
        repeats.idempotency_rows = tally.idempotency_rows;
        repeats.flow_rows = tally.flow_rows;
        repeats.repeats_counted = tally.repeats_counted;
        repeats.status = tally.status;
        repeats.stock_taken = tally.stock_taken;
    }
    for odd in &mut report.odd {
        if let Some(amount) = odd.case.booked_amount() {
            happened(odd.case.platform(), &odd.order_no, amount, true);
        }
        let tally = books.tally(&odd.order_no).await?;
        odd.idempotency_rows = tally.idempotency_rows;
        odd.flow_rows = tally.flow_rows;
        odd.status = tally.status;
        odd.stock_taken = tally.stock_taken;
        odd.webhooks = tally.webhook_keys.len();
    }
    for (platform, order_no) in (0..report.meetings.orders).map(meeting) {
        happened(platform, &order_no, FEN, true);
        let tally = books.tally(&order_no).await?;
        report.meetings.idempotency_rows += tally.idempotency_rows;
        report.meetings.flow_rows += tally.flow_rows;
        report.meetings.paid += usize::from(tally.status == "PAID");
        report.meetings.stock_taken += tally.stock_taken;
    }
    let whole = books.whole(received).await?;
    report.facts = facts.len();
    report.audit = auditor::audit(&facts, &whole).iter().map(ToString::to_string).collect();
    Ok(())
}
