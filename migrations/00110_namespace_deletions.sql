-- +goose Up
-- A namespace can be deleted with its data. Engines do this in batches, while it has a
-- deletion_requested_time.
ALTER TABLE namespaces
  ADD COLUMN deletion_requested_time timestamptz,
  ADD COLUMN deletes_data boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN namespaces.deletion_requested_time IS
  'When DeleteNamespace was accepted. The namespace accepts no requests, and its row is deleted '
  'when it has no other rows. NULL if it is not being deleted.';
COMMENT ON COLUMN namespaces.deletes_data IS
  'True if the namespace is being deleted with its data. Otherwise the deletion is cancelled if '
  'there is a process, a task or a template.';

-- +goose StatementBegin
CREATE FUNCTION is_deleting(namespace text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = progressor, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM namespaces n
     WHERE n.namespace = is_deleting.namespace
       AND n.deletion_requested_time IS NOT NULL)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION is_deleting IS 'Reports whether a namespace is being deleted.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION send_message(
  kind message_kind, namespace text, process_id text, args bytea, metadata jsonb,
  start_time timestamptz, reason text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint;
  wrong text;
BEGIN
  wrong := CASE
    WHEN namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = send_message.namespace)
      THEN format('there is no namespace "%s"', namespace)
    WHEN is_deleting(namespace)
      THEN format('namespace "%s" is being deleted', namespace)
    WHEN process_id IS NULL OR octet_length(process_id) NOT BETWEEN 1 AND 256
      THEN format('process_id has %s bytes, 1 to 256 are allowed',
                  coalesce(octet_length(process_id), 0))
    WHEN starts_with(process_id, '~')
      THEN format('process_id "%s" begins with ~: such ids are the engine''s own', process_id)
    WHEN octet_length(args) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args))
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN start_time < '1970-01-01 00:00:00Z' OR start_time >= '10000-01-01 00:00:00Z'
      THEN format('start_time %s is not between 1970 and 9999', start_time)
    WHEN octet_length(reason) > 4096
      THEN format('reason has %s bytes, at most 4096 are allowed', octet_length(reason))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO messages AS m (namespace, process_id, kind, args, metadata, start_time, reason)
  VALUES (send_message.namespace, send_message.process_id, send_message.kind, send_message.args,
          send_message.metadata, send_message.start_time, send_message.reason)
  RETURNING m.message_id INTO sent;
  PERFORM pg_notify('progressor_messages', '');
  RETURN sent;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION check_sql_message() RETURNS trigger
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  fault text := json_fault(NEW.metadata);
BEGIN
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: metadata %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NEW.job IS NOT NULL THEN
    IF is_deleting(NEW.namespace) THEN
      RAISE EXCEPTION 'progressor: namespace "%" is being deleted', NEW.namespace
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    fault := json_fault(convert_from(NEW.args, 'UTF8')::jsonb);
  END IF;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: args %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION send_message(
  kind message_kind, namespace text, process_id text, args bytea, metadata jsonb,
  start_time timestamptz, reason text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint;
  wrong text;
BEGIN
  wrong := CASE
    WHEN namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = send_message.namespace)
      THEN format('there is no namespace "%s"', namespace)
    WHEN process_id IS NULL OR octet_length(process_id) NOT BETWEEN 1 AND 256
      THEN format('process_id has %s bytes, 1 to 256 are allowed',
                  coalesce(octet_length(process_id), 0))
    WHEN starts_with(process_id, '~')
      THEN format('process_id "%s" begins with ~: such ids are the engine''s own', process_id)
    WHEN octet_length(args) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args))
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN start_time < '1970-01-01 00:00:00Z' OR start_time >= '10000-01-01 00:00:00Z'
      THEN format('start_time %s is not between 1970 and 9999', start_time)
    WHEN octet_length(reason) > 4096
      THEN format('reason has %s bytes, at most 4096 are allowed', octet_length(reason))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO messages AS m (namespace, process_id, kind, args, metadata, start_time, reason)
  VALUES (send_message.namespace, send_message.process_id, send_message.kind, send_message.args,
          send_message.metadata, send_message.start_time, send_message.reason)
  RETURNING m.message_id INTO sent;
  PERFORM pg_notify('progressor_messages', '');
  RETURN sent;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION check_sql_message() RETURNS trigger
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  fault text := json_fault(NEW.metadata);
BEGIN
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: metadata %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NEW.job IS NOT NULL THEN
    fault := json_fault(convert_from(NEW.args, 'UTF8')::jsonb);
  END IF;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: args %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
DROP FUNCTION is_deleting(text);
ALTER TABLE namespaces DROP COLUMN deletion_requested_time, DROP COLUMN deletes_data;
