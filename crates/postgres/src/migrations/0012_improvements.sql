-- Changes that `toolscout improve` made, so that they can be taken back.
CREATE TABLE improvements (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    -- From 1, in the order of the commits.
    id bigint NOT NULL,
    at_ms bigint NOT NULL,
    -- Of the commit.
    generation bigint NOT NULL,
    -- The entries with their figures, or the number of the change that was taken back.
    what text NOT NULL,
    PRIMARY KEY (catalog, id)
);
