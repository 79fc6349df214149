-- +goose Up
-- Checkpoints from SQL: an application whose tables are in this database stores events of a running
-- attempt in the transaction that changes its rows.

-- The process is locked before running is read, with a newer snapshot. An attempt that has ended
-- under that lock is therefore not found. Events are inserted before the process is updated,
-- because the trigger on processes reads them. The salt of the lease token must be that of the
-- lease, because the fencing token alone is not secret. Attempts that a node runs itself have no
-- lease and are not found, because the node would not learn of the checkpoint.
-- +goose StatementBegin
CREATE FUNCTION checkpoint(
  lease_token text, last_event_id bigint, events bytea[], aux_state bytea DEFAULT NULL,
  metadata jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
#variable_conflict use_column
DECLARE
  max_idle CONSTANT text := '5s';
  idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
  token bytea;
  token_namespace text;
  token_process_id text;
  token_fencing_token bigint;
  token_salt bytea;
  wrong text;
  stored bigint;
  run record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'progressor: a checkpoint needs a READ COMMITTED transaction'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- The parts of a lease token are in leaseToken of engine/pull.
  BEGIN
    token := decode(translate(checkpoint.lease_token, '-_', '+/')
                    || repeat('=', -length(checkpoint.lease_token) & 3), 'base64');
    token_namespace := convert_from(substr(token, 2, get_byte(token, 0)), 'UTF8');
    token := substr(token, 2 + get_byte(token, 0));
    token_fencing_token := ('x' || encode(substr(token, 1, 8), 'hex'))::bit(64)::bigint;
    token_salt := substr(token, 9, 16);
    token_process_id := convert_from(substr(token, 25), 'UTF8');
  EXCEPTION WHEN data_exception THEN
    token_process_id := NULL;
  END;
  wrong := CASE
    WHEN coalesce(token_process_id, '') = ''
      THEN 'lease_token must be the lease_token of a lease, unchanged'
    WHEN coalesce(cardinality(checkpoint.events), 0) NOT BETWEEN 1 AND 1000
         OR array_ndims(checkpoint.events) <> 1
      THEN format('events has %s elements, 1 to 1000 in one dimension are allowed',
                  coalesce(cardinality(checkpoint.events), 0))
    WHEN array_position(checkpoint.events, NULL) IS NOT NULL
      THEN 'an element of events is NULL'
    WHEN (SELECT max(octet_length(e)) FROM unnest(checkpoint.events) e) > 1048576
      THEN 'an element of events has more than 1048576 bytes'
    WHEN (SELECT sum(octet_length(e)) FROM unnest(checkpoint.events) e)
         + coalesce(octet_length(checkpoint.aux_state), 0) > 8388608
      THEN 'events and aux_state have more than 8388608 bytes together'
    WHEN octet_length(checkpoint.aux_state) > 1048576
      THEN format('aux_state has %s bytes, at most 1048576 are allowed',
                  octet_length(checkpoint.aux_state))
    WHEN jsonb_typeof(checkpoint.metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(checkpoint.metadata))
    WHEN octet_length(checkpoint.metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed',
                  octet_length(checkpoint.metadata::text))
    ELSE 'metadata ' || json_fault(checkpoint.metadata)
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT p.last_event_id INTO stored
    FROM processes p
   WHERE p.namespace = token_namespace
     AND p.process_id = token_process_id
     FOR UPDATE;
  SELECT r.task_id, r.attempt, r.task_type, p.kind INTO run
    FROM leases l
    JOIN running r
      ON r.namespace = l.namespace
     AND r.process_id = l.process_id
     AND r.fencing_token = l.fencing_token
    JOIN processes p
      ON p.namespace = l.namespace
     AND p.process_id = l.process_id
   WHERE l.namespace = token_namespace
     AND l.process_id = token_process_id
     AND l.fencing_token = token_fencing_token
     AND l.salt = token_salt;
  wrong := CASE
    WHEN run.attempt IS NULL OR is_deleting(token_namespace)
      THEN format('the attempt of this lease of process %s/%s has ended', token_namespace,
                  token_process_id)
    WHEN run.kind <> '' OR run.task_type::text NOT IN ('TIMEOUT', 'CANCEL')
      THEN 'only TIMEOUT and CANCEL tasks of processes that are not jobs can store checkpoints'
    WHEN stored IS DISTINCT FROM checkpoint.last_event_id
      THEN format('last_event_id must be %s, the last event of the process (got %s)', stored,
                  coalesce(checkpoint.last_event_id::text, 'NULL'))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  IF idle = '0' OR idle > max_idle::interval THEN
    PERFORM set_config('idle_in_transaction_session_timeout', max_idle, true);
  END IF;
  INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
  SELECT token_namespace, token_process_id, stored + e.n, run.task_id, run.attempt,
         statement_timestamp(), e.payload
    FROM unnest(checkpoint.events) WITH ORDINALITY AS e(payload, n);
  UPDATE processes p
     SET aux_state = coalesce(checkpoint.aux_state, p.aux_state),
         metadata = coalesce(checkpoint.metadata, p.metadata),
         last_event_id = stored + cardinality(checkpoint.events)
   WHERE p.namespace = token_namespace
     AND p.process_id = token_process_id;
  RETURN stored + cardinality(checkpoint.events);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION checkpoint IS
  'Stores events, state and metadata for the lease of a worker when the transaction commits. Fails '
  'if the attempt has ended. Returns the number of the last event. Locks the process until the end '
  'of the transaction, which may then be idle for at most 5 seconds.';
REVOKE ALL ON FUNCTION checkpoint FROM PUBLIC;

-- +goose Down
DROP FUNCTION checkpoint;
