-- Indexes for lists of monitors, written behind the definitions by a pass of the keeper, so that a put does not wait for
-- them. Up to `tally.listed` every generation is in them as it is now, but for those in `unlisted`.
CREATE TABLE facet (
    generation INTEGER NOT NULL,
    facet      TEXT NOT NULL,
    owner      INTEGER NOT NULL,
    name       TEXT NOT NULL,
    PRIMARY KEY (generation, facet)
) STRICT, WITHOUT ROWID;

CREATE INDEX facet_order ON facet (owner, facet, name);

-- By three neighbouring characters of id and address, folded to lower case; the texts themselves are not kept.
CREATE VIRTUAL TABLE search USING fts5 (text, tokenize = 'trigram', content = '', contentless_delete = 1, detail = none);

CREATE TABLE unlisted (generation INTEGER PRIMARY KEY) STRICT;

INSERT INTO tally (name, value) VALUES ('listed', 0);

CREATE TRIGGER monitor_edited AFTER UPDATE OF spec ON monitor
BEGIN INSERT OR IGNORE INTO unlisted (generation) VALUES (OLD.generation); END;

CREATE TRIGGER monitor_gone AFTER DELETE ON monitor
BEGIN INSERT OR IGNORE INTO unlisted (generation) VALUES (OLD.generation); END;
