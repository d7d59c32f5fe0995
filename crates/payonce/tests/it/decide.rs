//! `decide` in tables: facts in, the order's row and what is owed out. No database, no clock.

use payonce::{
    apply::{Case, Decision, decide},
    ids::{OrderKind, TradeNo},
    money::{Currency, Money},
    notice::{Fact, Notice},
    order::{Attempt, AttemptState, Order, OrderStatus},
    outcome::{Disposition, HoldReason},
    own_table::{OwnOrder, OwnState},
    rules::{Event, LatePolicy},
};

use crate::support::{NOW, number, payment, registration};

/// One order of 100 fen with attempts `A` (100) and `B` (60).
fn case() -> Case {
    let attempt = |name: &str, amount| Attempt {
        number: number(name),
        order: Some(registration("O", 100).id),
        amount: Some(amount),
        state: AttemptState::Open,
        closed_at: None,
    };
    let order = Order {
        id: registration("O", 100).id,
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
    Case {
        order,
        attempts: vec![attempt("A", 100), attempt("B", 60), attempt("C", 40)],
        payments: Vec::new(),
        own: None,
    }
}

/// `pay A T1 100`, `pay$ A T1 100` (dollars), `refund A T1 R1 40`, `refund A T1 R1 ?`, `full A T1 R1 ?`, `stuck A T1 R1`, `close A`
fn notice(text: &str) -> Notice {
    let words: Vec<&str> = text.split(' ').collect();
    let base = payment(words[1], words.get(2).copied().unwrap_or("x"), 1);
    let money = |word: &str| word.parse().ok().map(|fen| Money::cny(fen).unwrap());
    match words[..] {
        ["pay", _, _, fen] => Notice { money: money(fen), ..base },
        ["pay$", _, _, cents] => {
            let usd = Currency::parse("USD").unwrap();
            Notice { money: money(cents).map(|money| Money { currency: usd, ..money }), ..base }
        }
        [word @ ("refund" | "full"), _, _, no, fen] => {
            Notice { fact: Fact::Refund { refund_no: no.into(), full: word == "full" }, money: money(fen), ..base }
        }
        ["stuck", _, _, no] => Notice { fact: Fact::RefundAbnormal { refund_no: no.into() }, ..base },
        ["close", _] => Notice { fact: Fact::Closed, trade_no: None, money: None, ..base },
        _ => panic!("no such fact: {text}"),
    }
}

fn run(case: &mut Case, facts: &str, late: LatePolicy) -> String {
    let mut said = String::new();
    for fact in facts.split(", ") {
        let notice = notice(fact);
        said = match decide(case, &notice, &notice.key().unwrap(), late, NOW) {
            Decision::Hold(reason) => format!("held {}", reason.as_str()),
            Decision::Book(booking) => {
                let events: Vec<String> =
                    booking.events.iter().map(|(event, amount)| format!(" {} {amount}", event.as_str())).collect();
                format!("{}{}", booking.disposition.as_str(), events.concat())
            }
        };
    }
    let order = &case.order;
    format!("{said} | {} {}-{}+{}", order.status.as_str(), order.paid, order.refunded, order.unapplied)
}

/// Left: the facts in order. Right: what is said of the last | status, paid - refunded + unapplied.
const TABLE: &str = "
pay A T1 100                                             = fits order.paid 100 | PAID 100-0+0
pay A T1 99                                              = mismatched payment.mismatched 99 | PENDING 0-0+99
pay A T1 101                                             = mismatched payment.mismatched 101 | PENDING 0-0+101
pay$ A T1 100                                            = mismatched payment.mismatched 100 | PENDING 0-0+0
pay B T1 60                                              = fits | PENDING 60-0+0
pay B T1 60, pay C T2 40                                 = fits order.paid 100 | PAID 100-0+0
pay A T1 100, pay B T2 60                                = fits payment.surplus 60 | PAID 160-0+0
pay B T1 60, pay A T2 100                                = fits order.paid 100 payment.surplus 60 | PAID 160-0+0
pay A T1 100, refund A T1 R1 40                          = fits order.refunded 40 | PARTIALLY_REFUNDED 100-40+0
pay A T1 100, refund A T1 R1 40, refund A T1 R2 60       = fits order.refunded 60 | REFUNDED 100-100+0
pay A T1 100, refund A T1 R1 140                         = fits order.refunded 100 | REFUNDED 100-100+0
pay A T1 100, full A T1 R1 ?                             = fits order.refunded 100 | REFUNDED 100-100+0
pay A T1 100, refund A T1 R1 30, full A T1 R2 ?          = fits order.refunded 70 | REFUNDED 100-100+0
pay A T1 100, refund A T1 R1 ?                           = held amount_unknown | PAID 100-0+0
refund A T1 R1 40                                        = held awaiting_payment | PENDING 0-0+0
pay A T1 100, refund A T9 R1 40                          = held awaiting_payment | PAID 100-0+0
pay A T1 100, pay A T2 100, refund A T2 R1 100           = fits | PAID 200-100+0
pay A T1 100, pay A T2 100, refund A T2 R1 100, refund A T1 R2 100 = fits order.refunded 100 | REFUNDED 200-200+0
pay A T1 100, refund A T1 R1 100, pay A T2 100           = late payment.late 100 | REFUNDED 100-100+100
pay A T1 99, refund A T1 R1 99                           = mismatched | PENDING 0-0+0
pay A T1 100, stuck A T1 R1                              = noted | PAID 100-0+0
pay A T1 100, stuck A T1 R1, refund A T1 R1 100          = fits order.refunded 100 | REFUNDED 100-100+0
close A                                                  = noted | PENDING 0-0+0
close A, close B, close C                                = noted | CLOSED 0-0+0
close A, close B, close C, pay A T1 100                  = late payment.late 100 | CLOSED 0-0+100
close A, pay A T1 100                                    = fits order.paid 100 | PAID 100-0+0
pay A T1 100, close A                                    = held closed_but_paid | PAID 100-0+0
pay A T1 100, close B                                    = noted | PAID 100-0+0
pay A T1 100, refund A T1 R1 100, close A                = noted | REFUNDED 100-100+0
pay B T1 60, refund B T1 R1 60                           = fits order.refunded 60 | PENDING 60-60+0
pay B T1 60, refund B T1 R1 10                           = fits order.refunded 10 | PENDING 60-10+0
";

#[test]
fn the_table_of_order_arithmetic() {
    for row in TABLE.trim().lines() {
        let (facts, want) = row.split_once('=').unwrap();
        assert_eq!(run(&mut case(), facts.trim(), LatePolicy::Refund), want.trim(), "{row}");
    }
}

/// Left: what the shop's own table says (state, `known` if payonce had the order before, its transaction or `-`), then
/// the facts. Right: as above.
const OWN: &str = "
pending new - 100: pay A T1 100                = fits order.paid 100 | PAID 100-0+0
pending known - 100: pay A T1 99               = mismatched payment.mismatched 99 | PENDING 0-0+99
pending known - 101: pay A T1 100              = mismatched payment.mismatched 100 | PENDING 0-0+100
pending known - ?: pay A T1 100                = mismatched payment.mismatched 100 | PENDING 0-0+100
closed new - 100: pay A T1 100                 = late payment.late 100 | CLOSED 0-0+100
closed known T1 100: pay A T1 100              = late payment.late 100 | CLOSED 0-0+100
closed known - 100: pay B T1 60, pay C T2 40   = late payment.late 40 | CLOSED 0-0+100
paid new - 100: pay A T1 100                   = adopted | PAID 100-0+0
paid known - 100: pay A T1 100                 = adopted | PAID 100-0+0
paid known T1 100: pay A T1 100                = adopted | PAID 100-0+0
paid known T9 100: pay A T1 100                = late payment.surplus 100 | PENDING 0-0+100
paid known T9 100: pay A T1 100, pay A T9 100  = adopted | PAID 100-0+100
paid new - 100: pay A T1 99                    = mismatched payment.mismatched 99 | PENDING 0-0+99
paid new - 100: pay A T1 100, pay A T2 100     = fits payment.surplus 100 | PAID 200-0+0
paid new - 100: pay B T1 60, pay C T2 40       = adopted | PAID 100-0+0
paid new - 100: pay A T1 100, refund A T1 R 30 = adopted order.refunded 30 | PARTIALLY_REFUNDED 100-30+0
refunded new - 100: pay A T1 100               = late payment.late 100 | CLOSED 0-0+100
refunded new T1 100: pay A T1 100              = adopted | PAID 100-0+0
other new - 100: pay A T1 100                  = adopted | PAID 100-0+0
other known - 100: pay A T1 100                = fits order.paid 100 | PAID 100-0+0
other known T1 100: pay A T1 100               = adopted | PAID 100-0+0
other known T9 100: pay A T1 100               = late payment.surplus 100 | PENDING 0-0+100
";

#[test]
fn the_table_of_the_shops_own_rows() {
    for row in OWN.trim().lines() {
        let (left, want) = row.split_once('=').unwrap();
        let (own, facts) = left.split_once(": ").unwrap();
        let [state, known, trade_no, fen] = own.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let states = [
            ("pending", OwnState::Pending),
            ("closed", OwnState::Closed),
            ("paid", OwnState::Paid),
            ("refunded", OwnState::Refunded),
            ("other", OwnState::Other),
        ];
        let own = OwnOrder {
            state: states.iter().find(|(word, _)| *word == state).unwrap().1,
            money: fen.parse().ok().map(|fen| Money::cny(fen).unwrap()),
            trade_no: Some(trade_no.to_owned()).filter(|text| text != "-"),
            is_known: known == "known",
        };
        let said = run(&mut Case { own: Some(own), ..case() }, facts.trim(), LatePolicy::Refund);
        assert_eq!(said, want.trim(), "{row}");
    }
}

#[test]
fn by_policy_late_money_reopens_a_closed_order_and_never_a_refunded_one() {
    let closed = "close A, close B, close C, pay A T1 100";
    assert_eq!(run(&mut case(), closed, LatePolicy::Reopen), "fits order.paid 100 | PAID 100-0+0");
    let refunded = "pay A T1 100, refund A T1 R1 100, pay A T2 100";
    assert_eq!(run(&mut case(), refunded, LatePolicy::Reopen), "late payment.late 100 | REFUNDED 100-100+100");
}

#[test]
fn a_held_fact_changes_nothing() {
    let mut held = case();
    let notice = notice("refund A T1 R1 40");
    let decision = decide(&mut held, &notice, &notice.key().unwrap(), LatePolicy::Refund, NOW);
    assert_eq!(decision, Decision::Hold(HoldReason::AwaitingPayment));
    assert_eq!(held, case());
}

#[test]
fn paid_at_is_set_once() {
    let mut paid = case();
    run(&mut paid, "pay A T1 100", LatePolicy::Refund);
    let first = paid.order.paid_at;
    assert_eq!(first, Some(NOW));
    let later = NOW.plus(std::time::Duration::from_secs(60));
    let notice = notice("pay B T2 60");
    decide(&mut paid, &notice, &notice.key().unwrap(), LatePolicy::Refund, later);
    assert_eq!(paid.order.paid_at, first);
}

proptest::proptest! {
    /// Payments and refunds of payments that came before: sums follow from the facts, and the order of
    /// refunds does not matter.
    #[test]
    fn sums_follow_from_the_facts(refunds in proptest::collection::vec(1_i64..60, 0..6), split in 0_usize..6) {
        let facts: Vec<String> = refunds.iter().enumerate().map(|(i, fen)| format!("refund A T1 R{i} {fen}")).collect();
        let mut forward = case();
        let mut backward = case();
        run(&mut forward, "pay A T1 100", LatePolicy::Refund);
        run(&mut backward, "pay A T1 100", LatePolicy::Refund);
        for fact in &facts { run(&mut forward, fact, LatePolicy::Refund); }
        let (a, b) = facts.split_at(split.min(facts.len()));
        for fact in b.iter().chain(a) { run(&mut backward, fact, LatePolicy::Refund); }
        proptest::prop_assert_eq!(&forward.order, &backward.order);
        let total: i64 = refunds.iter().sum();
        proptest::prop_assert_eq!(forward.order.refunded, total.min(100));
        proptest::prop_assert_eq!(forward.order.status == OrderStatus::Refunded, total >= 100);
    }

    /// No sequence of facts panics, overflows, ships twice or loses money.
    #[test]
    fn no_sequence_panics_or_ships_twice(facts in proptest::collection::vec((0_u8..6, 0_u8..3, 0_u8..4, proptest::sample::select(vec![0_i64, 1, 40, 60, 99, 100, i64::MAX])), 0..14)) {
        let mut case = case();
        let mut paid = 0;
        let mut arrived = 0_i64;
        let mut seen = std::collections::BTreeSet::new();
        for (index, (kind, attempt, trade, fen)) in facts.into_iter().enumerate() {
            let attempt = ["A", "B", "C"][usize::from(attempt)];
            let text = match kind {
                0 | 1 => format!("pay {attempt} T{trade}{attempt} {fen}"),
                2 => format!("refund {attempt} T{trade}{attempt} R{index} {fen}"),
                3 => format!("full {attempt} T{trade}{attempt} R{index} ?"),
                4 => format!("stuck {attempt} T{trade}{attempt} R{index}"),
                _ => format!("close {attempt}"),
            };
            if kind < 2 && !seen.insert(text.clone()) { continue; }
            let notice = notice(&text);
            if let Decision::Book(booking) = decide(&mut case, &notice, &notice.key().unwrap(), LatePolicy::Refund, NOW) {
                paid += booking.events.iter().filter(|(event, _)| *event == Event::OrderPaid).count();
                if kind < 2 { arrived = arrived.saturating_add(fen); }
            }
            proptest::prop_assert!(paid <= 1);
            let order = &case.order;
            proptest::prop_assert!(order.refunded >= 0 && order.refunded <= order.paid && order.unapplied >= 0);
            if arrived < i64::MAX {
                let gone: i64 = case.payments.iter().filter(|p| p.disposition != Disposition::Fits).map(payonce::order::Payment::returned).sum();
                proptest::prop_assert_eq!(order.paid + order.unapplied + gone, arrived, "no money is lost");
            }
        }
    }
}

#[test]
fn a_refund_without_a_transaction_number_waits() {
    let mut case = case();
    run(&mut case, "pay A T1 100", LatePolicy::Refund);
    let nameless = Notice { trade_no: None::<TradeNo>, ..notice("refund A T1 R1 40") };
    let decision = decide(&mut case, &nameless, &nameless.key().unwrap(), LatePolicy::Refund, NOW);
    assert_eq!(decision, Decision::Hold(HoldReason::AwaitingPayment));
}
