-- Runs that wait behind an earlier one of their monitor, or for a moment of their own, name their monitor's generation
-- and their counter: the oldest of a monitor is found without a walk over all that wait. NULL: it may start, or has.
ALTER TABLE open ADD COLUMN generation INTEGER;
ALTER TABLE open ADD COLUMN counter INTEGER;

UPDATE open SET (generation, counter) = (SELECT generation, counter FROM run WHERE run.handle = open.handle)
WHERE state = 'parked' OR state = 'later';

CREATE INDEX open_queued ON open (generation, counter) WHERE generation IS NOT NULL;
