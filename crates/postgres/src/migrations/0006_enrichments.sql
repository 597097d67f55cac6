-- What language models wrote about when to use tools. It belongs to one definition: whoever changes a tool deletes it.

CREATE TABLE enrichments (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    tool text COLLATE "C" NOT NULL,
    -- All null where it was forgotten: nodes have to learn that too.
    model text,
    texts text[],
    checksum bytea,
    -- In which it was written or forgotten.
    generation bigint NOT NULL,
    PRIMARY KEY (catalog, tool),
    CHECK ((model IS NULL) = (texts IS NULL) AND (texts IS NULL) = (checksum IS NULL))
);
CREATE INDEX enrichments_by_generation ON enrichments (catalog, generation, tool);

-- Of the last change of one of them.
ALTER TABLE catalogs ADD COLUMN enrichments_generation bigint NOT NULL DEFAULT 0;
