//! Rows of the shop's own order table, as part of what is known about a batch.
//!
//! Here: which numbers may be about a row there, reading those rows under lock, and the order and attempts of ours
//! that follow from a row that we have not met. Not here: what is decided from it (`decide`), the statements
//! (`store/own_table`). Shops without such a table cost nothing here.
//!
//! Their rows are locked after our orders and held notices. Gateways meet at ours first, so among them the order
//! does not matter; their own programs lock nothing of ours. It is late so that repeats, which the keys know,
//! touch no row of theirs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    error::Error,
    ids::{OrderNo, Shop},
    order::{Attempt, AttemptState, Number, Order, OrderId, OrderStatus},
    own_table::{OwnOrder, OwnTable},
    rules::Rules,
    store::{AttemptUpdate, Ledger},
    time::Micros,
};

/// What the shops' own tables say, and what of ours is new because of it.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Their rows.
    pub orders: BTreeMap<OrderId, OwnOrder>,
    /// Orders of ours to be.
    pub new_orders: Vec<Order>,
    /// Attempts of ours to be.
    pub new_attempts: Vec<Attempt>,
    /// Attempts that waited for an order.
    pub filled: Vec<AttemptUpdate>,
}

/// The numbers of a batch with those that a registration would have made beside them: the same at every merchant
/// of a shop with a table of its own.
pub(crate) fn with_siblings(rules: &Rules, numbers: &mut BTreeSet<Number>) {
    if rules.own_tables.is_empty() {
        return;
    }
    let siblings: Vec<Number> = numbers
        .iter()
        .filter_map(|number| Some((number, rules.own_table_of(&number.merchant)?.1)))
        .flat_map(|(number, table)| {
            let out_trade_no = &number.out_trade_no;
            table
                .merchants
                .iter()
                .map(|merchant| Number { merchant: merchant.clone(), out_trade_no: out_trade_no.clone() })
        })
        .collect();
    numbers.extend(siblings);
}

/// The number as one of a shop's own table. No platform takes numbers of other letters than these; a column of
/// theirs may not be able to compare with them.
pub(crate) fn order_no(number: &Number) -> Option<OrderNo> {
    let text = number.out_trade_no.as_str();
    text.bytes().all(|byte| byte.is_ascii_graphic()).then(|| OrderNo::new(text).ok())?
}

/// The order of the shop's own table that a number would be.
fn candidate(rules: &Rules, number: &Number) -> Option<OrderId> {
    let (shop, _) = rules.own_table_of(&number.merchant)?;
    Some(OrderId { shop: shop.clone(), order_no: order_no(number)? })
}

/// The candidates of the numbers that have no order.
pub(crate) fn candidates<'a>(
    rules: &Rules,
    numbers: &'a [Number],
    attempts: &BTreeMap<Number, Attempt>,
) -> BTreeMap<&'a Number, OrderId> {
    if rules.own_tables.is_empty() {
        return BTreeMap::new();
    }
    let has_order = |number: &Number| attempts.get(number).is_some_and(|attempt| attempt.order.is_some());
    let without = numbers.iter().filter(|number| !has_order(number));
    without.filter_map(|number| Some((number, candidate(rules, number)?))).collect()
}

impl Own {
    /// Reads their rows of these orders, and derives ours where a live number has none.
    pub(crate) async fn read<L: Ledger>(
        ledger: &mut L,
        rules: &Rules,
        live: &BTreeSet<&Number>,
        candidates: &BTreeMap<&Number, OrderId>,
        (attempts, orders): (&mut BTreeMap<Number, Attempt>, &mut Vec<Order>),
        now: Micros,
    ) -> Result<Self, Error> {
        let known = live.iter().filter_map(|number| attempts.get(*number)?.order.clone());
        let unknown = live.iter().filter_map(|number| candidates.get(*number).cloned());
        let mut wanted: BTreeMap<Shop, BTreeSet<OrderNo>> = BTreeMap::new();
        for id in known.chain(unknown).filter(|id| rules.own_tables.contains_key(&id.shop)) {
            wanted.entry(id.shop).or_default().insert(id.order_no);
        }
        let mut own = Self::default();
        for (shop, order_nos) in wanted {
            let Some(table) = rules.own_tables.get(&shop) else { continue };
            let order_nos: Vec<OrderNo> = order_nos.into_iter().collect();
            for (order_no, order) in read(ledger, table, &order_nos, true).await? {
                own.orders.insert(OrderId { shop: shop.clone(), order_no }, order);
            }
        }
        for order in orders.iter() {
            if let Some(row) = own.orders.get_mut(&order.id) {
                row.is_known = true;
            }
        }
        for number in live {
            if let Some(id) = candidates.get(*number) {
                own.meet(rules, number, id, attempts, orders, now);
            }
        }
        Ok(own)
    }

    /// A row that a number without an order is about: the order and its attempts, as if they had been registered.
    fn meet(
        &mut self,
        rules: &Rules,
        number: &Number,
        id: &OrderId,
        attempts: &mut BTreeMap<Number, Attempt>,
        orders: &mut Vec<Order>,
        now: Micros,
    ) {
        let Some(table) = rules.own_tables.get(&id.shop) else { return };
        // A row without an amount is none that could be paid.
        let Some(money) = self.orders.get(id).and_then(|row| row.money) else { return };
        let (is_new, money) = match orders.iter().find(|order| order.id == *id) {
            Some(order) => (self.new_orders.iter().any(|new| new.id == *id), order.money),
            None => {
                let order = Order {
                    id: id.clone(),
                    kind: table.kind.clone(),
                    money,
                    status: OrderStatus::Pending,
                    paid: 0,
                    refunded: 0,
                    unapplied: 0,
                    version: 0,
                    closed_at: None,
                    paid_at: None,
                    created_at: now,
                    meta: "{}".to_owned(),
                };
                orders.push(order.clone());
                self.new_orders.push(order);
                (true, money)
            }
        };
        for merchant in &table.merchants {
            let one = Number { merchant: merchant.clone(), out_trade_no: number.out_trade_no.clone() };
            let row = attempts.get(&one);
            if row.is_some_and(|row| row.order.is_some()) || !(is_new || one == *number) {
                continue;
            }
            let (state, closed_at) = row.map_or((AttemptState::Open, None), |row| (row.state, row.closed_at));
            let attempt =
                Attempt { number: one.clone(), order: Some(id.clone()), amount: Some(money.amount), state, closed_at };
            match row {
                Some(_) => self.filled.push(AttemptUpdate { attempt: attempt.clone(), had_order: None }),
                None => self.new_attempts.push(attempt.clone()),
            }
            attempts.insert(one, attempt);
        }
    }
}

/// Their rows that have exactly these numbers. Two rows with one number are none: nobody could say which is meant.
pub(crate) async fn read<L: Ledger>(
    ledger: &mut L,
    table: &OwnTable,
    order_nos: &[OrderNo],
    lock: bool,
) -> Result<BTreeMap<OrderNo, OwnOrder>, Error> {
    let mut found: BTreeMap<OrderNo, OwnOrder> = BTreeMap::new();
    let mut twice: BTreeSet<OrderNo> = BTreeSet::new();
    for row in ledger.own_rows(table, order_nos, lock).await? {
        // Byte by byte: a collation of theirs may have found `o1` or `O1 ` for `O1`.
        let Some(order_no) = order_nos.iter().find(|wanted| wanted.as_str() == row.order_no) else { continue };
        if found.insert(order_no.clone(), table.read(&row, false)).is_some() {
            twice.insert(order_no.clone());
        }
    }
    for order_no in twice {
        tracing::error!(%order_no, table = %table.table, "your table has several rows of one order number; none is touched");
        found.remove(&order_no);
    }
    Ok(found)
}

/// Numbers that wait for an order, and whose row is in the shop's own table by now: it tells nobody.
pub(crate) async fn arrived<L: Ledger>(ledger: &mut L, shop: &Shop, table: &OwnTable) -> Result<Vec<Number>, Error> {
    const AT_ONCE: i64 = 500;
    let mut found = Vec::new();
    for merchant in &table.merchants {
        let mut after = String::new();
        loop {
            let waiting = ledger.waiting(merchant, &after, AT_ONCE).await?;
            let Some(last) = waiting.last() else { break };
            after = last.out_trade_no.as_str().to_owned();
            let order_nos: Vec<OrderNo> = waiting.iter().filter_map(order_no).collect();
            let rows = read(ledger, table, &order_nos, false).await?;
            let is_there = |number: &Number| order_no(number).is_some_and(|no| rows.contains_key(&no));
            let is_end = (waiting.len() as i64) < AT_ONCE;
            found.extend(waiting.into_iter().filter(is_there));
            if is_end || found.len() as i64 >= AT_ONCE {
                break;
            }
        }
    }
    if !found.is_empty() {
        tracing::debug!(shop = shop.as_str(), count = found.len(), "orders have come that notices waited for");
    }
    Ok(found)
}
