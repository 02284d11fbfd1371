-- Figures of batches and jobs that `status` reads instead of counting rows. Those of batches are written with the runs,
-- one update for all of a transaction: a trigger for each row would cost more. Measurements are submitted by the
-- thousand, so that is written at once, too; they leave their queue one by one, hence the trigger.
INSERT INTO tally (name, value) VALUES
    ('calls_waiting', (SELECT count(*) FROM queue)),
    ('calls_aside', (SELECT count(*) FROM aside)),
    ('dead_letters', (SELECT count(*) FROM result WHERE dead = 1)),
    ('measurements_queued', (SELECT count(*) FROM measurement WHERE state = 'queued')),
    ('measurements_parked', (SELECT count(*) FROM measurement WHERE state = 'parked')),
    ('jobs_open', (SELECT count(*) FROM job WHERE finished_ms IS NULL));

CREATE TRIGGER measurement_turns AFTER UPDATE OF state ON measurement
WHEN OLD.state <> NEW.state AND (OLD.state = 'queued' OR NEW.state = 'queued' OR OLD.state = 'parked' OR NEW.state = 'parked')
BEGIN
    UPDATE tally SET value = value + (NEW.state = 'queued') - (OLD.state = 'queued') WHERE name = 'measurements_queued';
    UPDATE tally SET value = value + (NEW.state = 'parked') - (OLD.state = 'parked') WHERE name = 'measurements_parked';
END;

CREATE TRIGGER job_comes AFTER INSERT ON job
BEGIN UPDATE tally SET value = value + 1 WHERE name = 'jobs_open'; END;

CREATE TRIGGER job_finishes AFTER UPDATE OF finished_ms ON job WHEN (OLD.finished_ms IS NULL) <> (NEW.finished_ms IS NULL)
BEGIN UPDATE tally SET value = value + iif(NEW.finished_ms IS NULL, 1, -1) WHERE name = 'jobs_open'; END;

-- The oldest of those that are parked.
CREATE INDEX measurement_parked ON measurement (id) WHERE state = 'parked';
