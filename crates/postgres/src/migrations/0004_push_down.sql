-- Catalogs that are too large for nodes to hold: their tools are looked for in the database ("push-down"). What is kept of
-- them for that is in tables of their own, which nodes create with the catalog's number in their names.

-- True once searches are answered from those tables; nodes give up the tools of their copies then.
ALTER TABLE catalogs ADD COLUMN is_pushed_down boolean NOT NULL DEFAULT false;

-- Whether it is to be so; null where its size decides.
ALTER TABLE catalogs ADD COLUMN push_down boolean;

CREATE TABLE pushed_catalogs (
    catalog bigint PRIMARY KEY REFERENCES catalogs (id) ON DELETE CASCADE,
    -- Of the analyzer and the field weights that the tables were filled with.
    stamp text NOT NULL,
    -- The tables have the tools up to this id; null once they have all.
    filled_to text COLLATE "C",
    -- Of the tools that the tables have: their number, their weighted lengths together, and their number by language.
    tools bigint NOT NULL DEFAULT 0,
    length bigint NOT NULL DEFAULT 0,
    languages text NOT NULL DEFAULT '{}'
);

-- The embedders whose vectors of such a catalog are kept, each in a table of its own.
CREATE TABLE pushed_embedders (
    catalog bigint NOT NULL REFERENCES pushed_catalogs (catalog) ON DELETE CASCADE,
    number integer NOT NULL,
    embedder text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    -- Tools with all of their vectors.
    tools bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (catalog, number),
    UNIQUE (catalog, embedder, dimensions)
);
