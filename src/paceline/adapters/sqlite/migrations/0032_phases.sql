-- An entry whose phase is allotted may fire once beside its grid: the time from that firing to the first point of the
-- grid, 0 once it is there. In the cold half it is as it was when the entry was armed, and NULL if none is allotted.
ALTER TABLE due ADD COLUMN lead_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entry ADD COLUMN lead_ms INTEGER;
