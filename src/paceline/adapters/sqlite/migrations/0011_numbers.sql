-- Definitions of jobs are numbered one after the other, for ids that RIPE's clients take (below 2^31). A job has a block:
-- `numbered` for its first definition, and `stride` numbers for each of its measurements. NULL: of before, see the ids of
-- core/jobs/compatible/measurements.py.
ALTER TABLE job ADD COLUMN numbered INTEGER;
ALTER TABLE job ADD COLUMN stride INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_numbered ON job (numbered) WHERE numbered IS NOT NULL;
INSERT INTO tally (name, value) VALUES ('definitions', 0);

-- How many probes RIPE has given it; NULL until RIPE has told.
ALTER TABLE atlas_measurement ADD COLUMN scheduled INTEGER;
