-- +goose Up
-- The check that a transaction has stored a result: see sql/save_result.sql.
CREATE FUNCTION is_saved(token bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT CASE coalesce(current_setting('progressor.unsaved', true), '')
           WHEN '' THEN true
           ELSE token <> ALL (current_setting('progressor.unsaved', true)::bigint[])
         END
$$;
COMMENT ON FUNCTION is_saved IS
  'Reports whether the transaction has stored the result with a fencing token: false if it is in '
  'the setting progressor.unsaved.';

CREATE FUNCTION add_unsaved(tokens bigint[], saved bigint[]) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT set_config('progressor.unsaved',
                    (NULLIF(current_setting('progressor.unsaved', true), '')::bigint[]
                       || ARRAY(
                         SELECT item.token FROM unnest(tokens) AS item(token)
                          WHERE item.token <> ALL (coalesce(saved, '{}'))))::text,
                    true) <> ''
$$;
COMMENT ON FUNCTION add_unsaved IS
  'Adds the fencing tokens of results that a statement has not stored to the setting '
  'progressor.unsaved of the transaction, and returns true.';

-- +goose Down
DROP FUNCTION add_unsaved(bigint[], bigint[]);
DROP FUNCTION is_saved(bigint);
