-- WriteFires writes the fires in results of crons to the ledger. It runs after SaveResult and
-- RemoveProcesses. It ignores an item if this transaction has not written the end of its task: such
-- an item is fenced.
--
-- The values of change are:
--   decide  a new row
--   start   a waiting run starts
--   end     a run ends, or a queued run is withdrawn; only the first end counts
--   refuse  the run could not start; its fire becomes SKIPPED
--   rerun   a fire that has ended gets another run
--
-- The ledger contains each fire once. If a new fire already has a row, the row does not change: it
-- belongs to a deleted cron with the same ID.
-- name: WriteFires :exec
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@cron_ids::text[]), unnest(@fire_times::timestamptz[]),
                    unnest(@changes::text[]), unnest(@decisions::text[]), unnest(@reasons::text[]),
                    unnest(@attempts::int[]), unnest(@statuses::text[]), unnest(@run_ids::text[]),
                    unnest(@details::text[]), unnest(@manuals::bool[]), unnest(@counts::bigint[]))
         AS item(namespace, process_id, task_id, fencing_token, cron_id, fire_time, change,
                 decision, reason, attempt, status, run_id, detail, manual, count)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
     UNION ALL
     SELECT 1 FROM answers a
      WHERE a.namespace = item.namespace
        AND a.process_id = item.process_id
        AND a.task_id = item.task_id
        AND a.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended),
updated_cron_fires AS (
  UPDATE cron_fires f
     SET status = input.status::fire_status,
         decision = CASE WHEN input.change IN ('refuse', 'rerun') THEN input.decision::fire_decision
                         ELSE f.decision
                    END,
         reason = CASE WHEN input.change IN ('refuse', 'rerun') THEN NULLIF(input.reason, '')
                       ELSE f.reason
                  END,
         attempt = CASE input.change WHEN 'end' THEN f.attempt ELSE input.attempt END,
         process_id = CASE input.change
                        WHEN 'end' THEN f.process_id
                        ELSE NULLIF(input.run_id, '')
                      END,
         decided_time = CASE input.change
                          WHEN 'rerun' THEN statement_timestamp()
                          ELSE f.decided_time
                        END,
         started_time = CASE WHEN input.change IN ('start', 'rerun') THEN statement_timestamp()
                             WHEN input.change = 'end' THEN f.started_time
                        END,
         ended_time = CASE WHEN input.change NOT IN ('start', 'rerun') THEN statement_timestamp()
                      END,
         detail = CASE input.change
                    WHEN 'end' THEN NULLIF(input.detail, '')
                    WHEN 'rerun' THEN NULL
                    ELSE f.detail
                  END,
         manual = f.manual OR input.change = 'rerun'
    FROM input
   WHERE input.change IN ('start', 'end', 'refuse', 'rerun')
     AND f.namespace = ANY (ARRAY[input.namespace])
     AND f.cron_id = input.cron_id
     AND f.fire_time = input.fire_time
     AND CASE WHEN input.change = 'rerun' THEN f.ended_time IS NOT NULL
              ELSE f.status = 'SCHEDULED'
                OR input.change IN ('end', 'refuse') AND f.status = 'RUNNING'
         END)
INSERT INTO cron_fires (namespace, cron_id, fire_time, decision, reason, attempt, status,
                        process_id, decided_time, started_time, ended_time, detail, manual, count)
SELECT namespace, cron_id, fire_time, decision::fire_decision, NULLIF(reason, ''), attempt,
       status::fire_status, NULLIF(run_id, ''), statement_timestamp(),
       CASE WHEN attempt > 0 THEN statement_timestamp() END,
       CASE WHEN status NOT IN ('SCHEDULED', 'RUNNING') THEN statement_timestamp() END,
       NULLIF(detail, ''), manual, count
  FROM input WHERE change = 'decide'
ON CONFLICT DO NOTHING;

-- ListFires lists the ledger of a cron before a time, newest first. It omits rows that are older
-- than since: they belong to a deleted cron with the same ID.
-- name: ListFires :many
SELECT f.fire_time, f.decision::text AS decision, coalesce(f.reason, '')::text AS reason, f.attempt,
       f.status::text AS status, coalesce(f.process_id, '')::text AS process_id, f.decided_time,
       f.started_time, f.ended_time, coalesce(f.detail, '')::text AS detail, f.manual, f.count
  FROM cron_fires f
 WHERE f.namespace = @namespace
   AND f.cron_id = @cron_id
   AND f.fire_time < @before::timestamptz
   AND f.decided_time >= @since::timestamptz
 ORDER BY f.namespace, f.cron_id, f.fire_time DESC LIMIT @lim::int;

-- GetFire returns one row of the ledger.
-- name: GetFire :one
SELECT f.fire_time, f.decision::text AS decision, coalesce(f.reason, '')::text AS reason, f.attempt,
       f.status::text AS status, coalesce(f.process_id, '')::text AS process_id, f.decided_time,
       f.started_time, f.ended_time, coalesce(f.detail, '')::text AS detail, f.manual, f.count
  FROM cron_fires f
 WHERE f.namespace = @namespace
   AND f.cron_id = @cron_id
   AND f.fire_time = @fire_time;

-- ListFireTimes lists the fire times in a range that have rows, so that they are not decided twice.
-- name: ListFireTimes :many
SELECT f.fire_time FROM cron_fires f
 WHERE f.namespace = @namespace
   AND f.cron_id = @cron_id
   AND f.fire_time >= @from_time::timestamptz
   AND f.fire_time < @to_time::timestamptz
 ORDER BY f.fire_time;

-- DeleteFires deletes the rows of the ledger of a cron that were decided before a time, lim at a
-- time.
-- name: DeleteFires :execrows
DELETE FROM cron_fires d
 USING (
   SELECT f.namespace, f.cron_id, f.fire_time
     FROM cron_fires f
    WHERE f.namespace = @namespace
      AND f.cron_id = @cron_id
      AND f.decided_time < @before::timestamptz
    LIMIT @lim::int) decided
 WHERE d.namespace = decided.namespace
   AND d.cron_id = decided.cron_id
   AND d.fire_time = decided.fire_time;

-- ForgetFires deletes rows of the ledger after their retention, lim at a time. It keeps the rows of
-- runs that wait or run.
-- name: ForgetFires :execrows
DELETE FROM cron_fires d
 USING (
   SELECT f.namespace, f.cron_id, f.fire_time
     FROM cron_fires f
    WHERE f.decided_time
            < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
      AND f.ended_time IS NOT NULL
    LIMIT @lim::int) decided
 WHERE d.namespace = decided.namespace
   AND d.cron_id = decided.cron_id
   AND d.fire_time = decided.fire_time;

-- ForgetCronTasks deletes the tasks of crons after their retention, oldest first, at most lim of
-- each cron. Without it, the tasks of a cron would accumulate, because each fire adds some. It
-- returns the number of deleted tasks.
-- name: ForgetCronTasks :execrows
WITH old_tasks AS MATERIALIZED (
  SELECT old_task.namespace, old_task.process_id, old_task.task_id
    FROM namespaces n
    JOIN processes p
      ON p.namespace = n.namespace
     AND p.process_id >= '~cron/'
     AND p.process_id < '~cron0'
   CROSS JOIN LATERAL (
     SELECT x.namespace, x.process_id, x.task_id, x.finished_time
       FROM tasks x
      WHERE x.namespace = p.namespace
        AND x.process_id = p.process_id
      ORDER BY x.namespace, x.process_id, x.task_id LIMIT @lim::int) old_task
   WHERE old_task.finished_time
           < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'),
deleted_attempts AS (
  DELETE FROM failed_attempts f USING old_tasks o
   WHERE f.namespace = o.namespace
     AND f.process_id = o.process_id
     AND f.task_id = o.task_id)
DELETE FROM tasks t USING old_tasks o
 WHERE t.namespace = o.namespace
   AND t.process_id = o.process_id
   AND t.task_id = o.task_id;
