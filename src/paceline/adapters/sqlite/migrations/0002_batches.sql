-- Providers, batches and their records (cold, wide) stand apart from the ledger and the queue (hot, narrow).

-- A removed provider stays, without its headers, because results name it; put again, it is the same provider.
CREATE TABLE provider (
    id         INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id < 1 << 22),
    name       TEXT NOT NULL UNIQUE,
    revision   INTEGER NOT NULL CHECK (revision >= 1),
    deleted    INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1)),
    spec       TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

-- A provider's state between calls. Before `ready_ms` there is nothing to do for it: no run is due, none may start,
-- no lease ends. It may be too early, never too late; 1 << 60 stands for never. `revision` is its provider's, or NULL
-- if that was removed: a claim sees by it whether the policy it knows still holds, and reads no more of the provider.
CREATE TABLE pace (
    provider        INTEGER PRIMARY KEY REFERENCES provider (id),
    revision        INTEGER,
    ready_ms        INTEGER NOT NULL DEFAULT 1152921504606846976,
    rate_us         INTEGER NOT NULL DEFAULT 0,
    paced_ms        INTEGER NOT NULL DEFAULT 0,
    closed_until_ms INTEGER NOT NULL DEFAULT 0,
    failures        INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    staggered       INTEGER NOT NULL DEFAULT 0 CHECK (staggered IN (0, 1)),
    redriven_ms     INTEGER NOT NULL DEFAULT 0  -- dead letters that are put back are due from here on
) STRICT;

CREATE INDEX pace_ready ON pace (ready_ms) WHERE ready_ms < 1152921504606846976;

CREATE TABLE batch (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,
    revision   INTEGER NOT NULL CHECK (revision >= 1),
    spec       TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

-- A deleted record stays as long as the ledger knows its runs: put again on the same day, it must not run twice.
-- `place` orders a provider's records over the day; it depends on the names alone.
-- Batches and providers are never deleted from their tables, so a million rows need not each look them up again.
CREATE TABLE record (
    id       INTEGER PRIMARY KEY CHECK (id < 1 << 31),
    batch    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    provider INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    active   INTEGER NOT NULL CHECK (active IN (0, 1)),
    deleted  INTEGER NOT NULL DEFAULT 0 CHECK (deleted IN (0, 1)),
    endpoint TEXT NOT NULL,
    body     TEXT,
    UNIQUE (batch, name)
) STRICT;

CREATE INDEX record_deleted ON record (id) WHERE deleted = 1;

-- Records that came or came back while a day was running: planned into the rest of it, then forgotten.
CREATE TABLE newcomer (
    record INTEGER PRIMARY KEY,
    batch  INTEGER NOT NULL
) STRICT;

CREATE TABLE day (
    id              INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id < 1 << 31),
    batch           INTEGER NOT NULL REFERENCES batch (id),
    date            TEXT NOT NULL,
    start_ms        INTEGER NOT NULL,
    end_ms          INTEGER NOT NULL CHECK (end_ms > start_ms),
    state           TEXT NOT NULL CHECK (state IN ('planning', 'planned')),
    cursor_provider INTEGER,
    cursor_record   INTEGER,
    enqueued        INTEGER NOT NULL DEFAULT 0,
    skipped         INTEGER NOT NULL DEFAULT 0,
    UNIQUE (batch, date)
) STRICT;

-- The ledger: run = day << 31 | record, once for ever; k says where it stands in `queue`, `aside` or `result`.
CREATE TABLE planned (
    run INTEGER PRIMARY KEY,
    k   INTEGER NOT NULL
) STRICT;

-- Runs that have not ended: k = provider << 40 | (due time in ms since 2026), so a provider's runs lie in due order.
-- `at_ms`: when the lease ends, or when it may be tried again; a waiting run starts at its due time.
-- States are compared one by one: for IN with more than two, every single insert would first build a table of them.
-- Three values or more in IN (…) make SQLite build an index of them for each row it inserts: hence the ORs, here and
-- in `result`.
CREATE TABLE queue (
    k          INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL,
    state      TEXT NOT NULL DEFAULT 'waiting' CHECK (state = 'waiting' OR state = 'out' OR state = 'retry'),
    at_ms      INTEGER NOT NULL DEFAULT 0,
    attempt    INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    started_ms INTEGER,
    reason     TEXT NOT NULL DEFAULT ''
) STRICT;

-- Runs out or in back-off stand anywhere among those that wait: what returns from aside may be due before them.
CREATE INDEX queue_held ON queue (k) WHERE state <> 'waiting';

-- Runs that came up while their batch was paused.
CREATE TABLE aside (
    k       INTEGER PRIMARY KEY,
    run     INTEGER NOT NULL,
    batch   INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    lost    INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1))
) STRICT;

CREATE INDEX aside_batch ON aside (batch);

-- How runs ended. `dead`: a dead letter that nobody has redriven or discarded.
CREATE TABLE result (
    k          INTEGER PRIMARY KEY,
    run        INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state = 'done' OR state = 'failed' OR state = 'unknown' OR state = 'skipped'),
    attempt    INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms   INTEGER NOT NULL,
    latency_ms REAL,
    code       INTEGER,
    reason     TEXT NOT NULL,
    payload    TEXT,
    dead       INTEGER NOT NULL DEFAULT 0 CHECK (dead IN (0, 1))
) STRICT;

CREATE INDEX result_dead ON result (k) WHERE dead = 1;
