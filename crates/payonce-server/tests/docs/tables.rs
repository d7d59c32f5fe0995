//! What the pages list is what the code has: no more, no less, with the same numbers.

use std::{collections::BTreeSet, path::Path, time::Duration};

use payonce::{
    apply::{Case, Decision, decide},
    channel::{Channel, Reason},
    ids::{AccountName, Merchant, OrderKind, OrderNo, OutTradeNo, Shop, TradeNo},
    money::Money,
    notice::{Fact, Notice, Source},
    order::{Attempt, AttemptState, Number, Order, OrderId, OrderStatus},
    outcome::{Disposition, HoldReason, Outcome, Refusal, Verdict},
    rules::{Event, LatePolicy},
    statement::Statement,
    store::EffectState,
    time::Micros,
};
use payonce_server::{config, error::Code};

use crate::blocks::{self, Page};

fn both(name: &str) -> [Page; 2] {
    ["en", "zh"].map(|language| Page::read(&format!("docs/{language}/{name}.md")))
}

/// Some row that begins with the code and has each of these in a cell of its own.
fn has_row(page: &Page, code: &str, cells: &[&str]) {
    let named = format!("`{code}`");
    let fits = |row: &Vec<String>| row[0] == named && cells.iter().all(|cell| row[1..].iter().any(|have| have == cell));
    assert!(page.rows().iter().any(fits), "{}: no row begins with {named} and has {cells:?}", page.path);
}

#[test]
fn states_are_those_of_the_code() {
    let orders = OrderStatus::ALL.map(OrderStatus::as_str);
    let effects = EffectState::ALL.map(EffectState::as_str);
    let attempts = [AttemptState::Open, AttemptState::Closed].map(AttemptState::as_str);
    let holds = HoldReason::ALL.map(HoldReason::as_str);
    let dispositions = [Disposition::Fits, Disposition::Mismatched, Disposition::Late, Disposition::Noted];
    let dispositions = dispositions.map(Disposition::as_str);
    for page in both("lifecycle") {
        for code in orders.iter().chain(&effects).chain(&attempts).chain(&holds).chain(&dispositions) {
            page.row(code);
        }
        // Diagrams too: each order status and effect state is in a picture.
        let pictures: String = page.blocks().map(|block| block.body.as_str()).collect();
        for code in orders.iter().chain(&effects) {
            assert!(pictures.contains(code), "{}: {code} is in no picture", page.path);
        }
    }
}

#[test]
fn the_acknowledgement_table_is_that_of_the_code() {
    let (grace, now) = (Duration::from_secs(600), Micros::from_seconds(10_000));
    let held = HoldReason::ALL.map(|reason| Outcome::Held { reason, first_seen: now });
    let dispositions = [Disposition::Fits, Disposition::Mismatched, Disposition::Late, Disposition::Noted];
    let outcomes =
        dispositions.map(Outcome::Applied).into_iter().chain([Outcome::Repeated, Outcome::Undecided]).chain(held);
    for page in both("lifecycle") {
        for outcome in outcomes.clone() {
            let row = page.row(outcome.word());
            let taken = outcome.is_acknowledged(now, grace);
            let later = outcome.is_acknowledged(now.plus(grace), grace);
            let said: Vec<bool> = ["204", "success"].map(|word| row.iter().any(|cell| cell.contains(word))).into();
            assert_eq!(said, [taken || later; 2], "{}: {row:?}", page.path);
            let refused: Vec<bool> = ["503", "500"].map(|word| row.iter().any(|cell| cell.contains(word))).into();
            assert_eq!(refused.contains(&true), !taken, "{}: {row:?}", page.path);
        }
    }
}

const NOW: Micros = Micros::from_seconds(1_800_000_000);

/// An order of 100 with the numbers A (100), B (60) and C (40), as the page says.
fn case() -> Case {
    let id = OrderId { shop: Shop::default_shop(), order_no: OrderNo::new("O").unwrap() };
    let attempts = [("A", 100), ("B", 60), ("C", 40)].map(|(name, amount)| Attempt {
        number: number(name),
        order: Some(id.clone()),
        amount: Some(amount),
        state: AttemptState::Open,
        closed_at: None,
    });
    let order = Order {
        id,
        kind: OrderKind::new("goods").unwrap(),
        money: Money::cny(100).unwrap(),
        status: OrderStatus::Pending,
        paid: 0,
        refunded: 0,
        unapplied: 0,
        version: 0,
        closed_at: None,
        paid_at: None,
        created_at: NOW,
        meta: "{}".to_owned(),
    };
    Case { order, attempts: attempts.into(), payments: Vec::new(), own: None }
}

fn number(name: &str) -> Number {
    Number { merchant: Merchant::of("WXPAY", "1900000001").unwrap(), out_trade_no: OutTradeNo::new(name).unwrap() }
}

/// `pay A 100`, `pay A T2 100` (another transaction), `refund A 30`, `refund A ?`, `close A`.
fn notice(text: &str, refund_no: usize) -> Notice {
    let words: Vec<&str> = text.split(' ').collect();
    let name = words[1];
    let trade = if words.len() == 4 { words[2].to_owned() } else { format!("T-{name}") };
    let (fact, trade_no) = match words[0] {
        "pay" => (Fact::Payment, Some(trade)),
        "refund" => (Fact::Refund { refund_no: format!("R{refund_no}").into(), full: false }, Some(trade)),
        "close" => (Fact::Closed, None),
        word => panic!("no such fact: {word}"),
    };
    Notice {
        merchant: number(name).merchant,
        account: AccountName::new("wechat").unwrap(),
        out_trade_no: number(name).out_trade_no,
        fact,
        trade_no: trade_no.map(|trade| TradeNo::new(trade).unwrap()),
        money: words.last().unwrap().parse().ok().map(|fen| Money::cny(fen).unwrap()),
        occurred_at: None,
        source: Source::Callback,
        channel_data: serde_json::Map::new(),
    }
}

#[test]
fn the_order_arithmetic_is_that_of_the_code() {
    for page in both("lifecycle") {
        let is_story = |row: &Vec<String>| ["`pay ", "`refund ", "`close "].iter().any(|word| row[0].starts_with(word));
        let stories: Vec<Vec<String>> = page.rows().into_iter().filter(is_story).collect();
        assert!(stories.len() >= 12, "{}", page.path);
        for row in stories {
            let mut case = case();
            let mut said = Vec::new();
            for (index, fact) in row[0].trim_matches('`').split(", ").enumerate() {
                let notice = notice(fact, index);
                match decide(&mut case, &notice, &notice.key().unwrap(), LatePolicy::Refund, NOW) {
                    Decision::Hold(reason) => said.push(format!("held {}", reason.as_str())),
                    Decision::Book(booking) => {
                        let events =
                            booking.events.iter().map(|(event, amount)| format!("{} {amount}", event.as_str()));
                        said.extend(events);
                    }
                }
            }
            let order = &case.order;
            let figures = [order.paid, order.refunded, order.unapplied].map(|figure| figure.to_string());
            let events = said.iter().map(|event| format!("`{event}`")).collect::<Vec<_>>().join(" ");
            let want = [&format!("`{}`", order.status.as_str()), &figures[0], &figures[1], &figures[2], &events];
            let have: Vec<String> = row[1..6].iter().map(|cell| cell.replace('–', "")).collect();
            assert_eq!(have, want.map(String::clone), "{}: {}", page.path, row[0]);
        }
    }
}

/// Channels to be asked how they spell a refusal; their keys are of no interest.
fn channels() -> [Box<dyn Channel>; 2] {
    use payonce_channels::{alipay, keys::PublicKey, wechat};
    let key = || PublicKey::read(&payonce_sim::keys::RsaKey::generate().public_pem()).unwrap();
    let account = || AccountName::new("main").unwrap();
    let wechat = wechat::Wechat::new(wechat::Config {
        account: account(),
        mchid: "1900000001".to_owned(),
        partner: false,
        app_ids: Vec::new(),
        api_v3_keys: vec!["0123456789abcdef0123456789abcdef".to_owned()],
        keys: vec![(Some("PUB_KEY_ID_1".to_owned()), key())],
        window: wechat::WINDOW,
    });
    let alipay = alipay::Alipay::new(alipay::Config {
        account: account(),
        app_ids: vec!["2021000000000001".to_owned()],
        seller_id: "2088000000000001".to_owned(),
        keys: vec![key()],
        algorithm: alipay::Algorithm::Rsa2,
    });
    [Box::new(wechat.unwrap()), Box::new(alipay.unwrap())]
}

#[test]
fn every_code_has_its_row() {
    let channels = channels();
    for page in both("codes") {
        for reason in Reason::ALL {
            for channel in &channels {
                let status = channel.reply(&Verdict::Refused(Refusal::Rejected(reason))).status.to_string();
                let kept = if reason.is_signed() { "✔" } else { "–" };
                has_row(&page, reason.code(), &[&status, kept]);
            }
        }
        for refusal in [Refusal::NotYet, Refusal::TooLarge, Refusal::Busy, Refusal::Internal] {
            let status = channels[0].reply(&Verdict::Refused(refusal.clone())).status.to_string();
            has_row(&page, refusal.message(), &[&status]);
        }
        HoldReason::ALL.iter().for_each(|reason| has_row(&page, reason.as_str(), &[]));
        Code::ALL.iter().for_each(|code| has_row(&page, code.as_str(), &[&code.status().to_string()]));
        callback_outcomes().iter().for_each(|word| has_row(&page, word, &[]));
    }
}

/// Every word that `payonce_callbacks_total` can be labelled with: of the enums, and written at the edge.
fn callback_outcomes() -> BTreeSet<String> {
    use payonce::batcher::NotKnown;
    let held = HoldReason::ALL.map(|reason| Outcome::Held { reason, first_seen: NOW }.word());
    let applied =
        [Disposition::Fits, Disposition::Mismatched, Disposition::Late].map(|how| Outcome::Applied(how).word());
    let unknown = [NotKnown::QueueFull, NotKnown::Deadline, NotKnown::Failed, NotKnown::Stopped].map(NotKnown::word);
    let mut words: BTreeSet<String> =
        held.iter().chain(&applied).chain(&unknown).map(|word| (*word).to_owned()).collect();
    words.extend([Outcome::Repeated, Outcome::Undecided].map(|outcome| outcome.word().to_owned()));
    for file in ["notify", "booking"] {
        let source = blocks::source(&format!("crates/payonce-server/src/http/{file}.rs"));
        let literals =
            source.split("metrics::count(").skip(1).filter_map(|rest| rest.split_once(';')?.0.split('"').nth(1));
        words.extend(literals.map(str::to_owned));
        let bodies =
            source.split("BodyError::").skip(1).filter_map(|rest| rest.split_once("=> (\"")?.1.split('"').next());
        words.extend(bodies.filter(|word| word.starts_with("body_")).map(str::to_owned));
    }
    assert!(words.contains("body_too_large") && words.contains("not_final") && words.len() > 20, "{words:?}");
    words
}

/// `KEY = VALUE` of the manual, with whether the value is a default.
fn settings() -> Vec<(String, Option<String>)> {
    let lines = config::MANUAL.lines().filter_map(|line| line.strip_prefix('#'));
    let settings = lines.filter(|line| line.starts_with(|char: char| char.is_ascii_lowercase()));
    let read = |line: &str| {
        let (key, value) = line.split_once(" = ").unwrap();
        let is_default = !line.contains("(required)") && !line.contains("(example)");
        (key.to_owned(), is_default.then(|| value.split("  ").next().unwrap().trim().to_owned()))
    };
    settings.map(read).collect()
}

#[test]
fn every_setting_is_explained_with_its_default() {
    for page in both("configuration") {
        for (key, default) in settings() {
            let default = default.map(|value| format!("`{value}`"));
            has_row(&page, &key, &default.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let known: BTreeSet<String> = settings().into_iter().map(|(key, _)| key).collect();
        let explained = page
            .rows()
            .into_iter()
            .filter(|row| row[0].starts_with('`'))
            .map(|row| row[0].trim_matches('`').to_owned());
        let more: Vec<String> =
            explained.filter(|key| !known.contains(key) && !config::MANUAL.contains(key.as_str())).collect();
        assert!(more.is_empty(), "{}: there is no {more:?}", page.path);
    }
}

#[test]
fn every_route_is_on_the_page() {
    let source = blocks::source("crates/payonce-server/src/http/mod.rs");
    let routes: Vec<&str> = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(routes.len() >= 9, "{routes:?}");
    for page in both("api") {
        for route in routes.iter().chain(&["/notify/{account}"]) {
            let named = |row: &Vec<String>| row[0].trim_matches('`').split(' ').nth(1) == Some(route);
            assert!(page.rows().iter().any(named), "{}: {route} is not in the table", page.path);
        }
    }
}

#[test]
fn effects_are_those_of_the_code() {
    for page in both("effects") {
        Event::ALL.iter().for_each(|event| has_row(&page, event.as_str(), &[]));
        let params = page
            .rows()
            .into_iter()
            .filter(|row| row[0].starts_with("`:"))
            .map(|row| row[0].trim_matches('`').to_owned());
        let params: Vec<String> = params.collect();
        assert!(params.len() >= 9, "{params:?}");
        for param in params {
            let named = param.replace('…', "x");
            Statement::parse(&format!("SELECT {named}"), None).unwrap_or_else(|error| panic!("{}: {error}", page.path));
        }
    }
}

/// Names of metrics in the code: those that are written `"payonce_…"`, but for the table of migrations.
fn metrics() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in ["crates/payonce/src", "crates/payonce-server/src"] {
        walk(&blocks::root().join(folder), &mut |text| {
            let names = text.split("\"payonce_").skip(1).filter_map(|rest| rest.split_once('"'));
            let names = names
                .map(|(name, _)| name)
                .filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            found.extend(names.filter(|name| *name != "migrations").map(|name| format!("payonce_{name}")));
        });
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

fn walk(folder: &Path, see: &mut dyn FnMut(&str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, see);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "sql") {
            see(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn metrics_and_tables_are_those_of_the_code() {
    let metrics = metrics();
    for page in both("operate") {
        metrics.iter().for_each(|name| has_row(&page, name, &[]));
    }
    let mut known = metrics;
    let mut words = |text: &str| {
        let found = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
        known.extend(found.filter(|word| word.starts_with("payonce_")).map(str::to_owned));
    };
    for folder in ["crates/payonce/migrations", "crates/payonce/src"] {
        walk(&blocks::root().join(folder), &mut words);
    }
    for crate_name in ["payonce_channels", "payonce_sim", "payonce_server"] {
        words(crate_name);
    }
    for page in blocks::english().into_iter().chain(blocks::chinese()) {
        let found = page.text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
        let named = found.filter(|word| word.starts_with("payonce_"));
        // Prometheus appends these to a histogram.
        let bare = |word: &str| {
            ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
        };
        let unknown: BTreeSet<String> =
            named.map(bare).filter(|word| word != "payonce_" && !known.contains(word)).collect();
        assert!(unknown.is_empty(), "{}: there is no {unknown:?}", page.path);
    }
}
