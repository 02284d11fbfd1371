-- What a token may do: '' for all that its user may, else `read`, `checker` or `worker:PROVIDER`; and when it ends.
ALTER TABLE token ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN expires_ms INTEGER;
