-- The books. Times are microseconds since 1970 UTC, money is minor units, keys are compared as bytes.

CREATE TABLE payonce_order (
    shop       TEXT    NOT NULL CHECK (length(shop) > 0),
    order_no   TEXT    NOT NULL CHECK (length(order_no) > 0),
    kind       TEXT    NOT NULL,
    currency   TEXT    NOT NULL CHECK (length(currency) = 3),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    status     TEXT    NOT NULL CHECK (status IN ('PENDING', 'PAID', 'PARTIALLY_REFUNDED', 'REFUNDED', 'CLOSED')),
    paid       INTEGER NOT NULL CHECK (paid >= 0),
    refunded   INTEGER NOT NULL CHECK (refunded BETWEEN 0 AND paid),
    unapplied  INTEGER NOT NULL CHECK (unapplied >= 0),
    version    INTEGER NOT NULL,
    closed_at  INTEGER,
    paid_at    INTEGER,
    created_at INTEGER NOT NULL,
    meta       TEXT    NOT NULL,
    PRIMARY KEY (shop, order_no)
) STRICT, WITHOUT ROWID;

-- Every payable number is a row here. A notice about a number without a row inserts it with no order.
CREATE TABLE payonce_attempt (
    merchant     TEXT    NOT NULL,
    out_trade_no TEXT    NOT NULL CHECK (length(out_trade_no) > 0),
    shop         TEXT,
    order_no     TEXT,
    amount       INTEGER CHECK (amount > 0),
    state        TEXT    NOT NULL CHECK (state IN ('OPEN', 'CLOSED')),
    closed_at    INTEGER,
    CHECK ((order_no IS NULL) = (shop IS NULL) AND (order_no IS NULL) = (amount IS NULL)),
    PRIMARY KEY (merchant, out_trade_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX payonce_attempt_by_order ON payonce_attempt (shop, order_no);

-- One row per booked fact, for ever. Its primary key is the arbiter of exactly-once.
CREATE TABLE payonce_idempotency (
    merchant   TEXT    NOT NULL,
    idem_key   TEXT    NOT NULL CHECK (length(idem_key) > 0),
    trade_no   TEXT,
    amount     INTEGER CHECK (amount >= 0),
    currency   TEXT,
    shop       TEXT    NOT NULL,
    order_no   TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    repeats    INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (merchant, idem_key)
) STRICT, WITHOUT ROWID;

-- The append-only ledger. It leads with the number, so that all that was booked under a number is one range.
CREATE TABLE payonce_order_flow (
    merchant     TEXT    NOT NULL,
    out_trade_no TEXT    NOT NULL,
    idem_key     TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    disposition  TEXT    NOT NULL CHECK (disposition IN ('fits', 'adopted', 'mismatched', 'late', 'noted')),
    shop         TEXT    NOT NULL,
    order_no     TEXT    NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount >= 0),
    currency     TEXT    NOT NULL CHECK (length(currency) = 3),
    trade_no     TEXT,
    full_refund  INTEGER NOT NULL CHECK (full_refund IN (0, 1)),
    account      TEXT    NOT NULL,
    callback_id  TEXT,
    occurred_at  INTEGER,
    booked_at    INTEGER NOT NULL,
    PRIMARY KEY (merchant, out_trade_no, idem_key)
) STRICT, WITHOUT ROWID;

-- Notices that cannot be booked yet.
CREATE TABLE payonce_quarantine (
    merchant     TEXT    NOT NULL,
    out_trade_no TEXT    NOT NULL,
    idem_key     TEXT    NOT NULL,
    fingerprint  TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    notice       TEXT    NOT NULL,
    callback_id  TEXT,
    seen         INTEGER NOT NULL,
    first_seen   INTEGER NOT NULL,
    last_seen    INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('held', 'released', 'dismissed')),
    decided_by   TEXT,
    decided_why  TEXT,
    PRIMARY KEY (merchant, out_trade_no, idem_key, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE INDEX payonce_quarantine_held ON payonce_quarantine (first_seen) WHERE state = 'held';

-- The outbox.
CREATE TABLE payonce_effect (
    effect_key  TEXT    NOT NULL PRIMARY KEY CHECK (length(effect_key) > 0),
    merchant    TEXT    NOT NULL,
    idem_key    TEXT    NOT NULL,
    shop        TEXT    NOT NULL,
    order_no    TEXT    NOT NULL,
    event       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    sink        TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('ready', 'leased', 'done', 'dead', 'cancelled')),
    after       TEXT,
    tries       INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    lease_token TEXT,
    lease_until INTEGER,
    last_error  TEXT,
    created_at  INTEGER NOT NULL,
    done_at     INTEGER
) STRICT;

-- What is waiting, in the order in which it is due; a finished effect leaves this index.
CREATE INDEX payonce_effect_open ON payonce_effect (sink, state, due_at) WHERE done_at IS NULL;
CREATE INDEX payonce_effect_by_order ON payonce_effect (shop, order_no);

-- The bytes behind every fact booked or held, and of signed messages that could not be believed.
CREATE TABLE payonce_callback (
    id          TEXT    NOT NULL PRIMARY KEY,
    account     TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    headers     TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    body_hash   TEXT    NOT NULL,
    verdict     TEXT    NOT NULL,
    key_id      TEXT
) STRICT;

-- Only messages that no fact stands for are looked up by their bytes.
CREATE INDEX payonce_callback_unbelieved ON payonce_callback (account, body_hash, received_at) WHERE verdict <> 'booked';
