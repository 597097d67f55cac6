-- Tells states of a catalog with the same number apart. Generations are counted, so after an older state of the database
-- was put back, or a standby was promoted that lacked the last commits, other commits get the same numbers.

-- A catalog may get the number of one that was lost.
ALTER TABLE catalogs ADD COLUMN identity text NOT NULL DEFAULT gen_random_uuid()::text;

-- The mark of the last generation, random.
ALTER TABLE catalogs ADD COLUMN mark bigint NOT NULL
    DEFAULT ('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint;

-- The generations of the last days with their marks. A node whose generation is not among them, with its mark, makes its
-- copy anew: what was removed since may have been forgotten, or it never was.
CREATE TABLE generations (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    generation bigint NOT NULL,
    mark bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (catalog, generation)
);
INSERT INTO generations (catalog, generation, mark) SELECT id, generation, mark FROM catalogs;
CREATE INDEX generations_by_time ON generations (committed_at);

CREATE INDEX tools_removed ON tools (catalog, generation) WHERE json IS NULL;

-- Of a catalog whose import was not finished, the identity of what is imported: the same import goes on with it.
ALTER TABLE catalogs ADD COLUMN importing text;
