//! `[shops.NAME.order_table]`: which columns and words of the shop's own order table mean what.
//!
//! Here: reading it. Not here: whether the database has such a table (`cli/doctor`), what is done with it (`payonce`).

use std::collections::BTreeSet;

use payonce::{
    ids::OrderKind,
    money::Currency,
    own_table::{AmountUnit, Identifier, OwnTable, TableName, TimeForm, Word},
};

use super::{
    fault::Show,
    section::{Section, Told},
};

/// What is read before it is known whether there is a mapping at all, so that every key is asked for.
struct Read {
    table: Option<Told<String>>,
    order_no: Option<Told<String>>,
    amount: Option<Told<String>>,
    amount_unit: Option<Told<String>>,
    status: Option<Told<String>>,
    pending: Vec<Told<Word>>,
    paid: Vec<Told<Word>>,
    closed: Vec<Told<Word>>,
    refunded: Vec<Told<Word>>,
    paid_at: Option<Told<String>>,
    paid_at_as: Option<Told<String>>,
    trade_no: Option<Told<String>>,
    kind: Option<Told<String>>,
    currency: Option<Told<String>>,
}

/// Reads the mapping of a shop's section, if it has one. The number spaces come from the accounts.
pub(super) fn read(shop: &mut Section<'_>) -> Option<OwnTable> {
    let is_given = shop.was_given("order_table");
    let mut section = shop.section("order_table");
    let read = Read {
        table: section.text("table"),
        order_no: section.text("order_no"),
        amount: section.text("amount"),
        amount_unit: section.text("amount_unit"),
        status: section.text("status"),
        pending: section.words("pending"),
        paid: section.words("paid"),
        closed: section.words("closed"),
        refunded: section.words("refunded"),
        paid_at: section.text("paid_at"),
        paid_at_as: section.text("paid_at_as"),
        trade_no: section.text("trade_no"),
        kind: section.text("kind"),
        currency: section.text("currency"),
    };
    let mapping = if is_given { mapping(&section, read) } else { None };
    section.finish();
    mapping
}

fn mapping(section: &Section<'_>, read: Read) -> Option<OwnTable> {
    let report = section.report;
    let before = report.count();
    let table = required(section, "table", read.table, "name your table, for example table = \"t_order\"");
    let table = table.and_then(|told| match TableName::new(&told.value) {
        Ok(name) => Some(name),
        Err(error) => {
            let todo = "write the table's name as the database has it: \"t_order\", or \"schema.t_order\"";
            report.fault(&told.place, Show::Plain, format!("`table` {error}"), todo);
            None
        }
    });
    let column = |key: &'static str, told: Option<Told<String>>, todo: &str| {
        required(section, key, told, todo).and_then(|told| identifier(section, key, told))
    };
    let order_no =
        column("order_no", read.order_no, "name the column of what you send to the platforms as out_trade_no");
    let amount = column("amount", read.amount, "name the column of the amount to be paid");
    let status = column("status", read.status, "name the column that says where an order stands");
    let units = [("fen", AmountUnit::Fen), ("yuan", AmountUnit::Yuan)];
    let todo = "say what the amounts are: amount_unit = \"fen\" (1990) or amount_unit = \"yuan\" (19.90)";
    let amount_unit = required(section, "amount_unit", read.amount_unit, todo);
    let amount_unit = amount_unit.and_then(|told| section.as_choice("amount_unit", &told, &units));
    let pending = words(section, "pending", read.pending, "name the status of orders that can be paid");
    let paid = one(section, "paid", read.paid);
    let paid = if paid.is_none() && !section.was_given("paid") {
        section.missing("paid", "name the status that paid orders get, for example paid = \"PAID\"");
        None
    } else {
        paid
    };
    let refunded = one(section, "refunded", read.refunded);
    let paid_at = paid_at(section, read.paid_at, read.paid_at_as);
    let trade_no = read.trade_no.and_then(|told| identifier(section, "trade_no", told));
    let kind = parsed(section, "kind", read.kind, "goods", |text| OrderKind::new(text).map_err(|e| e.to_string()));
    let currency =
        parsed(section, "currency", read.currency, "CNY", |text| Currency::parse(text).map_err(|e| e.to_string()));
    let mapping = OwnTable {
        table: table?,
        order_no: order_no?,
        amount: amount?,
        amount_unit: amount_unit?,
        status: status?,
        pending,
        paid: paid?,
        closed: read.closed.into_iter().map(|told| told.value).collect(),
        refunded,
        paid_at,
        trade_no,
        kind: kind?,
        currency: currency?,
        merchants: BTreeSet::new(),
    };
    if report.count() > before {
        return None;
    }
    if let Err(error) = mapping.check() {
        let todo = "correct the mapping: each column and each status stands in one place";
        report.fault(&section.place, Show::Masked, format!("{} {error}", section.label), todo);
        return None;
    }
    Some(mapping)
}

fn required(section: &Section<'_>, key: &str, told: Option<Told<String>>, todo: &str) -> Option<Told<String>> {
    if told.is_none() && !section.was_given(key) {
        section.missing(key, todo);
    }
    told
}

fn identifier(section: &Section<'_>, key: &str, told: Told<String>) -> Option<Identifier> {
    match Identifier::new(&told.value) {
        Ok(name) => Some(name),
        Err(error) => {
            let todo = "write the column's name as the database has it, without quotes";
            section.report.fault(&told.place, Show::Plain, format!("`{key}` {error}"), todo);
            None
        }
    }
}

fn words(section: &Section<'_>, key: &str, told: Vec<Told<Word>>, todo: &str) -> Vec<Word> {
    if told.is_empty() && !section.was_given(key) {
        section.missing(key, todo);
    }
    told.into_iter().map(|told| told.value).collect()
}

fn one(section: &Section<'_>, key: &str, told: Vec<Told<Word>>) -> Option<Word> {
    if let Some(second) = told.get(1) {
        let what = format!("`{key}` has {} values; only one can be written", told.len());
        section.report.fault(&second.place, Show::Plain, what, "keep one; other values are left alone by themselves");
    }
    told.into_iter().next().map(|told| told.value)
}

fn paid_at(
    section: &Section<'_>,
    name: Option<Told<String>>,
    form: Option<Told<String>>,
) -> Option<(Identifier, TimeForm)> {
    let form = match (&name, form) {
        (Some(_), None) => {
            let todo = "say how the time is kept: paid_at_as = \"datetime_beijing\", \"datetime_utc\", \"timestamp\", \"epoch_seconds\" or \"epoch_millis\"";
            section.missing("paid_at_as", todo);
            None
        }
        (None, Some(told)) => {
            let todo = "name the column as well: paid_at = \"pay_time\"; or remove `paid_at_as`";
            section.report.fault(&told.place, Show::Plain, "`paid_at_as` is given without `paid_at`", todo);
            None
        }
        (_, told) => told.and_then(|told| section.as_choice("paid_at_as", &told, &TimeForm::ALL)),
    };
    let name = name.and_then(|told| identifier(section, "paid_at", told));
    name.zip(form)
}

fn parsed<T>(
    section: &Section<'_>,
    key: &str,
    told: Option<Told<String>>,
    default: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let text = told.as_ref().map_or(default, |told| told.value.as_str());
    match (parse(text), &told) {
        (Ok(value), _) => Some(value),
        (Err(error), told) => {
            let place = told.as_ref().map_or(&section.place, |told| &told.place);
            section.report.fault(
                place,
                Show::Plain,
                format!("`{key}`: {error}"),
                format!("write {key} = \"{default}\""),
            );
            None
        }
    }
}
