-- +goose Up
-- An application ends the running attempt of its worker in the transaction that changes its rows.
-- The function complete stores the events, state and metadata, and leaves the result of the attempt
-- in the lease. A node then ends the attempt with this result, as if the worker had sent it.
-- Engines before this version would ignore the result, and end the attempt when its lease expires.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 159::bigint';

ALTER TABLE leases ADD COLUMN pending_result jsonb;
COMMENT ON COLUMN leases.pending_result IS
  'Result that the worker has stored with the function complete, as JSON of the message Result of '
  'the API. A node ends the attempt with it. NULL while the worker runs the task.';
ALTER TABLE leases ADD COLUMN worker_token bigint;
COMMENT ON COLUMN leases.worker_token IS
  'Fencing token that the worker got with the task. NULL unless the function complete has replaced '
  'it.';

-- The process is locked before running is read, with a newer snapshot. An attempt that has ended
-- under that lock is therefore not found. Events are inserted before the process is updated,
-- because the trigger on processes reads them. The salt of the lease token must be that of the
-- lease, because the fencing token alone is not secret. Attempts that a node runs itself have no
-- lease and are not found, because the node would not learn of the events.
-- +goose StatementBegin
CREATE FUNCTION store_for_lease(
  lease_token text, last_event_id bigint, events bytea[], aux_state bytea, metadata jsonb,
  min_events int, OUT leased_namespace text, OUT leased_process_id text,
  OUT leased_fencing_token bigint, OUT leased_task_type task_type, OUT new_last_event_id bigint)
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
#variable_conflict use_column
DECLARE
  max_idle CONSTANT text := '5s';
  idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
  token bytea;
  token_salt bytea;
  event_count int := coalesce(cardinality(store_for_lease.events), 0);
  wrong text;
  stored bigint;
  leased record;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'progressor: the transaction must be READ COMMITTED'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- The parts of a lease token are in leaseToken of engine/pull.
  BEGIN
    token := decode(translate(store_for_lease.lease_token, '-_', '+/')
                    || repeat('=', -length(store_for_lease.lease_token) & 3), 'base64');
    leased_namespace := convert_from(substr(token, 2, get_byte(token, 0)), 'UTF8');
    token := substr(token, 2 + get_byte(token, 0));
    leased_fencing_token := ('x' || encode(substr(token, 1, 8), 'hex'))::bit(64)::bigint;
    token_salt := substr(token, 9, 16);
    leased_process_id := convert_from(substr(token, 25), 'UTF8');
  EXCEPTION WHEN data_exception THEN
    leased_process_id := NULL;
  END;
  wrong := CASE
    WHEN coalesce(leased_process_id, '') = ''
      THEN 'lease_token must be the lease_token of a lease, unchanged'
    WHEN event_count NOT BETWEEN store_for_lease.min_events AND 1000
         OR array_ndims(store_for_lease.events) <> 1
      THEN format('events has %s elements, %s to 1000 in one dimension are allowed', event_count,
                  store_for_lease.min_events)
    WHEN array_position(store_for_lease.events, NULL) IS NOT NULL
      THEN 'an element of events is NULL'
    WHEN (SELECT max(octet_length(e)) FROM unnest(store_for_lease.events) e) > 1048576
      THEN 'an element of events has more than 1048576 bytes'
    WHEN (SELECT coalesce(sum(octet_length(e)), 0) FROM unnest(store_for_lease.events) e)
         + coalesce(octet_length(store_for_lease.aux_state), 0) > 8388608
      THEN 'events and aux_state have more than 8388608 bytes together'
    WHEN octet_length(store_for_lease.aux_state) > 1048576
      THEN format('aux_state has %s bytes, at most 1048576 are allowed',
                  octet_length(store_for_lease.aux_state))
    WHEN jsonb_typeof(store_for_lease.metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(store_for_lease.metadata))
    WHEN octet_length(store_for_lease.metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed',
                  octet_length(store_for_lease.metadata::text))
    ELSE 'metadata ' || json_fault(store_for_lease.metadata)
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT p.last_event_id INTO stored
    FROM processes p
   WHERE p.namespace = leased_namespace
     AND p.process_id = leased_process_id
     FOR UPDATE;
  SELECT attempt.task_id, attempt.attempt, attempt.task_type, process.kind INTO leased
    FROM leases lease
    JOIN running attempt
      ON attempt.namespace = lease.namespace
     AND attempt.process_id = lease.process_id
     AND attempt.fencing_token = lease.fencing_token
    JOIN processes process
      ON process.namespace = lease.namespace
     AND process.process_id = lease.process_id
   WHERE lease.namespace = leased_namespace
     AND lease.process_id = leased_process_id
     AND lease.fencing_token = leased_fencing_token
     AND lease.salt = token_salt;
  wrong := CASE
    WHEN leased.attempt IS NULL OR is_deleting(leased_namespace)
      THEN format('the attempt of this lease of process %s/%s has ended', leased_namespace,
                  leased_process_id)
    WHEN leased.kind <> '' OR leased.task_type::text NOT IN ('TIMEOUT', 'CANCEL')
      THEN 'only TIMEOUT and CANCEL tasks of processes that are not jobs can use this function'
    WHEN stored IS DISTINCT FROM store_for_lease.last_event_id
      THEN format('last_event_id must be %s, the last event of the process (got %s)', stored,
                  coalesce(store_for_lease.last_event_id::text, 'NULL'))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  IF idle = '0' OR idle > max_idle::interval THEN
    PERFORM set_config('idle_in_transaction_session_timeout', max_idle, true);
  END IF;
  INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
  SELECT leased_namespace, leased_process_id, stored + e.n, leased.task_id, leased.attempt,
         statement_timestamp(), e.payload
    FROM unnest(store_for_lease.events) WITH ORDINALITY AS e(payload, n);
  leased_task_type := leased.task_type;
  new_last_event_id := stored + event_count;
  UPDATE processes p
     SET aux_state = coalesce(store_for_lease.aux_state, p.aux_state),
         metadata = coalesce(store_for_lease.metadata, p.metadata),
         last_event_id = new_last_event_id
   WHERE p.namespace = leased_namespace
     AND p.process_id = leased_process_id;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION store_for_lease IS
  'Stores events, state and metadata for the lease of a worker, and returns whose lease it is. '
  'Only the functions checkpoint and complete call it.';
REVOKE ALL ON FUNCTION store_for_lease FROM PUBLIC;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION checkpoint(
  lease_token text, last_event_id bigint, events bytea[], aux_state bytea DEFAULT NULL,
  metadata jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  SELECT new_last_event_id FROM store_for_lease($1, $2, $3, $4, $5, 1)
$$;
-- +goose StatementEnd

-- The attempt gets a new fencing token. Everything that was sent under the old token is rejected,
-- as after the end of an attempt: a result, a heartbeat or another complete. The named timers of
-- the process are counted here, because the node could not store one timer too many.
-- +goose StatementBegin
CREATE FUNCTION complete(
  lease_token text, last_event_id bigint, events bytea[] DEFAULT '{}',
  aux_state bytea DEFAULT NULL, metadata jsonb DEFAULT NULL, outcome text DEFAULT 'complete',
  timer_after interval DEFAULT NULL, timer_name text DEFAULT '')
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
#variable_conflict use_column
DECLARE
  wrong text;
  timer jsonb;
  pending jsonb;
  timers bigint;
  new_token bigint;
  lease record;
BEGIN
  wrong := CASE
    WHEN (complete.outcome IN ('complete', 'timer', 'wait')) IS NOT TRUE
      THEN format('outcome must be complete, timer or wait (got %s)',
                  coalesce(complete.outcome, 'NULL'))
    WHEN complete.outcome = 'timer' AND complete.timer_after IS NULL
      THEN 'timer_after must be set for the outcome timer'
    WHEN complete.outcome <> 'timer'
         AND (complete.timer_after IS NOT NULL OR complete.timer_name <> '')
      THEN format('timer_after and timer_name need the outcome timer (got %s)', complete.outcome)
    WHEN extract(epoch FROM complete.timer_after) > 3153600000
      THEN format('timer_after must be at most 36500 days (got %s)', complete.timer_after)
    WHEN octet_length(complete.timer_name) > 256
      THEN format('timer_name has %s bytes, at most 256 are allowed',
                  octet_length(complete.timer_name))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT * INTO lease
    FROM store_for_lease(complete.lease_token, complete.last_event_id, complete.events,
                         complete.aux_state, complete.metadata, 0);
  IF complete.timer_name <> '' THEN
    SELECT count(*) INTO timers
      FROM schedule s
     WHERE s.namespace = lease.leased_namespace
       AND s.process_id = lease.leased_process_id
       AND s.timer_name <> complete.timer_name;
  END IF;
  wrong := CASE
    WHEN lease.leased_task_type = 'CANCEL' AND complete.outcome <> 'complete'
      THEN format('the outcome of a CANCEL task must be complete (got %s)', complete.outcome)
    WHEN timers >= 100
      THEN format('timer_name: %s other timers are pending, at most 99 are allowed', timers)
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  timer := jsonb_strip_nulls(jsonb_build_object(
    'name', NULLIF(complete.timer_name, ''),
    'at', to_char((statement_timestamp() + greatest(complete.timer_after, interval '0'))
                  AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')));
  pending := CASE
    WHEN complete.outcome = 'complete' THEN jsonb_build_object('complete', '{}'::jsonb)
    WHEN complete.outcome = 'wait' THEN '{}'
    WHEN timer ? 'name' THEN jsonb_build_object('namedTimers', jsonb_build_array(timer))
    ELSE jsonb_build_object('setTimer', timer)
  END;
  new_token := nextval('fencing_tokens');
  UPDATE running r
     SET fencing_token = new_token
   WHERE r.namespace = lease.leased_namespace
     AND r.process_id = lease.leased_process_id
     AND r.fencing_token = lease.leased_fencing_token;
  UPDATE leases l
     SET fencing_token = new_token, pending_result = pending,
         worker_token = lease.leased_fencing_token
   WHERE l.namespace = lease.leased_namespace
     AND l.process_id = lease.leased_process_id
     AND l.fencing_token = lease.leased_fencing_token;
  PERFORM send_notice('progressor_results');
  RETURN lease.new_last_event_id;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION complete IS
  'Ends the attempt of the lease of a worker when the transaction commits, like the method '
  'Complete of the API. Stores events, state and metadata at once. A node then ends the process, '
  'sets a timer or lets the process wait. Fails if the attempt has ended. Returns the number of '
  'the last event. Locks the process until the end of the transaction, which may then be idle for '
  'at most 5 seconds.';
REVOKE ALL ON FUNCTION complete FROM PUBLIC;

-- +goose Down
DROP FUNCTION complete;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION checkpoint(
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
DROP FUNCTION store_for_lease;
ALTER TABLE leases DROP COLUMN worker_token;
ALTER TABLE leases DROP COLUMN pending_result;
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 156::bigint';
