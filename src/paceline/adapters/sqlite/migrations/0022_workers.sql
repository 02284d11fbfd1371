-- Runs of a provider of kind `outgoing` are claimed by workers of its operator's own. The caller looks at the others
-- alone, and must not pass over such providers to find them.
ALTER TABLE pace ADD COLUMN outgoing INTEGER NOT NULL DEFAULT 0 CHECK (outgoing IN (0, 1));
DROP INDEX pace_ready;
CREATE INDEX pace_ready ON pace (outgoing, ready_ms) WHERE ready_ms < 1152921504606846976;
