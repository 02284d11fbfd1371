-- How many runs of a queue are out is written with the leases, one update for all of a queue: a trigger for each row
-- cost more than the rest of the write.
DROP TRIGGER open_comes;
DROP TRIGGER open_goes;
DROP TRIGGER open_turns;
