-- Of a second or later attempt: when it was claimed, and whether the lease of one before it had run out. From these it is
-- seen later which attempt an outcome is of. NULL: it is of the first attempt, or was stored before this was kept.
ALTER TABLE outcome ADD COLUMN claimed_ms INTEGER;
ALTER TABLE outcome ADD COLUMN lost INTEGER CHECK (lost IN (0, 1));

-- A digest is made of a job only if it is submitted under an idempotency key; a job with the one and without the other
-- has lost its key. Earlier versions made one of every job.
UPDATE job SET digest = '' WHERE idempotency IS NULL;

-- It was not noted before when users were disabled. So whoever is a user now counts as disabled up to the newest time in
-- the ledger, and nobody is said to have been unfair to them until then.
INSERT INTO item (kind, key, value)
SELECT 'disabled', user.name, CAST(json_object('spans', json_array(json_array(0, iif(user.disabled, NULL, newest.at_ms)))) AS BLOB)
FROM user, (SELECT max(coalesce((SELECT max(ended_ms) FROM outcome), 0),
                       coalesce((SELECT max(due_ms) FROM run), 0),
                       coalesce((SELECT max(created_ms) FROM job), 0),
                       coalesce((SELECT max(intent_ms) FROM measurement), 0)) AS at_ms) AS newest
WHERE newest.at_ms > 0 OR user.disabled;
