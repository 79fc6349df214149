-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION forget_audit(max_rows integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  WITH deleted_rows AS (
    DELETE FROM audit a
     USING (SELECT x.audit_id, x.time FROM audit x ORDER BY x.audit_id LIMIT max_rows) oldest
     WHERE a.audit_id = oldest.audit_id
       AND oldest.time < statement_timestamp() - interval '90 days'
    RETURNING a.audit_id)
  SELECT count(*) FROM deleted_rows
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION forget_audit IS
  'Deletes the rows of audit that are older than 90 days, among the oldest max_rows. It has the '
  'rights of the owner, so that the role of an engine needs no DELETE on audit.';
COMMENT ON COLUMN audit.details IS
  'Other arguments of the command, such as its reason, as JSON without payloads. A change of a '
  'configuration has it before and after the change, without secrets. NULL if there are none.';

-- +goose Down
DROP FUNCTION forget_audit;
