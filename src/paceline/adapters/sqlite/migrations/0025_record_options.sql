-- What a record says beyond its endpoint and body, as JSON; NULL for nothing. Records that were stored before have no
-- placeholders: braces in their texts are sent as they are.
ALTER TABLE record ADD COLUMN options TEXT;
