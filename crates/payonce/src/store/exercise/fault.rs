//! A connection whose n-th statement fails, as a lost network or a full disk would have it.
//!
//! Here: the fault. Not here: what must be true afterwards.

use crate::{
    apply::{Batch, Pending, Repeats},
    error::Error,
    rules::Rules,
    store::{Engine, Ledger},
};

/// Runs one booking on a connection, failing at one statement.
pub(super) struct Faulty<E> {
    connection: E,
    fail_at: usize,
}

impl<E: Engine> Faulty<E> {
    pub(super) const fn new(connection: E, fail_at: usize) -> Self {
        Self { connection, fail_at }
    }

    /// Begins, books with the fault, and commits or rolls back as `Database` does.
    pub(super) async fn book(&mut self, batch: &Batch, rules: &Rules) -> Result<(), Error> {
        self.connection.begin().await?;
        let mut faulty = Counting { inner: &mut self.connection, left: self.fail_at };
        let booked: Result<Pending, _> = crate::apply::book(&mut faulty, batch, rules, Repeats::CountNow).await;
        match booked {
            Ok(_) => self.connection.commit().await,
            Err((error, _)) => {
                self.connection.rollback().await?;
                Err(error)
            }
        }
    }
}

struct Counting<'a, E> {
    inner: &'a mut E,
    left: usize,
}

impl<E> Counting<'_, E> {
    fn step(&mut self) -> Result<(), Error> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Error::permanent("this statement was made to fail"))?;
        Ok(())
    }
}

macro_rules! counted {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl<E: Engine> Ledger for Counting<'_, E> {
            $(async fn $name(&mut self, $($arg: $type),*) -> Result<$out, Error> {
                self.step()?;
                self.inner.$name($($arg),*).await
            })*

            /// Part by part, whatever an engine makes of them: what went in before the fault must not stay.
            async fn book_entries(&mut self, entries: &Entries<'_>) -> Result<u64, Error> {
                let Entries { orders, keys, flow, effects, evidence } = *entries;
                let none = Entries::default();
                let parts = [
                    Entries { orders, ..none },
                    Entries { keys, ..none },
                    Entries { flow, ..none },
                    Entries { effects, ..none },
                    Entries { evidence, ..none },
                ];
                let mut updated = 0;
                for part in &parts {
                    self.step()?;
                    updated += self.inner.book_entries(part).await?;
                }
                Ok(updated)
            }
        }
    };
}

macro_rules! counted_own {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl<E: Engine> OwnTables for Counting<'_, E> {$(
            async fn $name(&mut self, $($arg: $type),*) -> Result<$out, Error> {
                self.step()?;
                self.inner.$name($($arg),*).await
            }
        )*}
    };
}

use crate::{
    ids::{Merchant, OrderNo},
    order::{Attempt, Number, Order, OrderId},
    own_table::{OwnChange, OwnRow, OwnTable, OwnUpdate},
    store::{AttemptUpdate, Entries, Evidence, FlowRow, Held, KeyId, Known, OrderUpdate, OwnSchema, OwnTables, Repeat},
    time::Micros,
};

counted! {
    begin() -> ();
    commit() -> ();
    rollback() -> ();
    lock_numbers(numbers: &[Number]) -> (Vec<Attempt>, Vec<Order>);
    lock_orders(orders: &[OrderId]) -> Vec<Order>;
    attempts_of(orders: &[OrderId]) -> Vec<Attempt>;
    known(numbers: &[Number], keys: &[KeyId]) -> Known;
    flow_of(numbers: &[Number]) -> Vec<FlowRow>;
    insert_attempts(attempts: &[Attempt]) -> ();
    insert_orders(orders: &[Order]) -> ();
    update_orders(orders: &[OrderUpdate]) -> u64;
    update_attempts(attempts: &[AttemptUpdate]) -> u64;
    hold(notices: &[Held]) -> ();
    release(notices: &[Held], at: Micros) -> u64;
    keep_unbelieved(evidence: &[Evidence], per_hour: i64) -> ();
    count_repeats(repeats: &[Repeat]) -> ();
    overdue(limit: i64) -> Vec<Number>;
}

counted_own! {
    own_rows(table: &OwnTable, order_nos: &[OrderNo], lock: bool) -> Vec<OwnRow>;
    update_own(table: &OwnTable, change: OwnChange, rows: &[OwnUpdate]) -> u64;
    waiting(merchant: &Merchant, after: &str, limit: i64) -> Vec<Number>;
    own_schema(table: &OwnTable) -> OwnSchema;
}
