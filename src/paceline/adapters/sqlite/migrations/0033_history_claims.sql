-- Of a second or later attempt: when it was claimed, and whether the lease of one before it had run out. From these it is
-- seen later which attempt an outcome is of. NULL: it is of the first attempt, or was stored before this was kept.
ALTER TABLE outcome ADD COLUMN claimed_ms INTEGER;
ALTER TABLE outcome ADD COLUMN lost INTEGER CHECK (lost IN (0, 1));

-- A digest is made of a job only if it is submitted under an idempotency key; a job with the one and without the other
-- has lost its key. Earlier versions made one of every job.
UPDATE job SET digest = '' WHERE idempotency IS NULL;
