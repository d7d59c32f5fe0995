//! SQLite, the embedded default: one file, one writer.
//!
//! Here: SQL, and how SQLite locks. `BEGIN IMMEDIATE` always (a deferred one that read first cannot be
//! helped by the busy handler), `synchronous = FULL` (a commit is durable when it returns), a WAL file.
//! What every batch does runs row by row; what is rare is one statement over an array, as on the servers.
//! Not here: any decision. Functions stand in the order of the traits; the sibling engines keep it.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    error::Error,
    ids::{OrderNo, Shop},
    key::EffectKey,
    order::{Attempt, Number, Order, OrderId},
    statement::Statement,
    store::{
        AttemptUpdate, Counts, Effect, EffectFilter, EffectState, Entries, Evidence, Finished, FlowRow, Held, KeyId,
        Known, Lease, Ledger, OrderUpdate, OrderView, Outbox, Repeat, Views, json, orders_of, rows,
    },
    time::Micros,
};

mod checkpoint;
mod entries;
mod session;
mod talk;

use checkpoint::Checkpointer;
pub use talk::Talk;
pub(crate) use talk::{Cell, NOTHING};

/// Where the file is.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Its path; created if missing.
    pub path: PathBuf,
}

/// A connection of our own. What it does is done when its call returns, so it never waits for anything but the disk.
#[derive(Debug)]
pub struct Sqlite {
    // Before the connection, which is the last to close the file.
    checkpointer: Option<Checkpointer>,
    connection: rusqlite::Connection,
}

/// The values of a key of two texts.
fn pair<'a>(one: &'a str, other: &'a str) -> [Cell<'a>; 2] {
    [one.into(), other.into()]
}

fn number(number: &Number) -> [Cell<'_>; 2] {
    pair(number.merchant.as_str(), number.out_trade_no.as_str())
}

impl<C: Talk> Ledger for C {
    async fn begin(&mut self) -> Result<(), Error> {
        self.run("begin", "BEGIN IMMEDIATE", NOTHING).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), Error> {
        self.run("commit", "COMMIT", NOTHING).await?;
        self.committed();
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        self.run("rollback", "ROLLBACK", NOTHING).await.map(drop)
    }

    async fn lock_numbers(&mut self, numbers: &[Number]) -> Result<(Vec<Attempt>, Vec<Order>), Error> {
        const SQL: &str = "\
            SELECT merchant, out_trade_no, shop, order_no, amount, state, closed_at FROM payonce_attempt
            WHERE merchant = ?1 AND out_trade_no = ?2";
        let attempts = self.read("read attempts", SQL, numbers.iter().map(number), |row| rows::attempt(row)).await?;
        let orders = self.lock_orders(&orders_of(&attempts)).await?;
        Ok((attempts, orders))
    }

    async fn lock_orders(&mut self, orders: &[OrderId]) -> Result<Vec<Order>, Error> {
        const SQL: &str = "\
            SELECT shop, order_no, kind, currency, amount, status, paid, refunded, unapplied, version, closed_at,
                   paid_at, created_at, meta
            FROM payonce_order WHERE shop = ?1 AND order_no = ?2";
        let ids = orders.iter().map(|id| pair(id.shop.as_str(), id.order_no.as_str()));
        self.read("read orders", SQL, ids, |row| rows::order(row)).await
    }

    async fn attempts_of(&mut self, orders: &[OrderId]) -> Result<Vec<Attempt>, Error> {
        const SQL: &str = "\
            SELECT a.merchant, a.out_trade_no, a.shop, a.order_no, a.amount, a.state, a.closed_at
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_attempt AS a INDEXED BY payonce_attempt_by_order
              ON a.shop = j.value->>'s' AND a.order_no = j.value->>'o'
            ORDER BY a.merchant, a.out_trade_no";
        let ids = [[json::order_ids(orders).into()]];
        self.read("read attempts of orders", SQL, ids, |row| rows::attempt(row)).await
    }

    async fn known(&mut self, numbers: &[Number], keys: &[KeyId]) -> Result<Known, Error> {
        const HELD: &str = "\
            SELECT merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id, seen, first_seen, last_seen
            FROM payonce_quarantine WHERE merchant = ?1 AND out_trade_no = ?2 AND state = 'held'";
        const KEYS: &str = "\
            SELECT merchant, idem_key, trade_no, amount, currency FROM payonce_idempotency
            WHERE merchant = ?1 AND idem_key = ?2";
        let numbers = numbers.iter().map(number);
        let keys = keys.iter().map(|id| pair(id.merchant.as_str(), id.key.as_str()));
        Ok(Known {
            held: self.read("read held notices", HELD, numbers, |row| rows::held(row)).await?,
            booked: self.read("read keys", KEYS, keys, |row| rows::booked(row)).await?,
        })
    }

    async fn flow_of(&mut self, numbers: &[Number]) -> Result<Vec<FlowRow>, Error> {
        const SQL: &str = "\
            SELECT merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount, currency, trade_no,
                   full_refund, account, callback_id, occurred_at, booked_at
            FROM payonce_order_flow WHERE merchant = ?1 AND out_trade_no = ?2";
        self.read("read the ledger", SQL, numbers.iter().map(number), |row| rows::flow(row)).await
    }

    async fn insert_attempts(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_attempt (merchant, out_trade_no, shop, order_no, amount, state, closed_at)
            SELECT value->>'m', value->>'n', value->>'s', value->>'o', value->>'a', value->>'st', value->>'c'
            FROM jsonb_each(?1)";
        self.run("insert attempts", SQL, [[json::attempts(attempts).into()]]).await.map(drop)
    }

    async fn insert_orders(&mut self, orders: &[Order]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_order (shop, order_no, kind, currency, amount, status, paid, refunded, unapplied,
                                       version, closed_at, paid_at, created_at, meta)
            SELECT value->>'s', value->>'o', value->>'k', value->>'cu', value->>'a', value->>'st', value->>'p',
                   value->>'r', value->>'u', value->>'v', value->>'cl', value->>'pd', value->>'cr', value->>'me'
            FROM jsonb_each(?1)";
        self.run("insert orders", SQL, [[json::orders(orders).into()]]).await.map(drop)
    }

    async fn update_orders(&mut self, orders: &[OrderUpdate]) -> Result<u64, Error> {
        self.run("update orders", entries::ORDERS, orders.iter().map(entries::order)).await
    }

    async fn update_attempts(&mut self, attempts: &[AttemptUpdate]) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_attempt AS a
            SET shop = j.value->>'s', order_no = j.value->>'o', amount = j.value->>'a', state = j.value->>'st',
                closed_at = j.value->>'c'
            FROM jsonb_each(?1) AS j
            WHERE a.merchant = j.value->>'m' AND a.out_trade_no = j.value->>'n' AND a.order_no IS j.value->>'had'";
        self.run("update attempts", SQL, [[json::attempt_updates(attempts).into()]]).await
    }

    async fn book_entries(&mut self, entries: &Entries<'_>) -> Result<u64, Error> {
        let updated = self.update_orders(entries.orders).await?;
        self.run("claim keys", entries::KEYS, entries.keys.iter().map(entries::key)).await?;
        self.run("append to the ledger", entries::FLOW, entries.flow.iter().map(entries::flow)).await?;
        self.run("insert effects", entries::EFFECTS, entries.effects.iter().map(entries::effect)).await?;
        self.run("keep callbacks", entries::EVIDENCE, entries.evidence.iter().map(entries::evidence)).await?;
        Ok(updated)
    }

    async fn hold(&mut self, notices: &[Held]) -> Result<(), Error> {
        // `WHERE true`: without it SQLite's grammar takes ON for a join of the SELECT.
        const SQL: &str = "\
            INSERT INTO payonce_quarantine (merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id,
                                            seen, first_seen, last_seen, state)
            SELECT value->>'m', value->>'n', value->>'k', value->>'f', value->>'re', value->>'no', value->>'cb',
                   value->>'se', value->>'fi', value->>'la', 'held'
            FROM jsonb_each(?1) WHERE true
            ON CONFLICT (merchant, out_trade_no, idem_key, fingerprint) DO UPDATE
            SET seen = seen + excluded.seen, last_seen = max(last_seen, excluded.last_seen), reason = excluded.reason";
        self.run("hold notices", SQL, [[json::held(notices).into()]]).await.map(drop)
    }

    async fn release(&mut self, notices: &[Held], at: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_quarantine AS q
            SET state = 'released', last_seen = max(q.last_seen, ?2), decided_by = 'payonce', decided_why = 'booked'
            FROM jsonb_each(?1) AS j
            WHERE q.merchant = j.value->>'m' AND q.out_trade_no = j.value->>'n' AND q.idem_key = j.value->>'k'
              AND q.fingerprint = j.value->>'f' AND q.state = 'held'";
        self.run("release held notices", SQL, [[json::held(notices).into(), at.0.into()]]).await
    }

    async fn keep_unbelieved(&mut self, kept: &[Evidence], per_hour: i64) -> Result<(), Error> {
        // Each statement sees what the one before kept.
        const SQL: &str = "\
            INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
            WHERE NOT EXISTS (SELECT 1 FROM payonce_callback AS c WHERE c.account = ?2
                              AND c.body_hash = ?6 AND c.verdict <> 'booked')
              AND (SELECT count(*) FROM payonce_callback AS c WHERE c.account = ?2
                   AND c.verdict <> 'booked' AND c.received_at > ?3 - 3600000000) < ?9";
        let rows = kept.iter().map(|one| {
            let [id, account, received_at, headers, body, body_hash, verdict, key_id] = entries::evidence(one);
            [id, account, received_at, headers, body, body_hash, verdict, key_id, per_hour.into()]
        });
        self.run("keep a message that was not believed", SQL, rows).await.map(drop)
    }

    async fn count_repeats(&mut self, repeats: &[Repeat]) -> Result<(), Error> {
        const SQL: &str = "\
            UPDATE payonce_idempotency AS i
            SET repeats = i.repeats + j.value->>'n', last_seen = max(i.last_seen, j.value->>'at'),
                trade_no = coalesce(i.trade_no, j.value->>'t'), currency = coalesce(i.currency, j.value->>'cu'),
                amount = coalesce(i.amount, j.value->>'a')
            FROM jsonb_each(?1) AS j
            WHERE i.merchant = j.value->>'m' AND i.idem_key = j.value->>'k'";
        self.run("count repeats", SQL, [[json::repeats(repeats).into()]]).await.map(drop)
    }

    async fn overdue(&mut self, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = "\
            SELECT DISTINCT q.merchant, q.out_trade_no
            FROM payonce_quarantine AS q INDEXED BY payonce_quarantine_held
            JOIN payonce_attempt AS a ON a.merchant = q.merchant AND a.out_trade_no = q.out_trade_no
            WHERE q.state = 'held' AND (
                (q.reason = 'unknown_order' AND a.order_no IS NOT NULL)
                OR (q.reason = 'awaiting_payment' AND EXISTS (
                    SELECT 1 FROM payonce_order_flow AS f
                    WHERE f.merchant = q.merchant AND f.out_trade_no = q.out_trade_no AND f.kind = 'payment'
                      AND f.trade_no = q.notice->>'trade_no')))
            LIMIT ?1";
        self.read("sweep", SQL, [[limit.into()]], |row| rows::number(row)).await
    }
}

impl<C: Talk> Outbox for C {
    async fn has_due(&mut self, lease: &Lease) -> Result<bool, Error> {
        const SQL: &str = "\
            SELECT EXISTS (SELECT 1 FROM payonce_effect INDEXED BY payonce_effect_open
                           WHERE done_at IS NULL AND sink = ?1 AND state = 'ready' AND due_at <= ?2)
                OR EXISTS (SELECT 1 FROM payonce_effect INDEXED BY payonce_effect_open
                           WHERE done_at IS NULL AND sink = ?1 AND state = 'leased' AND lease_until <= ?2)";
        let values = [[lease.sink.as_str().into(), lease.now.0.into()]];
        let found = self.read("look for due effects", SQL, values, |row| row.int(0)).await?;
        Ok(found.first().is_some_and(|is_due| *is_due != 0))
    }

    async fn claim(&mut self, lease: &Lease) -> Result<Vec<Effect>, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect
            SET state = 'leased', lease_token = ?1, lease_until = ?2, tries = tries + 1
            WHERE effect_key IN (
                SELECT effect_key FROM (
                    SELECT e.effect_key, e.due_at FROM payonce_effect AS e INDEXED BY payonce_effect_open
                    WHERE e.done_at IS NULL AND e.sink = ?5 AND e.state = 'ready' AND e.due_at <= ?3
                      AND (e.after IS NULL OR EXISTS (
                          SELECT 1 FROM payonce_effect AS b WHERE b.effect_key = e.after AND b.state = 'done'))
                    UNION ALL
                    SELECT e.effect_key, e.due_at FROM payonce_effect AS e INDEXED BY payonce_effect_open
                    WHERE e.done_at IS NULL AND e.sink = ?5 AND e.state = 'leased' AND e.lease_until <= ?3)
                ORDER BY due_at LIMIT ?4)
            RETURNING effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                      due_at, last_error, created_at, done_at";
        self.read(
            "claim effects",
            SQL,
            [[
                lease.token.as_str().into(),
                lease.until.0.into(),
                lease.now.0.into(),
                lease.limit.into(),
                lease.sink.as_str().into(),
            ]],
            |row| rows::effect(row),
        )
        .await
    }

    async fn finish(&mut self, token: &str, finished: &[Finished], now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect AS e
            SET state = j.value->>'st', due_at = j.value->>'du', last_error = j.value->>'er', lease_token = NULL,
                lease_until = NULL, done_at = CASE j.value->>'st' WHEN 'done' THEN ?3 END
            FROM jsonb_each(?1) AS j
            WHERE e.effect_key = j.value->>'e' AND e.state = 'leased' AND e.lease_token = ?2";
        self.run("record deliveries", SQL, [[json::finished(finished).into(), token.into(), now.0.into()]]).await
    }

    async fn abandon_followers(&mut self, now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect AS e
            SET state = 'dead', due_at = ?1, last_error = 'the effect it waits for is ' || b.state || ': ' || b.effect_key
            FROM payonce_effect AS b
            WHERE e.done_at IS NULL AND e.state = 'ready' AND e.after IS NOT NULL AND b.effect_key = e.after
              AND b.state IN ('dead', 'cancelled')";
        self.run("abandon followers", SQL, [[now.0.into()]]).await
    }

    async fn retry(&mut self, key: &EffectKey, now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect SET state = 'ready', due_at = ?2, tries = 0
            WHERE state = 'dead' AND (effect_key = ?1 OR after = ?1)";
        self.run("retry an effect", SQL, [[key.as_str().into(), now.0.into()]]).await
    }

    async fn run_statement(&mut self, statement: &Statement, payload: &str) -> Result<u64, Error> {
        let payload = serde_json::from_str(payload)
            .map_err(|error| Error::permanent(format!("a stored payload does not read: {error}")))?;
        // The text is the operator's configuration; what comes from messages is bound.
        let values: Vec<Cell<'_>> = (statement.values(&payload).into_iter())
            .map(|value| match value {
                Value::Null => Cell::Null,
                Value::Bool(value) => i64::from(value).into(),
                Value::Number(value) => value.as_i64().into(),
                Value::String(value) => value.into(),
                other => other.to_string().into(),
            })
            .collect();
        self.run("the configured statement", &statement.text(|_| "?".to_owned()), [values]).await
    }
}

impl<C: Talk> Views for C {
    async fn order(&mut self, shop: &Shop, order_no: &OrderNo) -> Result<Option<OrderView>, Error> {
        let id = OrderId { shop: shop.clone(), order_no: order_no.clone() };
        let ids = std::slice::from_ref(&id);
        let Some(order) = self.lock_orders(ids).await?.pop() else { return Ok(None) };
        let attempts = self.attempts_of(ids).await?;
        let numbers: Vec<Number> = attempts.iter().map(|attempt| attempt.number.clone()).collect();
        const FLOW: &str = "\
            SELECT f.merchant, f.out_trade_no, f.idem_key, f.kind, f.disposition, f.shop, f.order_no, f.amount,
                   f.currency, f.trade_no, f.full_refund, f.account, f.callback_id, f.occurred_at, f.booked_at,
                   i.source, i.repeats
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_order_flow AS f
              ON f.merchant = j.value->>'m' AND f.out_trade_no = j.value->>'n'
            JOIN payonce_idempotency AS i ON i.merchant = f.merchant AND i.idem_key = f.idem_key
            ORDER BY f.booked_at, f.idem_key";
        let of_numbers = [[json::numbers(&numbers).into()]];
        let flow = self.read("read the ledger", FLOW, of_numbers, |row| rows::flow_view(row)).await?;
        let held = self.known(&numbers, &[]).await?.held;
        const EFFECTS: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect INDEXED BY payonce_effect_by_order WHERE shop = ?1 AND order_no = ?2
            ORDER BY created_at, effect_key";
        let of_order = [pair(shop.as_str(), order_no.as_str())];
        let effects = self.read("read effects", EFFECTS, of_order, |row| rows::effect(row)).await?;
        let ids: Vec<&str> = (flow.iter().filter_map(|view| view.row.callback_id.as_deref()))
            .chain(held.iter().filter_map(|held| held.callback_id.as_deref()))
            .collect();
        const CALLBACKS: &str = "\
            SELECT DISTINCT c.id, c.account, c.received_at, c.verdict, c.key_id, length(c.body)
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_callback AS c ON c.id = j.value ORDER BY c.id";
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let callbacks = self.read("read callbacks", CALLBACKS, [[ids.into()]], |row| rows::callback_view(row)).await?;
        Ok(Some(OrderView { order, attempts, flow, effects, held, callbacks }))
    }

    async fn effects(&mut self, filter: &EffectFilter) -> Result<Vec<Effect>, Error> {
        const SQL: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR effect_key > ?2)
            ORDER BY effect_key LIMIT ?3";
        self.read(
            "read effects",
            SQL,
            [[filter.state.map(EffectState::as_str).into(), filter.after_key.as_deref().into(), filter.limit.into()]],
            |row| rows::effect(row),
        )
        .await
    }

    async fn effect(&mut self, key: &EffectKey) -> Result<Option<Effect>, Error> {
        const SQL: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect WHERE effect_key = ?1";
        let mut found = self.read("read an effect", SQL, [[key.as_str().into()]], |row| rows::effect(row)).await?;
        Ok(found.pop())
    }

    async fn callback_body(&mut self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "SELECT body FROM payonce_callback WHERE id = ?1";
        let mut found = self.read("read a callback", SQL, [[id.into()]], |row| row.bytes(0)).await?;
        Ok(found.pop())
    }

    async fn counts(&mut self) -> Result<Counts, Error> {
        const SQL: &str = "\
            SELECT (SELECT count(*) FROM payonce_quarantine INDEXED BY payonce_quarantine_held WHERE state = 'held'),
                   (SELECT count(*) FROM payonce_effect INDEXED BY payonce_effect_open
                    WHERE done_at IS NULL AND state = 'ready'),
                   (SELECT count(*) FROM payonce_effect INDEXED BY payonce_effect_open
                    WHERE done_at IS NULL AND state = 'leased'),
                   (SELECT count(*) FROM payonce_effect INDEXED BY payonce_effect_open
                    WHERE done_at IS NULL AND state = 'dead'),
                   (SELECT min(due_at) FROM payonce_effect INDEXED BY payonce_effect_open
                    WHERE done_at IS NULL AND state = 'ready'),
                   (SELECT count(*) FROM payonce_callback INDEXED BY payonce_callback_unbelieved WHERE verdict <> 'booked')";
        let mut found = self.read("count", SQL, NOTHING, |row| rows::counts(row)).await?;
        found.pop().ok_or_else(|| Error::permanent("count: no row"))
    }
}
