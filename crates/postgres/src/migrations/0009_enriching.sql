-- The node that lets a model write texts of tools, and the tokens of a day: one row.
CREATE TABLE enriching (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    node text,
    leased_until timestamptz,
    day date NOT NULL DEFAULT '1970-01-01',
    tokens bigint NOT NULL DEFAULT 0
);
INSERT INTO enriching DEFAULT VALUES;
