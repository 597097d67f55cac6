-- What the owner of a catalog said beside its tools: aliases, synonyms, pins, boosts and descriptions, as one document.

ALTER TABLE catalogs ADD COLUMN owner_words text;

-- Of its last change.
ALTER TABLE catalogs ADD COLUMN owner_words_generation bigint NOT NULL DEFAULT 0;
