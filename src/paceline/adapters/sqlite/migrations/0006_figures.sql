-- Figures that `status` reads instead of counting rows. A queue's runs are numbered from 1 without gaps, so
-- tail - ended are those that have not ended, and tail - ended - out those that wait.
-- `ended` is written with the outcomes, one update for all of a queue. Rows of `open` come and go in many places, hence
-- the triggers; connections have recursive_triggers on, so that a replaced row counts as deleted and inserted.
ALTER TABLE lane ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN out INTEGER NOT NULL DEFAULT 0;

UPDATE lane SET
    out = (SELECT count(*) FROM open WHERE open.lane = lane.id AND open.state = 'out'),
    ended = tail - (SELECT count(*) FROM run WHERE handle > lane.id << 40 AND handle < lane.id + 1 << 40)
                 + (SELECT count(*) FROM outcome WHERE handle > lane.id << 40 AND handle < lane.id + 1 << 40);

CREATE TRIGGER open_comes AFTER INSERT ON open WHEN NEW.state = 'out'
BEGIN UPDATE lane SET out = out + 1 WHERE id = NEW.lane; END;

CREATE TRIGGER open_goes AFTER DELETE ON open WHEN OLD.state = 'out'
BEGIN UPDATE lane SET out = out - 1 WHERE id = OLD.lane; END;

CREATE TRIGGER open_turns AFTER UPDATE OF state ON open WHEN OLD.state <> NEW.state
BEGIN UPDATE lane SET out = out + (NEW.state = 'out') - (OLD.state = 'out') WHERE id = NEW.lane; END;

-- The few that a claim has looked at and that wait: those that are out, which are most, stand in no further index.
CREATE INDEX open_waiting ON open (handle) WHERE state <> 'out' AND state <> 'later';
