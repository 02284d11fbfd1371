-- The time of the last note, by which a clock that was set back is told from due times that lie ahead.
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    latest_ms INTEGER NOT NULL
) STRICT;
