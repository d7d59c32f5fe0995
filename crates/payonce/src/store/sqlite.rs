//! SQLite, the embedded default: one file, one writer.
//!
//! Here: SQL, and how SQLite locks. `BEGIN IMMEDIATE` always (a deferred one that read first cannot be
//! helped by the busy handler), `synchronous = FULL` (a commit is durable when it returns), a WAL file.
//! Not here: any decision. Functions stand in the order of the traits; the sibling engines keep it.

use std::{path::PathBuf, time::Duration};

use futures_util::TryStreamExt as _;

use serde_json::Value;
use sqlx::{
    ConnectOptions, Connection, Executor as _, SqlSafeStr, SqliteConnection,
    migrate::{Migrate, Migration, MigrationType, Migrator},
    query::Query,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous},
};

use crate::{
    error::Error,
    ids::{OrderNo, Shop},
    key::{EffectKey, Fingerprint},
    order::{Attempt, Number, Order, OrderId},
    statement::Statement,
    store::{
        AttemptUpdate, Counts, Effect, EffectFilter, EffectState, Engine, Evidence, Finished, FlowRow, Held, KeyId,
        KeyRow, Lease, Ledger, Look, OrderUpdate, OrderView, Outbox, Repeat, Usual, Views, json,
        rows::{self, Cells},
    },
    time::Micros,
};

mod texts;

/// Where the file is.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Its path; created if missing.
    pub path: PathBuf,
}

/// Another process may hold the file for this long before a write gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "books", include_str!("../../migrations/sqlite/0001_books.sql"))];

type Sql = Query<'static, sqlx::Sqlite, SqliteArguments>;

fn query(sql: &'static str) -> Sql {
    sqlx::query(sql)
}

async fn fetch(connection: &mut SqliteConnection, what: &str, query: Sql) -> Result<Vec<SqliteRow>, Error> {
    query.fetch_all(connection).await.map_err(|error| Error::from(error).during(what))
}

/// The rows of a batch folded into one: each row that crosses between the two threads of a connection costs
/// more than building and reading its JSON.
async fn fetch_folded(connection: &mut SqliteConnection, what: &str, query: Sql) -> Result<Vec<Vec<Value>>, Error> {
    let row = query.fetch_one(connection).await.map_err(|error| Error::from(error).during(what))?;
    unfold(what, &row.text(0)?)
}

fn unfold(what: &str, folded: &str) -> Result<Vec<Vec<Value>>, Error> {
    serde_json::from_str(folded).map_err(|error| Error::permanent(format!("{what}: {error}")))
}

async fn execute(connection: &mut SqliteConnection, what: &str, query: Sql) -> Result<u64, Error> {
    let done = query.execute(connection).await.map_err(|error| Error::from(error).during(what))?;
    Ok(done.rows_affected())
}

impl Ledger for SqliteConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        execute(self, "begin", query("BEGIN IMMEDIATE")).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), Error> {
        execute(self, "commit", query("COMMIT")).await.map(drop)
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        execute(self, "rollback", query("ROLLBACK")).await.map(drop)
    }

    async fn lock_attempts(&mut self, numbers: &[Number]) -> Result<Vec<Attempt>, Error> {
        const SQL: &str = texts::attempts!("?1");
        let found = fetch_folded(self, "read attempts", query(SQL).bind(json::numbers(numbers))).await?;
        found.iter().map(rows::attempt).collect()
    }

    async fn lock_orders(&mut self, orders: &[OrderId]) -> Result<Vec<Order>, Error> {
        const SQL: &str = "\
            SELECT json_group_array(json_array(
                   o.shop, o.order_no, o.kind, o.currency, o.amount, o.status, o.paid, o.refunded, o.unapplied,
                   o.version, o.closed_at, o.paid_at, o.created_at, o.meta))
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_order AS o
              ON o.shop = j.value->>'s' AND o.order_no = j.value->>'o'";
        let found = fetch_folded(self, "read orders", query(SQL).bind(json::order_ids(orders))).await?;
        found.iter().map(rows::order).collect()
    }

    async fn attempts_of(&mut self, orders: &[OrderId]) -> Result<Vec<Attempt>, Error> {
        const SQL: &str = "\
            SELECT a.merchant, a.out_trade_no, a.shop, a.order_no, a.amount, a.state, a.closed_at
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_attempt AS a INDEXED BY payonce_attempt_by_order
              ON a.shop = j.value->>'s' AND a.order_no = j.value->>'o'
            ORDER BY a.merchant, a.out_trade_no";
        let found = fetch(self, "read attempts of orders", query(SQL).bind(json::order_ids(orders))).await?;
        found.iter().map(rows::attempt).collect()
    }

    async fn lock_held(&mut self, numbers: &[Number]) -> Result<Vec<Held>, Error> {
        const SQL: &str = texts::held!("?1");
        let found = fetch_folded(self, "read held notices", query(SQL).bind(json::numbers(numbers))).await?;
        found.iter().map(rows::held).collect()
    }

    async fn booked(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Fingerprint)>, Error> {
        const SQL: &str = texts::booked!("?1");
        let found = fetch_folded(self, "read keys", query(SQL).bind(json::keys(keys))).await?;
        found.iter().map(rows::booked).collect()
    }

    async fn flow_of(&mut self, numbers: &[Number]) -> Result<Vec<FlowRow>, Error> {
        const SQL: &str = "\
            SELECT json_group_array(json_array(
                   f.merchant, f.out_trade_no, f.idem_key, f.kind, f.disposition, f.shop, f.order_no, f.amount,
                   f.currency, f.trade_no, f.full_refund, f.account, f.callback_id, f.occurred_at, f.booked_at))
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_order_flow AS f
              ON f.merchant = j.value->>'m' AND f.out_trade_no = j.value->>'n'";
        let found = fetch_folded(self, "read the ledger", query(SQL).bind(json::numbers(numbers))).await?;
        found.iter().map(rows::flow).collect()
    }

    async fn look(&mut self, numbers: &[Number], keys: &[KeyId]) -> Result<Look, Error> {
        const SQL: &str = concat!(
            "SELECT (",
            texts::attempts!("?1"),
            "), (",
            texts::orders_of!("?1"),
            "), (",
            texts::held!("?1"),
            "), (",
            texts::booked!("?2"),
            ")"
        );
        let what = "look";
        let query = query(SQL).bind(json::numbers(numbers)).bind(json::keys(keys));
        let row = query.fetch_one(&mut *self).await.map_err(|error| Error::from(error).during(what))?;
        let folded = |index| unfold(what, &row.text(index)?);
        Ok(Look {
            attempts: folded(0)?.iter().map(rows::attempt).collect::<Result<_, _>>()?,
            orders: folded(1)?.iter().map(rows::order).collect::<Result<_, _>>()?,
            held: folded(2)?.iter().map(rows::held).collect::<Result<_, _>>()?,
            booked: folded(3)?.iter().map(rows::booked).collect::<Result<_, _>>()?,
        })
    }

    async fn book_usual(&mut self, usual: &Usual<'_>) -> Result<u64, Error> {
        // One script: what costs in a small batch is not the statements but each turn of the two threads.
        const SQL: &str = concat!(
            texts::update_orders!("?"),
            ";",
            texts::claim_keys!("?"),
            ";",
            texts::insert_flow!("?"),
            ";",
            texts::insert_effects!("?", "?"),
            ";",
            texts::keep!("?", "?")
        );
        let (effects, evidence) = (json::apart::effects(usual.effects), json::apart::evidence(usual.evidence));
        let query = query(SQL)
            .bind(json::order_updates(usual.orders))
            .bind(json::key_rows(usual.keys))
            .bind(json::flow(usual.flow))
            .bind(effects.array)
            .bind(effects.bytes)
            .bind(evidence.array)
            .bind(evidence.bytes);
        let done: Vec<_> =
            self.fetch_many(query).try_collect().await.map_err(|error| Error::from(error).during("book"))?;
        let first = done.first().and_then(|done| done.as_ref().left());
        Ok(first.map_or(0, sqlx::sqlite::SqliteQueryResult::rows_affected))
    }

    async fn insert_attempts(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_attempt (merchant, out_trade_no, shop, order_no, amount, state, closed_at)
            SELECT value->>'m', value->>'n', value->>'s', value->>'o', value->>'a', value->>'st', value->>'c'
            FROM jsonb_each(?1)";
        execute(self, "insert attempts", query(SQL).bind(json::attempts(attempts))).await.map(drop)
    }

    async fn insert_orders(&mut self, orders: &[Order]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_order (shop, order_no, kind, currency, amount, status, paid, refunded, unapplied,
                                       version, closed_at, paid_at, created_at, meta)
            SELECT value->>'s', value->>'o', value->>'k', value->>'cu', value->>'a', value->>'st', value->>'p',
                   value->>'r', value->>'u', value->>'v', value->>'cl', value->>'pd', value->>'cr', value->>'me'
            FROM jsonb_each(?1)";
        execute(self, "insert orders", query(SQL).bind(json::orders(orders))).await.map(drop)
    }

    async fn claim_keys(&mut self, keys: &[KeyRow]) -> Result<(), Error> {
        const SQL: &str = texts::claim_keys!("?1");
        execute(self, "claim keys", query(SQL).bind(json::key_rows(keys))).await.map(drop)
    }

    async fn update_orders(&mut self, orders: &[OrderUpdate]) -> Result<u64, Error> {
        const SQL: &str = texts::update_orders!("?1");
        execute(self, "update orders", query(SQL).bind(json::order_updates(orders))).await
    }

    async fn update_attempts(&mut self, attempts: &[AttemptUpdate]) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_attempt AS a
            SET shop = j.value->>'s', order_no = j.value->>'o', amount = j.value->>'a', state = j.value->>'st',
                closed_at = j.value->>'c'
            FROM jsonb_each(?1) AS j
            WHERE a.merchant = j.value->>'m' AND a.out_trade_no = j.value->>'n' AND a.order_no IS j.value->>'had'";
        execute(self, "update attempts", query(SQL).bind(json::attempt_updates(attempts))).await
    }

    async fn insert_flow(&mut self, rows: &[FlowRow]) -> Result<(), Error> {
        const SQL: &str = texts::insert_flow!("?1");
        execute(self, "append to the ledger", query(SQL).bind(json::flow(rows))).await.map(drop)
    }

    async fn insert_effects(&mut self, effects: &[Effect]) -> Result<(), Error> {
        const SQL: &str = texts::insert_effects!("?1", "?2");
        let rows = json::apart::effects(effects);
        execute(self, "insert effects", query(SQL).bind(rows.array).bind(rows.bytes)).await.map(drop)
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
        execute(self, "hold notices", query(SQL).bind(json::held(notices))).await.map(drop)
    }

    async fn release(&mut self, notices: &[Held], at: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_quarantine AS q
            SET state = 'released', last_seen = max(q.last_seen, ?2), decided_by = 'payonce', decided_why = 'booked'
            FROM jsonb_each(?1) AS j
            WHERE q.merchant = j.value->>'m' AND q.out_trade_no = j.value->>'n' AND q.idem_key = j.value->>'k'
              AND q.fingerprint = j.value->>'f' AND q.state = 'held'";
        execute(self, "release held notices", query(SQL).bind(json::held(notices)).bind(at.0)).await
    }

    async fn keep(&mut self, evidence: &[Evidence]) -> Result<(), Error> {
        const SQL: &str = texts::keep!("?1", "?2");
        let rows = json::apart::evidence(evidence);
        execute(self, "keep callbacks", query(SQL).bind(rows.array).bind(rows.bytes)).await.map(drop)
    }

    async fn keep_unbelieved(&mut self, evidence: &[Evidence], per_hour: i64) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
            SELECT value->>'id', value->>'ac', value->>'at', CAST(substr(?2, value->>'hp', value->>'hl') AS TEXT),
                   substr(?2, value->>'bp', value->>'bl'), value->>'bh', value->>'v', value->>'ki'
            FROM jsonb_each(?1)
            WHERE NOT EXISTS (SELECT 1 FROM payonce_callback AS c WHERE c.account = value->>'ac'
                              AND c.body_hash = value->>'bh' AND c.verdict <> 'booked')
              AND (SELECT count(*) FROM payonce_callback AS c WHERE c.account = value->>'ac'
                   AND c.verdict <> 'booked' AND c.received_at > value->>'at' - 3600000000) < ?3";
        // One by one, so that each statement sees what the one before kept.
        for one in evidence {
            let rows = json::apart::evidence(std::slice::from_ref(one));
            let query = query(SQL).bind(rows.array).bind(rows.bytes).bind(per_hour);
            execute(self, "keep a message that was not believed", query).await?;
        }
        Ok(())
    }

    async fn count_repeats(&mut self, repeats: &[Repeat]) -> Result<(), Error> {
        const SQL: &str = "\
            UPDATE payonce_idempotency AS i
            SET repeats = i.repeats + j.value->>'n', last_seen = max(i.last_seen, j.value->>'at'),
                trade_no = coalesce(i.trade_no, j.value->>'t'), currency = coalesce(i.currency, j.value->>'cu'),
                amount = coalesce(i.amount, j.value->>'a')
            FROM jsonb_each(?1) AS j
            WHERE i.merchant = j.value->>'m' AND i.idem_key = j.value->>'k'";
        execute(self, "count repeats", query(SQL).bind(json::repeats(repeats))).await.map(drop)
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
        fetch(self, "sweep", query(SQL).bind(limit)).await?.iter().map(rows::number).collect()
    }
}

impl Outbox for SqliteConnection {
    async fn has_due(&mut self, lease: &Lease) -> Result<bool, Error> {
        const SQL: &str = "\
            SELECT EXISTS (SELECT 1 FROM payonce_effect INDEXED BY payonce_effect_open
                           WHERE done_at IS NULL AND sink = ?1 AND state = 'ready' AND due_at <= ?2)
                OR EXISTS (SELECT 1 FROM payonce_effect INDEXED BY payonce_effect_open
                           WHERE done_at IS NULL AND sink = ?1 AND state = 'leased' AND lease_until <= ?2)";
        let found = fetch(self, "look for due effects", query(SQL).bind(lease.sink.clone()).bind(lease.now.0)).await?;
        Ok(found.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) != 0)
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
        let query = query(SQL)
            .bind(lease.token.clone())
            .bind(lease.until.0)
            .bind(lease.now.0)
            .bind(lease.limit)
            .bind(lease.sink.clone());
        fetch(self, "claim effects", query).await?.iter().map(rows::effect).collect()
    }

    async fn finish(&mut self, token: &str, finished: &[Finished], now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect AS e
            SET state = j.value->>'st', due_at = j.value->>'du', last_error = j.value->>'er', lease_token = NULL,
                lease_until = NULL, done_at = CASE j.value->>'st' WHEN 'done' THEN ?3 END
            FROM jsonb_each(?1) AS j
            WHERE e.effect_key = j.value->>'e' AND e.state = 'leased' AND e.lease_token = ?2";
        let query = query(SQL).bind(json::finished(finished)).bind(token.to_owned()).bind(now.0);
        execute(self, "record deliveries", query).await
    }

    async fn abandon_followers(&mut self, now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect AS e
            SET state = 'dead', due_at = ?1, last_error = 'the effect it waits for is ' || b.state || ': ' || b.effect_key
            FROM payonce_effect AS b
            WHERE e.done_at IS NULL AND e.state = 'ready' AND e.after IS NOT NULL AND b.effect_key = e.after
              AND b.state IN ('dead', 'cancelled')";
        execute(self, "abandon followers", query(SQL).bind(now.0)).await
    }

    async fn retry(&mut self, key: &EffectKey, now: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_effect SET state = 'ready', due_at = ?2, tries = 0
            WHERE state = 'dead' AND (effect_key = ?1 OR after = ?1)";
        execute(self, "retry an effect", query(SQL).bind(key.as_str().to_owned()).bind(now.0)).await
    }

    async fn run_statement(&mut self, statement: &Statement, payload: &str) -> Result<u64, Error> {
        let payload = serde_json::from_str(payload)
            .map_err(|error| Error::permanent(format!("a stored payload does not read: {error}")))?;
        // The text is the operator's configuration; what comes from messages is bound.
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.text(|_| "?".to_owned())));
        for value in statement.values(&payload) {
            query = match value {
                Value::Null => query.bind(None::<String>),
                Value::Bool(value) => query.bind(i64::from(value)),
                Value::Number(value) => query.bind(value.as_i64()),
                Value::String(value) => query.bind(value),
                other => query.bind(other.to_string()),
            };
        }
        let done = query.execute(self).await.map_err(|error| Error::from(error).during("the configured statement"))?;
        Ok(done.rows_affected())
    }
}

impl Views for SqliteConnection {
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
        let flow = fetch(self, "read the ledger", query(FLOW).bind(json::numbers(&numbers))).await?;
        let flow = flow.iter().map(rows::flow_view).collect::<Result<Vec<_>, _>>()?;
        let held = self.lock_held(&numbers).await?;
        const EFFECTS: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect INDEXED BY payonce_effect_by_order WHERE shop = ?1 AND order_no = ?2
            ORDER BY created_at, effect_key";
        let effects = query(EFFECTS).bind(shop.as_str().to_owned()).bind(order_no.as_str().to_owned());
        let effects = fetch(self, "read effects", effects).await?;
        let effects = effects.iter().map(rows::effect).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<&str> = (flow.iter().filter_map(|view| view.row.callback_id.as_deref()))
            .chain(held.iter().filter_map(|held| held.callback_id.as_deref()))
            .collect();
        const CALLBACKS: &str = "\
            SELECT DISTINCT c.id, c.account, c.received_at, c.verdict, c.key_id, length(c.body)
            FROM jsonb_each(?1) AS j CROSS JOIN payonce_callback AS c ON c.id = j.value ORDER BY c.id";
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let callbacks = fetch(self, "read callbacks", query(CALLBACKS).bind(ids)).await?;
        let callbacks = callbacks.iter().map(rows::callback_view).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(OrderView { order, attempts, flow, effects, held, callbacks }))
    }

    async fn effects(&mut self, filter: &EffectFilter) -> Result<Vec<Effect>, Error> {
        const SQL: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR effect_key > ?2)
            ORDER BY effect_key LIMIT ?3";
        let query =
            query(SQL).bind(filter.state.map(EffectState::as_str)).bind(filter.after_key.clone()).bind(filter.limit);
        fetch(self, "read effects", query).await?.iter().map(rows::effect).collect()
    }

    async fn effect(&mut self, key: &EffectKey) -> Result<Option<Effect>, Error> {
        const SQL: &str = "\
            SELECT effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload, state, after, tries,
                   due_at, last_error, created_at, done_at
            FROM payonce_effect WHERE effect_key = ?1";
        let found = fetch(self, "read an effect", query(SQL).bind(key.as_str().to_owned())).await?;
        found.first().map(rows::effect).transpose()
    }

    async fn callback_body(&mut self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "SELECT body FROM payonce_callback WHERE id = ?1";
        let found = fetch(self, "read a callback", query(SQL).bind(id.to_owned())).await?;
        found.first().map(|row| row.bytes(0)).transpose()
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
        let found = fetch(self, "count", query(SQL)).await?;
        rows::counts(found.first().ok_or_else(|| Error::permanent("count: no row"))?)
    }
}

impl Engine for SqliteConnection {
    type Options = SqliteOptions;
    const NAME: &'static str = "sqlite";
    const BREATHER: Option<(Duration, Duration)> = Some((Duration::from_millis(50), Duration::from_millis(1)));
    const READS_BEFORE_DURABLE: bool = false;
    const TRUSTED_IDLE: Option<Duration> = None;

    async fn connect(options: &SqliteOptions) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(&options.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("cache_size", "-65536")
            // A checkpoint runs in the committing thread. At the default of 1000 pages a full batch meets one
            // every few commits, and the same hot pages are copied each time; 32 MiB of WAL copy them once.
            .pragma("wal_autocheckpoint", "8000")
            .pragma("mmap_size", "268435456")
            .disable_statement_logging();
        Self::connect_with(&options).await.map_err(|error| Error::from(error).during("open the database"))
    }

    async fn connect_reader(options: &SqliteOptions) -> Result<Self, Error> {
        let mut connection = <Self as Engine>::connect(options).await?;
        execute(&mut connection, "open for reading", query("PRAGMA query_only = 1")).await?;
        Ok(connection)
    }

    async fn migrate(&mut self) -> Result<Vec<i64>, Error> {
        const TABLE: &str = "payonce_migrations";
        let failed = |error: sqlx::migrate::MigrateError| Error::permanent(format!("migrate: {error}"));
        let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(TABLE);
        self.ensure_migrations_table(TABLE).await.map_err(failed)?;
        let before = self.list_applied_migrations(TABLE).await.map_err(failed)?;
        migrator.run_direct(None, self, false).await.map_err(failed)?;
        let known: Vec<i64> = before.iter().map(|applied| applied.version).collect();
        Ok(MIGRATIONS.iter().map(|&(version, ..)| version).filter(|version| !known.contains(version)).collect())
    }

    async fn doubts(&mut self) -> Result<Vec<String>, Error> {
        let found = fetch(self, "read settings", query("PRAGMA synchronous")).await?;
        let level: i64 = found.first().map(|row| row.int(0)).transpose()?.unwrap_or(0);
        Ok(if level >= 2 {
            Vec::new()
        } else {
            vec![format!("SQLite: synchronous = {level}; below FULL (2) the last commits can be lost with the power")]
        })
    }
}
