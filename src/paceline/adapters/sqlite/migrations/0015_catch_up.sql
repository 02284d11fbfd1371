-- When missed runs of all monitors start while they are made up for: one row, how many in each second from start_s on.
CREATE TABLE catch_up (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    start_s INTEGER NOT NULL,
    counts  BLOB NOT NULL
) STRICT;
