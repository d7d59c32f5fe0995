-- The books. Times are microseconds since 1970 UTC, money is minor units, keys are compared as bytes.

CREATE TABLE payonce_order (
    shop       text   COLLATE "C" NOT NULL CHECK (length(shop) > 0),
    order_no   text   COLLATE "C" NOT NULL CHECK (length(order_no) > 0),
    kind       text   COLLATE "C" NOT NULL,
    currency   text   COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    amount     bigint NOT NULL CHECK (amount > 0),
    status     text   COLLATE "C" NOT NULL
               CHECK (status IN ('PENDING', 'PAID', 'PARTIALLY_REFUNDED', 'REFUNDED', 'CLOSED')),
    paid       bigint NOT NULL CHECK (paid >= 0),
    refunded   bigint NOT NULL CHECK (refunded BETWEEN 0 AND paid),
    unapplied  bigint NOT NULL CHECK (unapplied >= 0),
    version    bigint NOT NULL,
    closed_at  bigint,
    paid_at    bigint,
    created_at bigint NOT NULL,
    meta       text   COLLATE "C" NOT NULL,
    PRIMARY KEY (shop, order_no)
-- Every order is updated at least once: with room for it on the page, its index stays as it is.
) WITH (fillfactor = 60);

-- Every payable number is a row here. A notice about a number without a row inserts it with no order.
CREATE TABLE payonce_attempt (
    merchant     text   COLLATE "C" NOT NULL,
    out_trade_no text   COLLATE "C" NOT NULL CHECK (length(out_trade_no) > 0),
    shop         text   COLLATE "C",
    order_no     text   COLLATE "C",
    amount       bigint CHECK (amount > 0),
    state        text   COLLATE "C" NOT NULL CHECK (state IN ('OPEN', 'CLOSED')),
    closed_at    bigint,
    CHECK ((order_no IS NULL) = (shop IS NULL) AND (order_no IS NULL) = (amount IS NULL)),
    PRIMARY KEY (merchant, out_trade_no)
);

CREATE INDEX payonce_attempt_by_order ON payonce_attempt (shop, order_no);

-- One row per booked fact, for ever. Its primary key is the arbiter of exactly-once.
CREATE TABLE payonce_idempotency (
    merchant   text   COLLATE "C" NOT NULL,
    idem_key   text   COLLATE "C" NOT NULL CHECK (length(idem_key) > 0),
    trade_no   text   COLLATE "C",
    amount     bigint CHECK (amount >= 0),
    currency   text   COLLATE "C",
    shop       text   COLLATE "C" NOT NULL,
    order_no   text   COLLATE "C" NOT NULL,
    source     text   COLLATE "C" NOT NULL,
    repeats    bigint NOT NULL,
    last_seen  bigint NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (merchant, idem_key)
);

-- The append-only ledger. It leads with the number, so that all that was booked under a number is one range.
CREATE TABLE payonce_order_flow (
    merchant     text   COLLATE "C" NOT NULL,
    out_trade_no text   COLLATE "C" NOT NULL,
    idem_key     text   COLLATE "C" NOT NULL,
    kind         text   COLLATE "C" NOT NULL,
    disposition  text   COLLATE "C" NOT NULL CHECK (disposition IN ('fits', 'adopted', 'mismatched', 'late', 'noted')),
    shop         text   COLLATE "C" NOT NULL,
    order_no     text   COLLATE "C" NOT NULL,
    amount       bigint NOT NULL CHECK (amount >= 0),
    currency     text   COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    trade_no     text   COLLATE "C",
    full_refund  bigint NOT NULL CHECK (full_refund IN (0, 1)),
    account      text   COLLATE "C" NOT NULL,
    callback_id  text   COLLATE "C",
    occurred_at  bigint,
    booked_at    bigint NOT NULL,
    PRIMARY KEY (merchant, out_trade_no, idem_key)
);

-- Notices that cannot be booked yet.
CREATE TABLE payonce_quarantine (
    merchant     text   COLLATE "C" NOT NULL,
    out_trade_no text   COLLATE "C" NOT NULL,
    idem_key     text   COLLATE "C" NOT NULL,
    fingerprint  text   COLLATE "C" NOT NULL,
    reason       text   COLLATE "C" NOT NULL,
    notice       text   COLLATE "C" NOT NULL,
    callback_id  text   COLLATE "C",
    seen         bigint NOT NULL,
    first_seen   bigint NOT NULL,
    last_seen    bigint NOT NULL,
    state        text   COLLATE "C" NOT NULL CHECK (state IN ('held', 'released', 'dismissed')),
    decided_by   text   COLLATE "C",
    decided_why  text   COLLATE "C",
    PRIMARY KEY (merchant, out_trade_no, idem_key, fingerprint)
);

CREATE INDEX payonce_quarantine_held ON payonce_quarantine (first_seen) WHERE state = 'held';

-- The outbox.
CREATE TABLE payonce_effect (
    effect_key  text   COLLATE "C" NOT NULL PRIMARY KEY CHECK (length(effect_key) > 0),
    merchant    text   COLLATE "C" NOT NULL,
    idem_key    text   COLLATE "C" NOT NULL,
    shop        text   COLLATE "C" NOT NULL,
    order_no    text   COLLATE "C" NOT NULL,
    event       text   COLLATE "C" NOT NULL,
    name        text   COLLATE "C" NOT NULL,
    sink        text   COLLATE "C" NOT NULL,
    payload     text   COLLATE "C" NOT NULL,
    state       text   COLLATE "C" NOT NULL CHECK (state IN ('ready', 'leased', 'done', 'dead', 'cancelled')),
    after       text   COLLATE "C",
    tries       bigint NOT NULL,
    due_at      bigint NOT NULL,
    lease_token text   COLLATE "C",
    lease_until bigint,
    last_error  text   COLLATE "C",
    created_at  bigint NOT NULL,
    done_at     bigint
);

-- What is waiting, in the order in which it is due; a finished effect leaves this index.
CREATE INDEX payonce_effect_open ON payonce_effect (sink, state, due_at) WHERE done_at IS NULL;
CREATE INDEX payonce_effect_by_order ON payonce_effect (shop, order_no);

-- The bytes behind every fact booked or held, and of signed messages that could not be believed.
CREATE TABLE payonce_callback (
    id          text   COLLATE "C" NOT NULL PRIMARY KEY,
    account     text   COLLATE "C" NOT NULL,
    received_at bigint NOT NULL,
    headers     text   COLLATE "C" NOT NULL,
    body        bytea  NOT NULL,
    body_hash   text   COLLATE "C" NOT NULL,
    verdict     text   COLLATE "C" NOT NULL,
    key_id      text   COLLATE "C"
);

-- Only messages that no fact stands for are looked up by their bytes.
CREATE INDEX payonce_callback_unbelieved ON payonce_callback (account, body_hash, received_at) WHERE verdict <> 'booked';
