-- How many entries there are: `status` reads it instead of counting a million of them.
INSERT INTO tally (name, value) SELECT 'entries', count(*) FROM entry;

CREATE TRIGGER entry_comes AFTER INSERT ON entry
BEGIN UPDATE tally SET value = value + 1 WHERE name = 'entries'; END;

CREATE TRIGGER entry_goes AFTER DELETE ON entry
BEGIN UPDATE tally SET value = value - 1 WHERE name = 'entries'; END;
