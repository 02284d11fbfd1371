-- Checks of all owners stand in lane 1 again, in the order in which they are made: a tick then writes neighbouring rows
-- however many owners there are. Whose turn it is and who waits for a place is remembered by the process that claims.
-- What stands in an owner's own lane of checks (2^21 + the user's number) is still served: `open.lane` is the queue in
-- which a run waits, which may be another than the one in its handle.
DROP INDEX open_target;
ALTER TABLE open DROP COLUMN target;
ALTER TABLE lane DROP COLUMN reason;

UPDATE due SET lane = 1 WHERE lane > (1 << 21);
UPDATE open SET lane = 1 WHERE lane > (1 << 21);
INSERT INTO open (handle, lane, state, at_ms)
SELECT run.handle, 1, 'held', 0
FROM lane JOIN run ON run.handle > (lane.id << 40 | lane.position) AND run.handle < (lane.id + 1 << 40)
WHERE lane.id > (1 << 21) AND run.handle NOT IN (SELECT handle FROM open)
  AND run.handle NOT IN (SELECT handle FROM outcome);
UPDATE lane SET position = tail, ready_ms = 1152921504606846976 WHERE id > (1 << 21);
UPDATE lane SET ready_ms = 0 WHERE id = 1 AND (position < tail OR EXISTS (SELECT 1 FROM open WHERE lane = 1));

-- Why checks wait, where that is for want of a place: of an owner, and of an owner at one target.
CREATE TABLE check_wait (
    owner  TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (owner, target)
) STRICT, WITHOUT ROWID;
