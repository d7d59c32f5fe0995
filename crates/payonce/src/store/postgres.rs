//! PostgreSQL, from version 12.
//!
//! Here: SQL, and how PostgreSQL locks. READ COMMITTED with every transaction; rows are locked by
//! `SELECT … ORDER BY key FOR UPDATE`, because an UPDATE alone locks in the plan's order. Not here: any
//! decision, and what a session is (`session`). Functions stand in the order of the traits; the sibling
//! engines keep it. Every statement takes one JSON array, or an array for each column where rows are wide, and
//! looks its rows up by an index.

use std::collections::BTreeSet;

use sqlx::{
    Encode, PgConnection, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, types::Oid},
    query::Query,
};

use crate::{
    error::Error,
    ids::{OrderNo, Shop},
    key::EffectKey,
    order::{Attempt, Number, Order, OrderId},
    statement::Statement,
    store::{
        AttemptUpdate, Counts, Effect, EffectFilter, EffectState, Entries, Evidence, Finished, FlowRow, Held, KeyId,
        Known, Lease, Ledger, OrderUpdate, OrderView, Outbox, Repeat, Views, json,
        rows::{self, Cells},
        server::{ANSWER, within},
    },
    time::Micros,
};

/// From the caller's clock, whose "now" is given, to the server's (see `server::Clock`). Stable within a statement,
/// so that an index may be searched with it.
macro_rules! shift {
    ($now:literal) => {
        concat!(
            "(CASE WHEN current_setting('payonce.clock', true) = 'caller' THEN 0 ",
            "ELSE (extract(epoch FROM statement_timestamp()) * 1000000)::bigint - ",
            $now,
            " END)"
        )
    };
}

type Sql = Query<'static, Postgres, PgArguments>;

fn query(sql: &'static str) -> Sql {
    sqlx::query(sql)
}

async fn fetch(connection: &mut PgConnection, what: &str, query: Sql) -> Result<Vec<PgRow>, Error> {
    within(ANSWER, what, query.fetch_all(connection)).await
}

async fn execute(connection: &mut PgConnection, what: &str, query: Sql) -> Result<u64, Error> {
    Ok(within(ANSWER, what, query.execute(connection)).await?.rows_affected())
}

/// NULL of a type that the server finds out by itself.
struct Untyped;

impl Type<Postgres> for Untyped {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Untyped {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}

macro_rules! attempt_columns {
    () => {
        "merchant, out_trade_no, shop, order_no, amount, state, closed_at"
    };
}

macro_rules! order_columns {
    () => {
        "shop, order_no, kind, currency, amount, status, paid, refunded, unapplied, version, closed_at, paid_at, \
         created_at, meta"
    };
}

macro_rules! flow_columns {
    () => {
        "merchant, out_trade_no, idem_key, kind, disposition, shop, order_no, amount, currency, trade_no, full_refund, \
         account, callback_id, occurred_at, booked_at"
    };
}

/// The rows of a table that a list `j` names, looked up one after the other in its order. A plain join would be
/// planned: on a table that was empty when the plan was made, the plan is to walk all of it.
macro_rules! each {
    ($table:ident as $name:ident, $columns:expr, $where:literal, $rest:expr) => {
        concat!(
            " CROSS JOIN LATERAL (SELECT ",
            $columns,
            " FROM ",
            stringify!($table),
            " WHERE ",
            $where,
            " ",
            $rest,
            ") AS ",
            stringify!($name)
        )
    };
}

macro_rules! orders_by_id {
    ($lock:literal) => {
        concat!(
            "SELECT o.* FROM unnest($1::text[], $2::text[]) AS j(s, o)",
            each!(payonce_order as o, order_columns!(), "shop = j.s AND order_no = j.o", $lock)
        )
    };
}

macro_rules! held_by_number {
    ($lock:literal) => {
        concat!(
            "SELECT q.* FROM unnest($1::text[], $2::text[]) AS j(m, n)",
            each!(
                payonce_quarantine as q,
                "merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id, seen, first_seen, last_seen",
                "merchant = j.m AND out_trade_no = j.n AND state = 'held'",
                concat!("ORDER BY idem_key, fingerprint ", $lock)
            )
        )
    };
}

fn bind_numbers(query: Sql, numbers: &[Number]) -> Sql {
    let (merchants, out_trade_nos): (Vec<&str>, Vec<&str>) =
        numbers.iter().map(|number| (number.merchant.as_str(), number.out_trade_no.as_str())).unzip();
    query.bind(merchants).bind(out_trade_nos)
}

fn bind_orders(query: Sql, orders: &[OrderId]) -> Sql {
    let (shops, order_nos): (Vec<&str>, Vec<&str>) =
        orders.iter().map(|id| (id.shop.as_str(), id.order_no.as_str())).unzip();
    query.bind(shops).bind(order_nos)
}

macro_rules! effect_columns {
    () => {
        "e.effect_key, e.merchant, e.idem_key, e.shop, e.order_no, e.event, e.name, e.sink, e.payload, e.state, \
         e.after, e.tries, e.due_at, e.last_error, e.created_at, e.done_at"
    };
}

mod entries;
mod session;

impl Ledger for PgConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        execute(self, "begin", query("BEGIN ISOLATION LEVEL READ COMMITTED")).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), Error> {
        execute(self, "commit", query("COMMIT")).await.map(drop)
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        execute(self, "rollback", query("ROLLBACK")).await.map(drop)
    }

    async fn lock_numbers(&mut self, numbers: &[Number]) -> Result<(Vec<Attempt>, Vec<Order>), Error> {
        // The orders are sorted, so every row of a number is locked before the first of them.
        const SQL: &str = concat!(
            "WITH a AS (SELECT a.* FROM unnest($1::text[], $2::text[]) AS j(m, n)",
            each!(payonce_attempt as a, attempt_columns!(), "merchant = j.m AND out_trade_no = j.n", "FOR UPDATE"),
            "), o AS (SELECT o.* FROM (SELECT DISTINCT a.shop AS s, a.order_no AS o FROM a
                                       WHERE a.order_no IS NOT NULL ORDER BY 1, 2) AS j",
            each!(payonce_order as o, order_columns!(), "shop = j.s AND order_no = j.o", "FOR UPDATE"),
            ") SELECT a.*, o.* FROM a LEFT JOIN o ON false UNION ALL SELECT a.*, o.* FROM o LEFT JOIN a ON false"
        );
        let found = fetch(self, "read attempts and orders", bind_numbers(query(SQL), numbers)).await?;
        let is_attempt = |row: &&PgRow| row.optional_text(0).is_ok_and(|merchant| merchant.is_some());
        let (of_attempts, of_orders): (Vec<&PgRow>, Vec<&PgRow>) = found.iter().partition(is_attempt);
        let attempts: Vec<Attempt> = of_attempts.into_iter().map(rows::attempt).collect::<Result<_, _>>()?;
        let orders = of_orders.into_iter().map(|row| rows::order(&rows::Beyond(row, 7)));
        let mut orders: Vec<Order> = orders.collect::<Result<_, _>>()?;
        // An order that was committed while we waited for its number is younger than what the statement sees.
        let known: BTreeSet<&OrderId> = orders.iter().map(|order| &order.id).collect();
        let named = attempts.iter().filter_map(|attempt| attempt.order.as_ref());
        let missing: BTreeSet<OrderId> = named.filter(|id| !known.contains(id)).cloned().collect();
        if !missing.is_empty() {
            orders.extend(self.lock_orders(&Vec::from_iter(missing)).await?);
        }
        Ok((attempts, orders))
    }

    async fn lock_orders(&mut self, orders: &[OrderId]) -> Result<Vec<Order>, Error> {
        const SQL: &str = orders_by_id!("FOR UPDATE");
        fetch(self, "read orders", bind_orders(query(SQL), orders)).await?.iter().map(rows::order).collect()
    }

    async fn attempts_of(&mut self, orders: &[OrderId]) -> Result<Vec<Attempt>, Error> {
        const SQL: &str = concat!(
            "SELECT a.* FROM unnest($1::text[], $2::text[]) AS j(s, o)",
            each!(
                payonce_attempt as a,
                attempt_columns!(),
                "shop = j.s AND order_no = j.o",
                "ORDER BY merchant, out_trade_no"
            )
        );
        let found = fetch(self, "read attempts of orders", bind_orders(query(SQL), orders)).await?;
        found.iter().map(rows::attempt).collect()
    }

    async fn known(&mut self, numbers: &[Number], keys: &[KeyId]) -> Result<Known, Error> {
        const SQL: &str = concat!(
            "WITH q AS (",
            held_by_number!("FOR UPDATE"),
            "), i AS (SELECT i.* FROM unnest($3::text[], $4::text[]) AS j(m, k)",
            each!(
                payonce_idempotency as i,
                "merchant, idem_key, trade_no, amount, currency",
                "merchant = j.m AND idem_key = j.k",
                "OFFSET 0"
            ),
            ") SELECT q.*, i.* FROM q LEFT JOIN i ON false UNION ALL SELECT q.*, i.* FROM i LEFT JOIN q ON false"
        );
        let (merchants, names): (Vec<&str>, Vec<&str>) =
            keys.iter().map(|id| (id.merchant.as_str(), id.key.as_str())).unzip();
        let query = bind_numbers(query(SQL), numbers).bind(merchants).bind(names);
        let mut known = Known::default();
        for row in &fetch(self, "read held notices and keys", query).await? {
            match row.optional_text(0)? {
                Some(_) => known.held.push(rows::held(row)?),
                None => known.booked.push(rows::booked(&rows::Beyond(row, 10))?),
            }
        }
        Ok(known)
    }

    async fn flow_of(&mut self, numbers: &[Number]) -> Result<Vec<FlowRow>, Error> {
        const SQL: &str = concat!(
            "SELECT f.* FROM unnest($1::text[], $2::text[]) AS j(m, n)",
            each!(payonce_order_flow as f, flow_columns!(), "merchant = j.m AND out_trade_no = j.n", "OFFSET 0")
        );
        fetch(self, "read the ledger", bind_numbers(query(SQL), numbers)).await?.iter().map(rows::flow).collect()
    }

    async fn insert_attempts(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_attempt (merchant, out_trade_no, shop, order_no, amount, state, closed_at)
            SELECT m, n, s, o, a, st, c
            FROM jsonb_to_recordset($1::text::jsonb)
              AS j(m text, n text, s text, o text, a bigint, st text, c bigint)";
        execute(self, "insert attempts", query(SQL).bind(json::attempts(attempts))).await.map(drop)
    }

    async fn insert_orders(&mut self, orders: &[Order]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_order (shop, order_no, kind, currency, amount, status, paid, refunded, unapplied,
                                       version, closed_at, paid_at, created_at, meta)
            SELECT s, o, k, cu, a, st, p, r, u, v, cl, pd, cr, me
            FROM jsonb_to_recordset($1::text::jsonb)
              AS j(s text, o text, k text, cu text, a bigint, st text, p bigint, r bigint, u bigint, v bigint,
                   cl bigint, pd bigint, cr bigint, me text)";
        execute(self, "insert orders", query(SQL).bind(json::orders(orders))).await.map(drop)
    }

    async fn update_orders(&mut self, orders: &[OrderUpdate]) -> Result<u64, Error> {
        execute(self, "update orders", entries::bind_orders(query(entries::UPDATE_ORDERS), orders)).await
    }

    async fn update_attempts(&mut self, attempts: &[AttemptUpdate]) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_attempt AS a
            SET shop = j.s, order_no = j.o, amount = j.a, state = j.st, closed_at = j.c
            FROM jsonb_to_recordset($1::text::jsonb)
              AS j(m text, n text, s text, o text, a bigint, st text, c bigint, had text)
            WHERE a.merchant = j.m AND a.out_trade_no = j.n AND a.order_no IS NOT DISTINCT FROM j.had";
        execute(self, "update attempts", query(SQL).bind(json::attempt_updates(attempts))).await
    }

    async fn book_entries(&mut self, entries: &Entries<'_>) -> Result<u64, Error> {
        let query = entries::bind_orders(query(entries::BOOK), entries.orders);
        let query = entries::bind_flow(entries::bind_keys(query, entries.keys), entries.flow);
        let query = entries::bind_evidence(entries::bind_effects(query, entries.effects), entries.evidence);
        let found = fetch(self, "book", query).await?;
        let updated = found.first().map(|row| row.int(0)).transpose()?;
        Ok(updated.and_then(|updated| u64::try_from(updated).ok()).unwrap_or_default())
    }

    async fn hold(&mut self, notices: &[Held]) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_quarantine AS q (merchant, out_trade_no, idem_key, fingerprint, reason, notice,
                                                 callback_id, seen, first_seen, last_seen, state)
            SELECT m, n, k, f, re, no, cb, se, fi, la, 'held'
            FROM jsonb_to_recordset($1::text::jsonb)
              AS j(m text, n text, k text, f text, re text, no text, cb text, se bigint, fi bigint, la bigint)
            ON CONFLICT (merchant, out_trade_no, idem_key, fingerprint) DO UPDATE
            SET seen = q.seen + excluded.seen, last_seen = greatest(q.last_seen, excluded.last_seen),
                reason = excluded.reason";
        execute(self, "hold notices", query(SQL).bind(json::held(notices))).await.map(drop)
    }

    async fn release(&mut self, notices: &[Held], at: Micros) -> Result<u64, Error> {
        const SQL: &str = "\
            UPDATE payonce_quarantine AS q
            SET state = 'released', last_seen = greatest(q.last_seen, $2), decided_by = 'payonce',
                decided_why = 'booked'
            FROM jsonb_to_recordset($1::text::jsonb) AS j(m text, n text, k text, f text)
            WHERE q.merchant = j.m AND q.out_trade_no = j.n AND q.idem_key = j.k AND q.fingerprint = j.f
              AND q.state = 'held'";
        execute(self, "release held notices", query(SQL).bind(json::held(notices)).bind(at.0)).await
    }

    async fn keep_unbelieved(&mut self, evidence: &[Evidence], per_hour: i64) -> Result<(), Error> {
        const SQL: &str = "\
            INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
             SELECT j.* FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::text[],
                                    $7::text[], $8::text[]) AS j(id, ac, at, h, b, bh, v, ki)
             WHERE NOT EXISTS (SELECT 1 FROM payonce_callback AS c
                                WHERE c.account = j.ac AND c.body_hash = j.bh AND c.verdict <> 'booked')
                AND (SELECT count(*) FROM payonce_callback AS c
                     WHERE c.account = j.ac AND c.verdict <> 'booked' AND c.received_at > j.at - 3600000000) < $9";
        // One by one, so that each statement sees what the one before kept.
        for one in evidence {
            let query = entries::bind_evidence(query(SQL), std::slice::from_ref(one)).bind(per_hour);
            execute(self, "keep a message that was not believed", query).await?;
        }
        Ok(())
    }

    async fn count_repeats(&mut self, repeats: &[Repeat]) -> Result<(), Error> {
        const SQL: &str = "\
            UPDATE payonce_idempotency AS i
            SET repeats = i.repeats + j.n, last_seen = greatest(i.last_seen, j.at),
                trade_no = coalesce(i.trade_no, j.t), currency = coalesce(i.currency, j.cu),
                amount = coalesce(i.amount, j.a)
            FROM jsonb_to_recordset($1::text::jsonb)
              AS j(m text, k text, n bigint, at bigint, t text, a bigint, cu text)
            WHERE i.merchant = j.m AND i.idem_key = j.k";
        execute(self, "count repeats", query(SQL).bind(json::repeats(repeats))).await.map(drop)
    }

    async fn overdue(&mut self, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = "\
            SELECT DISTINCT q.merchant, q.out_trade_no
            FROM payonce_quarantine AS q
            JOIN payonce_attempt AS a ON a.merchant = q.merchant AND a.out_trade_no = q.out_trade_no
            WHERE q.state = 'held' AND (
                (q.reason = 'unknown_order' AND a.order_no IS NOT NULL)
                OR (q.reason = 'awaiting_payment' AND EXISTS (
                    SELECT 1 FROM payonce_order_flow AS f
                    WHERE f.merchant = q.merchant AND f.out_trade_no = q.out_trade_no AND f.kind = 'payment'
                      AND f.trade_no = q.notice::json->>'trade_no')))
            LIMIT $1";
        fetch(self, "sweep", query(SQL).bind(limit)).await?.iter().map(rows::number).collect()
    }
}

impl Outbox for PgConnection {
    async fn has_due(&mut self, lease: &Lease) -> Result<bool, Error> {
        const SQL: &str = concat!(
            "SELECT (EXISTS (SELECT 1 FROM payonce_effect WHERE done_at IS NULL AND sink = $1 AND state = 'ready'
                               AND due_at <= $2 + ",
            shift!("$2"),
            ") OR EXISTS (SELECT 1 FROM payonce_effect WHERE done_at IS NULL AND sink = $1 AND state = 'leased'
                               AND lease_until <= $2 + ",
            shift!("$2"),
            "))::int::bigint"
        );
        let query = query(SQL).bind(lease.sink.clone()).bind(lease.now.0);
        let found = fetch(self, "look for due effects", query).await?;
        Ok(found.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) != 0)
    }

    async fn claim(&mut self, lease: &Lease) -> Result<Vec<Effect>, Error> {
        // Two looks, each along the index; whoever is at a row already keeps it.
        const SQL: &str = concat!(
            "WITH ready AS (
                 SELECT e.effect_key, e.due_at FROM payonce_effect AS e
                 WHERE e.done_at IS NULL AND e.sink = $5 AND e.state = 'ready' AND e.due_at <= $3 + ",
            shift!("$3"),
            "      AND (e.after IS NULL OR EXISTS (
                       SELECT 1 FROM payonce_effect AS b WHERE b.effect_key = e.after AND b.state = 'done'))
                 ORDER BY e.due_at LIMIT $4 FOR UPDATE OF e SKIP LOCKED),
             expired AS (
                 SELECT e.effect_key, e.due_at FROM payonce_effect AS e
                 WHERE e.done_at IS NULL AND e.sink = $5 AND e.state = 'leased' AND e.lease_until <= $3 + ",
            shift!("$3"),
            "    ORDER BY e.due_at LIMIT $4 FOR UPDATE OF e SKIP LOCKED)
             UPDATE payonce_effect AS e
             SET state = 'leased', lease_token = $1, tries = e.tries + 1, lease_until = $2 + ",
            shift!("$3"),
            " WHERE e.effect_key IN (
                 SELECT both_of.effect_key FROM (SELECT * FROM ready UNION ALL SELECT * FROM expired) AS both_of
                 ORDER BY both_of.due_at LIMIT $4)
             RETURNING ",
            effect_columns!()
        );
        let query = query(SQL)
            .bind(lease.token.clone())
            .bind(lease.until.0)
            .bind(lease.now.0)
            .bind(lease.limit)
            .bind(lease.sink.clone());
        fetch(self, "claim effects", query).await?.iter().map(rows::effect).collect()
    }

    async fn finish(&mut self, token: &str, finished: &[Finished], now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE payonce_effect AS e
             SET state = j.st, due_at = CASE j.st WHEN 'done' THEN e.due_at ELSE j.du + ",
            shift!("$3"),
            " END, last_error = j.er, lease_token = NULL, lease_until = NULL,
                 done_at = CASE j.st WHEN 'done' THEN $3 + ",
            shift!("$3"),
            " END
             FROM jsonb_to_recordset($1::text::jsonb) AS j(e text, st text, du bigint, er text)
             WHERE e.effect_key = j.e AND e.state = 'leased' AND e.lease_token = $2"
        );
        let query = query(SQL).bind(json::finished(finished)).bind(token.to_owned()).bind(now.0);
        execute(self, "record deliveries", query).await
    }

    async fn abandon_followers(&mut self, now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE payonce_effect AS e
             SET state = 'dead', due_at = $1 + ",
            shift!("$1"),
            ", last_error = 'the effect it waits for is ' || b.state || ': ' || b.effect_key
             FROM payonce_effect AS b
             WHERE e.done_at IS NULL AND e.state = 'ready' AND e.after IS NOT NULL AND b.effect_key = e.after
               AND b.state IN ('dead', 'cancelled')"
        );
        execute(self, "abandon followers", query(SQL).bind(now.0)).await
    }

    async fn retry(&mut self, key: &EffectKey, now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE payonce_effect SET state = 'ready', tries = 0, due_at = $2 + ",
            shift!("$2"),
            " WHERE done_at IS NULL AND state = 'dead' AND (effect_key = $1 OR after = $1)"
        );
        execute(self, "retry an effect", query(SQL).bind(key.as_str().to_owned()).bind(now.0)).await
    }

    async fn run_statement(&mut self, statement: &Statement, payload: &str) -> Result<u64, Error> {
        let payload = serde_json::from_str(payload)
            .map_err(|error| Error::permanent(format!("a stored payload does not read: {error}")))?;
        // The text is the operator's configuration; what comes from messages is bound. Prepared anew each
        // time: the types of a kept one are those of the first payload.
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.text(|index| format!("${index}")))).persistent(false);
        for value in statement.values(&payload) {
            query = match value {
                serde_json::Value::Null => query.bind(Untyped),
                serde_json::Value::Bool(value) => query.bind(value),
                serde_json::Value::Number(value) => query.bind(value.as_i64()),
                serde_json::Value::String(value) => query.bind(value),
                other => query.bind(other.to_string()),
            };
        }
        Ok(within(ANSWER, "the configured statement", query.execute(self)).await?.rows_affected())
    }
}

impl Views for PgConnection {
    async fn order(&mut self, shop: &Shop, order_no: &OrderNo) -> Result<Option<OrderView>, Error> {
        let id = OrderId { shop: shop.clone(), order_no: order_no.clone() };
        let ids = std::slice::from_ref(&id);
        const ORDER: &str = orders_by_id!("OFFSET 0");
        let order = fetch(self, "read an order", bind_orders(query(ORDER), ids)).await?;
        let Some(order) = order.first().map(rows::order).transpose()? else { return Ok(None) };
        let attempts = self.attempts_of(ids).await?;
        let numbers: Vec<Number> = attempts.iter().map(|attempt| attempt.number.clone()).collect();
        const FLOW: &str = concat!(
            "SELECT f.*, i.source, i.repeats FROM unnest($1::text[], $2::text[]) AS j(m, n)",
            each!(payonce_order_flow as f, flow_columns!(), "merchant = j.m AND out_trade_no = j.n", "OFFSET 0"),
            each!(
                payonce_idempotency as i,
                "source, repeats",
                "merchant = f.merchant AND idem_key = f.idem_key",
                "OFFSET 0"
            ),
            " ORDER BY f.booked_at, f.idem_key"
        );
        let flow = fetch(self, "read the ledger", bind_numbers(query(FLOW), &numbers)).await?;
        let flow = flow.iter().map(rows::flow_view).collect::<Result<Vec<_>, _>>()?;
        const HELD: &str = held_by_number!("OFFSET 0");
        let held = fetch(self, "read held notices", bind_numbers(query(HELD), &numbers)).await?;
        let held = held.iter().map(rows::held).collect::<Result<Vec<_>, _>>()?;
        const EFFECTS: &str = concat!(
            "SELECT ",
            effect_columns!(),
            " FROM payonce_effect AS e WHERE e.shop = $1 AND e.order_no = $2 ORDER BY e.created_at, e.effect_key"
        );
        let effects = query(EFFECTS).bind(shop.as_str().to_owned()).bind(order_no.as_str().to_owned());
        let effects = fetch(self, "read effects", effects).await?;
        let effects = effects.iter().map(rows::effect).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<&str> = (flow.iter().filter_map(|view| view.row.callback_id.as_deref()))
            .chain(held.iter().filter_map(|held| held.callback_id.as_deref()))
            .collect();
        const CALLBACKS: &str = "\
            SELECT DISTINCT c.id, c.account, c.received_at, c.verdict, c.key_id, octet_length(c.body)::bigint
            FROM jsonb_array_elements_text($1::text::jsonb) AS j(id) JOIN payonce_callback AS c ON c.id = j.id
            ORDER BY c.id";
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let callbacks = fetch(self, "read callbacks", query(CALLBACKS).bind(ids)).await?;
        let callbacks = callbacks.iter().map(rows::callback_view).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(OrderView { order, attempts, flow, effects, held, callbacks }))
    }

    async fn effects(&mut self, filter: &EffectFilter) -> Result<Vec<Effect>, Error> {
        const SQL: &str = concat!(
            "SELECT ",
            effect_columns!(),
            " FROM payonce_effect AS e
             WHERE ($1::text IS NULL OR e.state = $1) AND ($2::text IS NULL OR e.effect_key > $2)
             ORDER BY e.effect_key LIMIT $3"
        );
        let query =
            query(SQL).bind(filter.state.map(EffectState::as_str)).bind(filter.after_key.clone()).bind(filter.limit);
        fetch(self, "read effects", query).await?.iter().map(rows::effect).collect()
    }

    async fn effect(&mut self, key: &EffectKey) -> Result<Option<Effect>, Error> {
        const SQL: &str = concat!("SELECT ", effect_columns!(), " FROM payonce_effect AS e WHERE e.effect_key = $1");
        let found = fetch(self, "read an effect", query(SQL).bind(key.as_str().to_owned())).await?;
        found.first().map(rows::effect).transpose()
    }

    async fn callback_body(&mut self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "SELECT body FROM payonce_callback WHERE id = $1";
        let found = fetch(self, "read a callback", query(SQL).bind(id.to_owned())).await?;
        found.first().map(|row| row.bytes(0)).transpose()
    }

    async fn counts(&mut self) -> Result<Counts, Error> {
        const SQL: &str = "\
            SELECT (SELECT count(*) FROM payonce_quarantine WHERE state = 'held'),
                   (SELECT count(*) FROM payonce_effect WHERE done_at IS NULL AND state = 'ready'),
                   (SELECT count(*) FROM payonce_effect WHERE done_at IS NULL AND state = 'leased'),
                   (SELECT count(*) FROM payonce_effect WHERE done_at IS NULL AND state = 'dead'),
                   (SELECT min(due_at) FROM payonce_effect WHERE done_at IS NULL AND state = 'ready'),
                   (SELECT count(*) FROM payonce_callback WHERE verdict <> 'booked')";
        let found = fetch(self, "count", query(SQL)).await?;
        rows::counts(found.first().ok_or_else(|| Error::permanent("count: no row"))?)
    }
}
