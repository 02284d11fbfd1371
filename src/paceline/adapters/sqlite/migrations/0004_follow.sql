-- What several processes share while they send and follow measurements, and what lets old jobs be removed.

-- What one process of many does in turn, and when it was last taken.
CREATE TABLE duty (
    name  TEXT PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When the slots of a measurement that runs are expected back: an expectation for people, never a promise.
ALTER TABLE measurement ADD COLUMN expected_ms INTEGER;

-- An account's slots, answered from the index alone: how many RIPE surely sees, and when they come back.
CREATE INDEX measurement_account ON measurement (account, expected_ms, answered_ms, concurrent) WHERE slot = 1;

-- What the postings of removed jobs added up to. Below zero where what was spent left the window before its job left.
ALTER TABLE meter ADD COLUMN opened_held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meter ADD COLUMN opened_spent INTEGER NOT NULL DEFAULT 0;

-- The day of a user's meter, which is in its name: old ones go with the last job that names them.
CREATE INDEX meter_day ON meter (CAST(substr(name, instr(name, '@') + 1) AS INTEGER)) WHERE "window" = 'day';
CREATE INDEX job_meter ON job (meter);

-- `purged`: how many of its measurements were removed; such a job is on its way out and nobody sees it any more.
ALTER TABLE job ADD COLUMN purged INTEGER NOT NULL DEFAULT 0 CHECK (purged BETWEEN 0 AND measurements);
CREATE INDEX job_finished ON job (finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX job_unfinished ON job (owner, id) WHERE finished_ms IS NULL;

-- Of its measurements' definitions: all, and those that ended so. A list of RIPE's counts definitions.
ALTER TABLE job ADD COLUMN definitions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN definitions_done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN definitions_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN definitions_cancelled INTEGER NOT NULL DEFAULT 0;
UPDATE job SET (definitions, definitions_done, definitions_failed, definitions_cancelled) =
    (SELECT sum(concurrent), sum(iif(state = 'done', concurrent, 0)), sum(iif(state = 'failed', concurrent, 0)),
            sum(iif(state = 'cancelled', concurrent, 0))
     FROM measurement WHERE measurement.id >= job.id << 14 AND measurement.id < job.id + 1 << 14);
