-- +goose Up
-- Statements that claim tasks compare it with the status of the process. PostgreSQL inlines it, so
-- that their plans are the same as with the expression itself.
-- +goose StatementBegin
CREATE FUNCTION required_status(type task_type) RETURNS process_status
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE type
           WHEN 'INIT' THEN 'INIT'::process_status
           WHEN 'REPAIR' THEN 'ERROR'
           ELSE 'RUNNING'
         END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION required_status IS
  'Returns the status that a process must have so that a task of this type can run.';
