-- What a record says beyond its endpoint and body, as JSON; NULL for nothing. Records that were stored before have no
-- placeholders: braces in their texts are sent as they are.
ALTER TABLE record ADD COLUMN options TEXT;
ALTER TABLE record ADD COLUMN priority INTEGER GENERATED ALWAYS AS (options ->> '$.priority') VIRTUAL;
ALTER TABLE record ADD COLUMN after TEXT GENERATED ALWAYS AS (options ->> '$.after') VIRTUAL;

-- A plan looks for records that come after another: most batches have none.
CREATE INDEX record_after ON record (batch) WHERE after IS NOT NULL;
