-- Runs that somebody asked for, beside their cadence. `last_due_ms`: when the entry's newest firing before it was due,
-- which an edit counts from; NULL if there was none.
CREATE TABLE extra (
    handle      INTEGER PRIMARY KEY,
    last_due_ms INTEGER
) STRICT;
