-- AdvanceRuns stores results of runs together with the ends of the jobs that the runs wait for. The
-- node has decided such a result before the end of the job was stored, from the state that the run
-- had when it started the job. Without AdvanceRuns, EndSteps adds a NOTIFY task to the run, and
-- another transaction stores the result of the run.
--
-- AdvanceRuns writes the row of tasks that this NOTIFY task would get, under the task ID and the
-- token that StartSteps has reserved. The effects and messages of the result find this row.
-- AdvanceRuns also deletes the rows of parents, so that EndSteps ignores the jobs.
--
-- AdvanceRuns runs after SaveResult and ignores an item if this transaction has not written the end
-- of the job. It also ignores an item, so that EndSteps notifies the run, if the result was decided
-- from another state of the run (old_state), if the run is not locked, is not RUNNING, or has an
-- attempt, a task that can run, a cancel request or messages. A run that completes must have no
-- waiting task, not even a timer, and no parent that awaits the end of the run.
-- name: AdvanceRuns :many
WITH results AS MATERIALIZED (
  SELECT item.*
    FROM (
      SELECT unnest(@ords::int[]) AS ord, unnest(@namespaces::text[]) AS namespace,
             unnest(@process_ids::text[]) AS process_id, unnest(@task_ids::bigint[]) AS task_id,
             unnest(@fencing_tokens::bigint[]) AS fencing_token, unnest(@run_ids::text[]) AS run_id,
             unnest(@run_task_ids::bigint[]) AS run_task_id,
             unnest(@run_tokens::bigint[]) AS run_token, unnest(@old_states::bytea[]) AS old_state,
             unnest(@new_states::bytea[]) AS new_state, unnest(@responses::bytea[]) AS response,
             unnest(@completes::bool[]) AS completes) AS item
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended_job
   CROSS JOIN LATERAL (
     SELECT 1 FROM parents r
      WHERE r.namespace = item.namespace
        AND r.process_id = item.process_id
        AND r.parent_namespace = item.namespace
        AND r.parent_process_id = item.run_id
      LIMIT 1) waiting_run
   CROSS JOIN LATERAL (
     SELECT 1 FROM processes p
      WHERE p.namespace = item.namespace
        AND p.process_id = item.run_id
        AND p.status = 'RUNNING'
        AND p.cancel_deadline IS NULL
        AND p.removed_time IS NULL
        AND p.aux_state = item.old_state
        AND is_locked(p.namespace, p.process_id)
      LIMIT 1) process
    LEFT JOIN LATERAL (
      SELECT r.task_type IS NOT NULL AS found FROM running r
       WHERE r.namespace = item.namespace
         AND r.process_id = item.run_id
       LIMIT 1) attempt ON true
    LEFT JOIN LATERAL (
      SELECT s.task_type IS NOT NULL AS found FROM schedule s
       WHERE s.namespace = item.namespace
         AND s.process_id = item.run_id
         AND (item.completes
              OR s.waits_for IN ('process', 'place')
              OR s.waits_for::text = 'time' AND s.scheduled_time <= statement_timestamp())
       LIMIT 1) waiting ON true
    LEFT JOIN LATERAL (
      SELECT m.kind IS NOT NULL AS found FROM messages m
       WHERE m.namespace = item.namespace
         AND m.process_id = item.run_id
         AND NOT m.held
       LIMIT 1) message ON true
    LEFT JOIN LATERAL (
      SELECT r.parent_process_id IS NOT NULL AS found FROM parents r
       WHERE item.completes
         AND r.namespace = item.namespace
         AND r.process_id = item.run_id
       LIMIT 1) parent ON true
   WHERE attempt.found IS NULL
     AND waiting.found IS NULL
     AND message.found IS NULL
     AND parent.found IS NULL),
updated_processes AS (
  UPDATE processes p
     SET aux_state = coalesce(result.new_state, p.aux_state),
         status = CASE WHEN result.completes THEN 'COMPLETED' ELSE p.status END,
         previous_status = CASE WHEN result.completes THEN p.status ELSE p.previous_status END,
         status_changed_time = CASE
                                 WHEN result.completes THEN statement_timestamp()
                                 ELSE p.status_changed_time
                               END,
         attention = CASE WHEN result.completes THEN 'COMPLETED'::process_status END,
         attention_time = CASE WHEN result.completes THEN statement_timestamp() END,
         detail = CASE WHEN NOT result.completes THEN p.detail END,
         corrupted_by = CASE WHEN NOT result.completes THEN p.corrupted_by END
    FROM (
      SELECT results.namespace, results.run_id, results.new_state, results.completes
        FROM results OFFSET 0) result
   WHERE p.namespace = ANY (ARRAY[result.namespace])
     AND p.process_id = result.run_id),
updated_status_counts AS (
  INSERT INTO status_counts (namespace, status, n)
  SELECT ended.namespace, change.status, ended.n * change.sign
    FROM (
      SELECT results.namespace, count(*) AS n FROM results WHERE results.completes
       GROUP BY results.namespace) ended
   CROSS JOIN (VALUES ('RUNNING'::process_status, -1), ('COMPLETED', 1)) AS change(status, sign)
   ORDER BY ended.namespace, change.status
  ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n),
inserted_tasks AS (
  INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token,
                     scheduled_time, running_time, finished_time, response)
  SELECT namespace, run_id, run_task_id, 'NOTIFY', 'FINISHED', 1, run_token,
         statement_timestamp(), statement_timestamp(), statement_timestamp(), response
    FROM results),
deleted_parents AS (
  DELETE FROM parents r
   USING (SELECT results.namespace, results.process_id FROM results OFFSET 0) ended
   WHERE r.namespace = ANY (ARRAY[ended.namespace])
     AND r.process_id = ended.process_id)
SELECT results.ord::int AS ord, statement_timestamp()::timestamptz AS now
  FROM results;
