-- The profiles that a key is bound to, with commas between them; empty for a key that is bound to none.
ALTER TABLE keys ADD COLUMN profiles text NOT NULL DEFAULT '';
