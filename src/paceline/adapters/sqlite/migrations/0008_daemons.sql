-- Processes that work on this store. Each writes its row every few seconds and deletes it when it ends as it should.
CREATE TABLE daemon (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind = 'up' OR kind = 'worker'),
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    url        TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    beat_ms    INTEGER NOT NULL,
    every_ms   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
