-- The catalogs that nodes follow, and the vectors of slow embedders.

-- Tells this cluster from another one whose rows have the same numbers.
CREATE TABLE cluster (
    identity text NOT NULL
);
INSERT INTO cluster VALUES (gen_random_uuid()::text);

CREATE TABLE catalogs (
    -- Never given twice, so that a catalog that is deleted and created again is another one.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    -- Of the last change. Whoever raises it holds the row's lock until the transaction ends, so generations are
    -- committed in their order.
    generation bigint NOT NULL,
    tools bigint NOT NULL DEFAULT 0,
    settings text,
    settings_generation bigint NOT NULL DEFAULT 0,
    ranker bytea,
    ranker_generation bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Where the generations of a deleted catalog ended: those of the next one of the name go on from there, so that
-- whoever waits for one is not answered from the catalog before.
CREATE TABLE deleted_catalogs (
    name text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL
);

CREATE TABLE tools (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    server text COLLATE "C" NOT NULL,
    -- Both null where the tool was removed: nodes have to learn that too.
    hash bytea,
    json text,
    -- In which it was last changed.
    generation bigint NOT NULL,
    PRIMARY KEY (catalog, id),
    CHECK ((hash IS NULL) = (json IS NULL))
);
CREATE INDEX tools_by_generation ON tools (catalog, generation, id);
CREATE INDEX tools_by_server ON tools (catalog, server) WHERE json IS NOT NULL;

CREATE TABLE vectors (
    embedder text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    text bytea NOT NULL,
    -- Little-endian floats, then their checksum.
    vector bytea NOT NULL,
    PRIMARY KEY (embedder, dimensions, text)
);

-- Texts that a node is embedding, so that another does not do the same. Old claims count for nothing.
CREATE TABLE claims (
    embedder text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    text bytea NOT NULL,
    node text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (embedder, dimensions, text)
);

-- The nodes that were seen lately.
CREATE TABLE nodes (
    instance text PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    -- By the catalog's number, the generation up to which the node holds it.
    followed text NOT NULL
);
