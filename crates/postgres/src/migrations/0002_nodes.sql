-- What nodes share beside catalogs: keys, conversations, open approvals, feedback and tasks.

-- How far what every node follows has come, by name. Whoever raises a generation holds the row's lock until the
-- transaction ends, so generations are committed in their order.
CREATE TABLE heads (
    name text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL
);
INSERT INTO heads VALUES ('keys', 0);

CREATE TABLE keys (
    id text COLLATE "C" PRIMARY KEY,
    -- SHA-256 of the secret.
    hash bytea NOT NULL,
    scope text NOT NULL,
    catalogs text NOT NULL,
    -- Seconds since 1970, by the clock of the node that wrote them.
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    -- In which it was last changed.
    generation bigint NOT NULL
);
CREATE INDEX keys_by_generation ON keys (generation, id);

-- An id may contain any characters, also that which is no part of a text of PostgreSQL.
CREATE TABLE conversations (
    id bytea PRIMARY KEY,
    title text NOT NULL,
    owner text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    toolbox text
);
CREATE INDEX conversations_by_update ON conversations (updated_ms DESC, id);

CREATE TABLE turns (
    conversation bytea NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    number bigint NOT NULL,
    question text NOT NULL,
    answer text NOT NULL DEFAULT '',
    status text NOT NULL,
    error text,
    figures text,
    events text,
    created_ms bigint NOT NULL,
    -- The process that runs it, and until when it counts as alive without a word.
    node text,
    leased_until timestamptz,
    -- Another node was asked to stop it.
    is_stopped boolean NOT NULL DEFAULT false,
    PRIMARY KEY (conversation, number)
);
CREATE INDEX running_turns ON turns (conversation) WHERE status = 'running';

-- Calls that wait for a person. Whoever sets the answer has decided.
CREATE TABLE approvals (
    id text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    conversation bytea NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    request text NOT NULL,
    -- The process that waits.
    node text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    answer text
);
CREATE INDEX approvals_by_conversation ON approvals (conversation);
CREATE INDEX approvals_by_node ON approvals (node);

CREATE TABLE feedback (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    catalog text COLLATE "C" NOT NULL,
    at_ms bigint NOT NULL,
    request_id text NOT NULL,
    tool text NOT NULL,
    outcome text NOT NULL,
    query text
);
CREATE INDEX feedback_by_catalog ON feedback (catalog, id);

-- Signs the answers of all nodes to searches.
CREATE TABLE signer (
    once boolean PRIMARY KEY DEFAULT true CHECK (once),
    secret bytea NOT NULL
);
INSERT INTO signer (secret)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

CREATE TABLE tasks (
    -- Later ones sort after earlier ones.
    id text COLLATE "C" PRIMARY KEY,
    catalog text NOT NULL,
    -- What its node last said of it, as the API shows it.
    body text NOT NULL,
    -- The process that runs it, and until when it counts as alive without a word; null once it has ended.
    node text NOT NULL,
    leased_until timestamptz,
    -- Another node was asked to cancel it.
    is_cancelled boolean NOT NULL DEFAULT false,
    saved_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tasks_by_time ON tasks (saved_at);

-- The usage memory of a catalog.
CREATE TABLE memories (
    catalog bigint PRIMARY KEY REFERENCES catalogs (id) ON DELETE CASCADE,
    is_on boolean NOT NULL DEFAULT false,
    -- Of the last change, given under the lock of the row as those of catalogs are.
    generation bigint NOT NULL,
    -- In which entries were last deleted: nodes that are behind read all of them.
    deleted_at bigint NOT NULL DEFAULT 0
);

-- A request, the tool that was called for it, and one who taught it.
CREATE TABLE remembered (
    catalog bigint NOT NULL REFERENCES memories (catalog) ON DELETE CASCADE,
    -- A hash of request and tool, which may be too long for an index.
    pair bytea NOT NULL,
    source text COLLATE "C" NOT NULL,
    query text NOT NULL,
    tool text COLLATE "C" NOT NULL,
    times bigint NOT NULL,
    at_ms bigint NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (catalog, pair, source)
);
CREATE INDEX remembered_by_generation ON remembered (catalog, generation);
CREATE INDEX remembered_by_source ON remembered (catalog, source, at_ms);

-- The approved definitions of a catalog's MCP tools, the changes that nobody has decided on, and the number of the
-- last decision about each server.
CREATE TABLE approved_definitions (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    server text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    definition bytea NOT NULL,
    class bigint NOT NULL,
    PRIMARY KEY (catalog, server, id)
);

CREATE TABLE approved_changes (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    server text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    approved text,
    offered text,
    blocked_by text,
    since_ms bigint NOT NULL,
    PRIMARY KEY (catalog, server, id)
);

CREATE TABLE approved_decisions (
    catalog bigint NOT NULL REFERENCES catalogs (id) ON DELETE CASCADE,
    server text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (catalog, server)
);

-- The audit logs of all nodes. Each is a chain of its own, named by the hash of its first entry.
CREATE TABLE audit_chains (
    chain text COLLATE "C" PRIMARY KEY,
    -- The name of the node that last added to it.
    node text NOT NULL,
    entries bigint NOT NULL
);

CREATE TABLE audit (
    chain text COLLATE "C" NOT NULL REFERENCES audit_chains (chain),
    seq bigint NOT NULL,
    entry text NOT NULL,
    hash bytea NOT NULL,
    -- Of the entry, to look for.
    time_ms bigint NOT NULL,
    tool text,
    event text,
    decision text,
    PRIMARY KEY (chain, seq)
);
CREATE INDEX audit_by_time ON audit (time_ms DESC, chain DESC, seq DESC);
