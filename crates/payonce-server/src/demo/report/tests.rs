//! Each wrong figure makes the verdict fail.

use super::*;
use crate::demo::race::Shipments;

/// What is counted when everything holds.
pub(in crate::demo) fn right() -> Report {
    let repeats = |platform, order_no: &str, answer: &str| Repeats {
        delivered: 100,
        acknowledged: 100,
        answers: BTreeMap::from([(answer.to_owned(), 100)]),
        slowest_ms: 30,
        idempotency_rows: 1,
        repeats_counted: 99,
        flow_rows: 1,
        status: "PAID".to_owned(),
        stock_taken: 1,
        webhook_keys: 2,
        webhook_deliveries: 2,
        ..Repeats::of(platform, order_no.to_owned())
    };
    let odd = |case: Case| {
        let (due, known) = (due(case), case == Case::UnknownOrder);
        Odd {
            answered: due.answered.to_owned(),
            word: due.word.to_owned(),
            status: due.status.to_owned(),
            idempotency_rows: due.rows,
            flow_rows: due.rows,
            stock_taken: due.stock,
            webhooks: due.webhooks,
            status_when_registered: known.then(|| "PAID".to_owned()),
            answered_again: known.then(|| "200 success".to_owned()),
            ..Odd::of(case, "DEMO-ODD".to_owned())
        }
    };
    let rounds = ROUNDS as i64;
    let race = |at_once: usize| Race {
        at_once,
        rounds: ROUNDS,
        look_then_update: Shipments { total: rounds * at_once as i64, worst: at_once as i64, fewest: at_once as i64 },
        conditional: Shipments { total: rounds, worst: 1, fewest: 1 },
    };
    let meetings = MEETINGS as i64;
    Report {
        seed: 7,
        times: 100,
        concurrency: 20,
        repeats: vec![
            repeats(Platform::Wechat, "DEMO-WX-1", "204"),
            repeats(Platform::Alipay, "DEMO-ALI-1", "200 success"),
        ],
        odd: CASES.map(odd).into(),
        meetings: Meetings {
            orders: MEETINGS,
            answered_well: 2 * MEETINGS,
            idempotency_rows: meetings,
            flow_rows: meetings,
            paid: MEETINGS,
            stock_taken: meetings,
        },
        races: AT_ONCE.map(race).into(),
        webhooks: Webhooks { owed: 27, distinct: 27, deliveries: 28, badly_signed: 0, bodies_differ: 0 },
        facts: 14,
        audit: Vec::new(),
        seconds: 2.0,
    }
}

#[test]
fn what_is_right_holds() {
    let (checked, wrong) = right().wrong();
    assert_eq!(wrong, []);
    assert_eq!(right().json()["holds"], true);
    assert!(checked > 80, "{checked}");
}

type Spoil = fn(&mut Report);

/// One figure each.
const SPOILED: [(&str, Figure, Spoil); 34] = [
    ("repeats", Figure::Scenes, |it| it.repeats.truncate(1)),
    ("odd", Figure::Scenes, |it| it.odd.truncate(7)),
    ("races", Figure::Scenes, |it| it.races.truncate(3)),
    ("DEMO-WX-1", Figure::Delivered, |it| it.repeats[0].delivered = 99),
    ("DEMO-WX-1", Figure::Acknowledged, |it| it.repeats[0].acknowledged = 99),
    ("DEMO-WX-1", Figure::Answers, |it| it.repeats[0].answers.extend([("503 FAIL".to_owned(), 1)])),
    ("DEMO-ALI-1", Figure::Answers, |it| it.repeats[1].answers = BTreeMap::from([("204".to_owned(), 100)])),
    ("DEMO-ALI-1", Figure::Answers, |it| it.repeats[1].answers.clear()),
    ("DEMO-WX-1", Figure::IdempotencyRows, |it| it.repeats[0].idempotency_rows = 2),
    ("DEMO-WX-1", Figure::IdempotencyRows, |it| it.repeats[0].idempotency_rows = 0),
    ("DEMO-WX-1", Figure::RepeatsCounted, |it| it.repeats[0].repeats_counted = 98),
    ("DEMO-ALI-1", Figure::FlowRows, |it| it.repeats[1].flow_rows = 2),
    ("DEMO-ALI-1", Figure::Status, |it| it.repeats[1].status = "PENDING".to_owned()),
    ("DEMO-ALI-1", Figure::StockTaken, |it| it.repeats[1].stock_taken = 2),
    ("DEMO-ALI-1", Figure::WebhookKeys, |it| it.repeats[1].webhook_keys = 1),
    ("DEMO-ODD", Figure::Answered, |it| it.odd[0].answered = "204".to_owned()),
    ("DEMO-ODD", Figure::Word, |it| it.odd[2].word = "signature".to_owned()),
    ("DEMO-ODD", Figure::Status, |it| it.odd[3].status = "PAID".to_owned()),
    ("DEMO-ODD", Figure::IdempotencyRows, |it| it.odd[4].idempotency_rows = 1),
    ("DEMO-ODD", Figure::FlowRows, |it| it.odd[5].flow_rows = 1),
    ("DEMO-ODD", Figure::StockTaken, |it| it.odd[6].stock_taken = 1),
    ("DEMO-ODD", Figure::WebhookKeys, |it| it.odd[6].webhooks = 0),
    ("DEMO-ODD", Figure::StatusWhenRegistered, |it| it.odd[7].status_when_registered = None),
    ("DEMO-ODD", Figure::AnsweredAgain, |it| it.odd[7].answered_again = Some("503 fail".to_owned())),
    ("DEMO-BOTH-*", Figure::Scenes, |it| it.meetings.orders = 0),
    ("DEMO-BOTH-*", Figure::Acknowledged, |it| it.meetings.answered_well -= 1),
    ("DEMO-BOTH-*", Figure::IdempotencyRows, |it| it.meetings.idempotency_rows += 1),
    ("DEMO-BOTH-*", Figure::FlowRows, |it| it.meetings.flow_rows += 1),
    ("DEMO-BOTH-*", Figure::Paid, |it| it.meetings.paid -= 1),
    ("DEMO-BOTH-*", Figure::StockTaken, |it| it.meetings.stock_taken += 1),
    ("race of 2", Figure::ConditionalShipments, |it| it.races[0].conditional.total += 1),
    ("webhooks", Figure::WebhookKeys, |it| it.webhooks.distinct -= 1),
    ("webhooks", Figure::BadlySigned, |it| it.webhooks.badly_signed = 1),
    ("webhooks", Figure::BodiesDiffer, |it| it.webhooks.bodies_differ = 1),
];

#[test]
fn each_wrong_figure_makes_the_verdict_fail_and_is_named() {
    for (subject, figure, spoil) in SPOILED {
        let mut report = right();
        spoil(&mut report);
        let (_, wrong) = report.wrong();
        assert!(
            matches!(wrong.as_slice(), [one] if one.subject == subject && one.figure == figure),
            "{subject} {figure:?}: {wrong:?}"
        );
        assert_eq!(report.json()["holds"], false);
    }
}

#[test]
fn what_the_auditor_finds_is_in_the_verdict() {
    let mut report = right();
    report.audit.push("flow WXPAY:DEMO-WX-1:PAY is there 2 times".to_owned());
    let (_, wrong) = report.wrong();
    assert!(matches!(wrong.as_slice(), [one] if one.figure == Figure::Audit && one.found.contains("2 times")));
}

/// One order shipped twice and another not at all have the right sum.
#[test]
fn a_race_is_judged_by_its_worst_order() {
    let mut report = right();
    report.races[3].conditional = Shipments { total: ROUNDS as i64, worst: 2, fewest: 0 };
    assert_eq!(report.wrong().1.len(), 1);
}

#[test]
fn a_race_that_did_not_show_is_no_fault() {
    let mut report = right();
    for race in &mut report.races {
        race.look_then_update = race.conditional;
    }
    assert!(!report.race_shown());
    assert_eq!(report.wrong().1, []);
}
