-- Definitions (cold, wide) stand apart from what the tick touches (hot, narrow).
-- States are checked with OR: for an IN of more than two values SQLite builds a table at each insert.
-- No hot path has a secondary index: due rows are clustered by due time, runs by the order in which they were made.

CREATE TABLE user (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    role          TEXT NOT NULL CHECK (role IN ('admin', 'user')),
    daily_credits INTEGER NOT NULL CHECK (daily_credits >= 0),
    disabled      INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
    monitors      INTEGER NOT NULL DEFAULT 0 CHECK (monitors >= 0),
    created_ms    INTEGER NOT NULL
) STRICT;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    user       INTEGER NOT NULL REFERENCES user (id),
    label      TEXT NOT NULL,
    digest     BLOB NOT NULL CHECK (length(digest) = 32),
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX token_user ON token (user);

-- What users declared: the rows of Items. AUTOINCREMENT: a generation is never used twice.
CREATE TABLE monitor (
    generation INTEGER PRIMARY KEY AUTOINCREMENT CHECK (generation < 1 << 28),
    owner      INTEGER NOT NULL REFERENCES user (id),
    name       TEXT NOT NULL,
    revision   INTEGER NOT NULL CHECK (revision >= 1),
    spec       TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    UNIQUE (owner, name)
) STRICT;

-- Definitions whose entry has not followed yet. The number is that of the act that recorded the change and never
-- repeats, so a reaction to an older change, however late it comes, cannot be taken for one to this.
CREATE TABLE change (
    generation INTEGER PRIMARY KEY,
    number     INTEGER NOT NULL
) STRICT;

CREATE TABLE tally (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO tally (name, value) VALUES ('changes', 0);

-- Each distinct cadence once; rows are never changed, so every process may keep them in memory.
CREATE TABLE cadence (
    id        INTEGER PRIMARY KEY,
    every_ms  INTEGER NOT NULL CHECK (every_ms >= 0),
    cron      TEXT NOT NULL CHECK ((cron = '') = (every_ms > 0)),
    timezone  TEXT NOT NULL,
    jitter_ms INTEGER NOT NULL CHECK (jitter_ms >= 0),
    missed    TEXT NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    UNIQUE (every_ms, cron, timezone, jitter_ms, missed)
) STRICT;

-- Queues: lane 1 holds the checks that Paceline makes itself, each user has a lane for outgoing runs.
-- Runs up to `tail` are made, runs up to `position` have been looked at by a claim.
CREATE TABLE lane (
    id       INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND (1 << 22)),
    owner    INTEGER UNIQUE REFERENCES user (id),
    tail     INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL DEFAULT 0 CHECK (position <= tail)
) STRICT;

INSERT INTO lane (id) VALUES (1);

-- The entry's cold half: how its grid runs, written when it is armed. The grid tells where its due row must be.
CREATE TABLE entry (
    generation INTEGER PRIMARY KEY,
    cadence    INTEGER NOT NULL REFERENCES cadence (id),
    base_ms    INTEGER NOT NULL
) STRICT;

-- The entry's hot half, one row each: k = (due time in slots) << 28 | generation. Resting entries stand in the last slot.
CREATE TABLE due (
    k        INTEGER PRIMARY KEY CHECK (k > 0),
    counter  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    cadence  INTEGER NOT NULL,
    lane     INTEGER NOT NULL,
    last_run INTEGER NOT NULL
) STRICT;

-- The log of runs: handle = lane << 40 | sequence. `previous` is the same entry's run before this one, so a
-- monitor's history is a walk and needs no index.
CREATE TABLE run (
    handle     INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL,
    counter    INTEGER NOT NULL,
    due_ms     INTEGER NOT NULL,
    previous   INTEGER NOT NULL
) STRICT;

-- Runs that a claim has looked at and that are not settled. `at_ms`: when the lease ends, or when it may start.
CREATE TABLE open (
    handle     INTEGER PRIMARY KEY,
    lane       INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state = 'out' OR state = 'later' OR state = 'parked' OR state = 'held' OR state = 'retry'),
    at_ms      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1)),
    behind     INTEGER,
    started_ms INTEGER,
    reason     TEXT NOT NULL DEFAULT '',
    CHECK ((state = 'parked') = (behind IS NOT NULL))
) STRICT;

CREATE INDEX open_at ON open (lane, at_ms);
CREATE INDEX open_behind ON open (behind) WHERE behind IS NOT NULL;

-- How runs ended: written once, never changed.
CREATE TABLE outcome (
    handle     INTEGER PRIMARY KEY,
    state      TEXT NOT NULL CHECK (state = 'ok' OR state = 'failed' OR state = 'dead' OR state = 'unknown'),
    attempt    INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms   INTEGER NOT NULL,
    latency_ms REAL,
    code       INTEGER,
    reason     TEXT NOT NULL,
    detail     TEXT NOT NULL
) STRICT;
