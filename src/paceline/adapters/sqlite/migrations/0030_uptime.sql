-- What is kept of a monitor's outcomes when its runs are gone (core/monitors/uptime): all of them up to `counter`.
CREATE TABLE uptime (
    generation INTEGER PRIMARY KEY,
    counter    INTEGER NOT NULL,
    rollup     BLOB NOT NULL
) STRICT;

CREATE TRIGGER uptime_goes AFTER DELETE ON monitor
BEGIN DELETE FROM uptime WHERE generation = OLD.generation; END;

-- The runs up to this sequence number have been looked through for monitors whose outcomes are to be folded.
ALTER TABLE lane ADD COLUMN folded INTEGER NOT NULL DEFAULT 0;
