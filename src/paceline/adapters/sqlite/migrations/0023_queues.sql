-- An outgoing check may name its queue: each owner has a lane for each queue. Lane 1 + the user's number is the owner's
-- queue `default`; lanes of other queues are numbered from 2^21 down, and none is used twice: `tally` says how many were.
CREATE TABLE queue_lane (
    id       INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND (1 << 22)),
    owner    INTEGER REFERENCES user (id),
    outgoing INTEGER NOT NULL CHECK (outgoing IN (0, 1)),
    queue    TEXT NOT NULL DEFAULT 'default',
    tail     INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL DEFAULT 0 CHECK (position <= tail),
    ended    INTEGER NOT NULL DEFAULT 0,
    out      INTEGER NOT NULL DEFAULT 0,
    ready_ms INTEGER NOT NULL DEFAULT 1152921504606846976,
    UNIQUE (owner, outgoing, queue)
) STRICT;

INSERT INTO queue_lane (id, owner, outgoing, tail, position, ended, out, ready_ms)
SELECT id, owner, outgoing, tail, position, ended, out, ready_ms FROM lane;
DROP TABLE lane;
ALTER TABLE queue_lane RENAME TO lane;
CREATE INDEX lane_ready ON lane (outgoing, queue, ready_ms) WHERE ready_ms < 1152921504606846976;
INSERT INTO tally (name, value) VALUES ('queue_lanes', 0);
