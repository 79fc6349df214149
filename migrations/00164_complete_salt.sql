-- +goose Up
-- The function complete replaces the salt of the lease, too. Otherwise a worker could guess the new
-- fencing token and send another result for the attempt that it has ended.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION complete(
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
  -- Everything that was sent under the old lease token is rejected.
  new_token := nextval('fencing_tokens');
  UPDATE running r
     SET fencing_token = new_token
   WHERE r.namespace = lease.leased_namespace
     AND r.process_id = lease.leased_process_id
     AND r.fencing_token = lease.leased_fencing_token;
  UPDATE leases l
     SET fencing_token = new_token, salt = uuid_send(gen_random_uuid()), pending_result = pending,
         worker_token = lease.leased_fencing_token
   WHERE l.namespace = lease.leased_namespace
     AND l.process_id = lease.leased_process_id
     AND l.fencing_token = lease.leased_fencing_token;
  -- The commit notifies the nodes.
  PERFORM send_notice('progressor_results');
  RETURN lease.new_last_event_id;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION complete(
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
