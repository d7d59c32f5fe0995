//! The statements that stand alone and in the usual batch's script alike.
//!
//! Here: their texts, each with the names of its parameters left open (an array, and for some the bytes that
//! it points into). Each parameter stands once and in this order, because in a script of several statements
//! the driver counts `?` on from one to the next. Not here: when they run (`sqlite`).

// The rows of numbers.
macro_rules! attempts {
    ($array:literal) => {
        concat!(
            "SELECT json_group_array(json_array(
       a.merchant, a.out_trade_no, a.shop, a.order_no, a.amount, a.state, a.closed_at))
FROM jsonb_each(",
            $array,
            ") AS j CROSS JOIN payonce_attempt AS a
  ON a.merchant = j.value->>'m' AND a.out_trade_no = j.value->>'n'"
        )
    };
}

// The orders of numbers.
macro_rules! orders_of {
    ($array:literal) => {
        concat!(
            "SELECT json_group_array(json_array(
       o.shop, o.order_no, o.kind, o.currency, o.amount, o.status, o.paid, o.refunded, o.unapplied,
       o.version, o.closed_at, o.paid_at, o.created_at, o.meta))
FROM (SELECT DISTINCT a.shop, a.order_no FROM jsonb_each(",
            $array,
            ") AS j CROSS JOIN payonce_attempt AS a
        ON a.merchant = j.value->>'m' AND a.out_trade_no = j.value->>'n' WHERE a.order_no IS NOT NULL) AS d
CROSS JOIN payonce_order AS o ON o.shop = d.shop AND o.order_no = d.order_no"
        )
    };
}

// What is held about numbers.
macro_rules! held {
    ($array:literal) => {
        concat!(
            "SELECT json_group_array(json_array(
       q.merchant, q.out_trade_no, q.idem_key, q.fingerprint, q.reason, q.notice, q.callback_id, q.seen,
       q.first_seen, q.last_seen))
FROM jsonb_each(",
            $array,
            ") AS j CROSS JOIN payonce_quarantine AS q
  ON q.merchant = j.value->>'m' AND q.out_trade_no = j.value->>'n'
WHERE q.state = 'held'"
        )
    };
}

// Which keys are booked.
macro_rules! booked {
    ($array:literal) => {
        concat!(
            "SELECT json_group_array(json_array(
       i.merchant, i.idem_key, i.trade_no, i.amount, i.currency))
FROM jsonb_each(",
            $array,
            ") AS j CROSS JOIN payonce_idempotency AS i
  ON i.merchant = j.value->>'m' AND i.idem_key = j.value->>'k'"
        )
    };
}

// THE arbiter.
macro_rules! claim_keys {
    ($array:literal) => {
        concat!(
            "INSERT INTO payonce_idempotency (merchant, idem_key, trade_no, amount, currency, shop, order_no, source,
                                 repeats, last_seen, created_at)
SELECT value->>'m', value->>'k', value->>'t', value->>'a', value->>'cu', value->>'s', value->>'o',
       value->>'so', value->>'re', value->>'at', value->>'at'
FROM jsonb_each(",
            $array,
            ")"
        )
    };
}

// Conditional on status and version as read.
macro_rules! update_orders {
    ($array:literal) => {
        concat!(
            "UPDATE payonce_order AS o
SET status = j.value->>'st', paid = j.value->>'p', refunded = j.value->>'r', unapplied = j.value->>'u',
    version = o.version + 1, closed_at = j.value->>'cl', paid_at = j.value->>'pd', amount = j.value->>'a'
FROM jsonb_each(",
            $array,
            ") AS j
WHERE o.shop = j.value->>'s' AND o.order_no = j.value->>'o'
  AND o.status = j.value->>'st0' AND o.version = j.value->>'v0'"
        )
    };
}

// The ledger.
macro_rules! insert_flow {
    ($array:literal) => {
        concat!(
            "INSERT INTO payonce_order_flow (merchant, out_trade_no, idem_key, kind, disposition, shop, order_no,
                                amount, currency, trade_no, full_refund, account, callback_id,
                                occurred_at, booked_at)
SELECT value->>'m', value->>'n', value->>'k', value->>'ki', value->>'d', value->>'s', value->>'o',
       value->>'a', value->>'cu', value->>'t', value->>'f', value->>'ac', value->>'cb', value->>'oc',
       value->>'at'
FROM jsonb_each(",
            $array,
            ")"
        )
    };
}

// The outbox.
macro_rules! insert_effects {
    ($array:literal, $bytes:literal) => {
        concat!(
            "INSERT INTO payonce_effect (effect_key, merchant, idem_key, shop, order_no, event, name, sink, payload,
                            state, after, tries, due_at, created_at)
SELECT value->>'e', value->>'m', value->>'k', value->>'s', value->>'o', value->>'ev', value->>'na',
       value->>'si', CAST(substr(p.bytes, value->>'pp', value->>'pl') AS TEXT), 'ready', value->>'af', 0,
       value->>'du', value->>'cr'
FROM (SELECT ",
            $array,
            " AS list, ",
            $bytes,
            " AS bytes) AS p CROSS JOIN jsonb_each(p.list)"
        )
    };
}

// The bytes behind facts.
macro_rules! keep {
    ($array:literal, $bytes:literal) => {
        concat!(
            "INSERT INTO payonce_callback (id, account, received_at, headers, body, body_hash, verdict, key_id)
SELECT value->>'id', value->>'ac', value->>'at', CAST(substr(p.bytes, value->>'hp', value->>'hl') AS TEXT),
       substr(p.bytes, value->>'bp', value->>'bl'), value->>'bh', value->>'v', value->>'ki'
FROM (SELECT ",
            $array,
            " AS list, ",
            $bytes,
            " AS bytes) AS p CROSS JOIN jsonb_each(p.list)"
        )
    };
}

pub(super) use {attempts, booked, claim_keys, held, insert_effects, insert_flow, keep, orders_of, update_orders};
