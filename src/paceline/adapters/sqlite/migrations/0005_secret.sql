-- What the installation's secret key seals to, so that a start with another key is noticed.
CREATE TABLE secret (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    proof TEXT NOT NULL
) STRICT;
