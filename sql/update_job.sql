-- UpdateJob changes options and args of a job that has not ended. The changes apply to its waiting
-- task at once. If data that constraints use has changed, the job is evaluated again. If the job
-- waits for a slot, it is evaluated when it is claimed. UpdateJob runs after LockProcesses. Nothing
-- changes if run_time or args are set for a running job or for a group with members, because no
-- waiting task would use them. open is true if the job has not ended.
-- name: UpdateJob :one
WITH input AS MATERIALIZED (
  SELECT p.namespace, p.process_id, p.status, changes.*
    FROM processes p
   CROSS JOIN (
     SELECT @timeout_us::bigint AS timeout_us, @tags::text AS tags, @options::text AS options,
            @sets_metadata::bool AS sets_metadata, @metadata::text AS metadata,
            @sets_priority::bool AS sets_priority, @priority::int AS priority,
            @sets_run_time::bool AS sets_run_time, @run_time::timestamptz AS run_time,
            @sets_args::bool AS sets_args, @args::bytea AS args) changes
   WHERE p.namespace = @namespace::text
     AND p.process_id = @process_id::text
     AND p.removed_time IS NULL
     AND p.kind = 'job'),
checked AS MATERIALIZED (
  SELECT input.*, waiting.job_name, waiting.state,
         CASE
           WHEN waiting.state IS NULL
                OR NOT input.sets_run_time
                OR waiting.waits_for NOT IN ('time', 'place', 'constraint')
             THEN waiting.state
           WHEN input.run_time <= statement_timestamp() THEN 'available'
           WHEN waiting.attempt > 0 THEN 'retryable'
           ELSE 'scheduled'
         END AS new_state
    FROM input
    LEFT JOIN LATERAL (
      SELECT s.job_name, s.waits_for, s.attempt,
             coalesce(s.taker = '~' AND s.attempt > 0, false) AS begun,
             CASE
               WHEN s.waits_for <> 'time' THEN 'available'
               WHEN s.attempt > 0 THEN 'retryable'
               ELSE 'scheduled'
             END AS state
        FROM schedule s
       WHERE s.namespace = input.namespace
         AND s.process_id = input.process_id
         AND s.task_type = 'INIT'
       LIMIT 1) waiting ON true
   WHERE input.status IN ('INIT', 'SUSPENDED')
     AND NOT (
           (input.sets_run_time OR input.sets_args)
           AND coalesce(waiting.begun, true))),
updated_job_counts AS (
  INSERT INTO job_counts (namespace, name, state, n)
  SELECT m.namespace, m.job_name, change.state, sum(change.n)
    FROM checked m
   CROSS JOIN LATERAL (VALUES (m.state, -1), (m.new_state, 1)) AS change(state, n)
   WHERE m.state <> m.new_state
   GROUP BY m.namespace, m.job_name, change.state HAVING sum(change.n) <> 0
   ORDER BY m.namespace, m.job_name, change.state
  ON CONFLICT (namespace, name, lane, state) DO UPDATE SET n = job_counts.n + excluded.n),
inserted_job_events AS (
  INSERT INTO job_events (namespace, job_id, type, from_status, to_status, actor, metadata)
  SELECT checked.namespace, checked.process_id, 'updated',
         CASE WHEN checked.state <> checked.new_state THEN checked.state END,
         CASE WHEN checked.state <> checked.new_state THEN checked.new_state END,
         NULLIF(@actor::text, ''), jsonb_build_object('options', to_jsonb(@fields::text[]))
    FROM checked WHERE @mode::int = 2),
updated_jobs AS (
  UPDATE jobs j
     SET timeout = checked.timeout_us * interval '1 microsecond',
         tags = NULLIF(checked.tags, '')::jsonb, options = NULLIF(checked.options, '')::jsonb,
         updated_time = statement_timestamp(),
         constraints_version = CASE WHEN j.constraints_version IS NOT NULL THEN -1 END
    FROM checked
   WHERE j.namespace = checked.namespace
     AND j.process_id = checked.process_id),
updated_processes AS (
  UPDATE processes p
     SET metadata = NULLIF(checked.metadata, '')::jsonb
    FROM checked
   WHERE checked.sets_metadata
     AND p.namespace = checked.namespace
     AND p.process_id = checked.process_id),
-- A job with a fairness key gets another round if it begins to wait for a slot, or waits for one
-- with another priority. A job that waits to be evaluated gets its round after the evaluation.
updated_schedule AS (
  UPDATE schedule s
     SET priority = CASE WHEN checked.sets_priority THEN checked.priority ELSE s.priority END,
         round = CASE
                   WHEN s.fairness_key IS NULL
                        OR checked.sets_run_time
                           AND (s.line IS NOT NULL OR checked.run_time > statement_timestamp())
                        OR NOT checked.sets_run_time AND s.waits_for <> 'place'
                     THEN 0
                   WHEN s.waits_for = 'place'
                        AND (NOT checked.sets_priority OR checked.priority = s.priority)
                     THEN s.round
                   ELSE next_round(s.namespace, 'place', s.job_name, NULL,
                                   CASE
                                     WHEN checked.sets_priority THEN checked.priority
                                     ELSE s.priority
                                   END,
                                   s.fairness_key)
                 END,
         scheduled_time = CASE
                            WHEN checked.sets_run_time
                              THEN greatest(checked.run_time, statement_timestamp())
                            ELSE s.scheduled_time
                          END,
         waits_for = CASE
                       WHEN checked.sets_run_time AND s.waits_for IN ('time', 'place', 'constraint')
                         THEN CASE
                                WHEN checked.run_time > statement_timestamp() THEN 'time'
                                WHEN s.line IS NOT NULL THEN 'constraint'
                                ELSE 'place'
                              END::waits_for
                       WHEN s.waits_for = 'members' THEN 'place'
                       ELSE s.waits_for
                     END,
         line = CASE WHEN s.line IS NOT NULL THEN '' END,
         args = CASE WHEN checked.sets_args THEN checked.args ELSE s.args END,
         start_deadline = CASE
                            WHEN s.attempt = 0
                              THEN CASE
                                     WHEN checked.sets_run_time
                                       THEN greatest(checked.run_time, statement_timestamp())
                                     ELSE s.scheduled_time
                                   END
                                     + (NULLIF(checked.options, '')::jsonb->>'startDeadline')
                                         ::interval
                          END
    FROM checked
   WHERE s.namespace = checked.namespace
     AND s.process_id = checked.process_id
     AND s.task_type = 'INIT'),
updated_running AS (
  UPDATE running r
     SET priority = checked.priority
    FROM checked
   WHERE checked.sets_priority
     AND r.namespace = checked.namespace
     AND r.process_id = checked.process_id),
-- The change also applies to the open members of a group.
members AS MATERIALIZED (
  SELECT l.namespace, l.process_id, checked.timeout_us, checked.tags, checked.options,
         checked.sets_priority, checked.priority
    FROM checked
    JOIN job_places l
      ON l.namespace = checked.namespace
     AND l.job_id = checked.process_id
   WHERE l.state IS NULL),
updated_member_jobs AS (
  UPDATE jobs j
     SET timeout = members.timeout_us * interval '1 microsecond',
         tags = NULLIF(members.tags, '')::jsonb,
         options = NULLIF(members.options, '')::jsonb - 'workers' - 'unique',
         updated_time = statement_timestamp(),
         constraints_version = CASE WHEN j.constraints_version IS NOT NULL THEN -1 END
    FROM members
   WHERE j.namespace = members.namespace
     AND j.process_id = members.process_id),
updated_member_tasks AS (
  UPDATE schedule s
     SET priority = members.priority
    FROM members
   WHERE members.sets_priority
     AND s.namespace = members.namespace
     AND s.process_id = members.process_id
     AND s.task_type = 'INIT')
SELECT input.status, (input.status IN ('INIT', 'SUSPENDED'))::bool AS open,
       EXISTS (SELECT 1 FROM checked)::bool AS changed
  FROM input;
