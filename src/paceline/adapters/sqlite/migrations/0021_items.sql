-- Named items: small documents (JSON) by kind and key, for everything that needs no table of its own.
CREATE TABLE item (
    kind       TEXT NOT NULL,
    key        TEXT NOT NULL CHECK (length(key) > 0),
    value      BLOB NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_expires ON item (expires_ms) WHERE expires_ms IS NOT NULL;

INSERT INTO item (kind, key, value)
SELECT 'daemon', id, CAST(json_object('id', id, 'kind', kind, 'host', host, 'pid', pid, 'url', url,
                                      'started_ms', started_ms, 'beat_ms', beat_ms, 'every_ms', every_ms) AS BLOB)
FROM daemon;
INSERT INTO item (kind, key, value)
SELECT 'secret', 'key', CAST(json_object('proof', proof) AS BLOB) FROM secret;
INSERT INTO item (kind, key, value)
SELECT 'clock', 'store', CAST(json_object('latest_ms', latest_ms) AS BLOB) FROM clock;
DROP TABLE daemon;
DROP TABLE secret;
DROP TABLE clock;
