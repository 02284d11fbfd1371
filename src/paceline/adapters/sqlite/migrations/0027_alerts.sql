-- What users are to be told, with what came of it as JSON. `part` and `place_ms` say where a record is found: open ones
-- by when there is something to do about them, the others by when they happened.
CREATE TABLE alert (
    id       TEXT PRIMARY KEY,
    user     TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    part     TEXT NOT NULL CHECK (part IN ('open', 'over', 'failed')),
    place_ms INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    record   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_place ON alert (part, place_ms);
CREATE INDEX alert_user ON alert (user, at_ms, id);
