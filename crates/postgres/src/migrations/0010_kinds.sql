-- What the items of catalogs are: tools, or prompts, resources, skills and agents.

-- Of the items that the tables of a catalog have, those that are no tools.
ALTER TABLE pushed_catalogs ADD COLUMN others bigint NOT NULL DEFAULT 0;

-- Each pushed-down catalog has a table of its own. All items that it has so far are tools.
DO $$
DECLARE
    pushed regclass;
BEGIN
    FOR pushed IN
        SELECT to_regclass('pushed_tools_' || catalog) FROM pushed_catalogs
    LOOP
        IF pushed IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s ADD COLUMN kind text NOT NULL DEFAULT ''tool''', pushed);
        END IF;
    END LOOP;
END
$$;
