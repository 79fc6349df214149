-- ListSuspects returns the running rows that may be zombies. The collector decides which of them
-- are zombies, because the clock of the database may have been changed. node_dead is true if the
-- node that claimed the task was declared dead. A lease is listed from 1.5 heartbeat intervals
-- (renewal_us) before its expiry, so that the collector can measure for how long the lease was not
-- renewed. overdue is true if the deadline of the attempt has passed, by more than margin_us if the
-- attempt has no lease. While the node that claimed the task is alive, only that node decides about
-- an overdue attempt, because it knows how long the attempt has run. ListSuspects omits attempts
-- whose result is in their lease (pending_result).
-- name: ListSuspects :many
SELECT r.namespace, r.process_id, r.fencing_token, (l.worker_id IS NOT NULL)::bool AS leased,
       state.node_dead::bool AS node_dead,
       coalesce(l.expires_time, 'epoch')::timestamptz AS expires_time,
       coalesce(l.expires_time < statement_timestamp(), false)::bool AS expired,
       coalesce(extract(epoch FROM l.heartbeat_interval) * 1500000, 0)::bigint AS renewal_us,
       state.overdue::bool AS overdue,
       (extract(epoch FROM r.deadline - r.running_time) * 1000000)::bigint AS timeout_us
  FROM running r
  LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
 CROSS JOIN LATERAL (
   SELECT n.node_id IS NULL OR (n.dead_beat_time = n.beat_time) IS TRUE AS node_dead,
          r.deadline < statement_timestamp() - CASE
                                                 WHEN l.worker_id IS NULL
                                                   THEN (@margin_us::bigint)
                                                          * interval '1 microsecond'
                                                 ELSE interval '0'
                                               END AS overdue) state
 WHERE l.pending_result IS NULL
   AND (CASE
          WHEN l.worker_id IS NULL THEN state.node_dead
          ELSE l.expires_time < statement_timestamp() + 1.5 * l.heartbeat_interval
        END
        OR state.overdue AND (r.node_id = @node_id::bigint OR state.node_dead))
 LIMIT @lim::int;

-- ReadZombies returns the running rows with the given fencing tokens that are still zombies. Each
-- zombie is then saved as a retry or a failure under its own token, as when any other attempt ends.
-- If the node of the attempt has already stored a result, nothing happens. For a leased task, the
-- lease counts instead of the node that leased it, and the deadline of the task has no margin.
--
-- timed_out is true if the attempt has exceeded its deadline. It is false if the worker should have
-- sent a heartbeat before the deadline but has never sent one, because the worker may not know
-- about the lease. ReadZombies stops when the contexts and jobs of the zombies that it has returned
-- exceed max_bytes.
-- name: ReadZombies :many
SELECT bounded.namespace, bounded.process_id, bounded.task_id, bounded.task_type, bounded.attempt,
       bounded.fencing_token, bounded.node_id, bounded.kind::text AS kind,
       coalesce(bounded.kind_name, '')::text AS kind_name, bounded.kind_options,
       coalesce(bounded.kind_timeout_us, 0)::bigint AS kind_timeout_us,
       coalesce(bounded.kind_takeovers, 0)::int AS kind_takeovers, bounded.kind_tags,
       bounded.kind_failures,
       coalesce(bounded.kind_keys_version, 0)::bigint AS kind_keys_version, bounded.kind_keys,
       0::bigint AS kind_keys_now,
       bounded.worker_id::text AS worker_id, bounded.never_beat::bool AS never_beat,
       bounded.timed_out::bool AS timed_out, bounded.running_time, bounded.context
  FROM (
    SELECT suspect.*,
           sum(suspect.bytes) OVER (ORDER BY suspect.fencing_token ROWS UNBOUNDED PRECEDING)
             - suspect.bytes AS bytes_before
      FROM (
        SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.fencing_token,
               r.node_id, coalesce(process.kind, '') AS kind, job.*,
               coalesce(l.worker_id, '') AS worker_id,
               l.worker_id IS NOT NULL AND l.beat_time IS NULL AS never_beat,
               r.deadline < statement_timestamp()
                 AND NOT coalesce(
                   l.beat_time IS NULL AND 2 * l.heartbeat_interval <= r.deadline - r.running_time,
                   false) AS timed_out,
               r.running_time, r.context,
               coalesce(octet_length(r.context), 0)
                 + coalesce(octet_length(job.kind_options::text), 0)
                 + coalesce(octet_length(job.kind_failures::text), 0)
                 + coalesce(octet_length(job.kind_tags::text), 0)
                 + coalesce(octet_length(job.kind_keys::text), 0) AS bytes
          FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                          unnest(@fencing_tokens::bigint[]))
               AS item(namespace, process_id, fencing_token)
          JOIN running r
            ON r.namespace = ANY (ARRAY[item.namespace])
           AND r.process_id = item.process_id
           AND r.fencing_token = item.fencing_token
          LEFT JOIN nodes n ON n.node_id = r.node_id
          LEFT JOIN leases l
            ON l.namespace = r.namespace
           AND l.process_id = r.process_id
           AND l.fencing_token = r.fencing_token
          LEFT JOIN LATERAL (
            SELECT p.kind FROM processes p
             WHERE p.namespace = r.namespace
               AND p.process_id = r.process_id
             LIMIT 1) process ON true
          LEFT JOIN LATERAL (
            SELECT j.name AS kind_name, j.options AS kind_options,
                   (extract(epoch FROM j.timeout) * 1000000)::bigint AS kind_timeout_us,
                   j.takeovers AS kind_takeovers, j.tags AS kind_tags,
                   j.failures AS kind_failures, j.constraints_version AS kind_keys_version,
                   j.constraint_keys AS kind_keys
              FROM jobs j
             WHERE process.kind = 'job'
               AND j.namespace = r.namespace
               AND j.process_id = r.process_id
             LIMIT 1) job ON true
         WHERE l.pending_result IS NULL
           AND CASE
                 WHEN l.worker_id IS NOT NULL
                   THEN l.expires_time < statement_timestamp() OR r.deadline < statement_timestamp()
                 ELSE n.node_id IS NULL
                      OR n.dead_beat_time = n.beat_time
                      OR r.deadline
                           < statement_timestamp() - (@margin_us::bigint) * interval '1 microsecond'
               END) suspect) bounded
 WHERE bounded.bytes_before < @max_bytes::bigint;

-- ListRunning returns running rows of a node that the node does not know, with the columns of
-- SearchCalls. The responses to the claims of these rows were lost, and the node adopts the rows.
-- Leased tasks are omitted. ListRunning returns the rows with the smallest tokens, at most 1,000,
-- and stops after the row that exceeds max_bytes.
-- name: ListRunning :many
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.priority, r.fencing_token,
       r.scheduled_time, r.running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range,
       coalesce(r.idempotency_key, '')::text AS idempotency_key, r.args, r.context, p.status,
       coalesce(p.previous_status::text, '')::text AS previous_status,
       p.status_changed_time, coalesce(p.detail, '')::text AS detail,
       coalesce(p.corrupted_by, 0)::bigint AS corrupted_by, p.aux_state, p.metadata,
       p.last_event_id, p.first_event_id, p.kind, p.created_time, r.child,
       coalesce(job.kind_name, '')::text AS kind_name, job.kind_options,
       coalesce(job.kind_timeout_us, 0)::bigint AS kind_timeout_us,
       coalesce(job.kind_takeovers, 0)::int AS kind_takeovers, job.kind_tags, job.kind_failures,
       coalesce(job.kind_keys_version, 0)::bigint AS kind_keys_version, job.kind_keys,
       0::bigint AS kind_keys_now
  FROM (
    SELECT measured.namespace, measured.process_id, measured.fencing_token,
           sum(measured.bytes) OVER (ORDER BY measured.fencing_token ROWS UNBOUNDED PRECEDING)
             - measured.bytes AS bytes_before
      FROM (
        SELECT r.namespace, r.process_id, r.fencing_token,
               coalesce(octet_length(r.args), 0) + coalesce(octet_length(r.context), 0)
                 + coalesce(octet_length(p.aux_state), 0) AS bytes
          FROM running r
          JOIN processes p
            ON p.namespace = ANY (ARRAY[r.namespace])
           AND p.process_id = r.process_id
         WHERE r.node_id = @node_id::bigint
           AND NOT (r.fencing_token = ANY (@known_tokens::bigint[]))
           AND (r.running_time
                  < statement_timestamp() - (@older_than_us::bigint) * interval '1 microsecond'
                -- The clock was set back.
                OR r.running_time > statement_timestamp() + interval '1 second')
           AND coalesce((
             SELECT l.fencing_token FROM leases l
              WHERE l.namespace = r.namespace
                AND l.process_id = r.process_id
              LIMIT 1),
                        0) <> r.fencing_token
         ORDER BY r.fencing_token LIMIT 1000) measured) bounded
  JOIN running r
    ON r.namespace = ANY (ARRAY[bounded.namespace])
   AND r.process_id = bounded.process_id
   AND r.fencing_token = bounded.fencing_token
  JOIN processes p
    ON p.namespace = ANY (ARRAY[bounded.namespace])
   AND p.process_id = bounded.process_id
  LEFT JOIN LATERAL (
    SELECT j.name AS kind_name, j.options AS kind_options,
           (extract(epoch FROM j.timeout) * 1000000)::bigint AS kind_timeout_us,
           j.takeovers AS kind_takeovers, j.tags AS kind_tags, j.failures AS kind_failures,
           j.constraints_version AS kind_keys_version, j.constraint_keys AS kind_keys
      FROM jobs j
     WHERE p.kind = 'job'
       AND j.namespace = p.namespace
       AND j.process_id = p.process_id
     LIMIT 1) job ON true
 WHERE bounded.bytes_before < @max_bytes::bigint;

-- ListRunningOf returns the running rows of a node in certain processes, after a commit whose
-- response was lost. The columns are those of ListRunning.
-- name: ListRunningOf :many
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.priority, r.fencing_token,
       r.scheduled_time, r.running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval,
       coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range,
       coalesce(r.idempotency_key, '')::text AS idempotency_key, r.args, r.context, process.status,
       coalesce(process.previous_status::text, '')::text AS previous_status,
       process.status_changed_time, coalesce(process.detail, '')::text AS detail,
       coalesce(process.corrupted_by, 0)::bigint AS corrupted_by, process.aux_state,
       process.metadata, process.last_event_id, process.first_event_id, process.kind,
       process.created_time, r.child,
       coalesce(job.kind_name, '')::text AS kind_name, job.kind_options,
       coalesce(job.kind_timeout_us, 0)::bigint AS kind_timeout_us,
       coalesce(job.kind_takeovers, 0)::int AS kind_takeovers, job.kind_tags, job.kind_failures,
       coalesce(job.kind_keys_version, 0)::bigint AS kind_keys_version, job.kind_keys,
       0::bigint AS kind_keys_now
  FROM (
    SELECT DISTINCT item.namespace, item.process_id
      FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]))
           AS item(namespace, process_id)) item
  JOIN running r
    ON r.namespace = ANY (ARRAY[item.namespace])
   AND r.process_id = item.process_id
 CROSS JOIN LATERAL (
   SELECT p.* FROM processes p
    WHERE p.namespace = item.namespace
      AND p.process_id = item.process_id
    LIMIT 1) process
  LEFT JOIN LATERAL (
    SELECT j.name AS kind_name, j.options AS kind_options,
           (extract(epoch FROM j.timeout) * 1000000)::bigint AS kind_timeout_us,
           j.takeovers AS kind_takeovers, j.tags AS kind_tags, j.failures AS kind_failures,
           j.constraints_version AS kind_keys_version, j.constraint_keys AS kind_keys
      FROM jobs j
     WHERE process.kind = 'job'
       AND j.namespace = process.namespace
       AND j.process_id = process.process_id
     LIMIT 1) job ON true
 WHERE r.node_id = @node_id::bigint
   AND coalesce((
     SELECT l.fencing_token FROM leases l
      WHERE l.namespace = r.namespace
        AND l.process_id = r.process_id
      LIMIT 1),
                0) <> r.fencing_token;
