-- FindKindViolations returns violations like FindViolations. It checks jobs, groups, keys of
-- constraints, job events and leases.
-- name: FindKindViolations :many
WITH found AS (
  -- jobs_agree: the counters of the lanes equal the number of jobs per name and state, without
  -- members of groups. A violation has a namespace but no process.
  SELECT 'jobs_agree' AS invariant, namespace, '' AS process_id,
         format('%s jobs %L are %s, but %s are counted',
                sum(there), name, state, sum(counted)) AS detail
    FROM (
      SELECT j.namespace, j.name,
             CASE p.status
               WHEN 'COMPLETED' THEN 'succeeded'
               WHEN 'ERROR' THEN 'failed'
               WHEN 'CANCELLED' THEN 'cancelled'
               ELSE CASE
                      WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable'
                      WHEN s.waits_for = 'time' THEN 'scheduled'
                      ELSE 'available'
                    END
             END AS state,
             1 AS there, 0 AS counted
        FROM jobs j
        JOIN processes p
          ON p.namespace = j.namespace
         AND p.process_id = j.process_id
         AND p.removed_time IS NULL
         AND p.kind = 'job'
        LEFT JOIN schedule s
          ON s.namespace = j.namespace
         AND s.process_id = j.process_id
       WHERE NOT starts_with(j.process_id, '~job/~/')
      UNION ALL
      SELECT namespace, name, state, 0, n
        FROM job_counts WHERE state NOT IN ('running', 'cancel_requested')) x
   GROUP BY namespace, name, state HAVING sum(there) <> sum(counted)
  UNION ALL
  -- events_agree: each event of a job begins in the state in which the previous event ended, and
  -- the last event ends in the current state of the job. The invariant applies to namespaces that
  -- keep all events. It ignores events of runs.
  SELECT 'events_agree', e.namespace, e.job_id,
         format('event %s (%s) leads from %s to %s; expected: from %s to %s',
                e.event_id, e.type, coalesce(e.from_status, 'nothing'),
                coalesce(e.to_status, 'nothing'), coalesce(e.expected_from, 'nothing'),
                coalesce(e.expected_to, 'nothing'))
    FROM (
      SELECT v.*,
             CASE
               WHEN v.place > 1 AND v.type <> 'enqueued' THEN v.last_to
               ELSE v.from_status
             END AS expected_from,
             CASE
               WHEN v.places = v.place THEN coalesce(x.state, 'nothing')
               ELSE coalesce(v.to_status, 'nothing')
             END AS expected_to
        FROM (
          SELECT v.*, row_number() OVER w AS place, lag(v.to_status) OVER w AS last_to,
                 count(*) OVER a AS places, bool_or(v.type = 'enqueued') OVER a AS enqueued
            FROM job_events v
           WHERE v.of_run IS NOT TRUE
             AND v.step_id IS NULL
             AND (v.from_status IS NOT NULL OR v.to_status IS NOT NULL)
          WINDOW w AS (PARTITION BY v.namespace, v.job_id ORDER BY v.event_id), a
                   AS (PARTITION BY v.namespace, v.job_id)) v
        LEFT JOIN (
          SELECT p.namespace, p.process_id,
                 CASE p.status
                   WHEN 'COMPLETED' THEN 'succeeded'
                   WHEN 'ERROR' THEN 'failed'
                   WHEN 'CANCELLED' THEN 'cancelled'
                   ELSE CASE
                          WHEN r.task_id IS NOT NULL
                            THEN CASE
                                   WHEN p.cancel_deadline IS NULL THEN 'running'
                                   ELSE 'cancel_requested'
                                 END
                          WHEN s.taker = '~' AND s.attempt > 0 AND p.cancel_deadline IS NOT NULL
                            THEN 'cancel_requested'
                          WHEN s.taker = '~' AND g.running_time IS NOT NULL THEN 'running'
                          WHEN s.waits_for = 'time' AND s.attempt > 0 THEN 'retryable'
                          WHEN s.waits_for = 'time' THEN 'scheduled'
                          ELSE 'available'
                        END
                 END AS state
            FROM processes p
            LEFT JOIN schedule s
              ON s.namespace = p.namespace
             AND s.process_id = p.process_id
            LEFT JOIN running r
              ON r.namespace = p.namespace
             AND r.process_id = p.process_id
            LEFT JOIN job_groups g
              ON g.namespace = p.namespace
             AND g.process_id = p.process_id
           WHERE p.kind = 'job'
             AND p.removed_time IS NULL) x
          ON x.namespace = v.namespace
         AND x.process_id = v.job_id
       WHERE (x.process_id IS NOT NULL OR v.enqueued)
         AND NOT EXISTS (
           SELECT 1 FROM namespaces n
            WHERE n.namespace = v.namespace
              AND n.config ? 'jobEvents')
         AND (x.process_id IS NOT NULL OR v.places > v.place OR v.to_status IS NULL)) e
   WHERE e.expected_from IS DISTINCT FROM e.from_status
      OR e.expected_to IS DISTINCT FROM coalesce(e.to_status, 'nothing')
  UNION ALL
  -- events_are_numbered: the events of a namespace in a lane follow those that their retention has
  -- deleted, the lane exists, and no event has a number that is still to be assigned.
  SELECT 'events_are_numbered', v.namespace, v.job_id,
         format('event %s is in lane %s, in which events up to %s are deleted; the last number '
                'is %s', v.event_id, v.lane, coalesce(d.event_id::text, 'none'), s.last_value)
    FROM job_events v
   CROSS JOIN (
     SELECT coalesce(pg_sequence_last_value('job_events_event_id_seq'), 0) AS last_value) s
    LEFT JOIN job_event_drops d
      ON d.namespace = v.namespace
     AND d.lane = v.lane
   WHERE v.event_id <= d.event_id
      OR v.event_id > s.last_value
      OR NOT EXISTS (SELECT 1 FROM job_event_lanes l WHERE l.lane = v.lane)
  UNION ALL
  -- job_has_row: a process has a row in jobs if and only if its kind is job. Its waiting task has
  -- the name and the fairness key of the job, and has a round only if there is such a key.
  SELECT 'job_has_row', coalesce(j.namespace, p.namespace), coalesce(j.process_id, p.process_id),
         format('the process has the kind %L; the job has the name %L and the fairness key %L; its '
                'task has the name %L, the fairness key %L and the round %s',
                p.kind, j.name, j.fairness_key, s.job_name, s.fairness_key, s.round)
    FROM (
      SELECT * FROM processes
       WHERE kind = 'job'
         AND removed_time IS NULL) p
    FULL JOIN jobs j
      ON j.namespace = p.namespace
     AND j.process_id = p.process_id
    LEFT JOIN schedule s
      ON s.namespace = p.namespace
     AND s.process_id = p.process_id
   WHERE (j.name IS NULL
          OR p.kind IS NULL
          OR s.task_id IS NOT NULL AND s.job_name IS DISTINCT FROM j.name
          OR s.fairness_key <> j.fairness_key
          OR s.round > 0 AND (s.fairness_key IS NULL OR j.fairness_key IS NULL))
     AND NOT EXISTS (
       SELECT 1 FROM processes q
        WHERE q.namespace = j.namespace
          AND q.process_id = j.process_id
          AND q.removed_time IS NOT NULL)
  UNION ALL
  -- start_deadline_agrees: the start deadline of a waiting job without an attempt is its run time
  -- plus its option, and other tasks have none.
  SELECT 'start_deadline_agrees', s.namespace, s.process_id,
         format('task %s, attempt %s, due at %s, has the deadline %s, its option is %s',
                s.task_id, s.attempt, s.scheduled_time, s.start_deadline,
                coalesce(j.options->>'startDeadline', 'not set'))
    FROM schedule s
    LEFT JOIN jobs j
      ON s.task_type = 'INIT'
     AND j.namespace = s.namespace
     AND j.process_id = s.process_id
   WHERE s.start_deadline IS DISTINCT FROM CASE
           WHEN s.attempt = 0
             THEN s.scheduled_time + (j.options->>'startDeadline')::interval
         END
  UNION ALL
  -- keys_are_held: a job that needs keys of constraints holds each of them while it waits for a
  -- slot and while it runs.
  SELECT 'keys_are_held', j.namespace, j.process_id,
         format('the job %s but does not hold the key %s=%s', x.doing, k.key, k.value)
    FROM (
      SELECT namespace, process_id, 'waits for a slot' AS doing
        FROM schedule
       WHERE waits_for = 'place'
         AND line IS NOT NULL
      UNION ALL
      SELECT namespace, process_id, 'runs'
        FROM running) x
    JOIN jobs j
      ON j.namespace = x.namespace
     AND j.process_id = x.process_id
   CROSS JOIN LATERAL jsonb_each_text(j.constraint_keys) k
   WHERE NOT EXISTS (
     SELECT 1 FROM constraint_holds h
      WHERE h.namespace = j.namespace
        AND h.process_id = j.process_id
        AND h.line = k.key || '=' || k.value)
  UNION ALL
  -- key_queue_has_jobs: a task that waits for a key is the INIT task of a job, and has a line.
  SELECT 'key_queue_has_jobs', s.namespace, s.process_id,
         format('task %s, %s of a process of kind %L, waits for a key in queue %L',
                s.task_id, s.task_type, p.kind, s.line)
    FROM schedule s
    LEFT JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
     AND p.removed_time IS NULL
   WHERE s.waits_for = 'constraint'
     AND (s.line IS NULL OR s.task_type <> 'INIT' OR p.kind IS DISTINCT FROM 'job')
  UNION ALL
  -- members_have_one_worker: a worker that runs or has ended a member of a group gets no other
  -- member, unless the former member was cancelled.
  SELECT 'members_have_one_worker', l.namespace, l.job_id,
         format('worker %s has member %s and may take another one', l.worker_id, l.process_id)
    FROM job_places l
    JOIN job_groups g
      ON g.namespace = l.namespace
     AND g.process_id = l.job_id
   WHERE l.worker_id IS NOT NULL
     AND l.state IS DISTINCT FROM 'cancelled'
     AND NOT l.worker_id = ANY (g.takers)
  UNION ALL
  -- group_is_full: a group that waits for its members has a row in job_groups, a member that has
  -- not ended and, unless it is being cancelled, as many members as it requires.
  SELECT 'group_is_full', s.namespace, s.process_id,
         format('%s of %s members succeeded, %s have not ended', x.succeeded, g.count, x.open)
    FROM schedule s
    LEFT JOIN job_groups g
      ON g.namespace = s.namespace
     AND g.process_id = s.process_id
   CROSS JOIN LATERAL (
     SELECT count(*) FILTER (WHERE l.state = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE l.state IS NULL) AS open
       FROM job_places l
      WHERE l.namespace = s.namespace
        AND l.job_id = s.process_id) x
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = s.process_id
   WHERE s.waits_for = 'members'
     AND (x.open = 0 OR p.cancel_deadline IS NULL AND x.succeeded + x.open < g.count) IS NOT FALSE
  UNION ALL
  -- pending_result_fits: the function complete stores results only in the leases of TIMEOUT and
  -- CANCEL tasks of processes without a kind. A lease of another task does not have a result.
  SELECT 'pending_result_fits', l.namespace, l.process_id,
         format('task %s, a %s of a process of kind "%s", has a result in its lease', r.task_id,
                r.task_type, p.kind)
    FROM leases l
    JOIN running r
      ON r.namespace = l.namespace
     AND r.process_id = l.process_id
     AND r.fencing_token = l.fencing_token
    JOIN processes p
      ON p.namespace = l.namespace
     AND p.process_id = l.process_id
   WHERE l.pending_result IS NOT NULL
     AND (p.kind <> '' OR r.task_type NOT IN ('TIMEOUT', 'CANCEL'))
  UNION ALL
  -- group_runs_with_members: a group that waits for its members runs if and only if a worker has a
  -- member, or a member has succeeded.
  SELECT 'group_runs_with_members', s.namespace, s.process_id,
         format('running since %s, and %s of its members run or have succeeded',
                coalesce(g.running_time::text, 'never'), x.running)
    FROM schedule s
    JOIN job_groups g
      ON g.namespace = s.namespace
     AND g.process_id = s.process_id
   CROSS JOIN LATERAL (
     SELECT count(*) AS running
       FROM job_places l
      WHERE l.namespace = s.namespace
        AND l.job_id = s.process_id
        AND (l.state = 'succeeded'
             OR l.state IS NULL AND member_runs(l.namespace, l.process_id))) x
   WHERE s.waits_for = 'members'
     AND (g.running_time IS NOT NULL) <> (x.running > 0))
SELECT invariant::text AS invariant, namespace::text AS namespace, process_id::text AS process_id,
       detail::text AS detail
  FROM found LIMIT @lim::int;
