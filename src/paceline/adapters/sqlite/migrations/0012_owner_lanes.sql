-- Each owner has a lane of the checks that Paceline makes itself, as for outgoing runs, so that claims take turns.
-- Lane 1 held everybody's checks; what waits there is still served, as one owner's would be.
-- id: 1; 1 + the user's number for outgoing runs; 2^21 + the user's number for checks, made when it is first needed.
-- `ready_ms`: from when a claim may find something. It may be too early, never too late; 1 << 60 stands for never.
-- Whoever has been ready for longest is asked first. `reason`: why its runs wait, if that is for want of a place.
DROP TRIGGER open_comes;
DROP TRIGGER open_goes;
DROP TRIGGER open_turns;

CREATE TABLE owner_lane (
    id       INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND (1 << 22)),
    owner    INTEGER REFERENCES user (id),
    outgoing INTEGER NOT NULL CHECK (outgoing IN (0, 1)),
    tail     INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL DEFAULT 0 CHECK (position <= tail),
    ended    INTEGER NOT NULL DEFAULT 0,
    out      INTEGER NOT NULL DEFAULT 0,
    ready_ms INTEGER NOT NULL DEFAULT 1152921504606846976,
    reason   TEXT NOT NULL DEFAULT '',
    UNIQUE (owner, outgoing)
) STRICT;

INSERT INTO owner_lane (id, owner, outgoing, tail, position, ended, out, ready_ms)
SELECT id, owner, id > 1, tail, position, ended, out,
       iif(position < tail OR id IN (SELECT lane FROM open), 0, 1152921504606846976) FROM lane;
INSERT INTO owner_lane (id, owner, outgoing) SELECT (1 << 21) + id, id, 0 FROM user WHERE monitors > 0;

DROP TABLE lane;
ALTER TABLE owner_lane RENAME TO lane;

-- As they were.
CREATE TRIGGER open_comes AFTER INSERT ON open WHEN NEW.state = 'out'
BEGIN UPDATE lane SET out = out + 1 WHERE id = NEW.lane; END;

CREATE TRIGGER open_goes AFTER DELETE ON open WHEN OLD.state = 'out'
BEGIN UPDATE lane SET out = out - 1 WHERE id = OLD.lane; END;

CREATE TRIGGER open_turns AFTER UPDATE OF state ON open WHEN OLD.state <> NEW.state
BEGIN UPDATE lane SET out = out + (NEW.state = 'out') - (OLD.state = 'out') WHERE id = NEW.lane; END;

CREATE INDEX lane_ready ON lane (outgoing, ready_ms) WHERE ready_ms < 1152921504606846976;

UPDATE due SET lane = (1 << 21) + monitor.owner
FROM monitor WHERE due.lane = 1 AND monitor.generation = due.k & 268435455;

-- The target of a run that waits until fewer checks of it are out.
ALTER TABLE open ADD COLUMN target TEXT;
CREATE INDEX open_target ON open (target, lane) WHERE target IS NOT NULL;
