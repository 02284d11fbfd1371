-- A cadence has an overlap policy. Its table is made again, because the policy is part of what makes a cadence unique.
PRAGMA defer_foreign_keys = ON;

CREATE TEMP TABLE cadence_before AS SELECT * FROM cadence;

DROP TABLE cadence;

CREATE TABLE cadence (
    id        INTEGER PRIMARY KEY,
    every_ms  INTEGER NOT NULL CHECK (every_ms >= 0),
    cron      TEXT NOT NULL CHECK ((cron = '') = (every_ms > 0)),
    timezone  TEXT NOT NULL,
    jitter_ms INTEGER NOT NULL CHECK (jitter_ms >= 0),
    missed    TEXT NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    overlap   TEXT NOT NULL CHECK (overlap IN ('skip', 'queue')),
    UNIQUE (every_ms, cron, timezone, jitter_ms, missed, overlap)
) STRICT;

INSERT INTO cadence (id, every_ms, cron, timezone, jitter_ms, missed, overlap)
SELECT id, every_ms, cron, timezone, jitter_ms, missed, 'skip' FROM cadence_before;

DROP TABLE cadence_before;

-- How many firings in a row found an earlier run of the entry that had not ended.
ALTER TABLE due ADD COLUMN overlapped INTEGER NOT NULL DEFAULT 0;
