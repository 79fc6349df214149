-- CountInvariantRows returns the number of rows that invariants of FindViolations,
-- FindKindViolations and FindChangeViolations check. An invariant without rows has checked nothing.
-- name: CountInvariantRows :many
WITH waiting AS MATERIALIZED (
  SELECT task_type, waits_for, attempt, timer_name, start_deadline FROM schedule),
attempts AS MATERIALIZED (
  SELECT 1 FROM running),
kept_processes AS MATERIALIZED (
  SELECT status, last_event_id, cancel_deadline FROM processes WHERE removed_time IS NULL),
ended AS MATERIALIZED (
  SELECT count(*) AS n, count(*) FILTER (WHERE status <> 'CANCELLED') AS ran FROM tasks)
SELECT counts.invariant::text AS invariant, counts.n::bigint AS n
  FROM (
    SELECT 'task_in_one_place' AS invariant,
           (SELECT n FROM ended) + (SELECT count(*) FROM waiting)
             + (SELECT count(*) FROM attempts) AS n
    UNION ALL
    SELECT 'no_orphans',
           (SELECT n FROM ended) + (SELECT count(*) FROM waiting) + (SELECT count(*) FROM attempts)
             + (SELECT count(*) FROM events) + (SELECT count(*) FROM failed_attempts)
    UNION ALL
    SELECT 'running_fits_status',
           (SELECT count(*) FROM attempts)
    UNION ALL
    SELECT 'numbers_are_new',
           (SELECT count(*) FROM attempts)
    UNION ALL
    SELECT 'one_next_task',
           (SELECT count(*) FROM waiting WHERE waits_for = 'place')
    UNION ALL
    SELECT 'priority_is_smallest',
           (SELECT count(*) FROM waiting WHERE waits_for = 'place')
    UNION ALL
    SELECT 'next_task_waits',
           (SELECT count(*) FROM waiting WHERE waits_for IN ('process', 'place'))
    UNION ALL
    SELECT 'in_order',
           (
             SELECT count(*) FROM running r
               JOIN schedule s
                 ON s.namespace = r.namespace
                AND s.process_id = r.process_id
                AND s.waits_for IN ('process', 'place')
                AND s.task_type IN ('CALL', 'NOTIFY', 'REPAIR')
              WHERE r.task_type IN ('CALL', 'NOTIFY', 'REPAIR')
                AND r.attempt = 1)
    UNION ALL
    SELECT 'events_numbered',
           (SELECT count(*) FROM kept_processes WHERE last_event_id > 0)
    UNION ALL
    SELECT 'events_of_attempt',
           (SELECT count(*) FROM events WHERE task_id <> 0)
    UNION ALL
    SELECT 'error_names_task',
           (SELECT count(*) FROM kept_processes WHERE status = 'ERROR')
    UNION ALL
    SELECT 'error_holds_all',
           (SELECT count(*) FROM kept_processes WHERE status = 'ERROR')
    UNION ALL
    SELECT 'ended_has_no_tasks',
           (
             SELECT count(*) FROM processes
              WHERE removed_time IS NOT NULL
                 OR status IN ('COMPLETED', 'CANCELLED'))
    UNION ALL
    SELECT 'held_by_operator',
           (SELECT count(*) FROM waiting WHERE waits_for = 'operator')
             + (SELECT count(*) FROM kept_processes WHERE status = 'SUSPENDED')
    UNION ALL
    SELECT 'cancel_has_task',
           (SELECT count(*) FROM kept_processes WHERE cancel_deadline IS NOT NULL)
             + (SELECT count(*) FROM waiting WHERE task_type = 'CANCEL')
    UNION ALL
    SELECT 'cancel_goes_first',
           (SELECT count(*) FROM kept_processes WHERE cancel_deadline IS NOT NULL)
    UNION ALL
    SELECT 'init_has_task',
           (SELECT count(*) FROM kept_processes WHERE status = 'INIT')
    UNION ALL
    SELECT 'attention_is_status',
           (SELECT count(*) FROM kept_processes WHERE status NOT IN ('INIT', 'RUNNING'))
    UNION ALL
    SELECT 'status_is_sound',
           (SELECT count(*) FROM kept_processes)
    UNION ALL
    SELECT 'token_grows',
           (SELECT count(*) FROM attempts)
    UNION ALL
    SELECT 'applied_once',
           (SELECT ran FROM ended)
    UNION ALL
    SELECT 'task_is_sound',
           (SELECT n FROM ended)
    UNION ALL
    SELECT 'retry_is_sound',
           (SELECT count(*) FROM waiting WHERE attempt > 0)
    UNION ALL
    SELECT 'one_timer_per_name',
           (SELECT count(*) FROM waiting WHERE timer_name IS NOT NULL)
    UNION ALL
    SELECT 'counts_agree',
           (SELECT count(*) FROM status_counts)
    UNION ALL
    SELECT 'jobs_agree',
           (SELECT count(*) FROM job_counts)
    UNION ALL
    SELECT 'events_agree',
           (SELECT count(*) FROM job_events)
    UNION ALL
    SELECT 'events_are_numbered',
           (SELECT count(*) FROM job_events)
    UNION ALL
    SELECT 'request_has_answer',
           (SELECT count(*) FROM requests WHERE task_id <> 0)
    UNION ALL
    SELECT 'job_has_row',
           (SELECT count(*) FROM jobs) + (SELECT count(*) FROM processes WHERE kind = 'job')
    UNION ALL
    SELECT 'start_deadline_agrees',
           (SELECT count(*) FROM waiting WHERE start_deadline IS NOT NULL)
    UNION ALL
    SELECT 'keys_are_held',
           (SELECT count(*) FROM jobs WHERE constraint_keys IS NOT NULL)
    UNION ALL
    SELECT 'key_queue_has_jobs',
           (SELECT count(*) FROM waiting WHERE waits_for = 'constraint')
    UNION ALL
    SELECT 'members_have_one_worker',
           (SELECT count(*) FROM job_places)
    UNION ALL
    SELECT 'group_is_full',
           (SELECT count(*) FROM waiting WHERE waits_for = 'members')
    UNION ALL
    SELECT 'group_runs_with_members',
           (SELECT count(*) FROM waiting WHERE waits_for = 'members')
    UNION ALL
    SELECT 'parent_is_notified',
           (SELECT count(*) FROM parents)
    UNION ALL
    SELECT 'held_message_has_reason',
           (SELECT count(*) FROM messages WHERE held)
    UNION ALL
    SELECT 'pending_result_fits',
           (SELECT count(*) FROM leases WHERE pending_result IS NOT NULL)
    UNION ALL
    SELECT 'changes_numbered',
           (SELECT count(*) FROM changes)
    UNION ALL
    SELECT 'changes_in_order',
           (SELECT count(*) FROM changes)
    UNION ALL
    SELECT 'changes_of_process',
           (SELECT count(*) FROM changes WHERE kind = 'event')
    UNION ALL
    SELECT 'changes_are_recorded',
           (SELECT count(*) FROM change_settings)
    UNION ALL
    SELECT 'sink_within_lanes',
           (SELECT count(*) FROM sinks)
    UNION ALL
    SELECT 'dead_letter_has_sink',
           (SELECT count(*) FROM sink_dead_letters)) counts;
