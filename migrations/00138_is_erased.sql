-- +goose Up
-- A run that is removed sends no cancels to processes that were erased: see PurgeHistory.

-- +goose StatementBegin
CREATE FUNCTION is_erased(namespace text, process_id text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = progressor, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM audit a
     WHERE a.namespace = $1
       AND a.method = 'EraseProcess'
       AND a.subject = erased_id($1, $2))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION is_erased IS
  'Reports whether the audit has an EraseProcess of a process. A process with its ID can exist '
  'again.';

-- +goose Down
DROP FUNCTION is_erased(text, text);
