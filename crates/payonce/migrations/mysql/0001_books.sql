-- The books. Times are microseconds since 1970 UTC, money is minor units. Keys and words are VARBINARY, so
-- that they are compared as bytes: every collation of these engines pads or folds. Lengths are the bounds
-- that are checked before, so that nothing is ever cut. DDL commits by itself here, so every statement may
-- be run again.

CREATE TABLE IF NOT EXISTS payonce_order (
    shop       VARBINARY(64)  NOT NULL CHECK (LENGTH(shop) > 0),
    order_no   VARBINARY(128) NOT NULL CHECK (LENGTH(order_no) > 0),
    kind       VARBINARY(64)  NOT NULL,
    currency   VARBINARY(3)   NOT NULL CHECK (LENGTH(currency) = 3),
    amount     BIGINT         NOT NULL CHECK (amount > 0),
    status     VARBINARY(32)  NOT NULL
               CHECK (status IN ('PENDING', 'PAID', 'PARTIALLY_REFUNDED', 'REFUNDED', 'CLOSED')),
    paid       BIGINT         NOT NULL CHECK (paid >= 0),
    refunded   BIGINT         NOT NULL,
    unapplied  BIGINT         NOT NULL CHECK (unapplied >= 0),
    version    BIGINT         NOT NULL,
    closed_at  BIGINT,
    paid_at    BIGINT,
    created_at BIGINT         NOT NULL,
    meta       LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (shop, order_no),
    CONSTRAINT payonce_order_refunded CHECK (refunded BETWEEN 0 AND paid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every payable number is a row here. A notice about a number without a row inserts it with no order.
CREATE TABLE IF NOT EXISTS payonce_attempt (
    merchant     VARBINARY(64) NOT NULL,
    out_trade_no VARBINARY(64) NOT NULL CHECK (LENGTH(out_trade_no) > 0),
    shop         VARBINARY(64),
    order_no     VARBINARY(128),
    amount       BIGINT        CHECK (amount > 0),
    state        VARBINARY(16) NOT NULL CHECK (state IN ('OPEN', 'CLOSED')),
    closed_at    BIGINT,
    PRIMARY KEY (merchant, out_trade_no),
    KEY payonce_attempt_by_order (shop, order_no),
    CONSTRAINT payonce_attempt_whole CHECK ((order_no IS NULL) = (shop IS NULL) AND (order_no IS NULL) = (amount IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per booked fact, for ever. Its primary key is the arbiter of exactly-once.
CREATE TABLE IF NOT EXISTS payonce_idempotency (
    merchant   VARBINARY(64)  NOT NULL,
    idem_key   VARBINARY(200) NOT NULL CHECK (LENGTH(idem_key) > 0),
    trade_no   VARBINARY(64),
    amount     BIGINT         CHECK (amount >= 0),
    currency   VARBINARY(3),
    shop       VARBINARY(64)  NOT NULL,
    order_no   VARBINARY(128) NOT NULL,
    source     VARBINARY(32)  NOT NULL,
    repeats    BIGINT         NOT NULL,
    last_seen  BIGINT         NOT NULL,
    created_at BIGINT         NOT NULL,
    PRIMARY KEY (merchant, idem_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The append-only ledger. It leads with the number, so that all that was booked under a number is one range.
CREATE TABLE IF NOT EXISTS payonce_order_flow (
    merchant     VARBINARY(64)  NOT NULL,
    out_trade_no VARBINARY(64)  NOT NULL,
    idem_key     VARBINARY(200) NOT NULL,
    kind         VARBINARY(64)  NOT NULL,
    disposition  VARBINARY(16)  NOT NULL CHECK (disposition IN ('fits', 'adopted', 'mismatched', 'late', 'noted')),
    shop         VARBINARY(64)  NOT NULL,
    order_no     VARBINARY(128) NOT NULL,
    amount       BIGINT         NOT NULL CHECK (amount >= 0),
    currency     VARBINARY(3)   NOT NULL CHECK (LENGTH(currency) = 3),
    trade_no     VARBINARY(64),
    full_refund  BIGINT         NOT NULL CHECK (full_refund IN (0, 1)),
    account      VARBINARY(64)  NOT NULL,
    callback_id  VARBINARY(64),
    occurred_at  BIGINT,
    booked_at    BIGINT         NOT NULL,
    PRIMARY KEY (merchant, out_trade_no, idem_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Notices that cannot be booked yet.
CREATE TABLE IF NOT EXISTS payonce_quarantine (
    merchant     VARBINARY(64)  NOT NULL,
    out_trade_no VARBINARY(64)  NOT NULL,
    idem_key     VARBINARY(200) NOT NULL,
    fingerprint  VARBINARY(256) NOT NULL,
    reason       VARBINARY(32)  NOT NULL,
    notice       LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    callback_id  VARBINARY(64),
    seen         BIGINT         NOT NULL,
    first_seen   BIGINT         NOT NULL,
    last_seen    BIGINT         NOT NULL,
    state        VARBINARY(16)  NOT NULL CHECK (state IN ('held', 'released', 'dismissed')),
    decided_by   LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    decided_why  LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (merchant, out_trade_no, idem_key, fingerprint),
    KEY payonce_quarantine_held (state, first_seen)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The outbox. There are no partial indexes here, so the index of what is open leads with the state.
CREATE TABLE IF NOT EXISTS payonce_effect (
    effect_key  VARBINARY(400) NOT NULL CHECK (LENGTH(effect_key) > 0),
    merchant    VARBINARY(64)  NOT NULL,
    idem_key    VARBINARY(200) NOT NULL,
    shop        VARBINARY(64)  NOT NULL,
    order_no    VARBINARY(128) NOT NULL,
    event       VARBINARY(64)  NOT NULL,
    name        VARBINARY(200) NOT NULL,
    sink        VARBINARY(200) NOT NULL,
    payload     LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    state       VARBINARY(16)  NOT NULL CHECK (state IN ('ready', 'leased', 'done', 'dead', 'cancelled')),
    after       VARBINARY(400),
    tries       BIGINT         NOT NULL,
    due_at      BIGINT         NOT NULL,
    lease_token VARBINARY(64),
    lease_until BIGINT,
    last_error  LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at  BIGINT         NOT NULL,
    done_at     BIGINT,
    PRIMARY KEY (effect_key),
    KEY payonce_effect_open (state, sink, due_at),
    KEY payonce_effect_by_order (shop, order_no)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The bytes behind every fact booked or held, and of signed messages that could not be believed. The index
-- leads with the verdict: what is asked of it is only about messages that no fact stands for.
CREATE TABLE IF NOT EXISTS payonce_callback (
    id          VARBINARY(64)  NOT NULL,
    account     VARBINARY(64)  NOT NULL,
    received_at BIGINT         NOT NULL,
    headers     LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    body        LONGBLOB       NOT NULL,
    body_hash   VARBINARY(128) NOT NULL,
    verdict     VARBINARY(255) NOT NULL,
    key_id      VARBINARY(200),
    PRIMARY KEY (id),
    KEY payonce_callback_unbelieved (verdict, account, received_at, body_hash)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
