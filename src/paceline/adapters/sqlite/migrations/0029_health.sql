-- What is remembered of a monitor's health (JSON), only where there is something: it fails, or was told of lately.
-- `owner` and `name` are those of the monitor, which never change; `closes_ms`: when alerts that were held back are told.
CREATE TABLE health (
    generation INTEGER PRIMARY KEY,
    owner      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    failing    INTEGER NOT NULL CHECK (failing IN (0, 1)),
    closes_ms  INTEGER,
    record     TEXT NOT NULL
) STRICT;

CREATE INDEX health_failing ON health (owner, name) WHERE failing = 1;
CREATE INDEX health_closes ON health (closes_ms) WHERE closes_ms IS NOT NULL;

-- Monitors whose newest run failed are failing since then.
INSERT INTO health (generation, owner, name, failing, record)
SELECT monitor.generation, monitor.owner, monitor.name, 1,
       json_object('failing', json('true'), 'failures', 1, 'failed', 1, 'since_ms', outcome.ended_ms,
                   'reason', substr(outcome.reason, 1, 500))
FROM due JOIN outcome ON outcome.handle = due.last_run JOIN monitor ON monitor.generation = due.k & ((1 << 28) - 1)
WHERE outcome.state = 'failed';

CREATE TRIGGER health_goes AFTER DELETE ON monitor
BEGIN DELETE FROM health WHERE generation = OLD.generation; END;
