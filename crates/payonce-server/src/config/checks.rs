//! What no section can know by itself.
//!
//! Here: names that must exist, names that must not meet, and number spaces. Not here: the sections.

use std::collections::BTreeMap;

use payonce::rules::EffectRule;

use super::{
    accounts::Account,
    effects::Rule,
    fault::{Place, Report, Show, quote},
    section::Told,
    words,
};

/// Checks the sections against each other.
pub(super) fn across(report: &Report, accounts: &[Told<Account>], rules: &[Rule], counts: &Counts) {
    if counts.accounts == 0 {
        let todo = "write [accounts.NAME] with channel = \"wechat\" or \"alipay\"; `payonce init` writes an example";
        report.fault(&Place::File, Show::Masked, "no account is configured, so no callback could be believed", todo);
    }
    one_shop_per_number_space(report, accounts);
    for (index, rule) in rules.iter().enumerate() {
        unique(report, &rules[..index], rule);
        sink_exists(report, rule, counts);
        after_exists(report, rules, rule);
    }
    no_circle(report, rules);
}

/// How many sections there were, whether or not they could be read.
pub(super) struct Counts {
    pub(super) accounts: usize,
    pub(super) sinks: Vec<String>,
}

/// A payable number is a number at the merchant, so two shops with one merchant would own each other's.
fn one_shop_per_number_space(report: &Report, accounts: &[Told<Account>]) {
    let mut spaces = BTreeMap::new();
    for told in accounts {
        let Some(merchant) = told.value.merchant() else { continue };
        let first: &Told<Account> = spaces.entry(merchant).or_insert(told);
        if first.value.shop != told.value.shop {
            let what = format!(
                "the accounts {} and {} have the same merchant number, but different shops",
                quote(first.value.name.as_str()),
                quote(told.value.name.as_str())
            );
            let todo = "give both the same shop: the numbers of one merchant belong to one shop";
            report.fault(&told.place, Show::Masked, what, todo);
        }
    }
}

fn unique(report: &Report, before: &[Rule], rule: &Rule) {
    let same = |other: &&Rule| other.rule.on == rule.rule.on && other.rule.name == rule.rule.name;
    if before.iter().any(|other| same(&other)) {
        let what = format!("two effects of {} are named {}", rule.rule.on.as_str(), quote(&rule.rule.name));
        let todo = "rename one: the name is part of the effect's key, so one of them would never be owed";
        report.fault(&rule.name, Show::Plain, what, todo);
    }
}

fn sink_exists(report: &Report, rule: &Rule, counts: &Counts) {
    let name = &rule.rule.sink;
    if name == EffectRule::SQL || counts.sinks.contains(name) {
        return;
    }
    let todo = match words::nearest(name, counts.sinks.iter().map(String::as_str)) {
        Some(near) => format!("write sink = \"{near}\""),
        None => "write a section [sinks.NAME] for it with type = \"http\" or \"log\"".to_owned(),
    };
    report.fault(&rule.sink, Show::Plain, format!("`sink`: there is no sink {}", quote(name)), todo);
}

fn find_after<'a>(rules: &'a [Rule], rule: &Rule) -> Option<&'a Rule> {
    let after = rule.rule.after.as_ref()?;
    rules.iter().find(|other| other.rule.on == rule.rule.on && other.rule.name == *after)
}

fn after_exists(report: &Report, rules: &[Rule], rule: &Rule) {
    let (Some(after), Some(place)) = (&rule.rule.after, &rule.after) else { return };
    let event = rule.rule.on.as_str();
    match find_after(rules, rule) {
        Some(first) if first.rule.when_kind.is_some() && first.rule.when_kind != rule.rule.when_kind => {
            let what = format!("`after`: {} is not owed for every order for which this one is", quote(after));
            report.fault(place, Show::Plain, what, "give both the same when.kind");
        }
        Some(_) => {}
        None => {
            let names =
                rules.iter().filter(|other| other.rule.on == rule.rule.on).map(|other| other.rule.name.as_str());
            let todo = match words::nearest(after, names) {
                Some(near) => format!("write after = \"{near}\""),
                None => format!("name an effect of the same event, {event}"),
            };
            let what = format!("`after`: {event} has no effect {}", quote(after));
            report.fault(place, Show::Plain, what, todo);
        }
    }
}

fn no_circle(report: &Report, rules: &[Rule]) {
    for rule in rules {
        let mut next = find_after(rules, rule);
        for _ in 0..rules.len() {
            let Some(at) = next else { break };
            if std::ptr::eq(at, rule) {
                let what = format!("`after`: {} would wait for itself", quote(&rule.rule.name));
                let place = rule.after.as_ref().unwrap_or(&rule.place);
                report.fault(place, Show::Plain, what, "remove one `after` of the circle");
                break;
            }
            next = find_after(rules, at);
        }
    }
}
