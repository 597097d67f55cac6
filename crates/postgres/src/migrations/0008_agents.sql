-- The agent that answers in a conversation. Earlier versions had one.
ALTER TABLE conversations ADD COLUMN agent text NOT NULL DEFAULT 'default';
