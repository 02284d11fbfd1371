-- Jobs of RIPE Atlas measurements, the accounts and keys that carry them, and the ledger of what they cost.

-- One row: who we are at RIPE, and whether everybody has to wait.
CREATE TABLE atlas (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    site     TEXT CHECK (length(site) BETWEEN 4 AND 8),
    until_ms INTEGER NOT NULL DEFAULT 0,
    refusals INTEGER NOT NULL DEFAULT 0 CHECK (refusals >= 0),
    reason   TEXT NOT NULL DEFAULT ''
) STRICT;

INSERT INTO atlas (id) VALUES (1);

-- A counted limit and its pots. `spent` and `held` are what its postings add up to; free is the rest.
CREATE TABLE meter (
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    "window"  TEXT NOT NULL CHECK ("window" IN ('day', 'sliding', 'until_released')),
    "limit"   INTEGER NOT NULL CHECK ("limit" >= 0),
    spent     INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),
    held      INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0),
    "foreign" INTEGER NOT NULL DEFAULT 0 CHECK ("foreign" >= 0),
    read_ms   INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What of a sliding meter's `spent` leaves its window, and when.
CREATE TABLE release (
    meter  INTEGER NOT NULL REFERENCES meter (id),
    at_ms  INTEGER NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    PRIMARY KEY (meter, at_ms)
) STRICT, WITHOUT ROWID;

-- The ledger, append-only. hold = measurement << 14 | attempt, where attempt 0 is the hold on the user's day; the key
-- lets each line of it be held, settled and refunded once. A line is open while it is held and not settled.
-- An expiry has no hold: it stands under its release's time, negative.
CREATE TABLE posting (
    hold   INTEGER NOT NULL,
    meter  INTEGER NOT NULL,
    kind   TEXT NOT NULL CHECK (kind = 'hold' OR kind IN ('settle', 'refund', 'expire')),
    amount INTEGER NOT NULL CHECK (amount >= 0),
    at_ms  INTEGER NOT NULL,
    PRIMARY KEY (hold, meter, kind),
    CHECK ((hold < 0) = (kind = 'expire'))
) STRICT, WITHOUT ROWID;

CREATE TABLE account (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL UNIQUE,
    concurrent      INTEGER NOT NULL REFERENCES meter (id),
    results         INTEGER NOT NULL REFERENCES meter (id),
    credits         INTEGER NOT NULL REFERENCES meter (id),
    enabled         INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    closed_until_ms INTEGER NOT NULL DEFAULT 0,
    reason          TEXT NOT NULL DEFAULT '',
    sends           INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Sealing the same secret gives the same text, so an account has it once. `quarantine`: why it is not used.
CREATE TABLE "key" (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    account    INTEGER NOT NULL REFERENCES account (id),
    sealed     TEXT NOT NULL,
    last_four  TEXT NOT NULL CHECK (length(last_four) <= 4),
    label      TEXT NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    quarantine TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL,
    UNIQUE (account, sealed)
) STRICT;

-- Targets that RIPE said are full, for everybody.
CREATE TABLE target (
    name     TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    refusals INTEGER NOT NULL CHECK (refusals >= 1),
    words    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX target_until ON target (until_ms);

-- `owner` is a user's number, which is never used again: a user who gets the name later does not get the jobs.
-- `meter`: its owner's credits of the day it was submitted. The counts and sums follow the measurements in the same
-- act. `hook_ms`: when its webhook is tried next; NULL: it has none, is not finished, or was told.
CREATE TABLE job (
    id           INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id < 1 << 32),
    name         TEXT NOT NULL UNIQUE,
    owner        INTEGER NOT NULL,
    meter        INTEGER NOT NULL REFERENCES meter (id),
    title        TEXT NOT NULL,
    webhook      TEXT,
    digest       TEXT NOT NULL,
    idempotency  TEXT,
    measurements INTEGER NOT NULL CHECK (measurements BETWEEN 1 AND 1 << 14),
    open         INTEGER NOT NULL CHECK (open >= 0),
    done         INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    reserved     INTEGER NOT NULL,
    settled      INTEGER NOT NULL DEFAULT 0,
    refunded     INTEGER NOT NULL DEFAULT 0,
    created_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    cancelled_ms INTEGER,
    finished_ms  INTEGER,
    hook_ms      INTEGER,
    hook_tries   INTEGER NOT NULL DEFAULT 0,
    CHECK (open + done + failed + cancelled = measurements),
    CHECK (settled + refunded <= reserved),
    CHECK (finished_ms IS NULL OR open = 0)
) STRICT;

CREATE INDEX job_owner ON job (owner, id);
CREATE UNIQUE INDEX job_idempotency ON job (owner, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX job_hook ON job (hook_ms) WHERE hook_ms IS NOT NULL;
CREATE INDEX job_open ON job (owner) WHERE open > 0 AND cancelled_ms IS NULL;
CREATE INDEX job_ended ON job (id) WHERE open = 0 AND finished_ms IS NULL;

-- id = job << 14 | index. `attempt` counts sends: the fence of its sender. `next_ms`: the next try of a parked one,
-- the next lookup of an unknown one. `slot`: the account's slot is held. `stopping`: its user wants it no more.
CREATE TABLE measurement (
    id            INTEGER PRIMARY KEY,
    owner         INTEGER NOT NULL,
    state         TEXT NOT NULL,
    body          TEXT NOT NULL,
    credits       INTEGER NOT NULL,
    results       INTEGER NOT NULL,
    concurrent    INTEGER NOT NULL,
    daily_credits INTEGER NOT NULL,
    daily_results INTEGER NOT NULL,
    attempt       INTEGER NOT NULL DEFAULT 0 CHECK (attempt < 1 << 14),
    lookups       INTEGER NOT NULL DEFAULT 0,
    next_ms       INTEGER,
    slot          INTEGER NOT NULL DEFAULT 0 CHECK (slot BETWEEN 0 AND 1),
    stopping      INTEGER NOT NULL DEFAULT 0 CHECK (stopping BETWEEN 0 AND 1),
    account       INTEGER,
    "key"         INTEGER,
    intent_ms     INTEGER,
    answered_ms   INTEGER,
    ended_ms      INTEGER,
    settled       INTEGER,
    reason        TEXT NOT NULL DEFAULT '',
    -- What every new row is comes first: a list behind IN is built again for each row that gets as far.
    CHECK (state = 'queued' AND ended_ms IS NULL AND settled IS NULL AND next_ms IS NULL AND slot = 0
        OR state IN ('parked', 'sending', 'unknown', 'ongoing', 'done', 'failed', 'cancelled')
            AND (state IN ('done', 'failed', 'cancelled')) = (ended_ms IS NOT NULL)
            AND (settled IS NULL) = (ended_ms IS NULL)
            AND (state IN ('parked', 'unknown')) = (next_ms IS NOT NULL)
            AND (slot = 1 OR state NOT IN ('sending', 'unknown', 'ongoing')))
) STRICT;

CREATE INDEX measurement_queued ON measurement (owner, id) WHERE state = 'queued';
CREATE INDEX measurement_next ON measurement (state, next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX measurement_slot ON measurement (state, id) WHERE slot = 1;

-- Whose turn it is: users with something to send, the one served longest ago first.
CREATE TABLE turn (
    owner  INTEGER PRIMARY KEY,
    served INTEGER NOT NULL
) STRICT;

CREATE INDEX turn_served ON turn (served);
INSERT INTO tally (name, value) VALUES ('turns', 0);

-- What a measurement became at RIPE: one for each of its definitions.
CREATE TABLE atlas_measurement (
    measurement INTEGER NOT NULL REFERENCES measurement (id),
    definition  INTEGER NOT NULL CHECK (definition >= 0),
    atlas_id    INTEGER NOT NULL UNIQUE,
    status      INTEGER,
    delivered   INTEGER NOT NULL DEFAULT 0 CHECK (delivered >= 0),
    PRIMARY KEY (measurement, definition)
) STRICT, WITHOUT ROWID;
