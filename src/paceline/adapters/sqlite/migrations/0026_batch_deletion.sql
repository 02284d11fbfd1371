-- A batch that is being deleted: since when, and how many of its runs and records are gone so far.
ALTER TABLE batch ADD COLUMN deleting_ms INTEGER;
ALTER TABLE batch ADD COLUMN deleted_runs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batch ADD COLUMN deleted_records INTEGER NOT NULL DEFAULT 0;
