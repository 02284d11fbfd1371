-- How often a user's monitors fire together, in millionths of a firing a second (core.load). NULL: not added up yet.
ALTER TABLE user ADD COLUMN load INTEGER;
