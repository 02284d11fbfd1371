-- Who waits at RIPE, and for what.

-- Since when others are sent before a measurement that no account has room for; NULL: nobody passed it.
ALTER TABLE measurement ADD COLUMN passed_ms INTEGER;
