-- What a key is called, and when a node last wrote down that it was used, in seconds since 1970.
ALTER TABLE keys ADD COLUMN name text, ADD COLUMN last_used_at bigint;
