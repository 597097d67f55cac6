-- The use of tools. Each node sends the rows of its own record and replaces them; answers add up those of all nodes.

CREATE TABLE usage_nodes (
    node integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The identity of the node's record, which outlives its process.
    record text COLLATE "C" NOT NULL UNIQUE,
    name text NOT NULL,
    -- How often it has sent rows. A node that remembers more sends all rows again: an older state was put back.
    sent bigint NOT NULL DEFAULT 0,
    -- Days on which it recorded use, counted from 1970.
    days integer[] NOT NULL
);

CREATE TABLE usage_tools (
    catalog bigint NOT NULL,
    day integer NOT NULL,
    tool text COLLATE "C" NOT NULL,
    node integer NOT NULL,
    searches bigint NOT NULL,
    first bigint NOT NULL,
    places bigint NOT NULL,
    more bigint NOT NULL,
    injections bigint NOT NULL,
    calls bigint NOT NULL,
    successes bigint NOT NULL,
    -- By code; null without any.
    errors jsonb,
    -- Calls by the buckets of a histogram.
    latencies bigint[] NOT NULL,
    latency_sum_s double precision NOT NULL,
    definition_tokens bigint NOT NULL,
    result_tokens bigint NOT NULL,
    first_ms bigint NOT NULL,
    last_ms bigint NOT NULL,
    PRIMARY KEY (catalog, day, tool, node)
);

CREATE TABLE usage_callers (
    catalog bigint NOT NULL,
    day integer NOT NULL,
    profile text COLLATE "C" NOT NULL,
    who text COLLATE "C" NOT NULL,
    node integer NOT NULL,
    searches bigint NOT NULL,
    good bigint NOT NULL,
    possible bigint NOT NULL,
    none bigint NOT NULL,
    calls bigint NOT NULL,
    errors bigint NOT NULL,
    PRIMARY KEY (catalog, day, profile, who, node)
);

-- Sums over searches that a shadow answered too.
CREATE TABLE usage_shadows (
    catalog bigint NOT NULL,
    shadow text COLLATE "C" NOT NULL,
    day integer NOT NULL,
    node integer NOT NULL,
    searches bigint NOT NULL,
    overlap double precision NOT NULL,
    overlap_squares double precision NOT NULL,
    same_first bigint NOT NULL,
    calls bigint NOT NULL,
    absent bigint NOT NULL,
    live_first bigint NOT NULL,
    second_first bigint NOT NULL,
    first_moved bigint NOT NULL,
    live_reciprocal double precision NOT NULL,
    second_reciprocal double precision NOT NULL,
    reciprocal_squares double precision NOT NULL,
    PRIMARY KEY (catalog, shadow, day, node)
);

-- Requests that no tool served, of nodes whose settings allow their texts.
CREATE TABLE usage_missed (
    catalog bigint NOT NULL,
    at_ms bigint NOT NULL,
    node integer NOT NULL,
    -- At most 500 bytes.
    request text COLLATE "C" NOT NULL,
    why text NOT NULL,
    nearest text,
    PRIMARY KEY (catalog, at_ms, node, request)
);

-- How often these texts were deleted: nodes that know of fewer times delete theirs.
CREATE TABLE usage_forgotten (
    catalog bigint PRIMARY KEY,
    times bigint NOT NULL
);

-- Deleted catalogs, whose rows nodes remove bit by bit.
CREATE TABLE usage_gone (
    catalog bigint PRIMARY KEY
);
