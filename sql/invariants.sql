-- FindViolations returns rows that violate the invariants of processes and tasks. The invariants
-- hold at any time, even while engines work. CheckInvariants runs FindViolations,
-- FindKindViolations and FindChangeViolations on one snapshot. Every part has the name of its
-- invariant. CountInvariantRows returns how many rows invariants check.
-- name: FindViolations :many
WITH
-- All tasks, with the table that contains each of them.
placed AS MATERIALIZED (
  SELECT namespace, process_id, task_id, 'tasks' AS place, attempt, status <> 'CANCELLED' AS ended,
         status = 'CANCELLED' OR task_type IN ('TIMEOUT', 'CANCEL') AS checkpoints
    FROM tasks
  UNION ALL
  SELECT namespace, process_id, task_id, 'running', attempt - 1, false,
         task_type IN ('TIMEOUT', 'CANCEL') FROM running
  UNION ALL
  SELECT namespace, process_id, task_id, 'schedule', attempt, false,
         task_type IN ('TIMEOUT', 'CANCEL') OR running_time IS NOT NULL FROM schedule
  UNION ALL
  SELECT namespace, process_id, task_id, 'answers', 0, false, false
    FROM answers),
-- Waiting tasks that continue without an operator when their process is idle.
queue AS MATERIALIZED (
  SELECT namespace, process_id, count(*) AS n,
         count(*) FILTER (WHERE waits_for = 'place') AS places,
         min(coalesce(own_priority, priority)) AS priority
    FROM schedule WHERE waits_for IN ('process', 'place')
   GROUP BY namespace, process_id),
-- For each process with open tasks: its CANCEL tasks, its INIT tasks, whether a task runs, and
-- whether a group waits for its members.
open_tasks AS MATERIALIZED (
  SELECT task.namespace, task.process_id,
         count(*) FILTER (WHERE task.task_type = 'CANCEL') AS cancels,
         count(*) FILTER (WHERE task.task_type = 'INIT') AS inits,
         bool_or(task.runs) AS runs,
         coalesce(bool_or(task.taker = '~'), false) AS waits_for_members
    FROM (
      SELECT namespace, process_id, task_type, true AS runs, NULL AS taker
        FROM running
      UNION ALL
      SELECT namespace, process_id, task_type, false, taker
        FROM schedule) task
   GROUP BY task.namespace, task.process_id),
numbered AS MATERIALIZED (
  SELECT namespace, process_id, count(*) AS n, min(event_id) AS first_id, max(event_id) AS last_id
    FROM events GROUP BY namespace, process_id),
-- Processes whose waiting tasks SettleQueues must still move after a change of status. Until then
-- the tasks wait in a process that does not run them.
unsettled AS MATERIALIZED (
  SELECT namespace, process_id FROM queue_backlogs),
found AS (
  -- task_in_one_place: a task either waits, runs or has ended.
  SELECT 'task_in_one_place' AS invariant, namespace, process_id,
         format('task %s is in %s', task_id, string_agg(place, ', ' ORDER BY place)) AS detail
    FROM placed GROUP BY namespace, process_id, task_id HAVING count(*) > 1
  UNION ALL
  -- no_orphans: the data of a process is deleted with it.
  SELECT 'no_orphans', o.namespace, o.process_id,
         format('rows in %s without a process', string_agg(DISTINCT o.place, ', '))
    FROM (
      SELECT namespace, process_id, place
        FROM placed WHERE place <> 'answers'
      UNION ALL
      SELECT namespace, process_id, 'events'
        FROM numbered
      UNION ALL
      SELECT namespace, process_id, 'failed_attempts'
        FROM failed_attempts) o
    LEFT JOIN processes p
      ON p.namespace = o.namespace
     AND p.process_id = o.process_id
   WHERE p.process_id IS NULL
   GROUP BY o.namespace, o.process_id
  UNION ALL
  -- running_fits_status: a process in INIT runs an INIT task, in ERROR a repair, in RUNNING any
  -- other task, and an ended process none.
  SELECT 'running_fits_status', r.namespace, r.process_id,
         format('task %s, a %s, runs in a process in %s', r.task_id, r.task_type, p.status)
    FROM running r
    JOIN processes p
      ON p.namespace = r.namespace
     AND p.process_id = r.process_id
   WHERE p.removed_time IS NULL
     AND CASE p.status
           WHEN 'INIT' THEN r.task_type <> 'INIT'
           WHEN 'ERROR' THEN r.task_type <> 'REPAIR'
           WHEN 'RUNNING' THEN r.task_type IN ('INIT', 'REPAIR')
           WHEN 'SUSPENDED' THEN r.task_type = 'REPAIR'
           ELSE false
         END
  UNION ALL
  -- numbers_are_new: no running task has a task ID or a token that its sequence will issue again.
  SELECT 'numbers_are_new', r.namespace, r.process_id,
         format('task %s runs under token %s; the sequences are at %s and %s',
                r.task_id, r.fencing_token, s.task_id, s.fencing_token)
    FROM running r,
         (
           SELECT coalesce(pg_sequence_last_value('task_ids'::regclass), 0) AS task_id,
                  coalesce(pg_sequence_last_value('fencing_tokens'::regclass),
                           0) AS fencing_token) s
   WHERE r.task_id > s.task_id
      OR r.fencing_token > s.fencing_token
  UNION ALL
  -- one_next_task: at most one task of a process waits for a slot.
  SELECT 'one_next_task', namespace, process_id, format('%s tasks wait for a slot', places)
    FROM queue WHERE places > 1
  UNION ALL
  -- priority_is_smallest: the task that waits for a slot in an idle process has the smallest
  -- priority of the waiting tasks. Queues of more than 2,000 tasks are not checked: see
  -- queue_priority.
  SELECT 'priority_is_smallest', s.namespace, s.process_id,
         format('task %s waits for a slot with priority %s, a task of its process has %s',
                s.task_id, s.priority, q.priority)
    FROM schedule s
    JOIN queue q
      ON q.namespace = s.namespace
     AND q.process_id = s.process_id
   WHERE s.waits_for = 'place'
     AND (s.priority > q.priority AND q.n <= 2000 OR s.own_priority < s.priority)
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = s.namespace
          AND r.process_id = s.process_id)
  UNION ALL
  -- next_task_waits: in an idle process that may continue, the next task waits for a slot, not for
  -- its process. A failed INIT or CANCEL task that waits for its next attempt blocks the tasks
  -- behind it.
  SELECT 'next_task_waits', q.namespace, q.process_id,
         format('%s tasks wait for their process, which is idle in %s', q.n, p.status)
    FROM queue q
    JOIN processes p
      ON p.namespace = q.namespace
     AND p.process_id = q.process_id
   WHERE q.places = 0
     AND p.status IN ('INIT', 'RUNNING', 'ERROR')
     AND NOT (p.status = 'ERROR'
              AND (p.namespace, p.process_id) IN (SELECT namespace, process_id FROM unsettled))
     AND NOT EXISTS (
       SELECT 1 FROM running r
        WHERE r.namespace = q.namespace
          AND r.process_id = q.process_id)
     AND NOT EXISTS (
       SELECT 1 FROM schedule s
        WHERE s.namespace = q.namespace
          AND s.process_id = q.process_id
          AND s.task_type = CASE p.status WHEN 'INIT' THEN 'INIT' ELSE 'CANCEL' END::task_type
          AND s.waits_for = 'time')
  UNION ALL
  -- in_order: no call, notify or repair that can run is older than the running one. A retried task
  -- may have been overtaken.
  SELECT 'in_order', r.namespace, r.process_id,
         format('task %s waits while the later task %s runs', s.task_id, r.task_id)
    FROM running r
    JOIN schedule s
      ON s.namespace = r.namespace
     AND s.process_id = r.process_id
     AND s.task_id < r.task_id
   WHERE r.task_type IN ('CALL', 'NOTIFY', 'REPAIR')
     AND r.attempt = 1
     AND s.task_type IN ('CALL', 'NOTIFY', 'REPAIR')
     AND s.waits_for IN ('process', 'place')
  UNION ALL
  -- events_numbered: the events of a process are numbered without gaps up to last_event_id, and
  -- those of its current history start with first_event_id. Older events remain only while the
  -- restart of the history is in history_restarts.
  SELECT 'events_numbered', p.namespace, p.process_id,
         format('first_event_id is %s, last_event_id is %s; %s events from %s to %s',
                p.first_event_id, p.last_event_id, coalesce(e.n, 0), coalesce(e.first_id, 0),
                coalesce(e.last_id, 0))
    FROM processes p
    LEFT JOIN numbered e
      ON e.namespace = p.namespace
     AND e.process_id = p.process_id
   WHERE p.removed_time IS NULL
     AND (p.first_event_id NOT BETWEEN 1 AND p.last_event_id + 1
          OR coalesce(e.last_id, p.last_event_id) <> p.last_event_id
          OR coalesce(e.first_id, p.last_event_id + 1) + coalesce(e.n, 0) <> p.last_event_id + 1
          OR coalesce(e.first_id, p.last_event_id + 1) > p.first_event_id
          OR (coalesce(e.first_id, p.last_event_id + 1) < p.first_event_id
              AND NOT EXISTS (
                SELECT 1 FROM history_restarts h
                 WHERE h.namespace = p.namespace
                   AND h.process_id = p.process_id
                   AND h.first_event_id = p.first_event_id)))
  UNION ALL
  -- events_of_attempt: an event has the attempt that finished its task; an event without a task was
  -- imported. Attempts at a timer or a CANCEL also store checkpoints: their events may have an
  -- earlier attempt, and the task may be open, like that of a deferred call. Events from before a
  -- restart are being removed.
  SELECT 'events_of_attempt', e.namespace, e.process_id,
         format('event %s is of task %s, attempt %s; the task ended with attempt %s',
                e.event_id, e.task_id, e.attempt, coalesce(t.attempt::text, 'none'))
    FROM events e
    JOIN processes p
      ON p.namespace = e.namespace
     AND p.process_id = e.process_id
     AND p.removed_time IS NULL
     AND e.event_id >= p.first_event_id
    LEFT JOIN placed t
      ON t.namespace = e.namespace
     AND t.process_id = e.process_id
     AND t.task_id = e.task_id
     AND t.place <> 'answers'
   WHERE (e.task_id <> 0
          AND (t.ended AND e.attempt = t.attempt
               OR t.checkpoints AND e.attempt <= t.attempt + (NOT t.ended)::int) IS NOT TRUE)
      OR (e.task_id = 0 AND e.attempt <> 0)
  UNION ALL
  -- failed_attempt_has_task: recorded failed attempts belong to a task that has made at least as
  -- many attempts. At most 10 are recorded per task.
  SELECT 'failed_attempt_has_task', f.namespace, f.process_id,
         format('task %s has %s recorded attempts up to %s, and made %s', f.task_id, f.n, f.newest,
                t.attempt)
    FROM (
      SELECT namespace, process_id, task_id, count(*) AS n, max(attempt) AS newest
        FROM failed_attempts GROUP BY namespace, process_id, task_id) f
    JOIN processes p
      ON p.namespace = f.namespace
     AND p.process_id = f.process_id
     AND p.removed_time IS NULL
    LEFT JOIN (
      SELECT namespace, process_id, task_id, attempt
        FROM tasks
      UNION ALL
      SELECT namespace, process_id, task_id, attempt
        FROM running
      UNION ALL
      SELECT namespace, process_id, task_id, attempt
        FROM schedule) t
      ON t.namespace = f.namespace
     AND t.process_id = f.process_id
     AND t.task_id = f.task_id
   WHERE t.task_id IS NULL
      OR t.attempt < f.newest
      OR f.n > 10
  UNION ALL
  -- error_names_task: corrupted_by is a task that ended with ERROR, or 0 if the process was
  -- imported.
  SELECT 'error_names_task', p.namespace, p.process_id,
         format('corrupted_by is %s, which is %s', p.corrupted_by,
                coalesce(t.status::text, 'no task'))
    FROM processes p
    LEFT JOIN tasks t
      ON t.namespace = p.namespace
     AND t.process_id = p.process_id
     AND t.task_id = p.corrupted_by
   WHERE p.status = 'ERROR'
     AND p.removed_time IS NULL
     AND p.corrupted_by <> 0
     AND t.status IS DISTINCT FROM 'ERROR'
  UNION ALL
  -- error_holds_all: only a repair waits in a process in ERROR, unless its queue is still being
  -- moved.
  SELECT 'error_holds_all', s.namespace, s.process_id,
         format('task %s, a %s, waits in a process in ERROR', s.task_id, s.task_type)
    FROM schedule s
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
   WHERE p.status = 'ERROR'
     AND p.removed_time IS NULL
     AND s.task_type <> 'REPAIR'
     AND (p.namespace, p.process_id) NOT IN (SELECT namespace, process_id FROM unsettled)
  UNION ALL
  -- ended_has_no_tasks: no task waits or runs in an ended or removed process, unless its queue is
  -- still being moved or purged.
  SELECT 'ended_has_no_tasks', p.namespace, p.process_id,
         format('task %s is in %s of a process that is %s', x.task_id, x.place,
                CASE WHEN p.removed_time IS NOT NULL THEN 'removed' ELSE p.status::text END)
    FROM processes p JOIN (
      SELECT namespace, process_id, task_id, 'running' AS place
        FROM running
      UNION ALL
      SELECT namespace, process_id, task_id, 'schedule'
        FROM schedule) x ON x.namespace = p.namespace
         AND x.process_id = p.process_id
   WHERE CASE
           WHEN p.removed_time IS NOT NULL
             THEN x.place = 'running' OR p.status IN ('INIT', 'RUNNING')
           WHEN p.status IN ('COMPLETED', 'CANCELLED')
             THEN x.place = 'running'
                  OR (p.namespace, p.process_id)
                       NOT IN (SELECT namespace, process_id FROM unsettled)
         END
  UNION ALL
  -- held_by_operator: in a suspended process, and only there, all waiting tasks wait for the
  -- operator, unless its queue is still being moved.
  SELECT 'held_by_operator', s.namespace, s.process_id,
         format('task %s waits for %s in a process in %s', s.task_id, s.waits_for, p.status)
    FROM schedule s
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
   WHERE p.removed_time IS NULL
     AND (p.status = 'SUSPENDED') <> (s.waits_for = 'operator')
     AND NOT (p.status <> 'RUNNING'
              AND (p.namespace, p.process_id) IN (SELECT namespace, process_id FROM unsettled))
  UNION ALL
  -- cancel_has_task: a process with a cancel request has one CANCEL task that runs or waits, and is
  -- not in ERROR or ended. Other processes have no CANCEL task, and neither do jobs: while a job is
  -- being cancelled, its INIT task runs or, in a group, its members run.
  SELECT 'cancel_has_task', p.namespace, p.process_id,
         format('%s CANCEL tasks in a process in %s, cancel deadline %s', coalesce(x.cancels, 0),
                p.status, coalesce(p.cancel_deadline::text, 'none'))
    FROM processes p
    LEFT JOIN open_tasks x
      ON x.namespace = p.namespace
     AND x.process_id = p.process_id
   WHERE p.removed_time IS NULL
     AND (coalesce(x.cancels, 0)
            <> CASE WHEN p.cancel_deadline IS NULL OR p.kind = 'job' THEN 0 ELSE 1 END
          AND NOT (p.status IN ('ERROR', 'CANCELLED', 'COMPLETED')
                   AND (p.namespace, p.process_id)
                         IN (SELECT namespace, process_id FROM unsettled))
          OR (p.kind = 'job'
              AND p.cancel_deadline IS NOT NULL
              AND (x.runs OR x.waits_for_members) IS NOT TRUE)
          OR (p.cancel_deadline IS NOT NULL AND p.status NOT IN ('INIT', 'RUNNING', 'SUSPENDED')))
  UNION ALL
  -- cancel_goes_first: a process with a cancel request runs no task that came after the request,
  -- and its other tasks cannot be claimed.
  SELECT 'cancel_goes_first', p.namespace, p.process_id,
         format('task %s, a %s, %s in a process that was to be cancelled at %s',
                x.task_id, x.task_type, x.what, p.cancel_requested_time)
    FROM processes p JOIN (
      SELECT namespace, process_id, task_id, task_type, running_time, 'runs' AS what
        FROM running
      UNION ALL
      SELECT namespace, process_id, task_id, task_type, NULL, 'waits for a slot'
        FROM schedule WHERE waits_for = 'place') x ON x.namespace = p.namespace
         AND x.process_id = p.process_id
   WHERE p.removed_time IS NULL
     AND p.cancel_deadline IS NOT NULL
     AND x.task_type NOT IN ('INIT', 'CANCEL')
     AND (x.running_time IS NULL OR x.running_time > p.cancel_requested_time)
  UNION ALL
  -- init_has_task: a process in INIT, or suspended in INIT, has one INIT task that runs or waits.
  -- Other processes have no INIT task.
  SELECT 'init_has_task', p.namespace, p.process_id,
         format('%s INIT tasks in a process in %s', coalesce(x.inits, 0), p.status)
    FROM processes p
    LEFT JOIN open_tasks x
      ON x.namespace = p.namespace
     AND x.process_id = p.process_id
   WHERE p.removed_time IS NULL
     AND coalesce(x.inits, 0)
           <> CASE
                WHEN p.status = 'INIT' OR (p.status = 'SUSPENDED' AND p.previous_status = 'INIT')
                  THEN 1
                ELSE 0
              END
  UNION ALL
  -- attention_is_status: attention is the status with its time, unless that is INIT or RUNNING.
  SELECT 'attention_is_status', namespace, process_id,
         format('status %s of %s, attention %s of %s', status, status_changed_time,
                coalesce(attention::text, 'none'), attention_time)
    FROM processes
   WHERE removed_time IS NULL
     AND (attention IS DISTINCT FROM CASE WHEN status NOT IN ('INIT', 'RUNNING') THEN status END
          OR attention_time IS DISTINCT FROM CASE
                                               WHEN status NOT IN ('INIT', 'RUNNING')
                                                 THEN status_changed_time
                                             END)
  UNION ALL
  -- status_is_sound: only a process in ERROR or SUSPENDED has a detail. Only a process in ERROR has
  -- corrupted_by. A suspended process has a status to resume.
  SELECT 'status_is_sound', namespace, process_id,
         format('status %s, previous_status %s, detail %L, corrupted_by %s', status,
                coalesce(previous_status::text, 'none'), detail,
                coalesce(corrupted_by::text, 'none'))
    FROM processes
   WHERE removed_time IS NULL
     AND ((status NOT IN ('ERROR', 'SUSPENDED') AND detail IS NOT NULL)
          OR (status <> 'ERROR' AND corrupted_by IS NOT NULL)
          OR (status = 'SUSPENDED' AND (previous_status IN ('INIT', 'RUNNING')) IS NOT TRUE))
  UNION ALL
  -- token_grows: the running attempt has a larger token than all ended attempts of its process. No
  -- two attempts have the same token.
  SELECT 'token_grows', r.namespace, r.process_id,
         format('token %s runs; token %s of task %s has ended', r.fencing_token, x.fencing_token,
                x.task_id)
    FROM running r JOIN (
      SELECT namespace, process_id, task_id, fencing_token
        FROM tasks
      UNION ALL
      SELECT namespace, process_id, task_id, fencing_token
        FROM schedule) x ON x.namespace = r.namespace
         AND x.process_id = r.process_id
         AND x.fencing_token >= r.fencing_token
  UNION ALL
  -- applied_once: an attempt has ended at most one task.
  SELECT 'applied_once', namespace, process_id,
         format('token %s ended tasks %s', fencing_token,
                string_agg(task_id::text, ', ' ORDER BY task_id))
    FROM tasks
   WHERE status <> 'CANCELLED'
     AND fencing_token IS NOT NULL
   GROUP BY namespace, process_id, fencing_token HAVING count(*) > 1
  UNION ALL
  -- task_is_sound: a task that was not CANCELLED has a token, a start time and an attempt. The
  -- exceptions are a CANCEL task that ended in ERROR after its grace period, an INIT task that
  -- ended in ERROR after its start deadline, and a repair without the processor, which is FINISHED.
  -- A FINISHED task has no failure, and a CANCELLED task has no response. Only a FINISHED task has
  -- a rejection, and only a CANCELLED task has cancelled_by. running_time may be after
  -- finished_time, because the clock may have been set back in between.
  SELECT 'task_is_sound', namespace, process_id,
         format('task %s: %s, attempt %s', task_id, status, attempt)
    FROM tasks
   WHERE (status <> 'CANCELLED'
          AND (fencing_token IS NULL OR running_time IS NULL OR attempt < 1)
          AND ((task_type::text, status::text, coalesce(failure ->> 'reason', '')) IN (
                 ('CANCEL', 'ERROR', 'cancel_grace_expired'),
                 ('INIT', 'ERROR', 'start_deadline'), ('REPAIR', 'FINISHED', ''))) IS NOT TRUE)
      OR (status = 'FINISHED' AND failure IS NOT NULL)
      OR (status <> 'FINISHED' AND rejection IS NOT NULL)
      OR (status = 'CANCELLED' AND response IS NOT NULL)
      OR (status <> 'CANCELLED' AND cancelled_by IS NOT NULL)
  UNION ALL
  -- retry_is_sound: a task that waits for another attempt or a reply has the data of its last one.
  SELECT 'retry_is_sound', namespace, process_id,
         format('task %s waits for %s after %s attempts', task_id, waits_for, attempt)
    FROM schedule
   WHERE (attempt > 0 AND fencing_token IS NULL)
      OR (waits_for = 'reply' AND (running_time IS NULL OR attempt = 0))
      OR (running_time IS NOT NULL AND waits_for NOT IN ('reply', 'operator'))
  UNION ALL
  -- one_timer_per_name: a process has at most one pending timer of each name.
  SELECT 'one_timer_per_name', namespace, process_id,
         format('%s timers named %L', count(*), timer_name)
    FROM schedule WHERE timer_name IS NOT NULL
   GROUP BY namespace, process_id, timer_name HAVING count(*) > 1
  UNION ALL
  -- request_has_answer: the task of a request with a key exists. 0 means a repair without a task.
  SELECT 'request_has_answer', q.namespace, q.process_id,
         format('request %s: there is no task %s', q.request_id, q.task_id)
    FROM requests q
   WHERE q.task_id <> 0
     AND NOT EXISTS (
       SELECT 1 FROM tasks x
        WHERE x.namespace = q.namespace
          AND x.process_id = q.process_id
          AND x.task_id = q.task_id)
     AND NOT EXISTS (
       SELECT 1 FROM running x
        WHERE x.namespace = q.namespace
          AND x.process_id = q.process_id
          AND x.task_id = q.task_id)
     AND NOT EXISTS (
       SELECT 1 FROM schedule x
        WHERE x.namespace = q.namespace
          AND x.process_id = q.process_id
          AND x.task_id = q.task_id)
     AND NOT EXISTS (
       SELECT 1 FROM answers x
        WHERE x.namespace = q.namespace
          AND x.process_id = q.process_id
          AND x.task_id = q.task_id)
  UNION ALL
  -- parent_is_notified: the transaction that ends a child replaces its row in parents with a
  -- message.
  SELECT 'parent_is_notified', r.namespace, r.process_id,
         format('%s, and its parent %s/%s was not notified',
                CASE WHEN p.process_id IS NULL THEN 'it was removed'
                     ELSE 'it is in ' || p.status END,
                r.parent_namespace, r.parent_process_id)
    FROM parents r
    LEFT JOIN processes p
      ON p.namespace = r.namespace
     AND p.process_id = r.process_id
     AND p.removed_time IS NULL
   WHERE p.process_id IS NULL
      OR p.status IN ('ERROR', 'COMPLETED', 'CANCELLED')
  UNION ALL
  -- held_message_has_reason: a message is held only while its process is SUSPENDED or in ERROR, or
  -- until SettleQueues has released it.
  SELECT 'held_message_has_reason', m.namespace, m.process_id,
         format('message %s is held for a process that is %s', m.message_id,
                coalesce(p.status::text, 'gone'))
    FROM messages m
    LEFT JOIN processes p
      ON p.namespace = m.namespace
     AND p.process_id = m.process_id
     AND p.removed_time IS NULL
   WHERE m.held
     AND (p.status IN ('SUSPENDED', 'ERROR')) IS NOT TRUE
     AND (m.namespace, m.process_id) NOT IN (SELECT namespace, process_id FROM unsettled)
  UNION ALL
  -- counts_agree: the counters of the lanes equal the number of processes. A violation has a
  -- namespace but no process.
  SELECT 'counts_agree', namespace,
         '', format('%s processes are %s, but %s are counted', sum(there), status, sum(counted))
    FROM (
      SELECT namespace, coalesce(attention, 'RUNNING') AS status, 1 AS there, 0 AS counted
        FROM processes WHERE removed_time IS NULL
      UNION ALL
      SELECT namespace, status, 0, n
        FROM status_counts) x
   GROUP BY namespace, status HAVING sum(there) <> sum(counted))
SELECT invariant::text AS invariant, namespace::text AS namespace, process_id::text AS process_id,
       detail::text AS detail
  FROM found LIMIT @lim::int;
