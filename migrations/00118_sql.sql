-- +goose Up
-- Functions and views for applications and people. Their names, arguments and columns do not change
-- when tables change.
-- +goose StatementBegin
CREATE FUNCTION send_message(
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
  PERFORM send_notice('progressor_messages');
  RETURN sent;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION send_message IS
  'Checks a message and stores it. Only the functions start, notify and cancel call it.';
REVOKE ALL ON FUNCTION send_message FROM PUBLIC;

-- +goose StatementBegin
CREATE FUNCTION cancel(namespace text, process_id text, reason text DEFAULT NULL) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  SELECT send_message('cancel', $1, $2, NULL, NULL, NULL, $3)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cancel IS
  'Asks a process to end when the transaction commits. Returns the number of the message.';
REVOKE ALL ON FUNCTION cancel FROM PUBLIC;

-- +goose StatementBegin
CREATE FUNCTION json_fault(value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = progressor, pg_temp AS $$
  SELECT CASE
    WHEN jsonb_path_exists(
           value, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")')
      THEN 'is nested deeper than 100 objects and lists'
    WHEN jsonb_path_exists(
           value, 'strict $.** ? (@.type() == "number" '
                  '&& (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'has a number beyond 2^53, which would lose digits: write it as a string'
  END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION json_fault IS
  'Returns why a JSON value is not allowed as metadata or as args of a job. NULL if it is '
  'allowed.';

-- +goose StatementBegin
CREATE FUNCTION check_sql_message() RETURNS trigger
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
COMMENT ON FUNCTION check_sql_message IS
  'Trigger function of messages. It checks the metadata, and the args of a job, of messages that '
  'SQL functions send.';

-- +goose StatementBegin
CREATE FUNCTION enqueue(
    namespace text, name text, args jsonb DEFAULT NULL, job_id text DEFAULT NULL,
    run_time timestamptz DEFAULT NULL, priority integer DEFAULT 0, max_retry integer DEFAULT 0,
    backoff interval[] DEFAULT NULL, timeout interval DEFAULT '00:00:30',
    keep_result boolean DEFAULT false, result_ttl interval DEFAULT NULL,
    max_takeovers integer DEFAULT NULL, cancel_grace interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, unique_key text DEFAULT NULL,
    unique_ttl interval DEFAULT NULL, start_deadline interval DEFAULT NULL)
  RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $body$
DECLARE
  id text := enqueue.job_id;
  wrong text;
  options jsonb;
BEGIN
  IF id IS NULL THEN
    -- A UUID of version 7, as the engine generates: ids of about the same time are neighbors in the
    -- index.
    id := encode(
      set_bit(
        set_bit(
          overlay(uuid_send(gen_random_uuid()) PLACING substring(
            int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
          52, 1),
        53, 1),
      'hex')::uuid::text;
  END IF;
  wrong := CASE
    WHEN enqueue.namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = enqueue.namespace)
      THEN format('there is no namespace "%s"', enqueue.namespace)
    WHEN octet_length(id) NOT BETWEEN 1 AND 256
      THEN format('job_id has %s bytes, 1 to 256 are allowed', octet_length(id))
    WHEN starts_with(id, '~')
      THEN format('job_id "%s" begins with ~: such ids are the engine''s own', id)
    WHEN name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 256
      THEN format('name has %s bytes, 1 to 256 are allowed', coalesce(octet_length(name), 0))
    WHEN octet_length(args::text) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args::text))
    WHEN jsonb_path_exists(
           args, '$.** ? (@.type() == "number" && (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'args has a number beyond 2^53, which would lose digits: write it as a string'
    WHEN run_time < '1970-01-01 00:00:00Z' OR run_time >= '10000-01-01 00:00:00Z'
      THEN format('run_time %s is not between 1970 and 9999', run_time)
    WHEN max_retry < 0 THEN 'max_retry is negative'
    WHEN max_takeovers < 0 THEN 'max_takeovers is negative'
    WHEN timeout = '0' THEN 'timeout is 0: want a positive one, such as 30 seconds'
    WHEN timeout IS NULL OR timeout < '0' OR timeout > '365 days'
      THEN 'timeout is not between 0 and 365 days'
    WHEN start_deadline <= '0' OR start_deadline > '100 years'
      THEN 'start_deadline is not positive and at most 100 years'
    WHEN EXISTS (SELECT FROM unnest(ARRAY[result_ttl, cancel_grace, unique_ttl] || backoff) i
                  WHERE i < '0' OR i > '100 years')
         OR array_position(backoff, NULL) IS NOT NULL
      THEN 'an interval of result_ttl, cancel_grace, unique_ttl or backoff is not between 0 and '
           '100 years'
    WHEN cardinality(backoff) > 1000
      THEN format('backoff has %s steps, at most 1000 are allowed', cardinality(backoff))
    WHEN cardinality(tags) > 100
      THEN format('tags has %s, at most 100 are allowed', cardinality(tags))
    WHEN EXISTS (SELECT FROM unnest(tags) t
                  WHERE t IS NULL OR octet_length(t) NOT BETWEEN 1 AND 256)
      THEN 'a tag has no 1 to 256 bytes'
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN octet_length(unique_key) NOT BETWEEN 1 AND 256
      THEN format('unique_key has %s bytes, 1 to 256 are allowed', octet_length(unique_key))
    WHEN unique_ttl IS NOT NULL AND unique_key IS NULL THEN 'unique_ttl needs a unique_key'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The options are stored as JSON of the API's message JobOptions, without defaults.
  options := jsonb_strip_nulls(jsonb_build_object(
    'maxRetry', NULLIF(max_retry, 0),
    'maxTakeovers', max_takeovers,
    'keepResult', NULLIF(keep_result, false),
    'resultTtl', extract(epoch FROM result_ttl)::numeric(20, 6) || 's',
    'cancelGrace', extract(epoch FROM cancel_grace)::numeric(20, 6) || 's',
    'startDeadline', extract(epoch FROM start_deadline)::numeric(20, 6) || 's',
    'backoff', CASE
      WHEN cardinality(backoff) > 0 THEN jsonb_build_object('steps', (
        SELECT jsonb_agg(extract(epoch FROM i)::numeric(20, 6) || 's' ORDER BY n)
          FROM unnest(backoff) WITH ORDINALITY AS x(i, n)))
    END,
    'unique', CASE
      WHEN unique_key IS NOT NULL THEN jsonb_build_object(
        'key', unique_key, 'ttl', extract(epoch FROM unique_ttl)::numeric(20, 6) || 's')
    END));
  INSERT INTO messages (namespace, process_id, kind, args, metadata, start_time, job)
  VALUES (enqueue.namespace, id, 'start', convert_to(args::text, 'UTF8'), enqueue.metadata,
          enqueue.run_time, jsonb_strip_nulls(jsonb_build_object(
            'name', name,
            'priority', coalesce(priority, 0),
            'timeoutUs', (extract(epoch FROM timeout) * 1000000)::bigint,
            'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END,
            'options', NULLIF(options, '{}'),
            'uniqueKey', unique_key,
            'uniqueTtlUs', (extract(epoch FROM unique_ttl) * 1000000)::bigint)));
  PERFORM send_notice('progressor_messages');
  RETURN id;
END $body$;
-- +goose StatementEnd
COMMENT ON FUNCTION enqueue IS
  'Enqueues a job when the transaction commits. Nothing happens if its ID exists or another job '
  'has its unique_key. Returns the ID of the job.';
REVOKE ALL ON FUNCTION enqueue FROM PUBLIC;

-- +goose StatementBegin
CREATE FUNCTION notify(namespace text, process_id text, args bytea DEFAULT NULL) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  SELECT send_message('notify', $1, $2, $3, NULL, NULL, NULL)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION notify IS
  'Sends a NOTIFY task to a process when the transaction commits. Returns the number of the '
  'message.';
REVOKE ALL ON FUNCTION notify FROM PUBLIC;

-- +goose StatementBegin
CREATE FUNCTION start(
  namespace text, process_id text, args bytea DEFAULT NULL, metadata jsonb DEFAULT NULL,
  start_time timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  SELECT send_message('start', $1, $2, $3, $4, $5, NULL)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION start IS
  'Starts a process when the transaction commits. An existing process is not changed. Returns the '
  'number of the message.';
REVOKE ALL ON FUNCTION start FROM PUBLIC;

CREATE TRIGGER check_sql_message BEFORE INSERT ON messages
  FOR EACH ROW
  WHEN (NEW.sender_process_id IS NULL AND (NEW.metadata IS NOT NULL OR NEW.job IS NOT NULL))
  EXECUTE FUNCTION check_sql_message();

CREATE VIEW lag_list AS
SELECT n.namespace, n.paused, statement_timestamp() - c.since AS place_age,
       statement_timestamp() - t.since AS timer_age, m.since AS message_age
  FROM namespaces n
 CROSS JOIN LATERAL (
   SELECT min(q.scheduled_time) AS since
     FROM (
       SELECT s.scheduled_time FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = n.namespace
          AND s.waits_for = 'place'
        ORDER BY s.priority, s.round, s.task_id LIMIT 1000) q) c
 CROSS JOIN LATERAL (
   SELECT min(s.scheduled_time) AS since FROM schedule s
    WHERE s.namespace COLLATE "POSIX" = n.namespace
      AND s.waits_for = 'time'
      AND s.scheduled_time <= statement_timestamp()) t
 CROSS JOIN LATERAL (
   SELECT statement_timestamp() - min(q.created_time) AS since
     FROM (
       SELECT g.created_time FROM messages g
        WHERE g.namespace = n.namespace
          AND g.held IS NOT TRUE
        ORDER BY g.namespace, g.process_id, g.message_id LIMIT 1000) q) m;
COMMENT ON VIEW lag_list IS 'Backlog of each namespace. All ages are NULL if it has none.';
COMMENT ON COLUMN lag_list.namespace IS 'Name of the namespace.';
COMMENT ON COLUMN lag_list.paused IS
  'True if no tasks of the namespace start. Running tasks continue, and requests are stored and '
  'wait.';
COMMENT ON COLUMN lag_list.place_age IS
  'Time since the oldest of the next 1,000 tasks that wait for a slot was due or accepted. NULL '
  'if none waits.';
COMMENT ON COLUMN lag_list.timer_age IS
  'How late the most overdue timer, retry or delayed start is. NULL if none is due.';
COMMENT ON COLUMN lag_list.message_age IS
  'Age of the oldest of the next 1,000 messages that can be delivered. NULL if there are none.';

CREATE VIEW process_list AS
SELECT p.namespace, p.process_id, p.status,
       statement_timestamp() - p.status_changed_time AS status_age, p.detail, p.created_time,
       p.last_event_id, r.task_id AS running_task, r.task_type AS running_type, w.waiting,
       t.next_timer, p.metadata
  FROM processes p
  LEFT JOIN running r
    ON r.namespace = p.namespace
   AND r.process_id = p.process_id
 CROSS JOIN LATERAL (
   SELECT count(*) AS waiting FROM schedule s
    WHERE s.namespace = p.namespace
      AND s.process_id = p.process_id
      AND s.timer_name IS NULL) w
 CROSS JOIN LATERAL (
   SELECT min(s.scheduled_time) AS next_timer FROM schedule s
    WHERE s.namespace = p.namespace
      AND s.process_id = p.process_id
      AND s.timer_name IS NOT NULL) t
 WHERE p.removed_time IS NULL;
COMMENT ON VIEW process_list IS
  'Processes, each with its running and waiting tasks. Use a namespace in WHERE, or LIMIT, '
  'because waiting tasks are counted for each row.';
COMMENT ON COLUMN process_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN process_list.process_id IS 'ID of the process.';
COMMENT ON COLUMN process_list.status IS
  'Status of the process: INIT, RUNNING, ERROR, SUSPENDED, COMPLETED or CANCELLED. A FAILED job '
  'is in ERROR.';
COMMENT ON COLUMN process_list.status_age IS 'Time since the status last changed.';
COMMENT ON COLUMN process_list.detail IS
  'Why the process is in ERROR, such as the message of the first failure, or why an operator '
  'suspended it. NULL if there is no reason.';
COMMENT ON COLUMN process_list.created_time IS 'When the process was started or imported.';
COMMENT ON COLUMN process_list.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, also after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN process_list.running_task IS
  'Number of the running task. NULL if none is running.';
COMMENT ON COLUMN process_list.running_type IS 'Type of the running task. NULL if none is running.';
COMMENT ON COLUMN process_list.waiting IS 'Number of waiting tasks of the process, without timers.';
COMMENT ON COLUMN process_list.next_timer IS
  'When the next timer of the process is due. NULL if it has none.';
COMMENT ON COLUMN process_list.metadata IS
  'Searchable attributes of the process, a JSON object, set by the start and replaced by the '
  'processor. NULL if there are none.';

CREATE VIEW timer_list AS
SELECT s.namespace, s.process_id, s.task_id, s.timer_name, s.scheduled_time,
       s.scheduled_time - statement_timestamp() AS due_in, s.task_type = 'REMOVE' AS removes,
       s.attempt, s.waits_for
  FROM schedule s WHERE s.timer_name IS NOT NULL;
COMMENT ON VIEW timer_list IS 'Timers that are set.';
COMMENT ON COLUMN timer_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN timer_list.process_id IS 'ID of the process.';
COMMENT ON COLUMN timer_list.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN timer_list.timer_name IS 'Name of the timer, empty for the default timer.';
COMMENT ON COLUMN timer_list.scheduled_time IS 'When the timer is due.';
COMMENT ON COLUMN timer_list.due_in IS 'Time until the timer is due. Negative if it is late.';
COMMENT ON COLUMN timer_list.removes IS 'True if the timer removes its process.';
COMMENT ON COLUMN timer_list.attempt IS
  'Number of past attempts. It is more than 0 if the timer has failed and is retried.';
COMMENT ON COLUMN timer_list.waits_for IS
  'time, or what the timer waits for since it was due: see the type waits_for. With waits_for = '
  '''time'' in WHERE, the next timers of a namespace are read by an index.';

CREATE VIEW waiting_list AS
SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.waits_for,
       CASE s.waits_for
         WHEN 'time'
           THEN CASE
                  WHEN s.attempt > 0
                    THEN format('attempt %s, after: %s', s.attempt + 1,
                                coalesce(s.failure->>'message', s.failure->>'reason', ''))
                  WHEN s.timer_name IS NOT NULL THEN trim('timer ' || s.timer_name)
                  ELSE 'its start time'
                END
         WHEN 'process'
           THEN CASE
                  WHEN r.task_id IS NOT NULL THEN format('%s %s runs', r.task_type, r.task_id)
                  ELSE 'what waits before it'
                END
         WHEN 'place'
           THEN CASE
                  WHEN n.paused THEN 'the namespace is paused'
                  WHEN NOT coalesce(n.config -> 'processor' ? 'pull', false) OR s.taker = '~'
                    THEN 'a node with a free place'
                  WHEN s.job_name IS NOT NULL THEN format('a worker for jobs named %s', s.job_name)
                  WHEN s.process_id LIKE '~%' THEN 'a node with a free place'
                  ELSE 'a worker'
                END
         WHEN 'operator' THEN 'the process is suspended'
         ELSE s.waits_for::text
       END AS reason,
       s.scheduled_time, s.priority
  FROM schedule s
  LEFT JOIN running r
    ON r.namespace = s.namespace
   AND r.process_id = s.process_id
  LEFT JOIN namespaces n ON n.namespace = s.namespace;
COMMENT ON VIEW waiting_list IS 'Waiting tasks, and what each of them waits for.';
COMMENT ON COLUMN waiting_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN waiting_list.process_id IS 'ID of the process.';
COMMENT ON COLUMN waiting_list.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN waiting_list.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN waiting_list.waits_for IS
  'What the task waits for: time, place (a slot), process, operator, constraint or members. See '
  'the type waits_for.';
COMMENT ON COLUMN waiting_list.reason IS
  'What the task waits for, in words, such as the task before it or the failure after which it is '
  'retried.';
COMMENT ON COLUMN waiting_list.scheduled_time IS
  'When the task is due. For a call that waits, when it was accepted.';
COMMENT ON COLUMN waiting_list.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. A task that '
  'waits for a slot has the smallest priority of the waiting tasks of its process.';

CREATE VIEW zombie_list AS
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id,
       statement_timestamp() - r.running_time AS runs_for,
       statement_timestamp() - n.beat_time AS beat_age, r.deadline, l.worker_id,
       l.expires_time AS lease_expires_time
  FROM running r
  LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
 WHERE r.deadline < statement_timestamp()
    OR CASE
         WHEN l.worker_id IS NOT NULL THEN l.expires_time < statement_timestamp()
         ELSE n.node_id IS NULL OR n.beat_time < statement_timestamp() - interval '10 seconds'
       END;
COMMENT ON VIEW zombie_list IS
  'Tasks that should no longer run: their node is gone or has sent no heartbeat for 10 seconds, '
  'their worker has lost its lease, or their deadline has passed. If a row stays, no engine '
  'collects it.';
COMMENT ON COLUMN zombie_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN zombie_list.process_id IS
  'ID of the process, which cannot continue until the task is collected.';
COMMENT ON COLUMN zombie_list.task_id IS
  'Number of the task. The tasks of a process are numbered in the order in which it accepted '
  'them.';
COMMENT ON COLUMN zombie_list.task_type IS
  'Type of the task: INIT, CALL, NOTIFY, REPAIR, CANCEL, TIMEOUT or REMOVE.';
COMMENT ON COLUMN zombie_list.attempt IS 'Number of the running attempt, from 1.';
COMMENT ON COLUMN zombie_list.node_id IS
  'ID of the node that ran the task, or leased it to a worker.';
COMMENT ON COLUMN zombie_list.runs_for IS 'Time since the attempt began.';
COMMENT ON COLUMN zombie_list.beat_age IS
  'Time since the last heartbeat of the node. NULL if the node no longer exists.';
COMMENT ON COLUMN zombie_list.deadline IS 'End of the timeout of the attempt.';
COMMENT ON COLUMN zombie_list.worker_id IS
  'ID of the worker that has, or had, the lease. NULL if the node ran the task.';
COMMENT ON COLUMN zombie_list.lease_expires_time IS
  'When the lease of the worker expires or expired. NULL if the node ran the task.';
