-- +goose Up
-- The check that a transaction has locked a process: see sql/lock_processes.sql.
CREATE FUNCTION is_locked(namespace text, process_id text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT CASE coalesce(current_setting('progressor.missing', true), '')
           WHEN '' THEN true
           ELSE namespace || '/' || process_id
                  <> ALL (current_setting('progressor.missing', true)::text[])
         END
$$;
COMMENT ON FUNCTION is_locked IS
  'Reports whether the transaction has locked a process that it finds: false if it was inserted '
  'after LockProcesses.';

CREATE FUNCTION still_missing(found text[]) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT missing.key
      FROM unnest(NULLIF(current_setting('progressor.missing', true), '')::text[]) AS missing(key)
     WHERE missing.key <> ALL (coalesce(found, '{}')))::text
$$;
COMMENT ON FUNCTION still_missing IS
  'Returns the setting progressor.missing without keys that were found.';

-- +goose Down
DROP FUNCTION still_missing(text[]);
DROP FUNCTION is_locked(text, text);
