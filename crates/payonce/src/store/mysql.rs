//! MariaDB from 10.6, MySQL from 8.0.16, and OceanBase: one dialect, with the words that all of them know.
//!
//! Here: SQL, and how InnoDB locks; no RETURNING, no collation but utf8mb4_bin. Not here: any decision, and
//! what a session is (`session`). Functions stand in the order of the traits; the sibling engines keep it.
//!
//! What every batch does is said with bound values (`many`); what is rarer takes one JSON array. `JSON_TABLE` cuts a text
//! that is longer than its column, in strict mode too, and a cut key would be another key: so its columns are wider than
//! the table's, which then refuse (error 1406). Keys are VARBINARY there as well, because every collation of these
//! engines pads or folds. STRAIGHT_JOIN lets the array drive, so that rows are locked in its order, which is sorted, and
//! FORCE INDEX keeps the optimizer from scanning a small table, which would lock rows that nobody named.

use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection,
    mysql::{MySqlArguments, MySqlRow},
    query::Query,
};

use crate::{
    error::Error,
    ids::{OrderNo, Shop},
    key::EffectKey,
    order::{Attempt, Number, Order, OrderId},
    statement::Statement,
    store::{
        AttemptUpdate, Counts, Effect, EffectFilter, Entries, Evidence, Finished, FlowRow, Held, KeyId, Known, Lease,
        Ledger, OrderUpdate, OrderView, Outbox, Repeat, Views, json, orders_of,
        rows::{self, Cells},
        server::{ANSWER, within},
    },
    time::Micros,
};

/// From the caller's clock, whose "now" is given, to the server's (see `server::Clock`).
macro_rules! shift {
    ($now:literal) => {
        concat!(
            "COALESCE(CAST(@payonce_shift AS SIGNED), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ",
            $now,
            ")"
        )
    };
}

/// `JSON_TABLE(?, …) AS j`, from a list of members: `key` (255 bytes), `long` (of 512), `int`, `text`.
macro_rules! array {
    (@one $name:literal key) => { concat!("`", $name, "` VARBINARY(255) PATH '$.", $name, "'") };
    (@one $name:literal long) => { concat!("`", $name, "` VARBINARY(512) PATH '$.", $name, "'") };
    (@one $name:literal int) => { concat!("`", $name, "` BIGINT PATH '$.", $name, "'") };
    (@one $name:literal text) => { concat!("`", $name, "` LONGTEXT CHARACTER SET utf8mb4 PATH '$.", $name, "'") };
    ($first:literal: $first_kind:ident $(, $name:literal: $kind:ident)*) => {
        concat!(
            "JSON_TABLE(?, '$[*]' COLUMNS(",
            array!(@one $first $first_kind),
            $(", ", array!(@one $name $kind),)*
            ")) AS j"
        )
    };
}

type Sql = Query<'static, MySql, MySqlArguments>;

fn query(sql: &'static str) -> Sql {
    sqlx::query(sql)
}

async fn fetch(connection: &mut MySqlConnection, what: &str, query: Sql) -> Result<Vec<MySqlRow>, Error> {
    within(ANSWER, what, query.fetch_all(connection)).await
}

async fn execute(connection: &mut MySqlConnection, what: &str, query: Sql) -> Result<u64, Error> {
    Ok(within(ANSWER, what, query.execute(connection)).await?.rows_affected())
}

/// Statements that cannot be prepared.
async fn say(connection: &mut MySqlConnection, what: &str, sql: &'static str) -> Result<(), Error> {
    within(ANSWER, what, sqlx::raw_sql(sql).execute(connection)).await.map(drop)
}

const NUMBER: &str = "(merchant = ? AND out_trade_no = ?)";
const ORDER: &str = "(shop = ? AND order_no = ?)";

/// The statements that look rows up by a key, reading or locking.
macro_rules! look {
    (attempts, $lock:literal) => {
        Many::select(
            "SELECT merchant, out_trade_no, shop, order_no, amount, state, closed_at
             FROM payonce_attempt FORCE INDEX (PRIMARY) WHERE ",
            NUMBER,
            $lock,
        )
    };
    (orders, $lock:literal) => {
        Many::select(
            "SELECT shop, order_no, kind, currency, amount, status, paid, refunded, unapplied, version, closed_at,
                    paid_at, created_at, meta
             FROM payonce_order FORCE INDEX (PRIMARY) WHERE ",
            ORDER,
            $lock,
        )
    };
    (held, $lock:literal) => {
        Many::select(
            "SELECT merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id, seen, first_seen,
                    last_seen
             FROM payonce_quarantine FORCE INDEX (PRIMARY) WHERE state = 'held' AND (",
            NUMBER,
            concat!(")", $lock),
        )
    };
}

fn bind_number(query: Sql, number: &Number) -> Sql {
    query.bind(number.merchant.as_str().as_bytes()).bind(number.out_trade_no.as_str().as_bytes())
}

fn bind_order(query: Sql, id: &OrderId) -> Sql {
    query.bind(id.shop.as_str().as_bytes()).bind(id.order_no.as_str().as_bytes())
}

macro_rules! effect_columns {
    () => {
        "e.effect_key, e.merchant, e.idem_key, e.shop, e.order_no, e.event, e.name, e.sink, e.payload, e.state, \
         e.after, e.tries, e.due_at, e.last_error, e.created_at, e.done_at"
    };
}

macro_rules! evidence {
    () => {
        "INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)"
    };
}

mod entries;
mod lease;
mod many;
mod session;

use many::Many;

impl Ledger for MySqlConnection {
    async fn begin(&mut self) -> Result<(), Error> {
        say(self, "begin", "START TRANSACTION").await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        say(self, "commit", "COMMIT").await
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        say(self, "rollback", "ROLLBACK").await
    }

    async fn lock_numbers(&mut self, numbers: &[Number]) -> Result<(Vec<Attempt>, Vec<Order>), Error> {
        const ATTEMPTS: Many = look!(attempts, " FOR UPDATE");
        let found = ATTEMPTS.fetch(self, "read attempts", numbers, bind_number).await?;
        let attempts: Vec<Attempt> = found.iter().map(rows::attempt).collect::<Result<_, _>>()?;
        let orders = self.lock_orders(&orders_of(&attempts)).await?;
        Ok((attempts, orders))
    }

    async fn lock_orders(&mut self, orders: &[OrderId]) -> Result<Vec<Order>, Error> {
        const ORDERS: Many = look!(orders, " FOR UPDATE");
        ORDERS.fetch(self, "read orders", orders, bind_order).await?.iter().map(rows::order).collect()
    }

    async fn attempts_of(&mut self, orders: &[OrderId]) -> Result<Vec<Attempt>, Error> {
        const SQL: &str = concat!(
            "SELECT a.merchant, a.out_trade_no, a.shop, a.order_no, a.amount, a.state, a.closed_at FROM ",
            array!("s": key, "o": key),
            " STRAIGHT_JOIN payonce_attempt AS a FORCE INDEX (payonce_attempt_by_order)
                ON a.shop = j.s AND a.order_no = j.o
              ORDER BY a.merchant, a.out_trade_no"
        );
        let found = fetch(self, "read attempts of orders", query(SQL).bind(json::order_ids(orders))).await?;
        found.iter().map(rows::attempt).collect()
    }

    async fn known(&mut self, numbers: &[Number], keys: &[KeyId]) -> Result<Known, Error> {
        const HELD: Many = look!(held, " FOR UPDATE");
        const KEYS: Many = Many::select(
            "SELECT merchant, idem_key, trade_no, amount, currency
             FROM payonce_idempotency FORCE INDEX (PRIMARY) WHERE ",
            "(merchant = ? AND idem_key = ?)",
            "",
        );
        let held = HELD.fetch(self, "read held notices", numbers, bind_number).await?;
        let bind =
            |query: Sql, id: &KeyId| query.bind(id.merchant.as_str().as_bytes()).bind(id.key.as_str().as_bytes());
        let booked = KEYS.fetch(self, "read keys", keys, bind).await?;
        Ok(Known {
            held: held.iter().map(rows::held).collect::<Result<_, _>>()?,
            booked: booked.iter().map(rows::booked).collect::<Result<_, _>>()?,
        })
    }

    async fn flow_of(&mut self, numbers: &[Number]) -> Result<Vec<FlowRow>, Error> {
        const SQL: &str = concat!(
            "SELECT f.merchant, f.out_trade_no, f.idem_key, f.kind, f.disposition, f.shop, f.order_no, f.amount,
                    f.currency, f.trade_no, f.full_refund, f.account, f.callback_id, f.occurred_at, f.booked_at FROM ",
            array!("m": key, "n": key),
            " STRAIGHT_JOIN payonce_order_flow AS f FORCE INDEX (PRIMARY) ON f.merchant = j.m AND f.out_trade_no = j.n"
        );
        let found = fetch(self, "read the ledger", query(SQL).bind(json::numbers(numbers))).await?;
        found.iter().map(rows::flow).collect()
    }

    async fn insert_attempts(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        const SQL: &str = concat!(
            "INSERT INTO payonce_attempt (merchant, out_trade_no, shop, order_no, amount, state, closed_at)
             SELECT j.m, j.n, j.s, j.o, j.a, j.st, j.c FROM ",
            array!("m": key, "n": key, "s": key, "o": key, "a": int, "st": key, "c": int)
        );
        execute(self, "insert attempts", query(SQL).bind(json::attempts(attempts))).await.map(drop)
    }

    async fn insert_orders(&mut self, orders: &[Order]) -> Result<(), Error> {
        const SQL: &str = concat!(
            "INSERT INTO payonce_order (shop, order_no, kind, currency, amount, status, paid, refunded, unapplied,
                                        version, closed_at, paid_at, created_at, meta)
             SELECT j.s, j.o, j.k, j.cu, j.a, j.st, j.p, j.r, j.u, j.v, j.cl, j.pd, j.cr, j.me FROM ",
            array!(
                "s": key, "o": key, "k": key, "cu": key, "a": int, "st": key, "p": int, "r": int, "u": int, "v": int,
                "cl": int, "pd": int, "cr": int, "me": text
            )
        );
        execute(self, "insert orders", query(SQL).bind(json::orders(orders))).await.map(drop)
    }

    async fn update_orders(&mut self, orders: &[OrderUpdate]) -> Result<u64, Error> {
        entries::update_orders(self, orders).await
    }

    async fn update_attempts(&mut self, attempts: &[AttemptUpdate]) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE ",
            array!("m": key, "n": key, "s": key, "o": key, "a": int, "st": key, "c": int, "had": key),
            " STRAIGHT_JOIN payonce_attempt AS a FORCE INDEX (PRIMARY) ON a.merchant = j.m AND a.out_trade_no = j.n
              SET a.shop = j.s, a.order_no = j.o, a.amount = j.a, a.state = j.st, a.closed_at = j.c
              WHERE a.order_no <=> j.had"
        );
        execute(self, "update attempts", query(SQL).bind(json::attempt_updates(attempts))).await
    }

    async fn book_entries(&mut self, entries: &Entries<'_>) -> Result<u64, Error> {
        entries::book(self, entries).await
    }

    async fn hold(&mut self, notices: &[Held]) -> Result<(), Error> {
        const SQL: &str = concat!(
            "INSERT INTO payonce_quarantine (merchant, out_trade_no, idem_key, fingerprint, reason, notice, callback_id,
                                             seen, first_seen, last_seen, state)
             SELECT j.m, j.n, j.k, j.f, j.re, j.no, j.cb, j.se, j.fi, j.la, 'held' FROM ",
            array!(
                "m": key, "n": key, "k": key, "f": long, "re": key, "no": text, "cb": key, "se": int, "fi": int,
                "la": int
            ),
            " ON DUPLICATE KEY UPDATE seen = payonce_quarantine.seen + j.se,
                  last_seen = GREATEST(payonce_quarantine.last_seen, j.la), reason = j.re"
        );
        execute(self, "hold notices", query(SQL).bind(json::held(notices))).await.map(drop)
    }

    async fn release(&mut self, notices: &[Held], at: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE ",
            array!("m": key, "n": key, "k": key, "f": long),
            " STRAIGHT_JOIN payonce_quarantine AS q FORCE INDEX (PRIMARY)
                ON q.merchant = j.m AND q.out_trade_no = j.n AND q.idem_key = j.k AND q.fingerprint = j.f
              SET q.state = 'released', q.last_seen = GREATEST(q.last_seen, ?), q.decided_by = 'payonce',
                  q.decided_why = 'booked'
              WHERE q.state = 'held'"
        );
        execute(self, "release held notices", query(SQL).bind(json::held(notices)).bind(at.0)).await
    }

    async fn keep_unbelieved(&mut self, evidence: &[Evidence], per_hour: i64) -> Result<(), Error> {
        const SQL: &str = concat!(
            evidence!(),
            " SELECT ?, ?, ?, ?, ?, ?, ?, ? FROM DUAL
              WHERE NOT EXISTS (SELECT 1 FROM payonce_callback AS c WHERE c.account = ?
                                AND c.body_hash = ? AND c.verdict <> 'booked')
                AND (SELECT COUNT(*) FROM payonce_callback AS c WHERE c.account = ?
                     AND c.verdict <> 'booked' AND c.received_at > ? - 3600000000) < ?"
        );
        // One by one, so that each statement sees what the one before kept.
        for one in evidence {
            let query = entries::evidence(query(SQL), one)
                .bind(one.account.as_str())
                .bind(one.body_hash.as_str())
                .bind(one.account.as_str())
                .bind(one.received_at.0)
                .bind(per_hour);
            execute(self, "keep a message that was not believed", query).await?;
        }
        Ok(())
    }

    async fn count_repeats(&mut self, repeats: &[Repeat]) -> Result<(), Error> {
        const SQL: &str = concat!(
            "UPDATE ",
            array!("m": key, "k": key, "n": int, "at": int, "t": key, "a": int, "cu": key),
            " STRAIGHT_JOIN payonce_idempotency AS i FORCE INDEX (PRIMARY) ON i.merchant = j.m AND i.idem_key = j.k
              SET i.repeats = i.repeats + j.n, i.last_seen = GREATEST(i.last_seen, j.at),
                  i.trade_no = COALESCE(i.trade_no, j.t), i.currency = COALESCE(i.currency, j.cu),
                  i.amount = COALESCE(i.amount, j.a)"
        );
        execute(self, "count repeats", query(SQL).bind(json::repeats(repeats))).await.map(drop)
    }

    async fn overdue(&mut self, limit: i64) -> Result<Vec<Number>, Error> {
        const SQL: &str = "\
            SELECT DISTINCT q.merchant, q.out_trade_no
            FROM payonce_quarantine AS q FORCE INDEX (payonce_quarantine_held)
            JOIN payonce_attempt AS a ON a.merchant = q.merchant AND a.out_trade_no = q.out_trade_no
            WHERE q.state = 'held' AND (
                (q.reason = 'unknown_order' AND a.order_no IS NOT NULL)
                OR (q.reason = 'awaiting_payment' AND EXISTS (
                    SELECT 1 FROM payonce_order_flow AS f
                    WHERE f.merchant = q.merchant AND f.out_trade_no = q.out_trade_no AND f.kind = 'payment'
                      AND f.trade_no = JSON_UNQUOTE(JSON_EXTRACT(q.notice, '$.trade_no')))))
            LIMIT ?";
        fetch(self, "sweep", query(SQL).bind(limit)).await?.iter().map(rows::number).collect()
    }
}

impl Outbox for MySqlConnection {
    async fn has_due(&mut self, lease: &Lease) -> Result<bool, Error> {
        const SQL: &str = concat!(
            "SELECT EXISTS (SELECT 1 FROM payonce_effect FORCE INDEX (payonce_effect_open)
                            WHERE state = 'ready' AND sink = ? AND due_at <= ? + ",
            shift!("?"),
            ") OR EXISTS (SELECT 1 FROM payonce_effect FORCE INDEX (payonce_effect_open)
                          WHERE state = 'leased' AND sink = ? AND lease_until <= ? + ",
            shift!("?"),
            ")"
        );
        let mut query = query(SQL);
        for _ in 0..2 {
            query = query.bind(lease.sink.as_bytes().to_vec()).bind(lease.now.0).bind(lease.now.0);
        }
        let found = fetch(self, "look for due effects", query).await?;
        Ok(found.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) != 0)
    }

    /// In a transaction of its own: without RETURNING, what was locked is read first and leased then.
    async fn claim(&mut self, lease: &Lease) -> Result<Vec<Effect>, Error> {
        self.begin().await?;
        match lease::some(self, lease).await {
            Ok(claimed) => self.commit().await.map(|()| claimed),
            Err(error) => {
                if !error.is_lost() {
                    self.rollback().await?;
                }
                Err(error)
            }
        }
    }

    async fn finish(&mut self, token: &str, finished: &[Finished], now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE ",
            array!("e": long, "st": key, "du": int, "er": text),
            " STRAIGHT_JOIN payonce_effect AS e FORCE INDEX (PRIMARY) ON e.effect_key = j.e
              SET e.due_at = CASE j.st WHEN 'done' THEN e.due_at ELSE j.du + ",
            shift!("?"),
            " END, e.state = j.st, e.last_error = j.er, e.lease_token = NULL, e.lease_until = NULL,
                  e.done_at = CASE j.st WHEN 'done' THEN ? + ",
            shift!("?"),
            " END
              WHERE e.state = 'leased' AND e.lease_token = ?"
        );
        let query = query(SQL)
            .bind(json::finished(finished))
            .bind(now.0)
            .bind(now.0)
            .bind(now.0)
            .bind(token.as_bytes().to_vec());
        execute(self, "record deliveries", query).await
    }

    async fn abandon_followers(&mut self, now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE payonce_effect AS e JOIN payonce_effect AS b ON b.effect_key = e.after
             SET e.state = 'dead', e.due_at = ? + ",
            shift!("?"),
            ",   e.last_error = CONCAT('the effect it waits for is ', CONVERT(b.state USING utf8mb4), ': ',
                                       CONVERT(b.effect_key USING utf8mb4))
             WHERE e.state = 'ready' AND e.after IS NOT NULL AND b.state IN ('dead', 'cancelled')"
        );
        execute(self, "abandon followers", query(SQL).bind(now.0).bind(now.0)).await
    }

    async fn retry(&mut self, key: &EffectKey, now: Micros) -> Result<u64, Error> {
        const SQL: &str = concat!(
            "UPDATE payonce_effect SET state = 'ready', tries = 0, due_at = ? + ",
            shift!("?"),
            " WHERE state = 'dead' AND (effect_key = ? OR after = ?)"
        );
        let key = key.as_str().as_bytes().to_vec();
        execute(self, "retry an effect", query(SQL).bind(now.0).bind(now.0).bind(key.clone()).bind(key)).await
    }

    async fn run_statement(&mut self, statement: &Statement, payload: &str) -> Result<u64, Error> {
        let payload = serde_json::from_str(payload)
            .map_err(|error| Error::permanent(format!("a stored payload does not read: {error}")))?;
        // The text is the operator's configuration; what comes from messages is bound.
        let mut query = sqlx::query(AssertSqlSafe(statement.text(|_| "?".to_owned())));
        for value in statement.values(&payload) {
            query = match value {
                serde_json::Value::Null => query.bind(None::<String>),
                serde_json::Value::Bool(value) => query.bind(i64::from(value)),
                serde_json::Value::Number(value) => query.bind(value.as_i64()),
                serde_json::Value::String(value) => query.bind(value),
                other => query.bind(other.to_string()),
            };
        }
        Ok(within(ANSWER, "the configured statement", query.execute(self)).await?.rows_affected())
    }
}

impl Views for MySqlConnection {
    async fn order(&mut self, shop: &Shop, order_no: &OrderNo) -> Result<Option<OrderView>, Error> {
        let id = OrderId { shop: shop.clone(), order_no: order_no.clone() };
        let ids = std::slice::from_ref(&id);
        const ORDERS: Many = look!(orders, "");
        let order = ORDERS.fetch(self, "read an order", ids, bind_order).await?;
        let Some(order) = order.first().map(rows::order).transpose()? else { return Ok(None) };
        let attempts = self.attempts_of(ids).await?;
        let numbers: Vec<Number> = attempts.iter().map(|attempt| attempt.number.clone()).collect();
        const FLOW: &str = concat!(
            "SELECT f.merchant, f.out_trade_no, f.idem_key, f.kind, f.disposition, f.shop, f.order_no, f.amount,
                    f.currency, f.trade_no, f.full_refund, f.account, f.callback_id, f.occurred_at, f.booked_at,
                    i.source, i.repeats FROM ",
            array!("m": key, "n": key),
            " STRAIGHT_JOIN payonce_order_flow AS f FORCE INDEX (PRIMARY) ON f.merchant = j.m AND f.out_trade_no = j.n
              STRAIGHT_JOIN payonce_idempotency AS i FORCE INDEX (PRIMARY) ON i.merchant = f.merchant AND i.idem_key = f.idem_key
              ORDER BY f.booked_at, f.idem_key"
        );
        let flow = fetch(self, "read the ledger", query(FLOW).bind(json::numbers(&numbers))).await?;
        let flow = flow.iter().map(rows::flow_view).collect::<Result<Vec<_>, _>>()?;
        const HELD: Many = look!(held, "");
        let held = HELD.fetch(self, "read held notices", &numbers, bind_number).await?;
        let held = held.iter().map(rows::held).collect::<Result<Vec<_>, _>>()?;
        const EFFECTS: &str = concat!(
            "SELECT ",
            effect_columns!(),
            " FROM payonce_effect AS e WHERE e.shop = ? AND e.order_no = ? ORDER BY e.created_at, e.effect_key"
        );
        let effects =
            query(EFFECTS).bind(shop.as_str().as_bytes().to_vec()).bind(order_no.as_str().as_bytes().to_vec());
        let effects = fetch(self, "read effects", effects).await?;
        let effects = effects.iter().map(rows::effect).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<&str> = (flow.iter().filter_map(|view| view.row.callback_id.as_deref()))
            .chain(held.iter().filter_map(|held| held.callback_id.as_deref()))
            .collect();
        const CALLBACKS: &str = "\
            SELECT DISTINCT c.id, c.account, c.received_at, c.verdict, c.key_id, LENGTH(c.body)
            FROM JSON_TABLE(?, '$[*]' COLUMNS(id VARBINARY(255) PATH '$')) AS j
            STRAIGHT_JOIN payonce_callback AS c FORCE INDEX (PRIMARY) ON c.id = j.id
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
              WHERE (? IS NULL OR e.state = ?) AND (? IS NULL OR e.effect_key > ?)
              ORDER BY e.effect_key LIMIT ?"
        );
        let state = filter.state.map(|state| state.as_str().as_bytes().to_vec());
        let after = filter.after_key.as_ref().map(|key| key.as_bytes().to_vec());
        let query = query(SQL).bind(state.clone()).bind(state).bind(after.clone()).bind(after).bind(filter.limit);
        fetch(self, "read effects", query).await?.iter().map(rows::effect).collect()
    }

    async fn effect(&mut self, key: &EffectKey) -> Result<Option<Effect>, Error> {
        const SQL: &str = concat!("SELECT ", effect_columns!(), " FROM payonce_effect AS e WHERE e.effect_key = ?");
        let found = fetch(self, "read an effect", query(SQL).bind(key.as_str().as_bytes().to_vec())).await?;
        found.first().map(rows::effect).transpose()
    }

    async fn callback_body(&mut self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "SELECT body FROM payonce_callback WHERE id = ?";
        let found = fetch(self, "read a callback", query(SQL).bind(id.as_bytes().to_vec())).await?;
        found.first().map(|row| row.bytes(0)).transpose()
    }

    async fn counts(&mut self) -> Result<Counts, Error> {
        const SQL: &str = "\
            SELECT (SELECT COUNT(*) FROM payonce_quarantine FORCE INDEX (payonce_quarantine_held) WHERE state = 'held'),
                   (SELECT COUNT(*) FROM payonce_effect FORCE INDEX (payonce_effect_open) WHERE state = 'ready'),
                   (SELECT COUNT(*) FROM payonce_effect FORCE INDEX (payonce_effect_open) WHERE state = 'leased'),
                   (SELECT COUNT(*) FROM payonce_effect FORCE INDEX (payonce_effect_open) WHERE state = 'dead'),
                   (SELECT MIN(due_at) FROM payonce_effect FORCE INDEX (payonce_effect_open) WHERE state = 'ready'),
                   (SELECT COUNT(*) FROM payonce_callback FORCE INDEX (payonce_callback_unbelieved)
                    WHERE verdict <> 'booked')";
        let found = fetch(self, "count", query(SQL)).await?;
        rows::counts(found.first().ok_or_else(|| Error::permanent("count: no row"))?)
    }
}
