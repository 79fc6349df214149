-- CollectZombies finds running rows whose node is dead, or that a live node has held past their deadline and a margin. Each is
-- then saved as a retry or a failure under its own token, as any attempt's end: if its node was quicker, nothing happens. Of a task that is
-- leased to a worker the lease counts, not the node that handed it out, and its deadline without a margin: nobody else watches it.
-- name: CollectZombies :many
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.fencing_token, r.node_id, coalesce(p.kind, '')::text AS kind,
       (SELECT json_build_object('name', j.name, 'takeovers', j.takeovers, 'tags', j.tags, 'options', j.options, 'failures', j.failures,
         'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint) FROM jobs j WHERE p.kind = 'job' AND j.namespace = r.namespace AND j.process_id = r.process_id)::json AS job,
       coalesce(l.worker_id, '')::text AS worker_id, (l.worker_id IS NOT NULL AND l.beat_time IS NULL)::bool AS never_beat,
       (r.deadline < statement_timestamp())::bool AS timed_out, r.running_time, r.context
  FROM running r LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id AND l.fencing_token = r.fencing_token
  LEFT JOIN LATERAL (SELECT p.kind FROM processes p WHERE p.namespace = r.namespace AND p.process_id = r.process_id LIMIT 1) p ON true
 WHERE CASE WHEN l.worker_id IS NOT NULL THEN l.expires_time < statement_timestamp() OR r.deadline < statement_timestamp()
            ELSE n.node_id IS NULL OR n.beat_time < statement_timestamp() - (@zombie_after_us::bigint) * interval '1 microsecond'
              OR r.deadline < statement_timestamp() - (@margin_us::bigint) * interval '1 microsecond' END
 LIMIT @lim::int;

-- ListRunning gives what stands in running for one node, as SearchCalls would have handed it out: what memory does not know of it
-- (a claim whose answer was lost) is adopted. What is leased to a worker is that worker's.
-- name: ListRunning :many
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.priority, r.fencing_token, r.scheduled_time, r.running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval, coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range, coalesce(r.idempotency_key, '')::text AS idempotency_key,
       r.args, r.context, p.status, coalesce(p.previous_status::text, '')::text AS previous_status, p.status_changed_time,
       coalesce(p.detail, '')::text AS detail, coalesce(p.corrupted_by, 0)::bigint AS corrupted_by, p.aux_state, p.metadata,
       p.last_event_id, p.kind, p.created_time, r.child,
       (SELECT json_build_object('name', j.name, 'takeovers', j.takeovers, 'tags', j.tags, 'options', j.options, 'failures', j.failures,
         'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint) FROM jobs j WHERE p.kind = 'job' AND j.namespace = p.namespace AND j.process_id = p.process_id)::json AS job
  FROM running r JOIN processes p ON p.namespace = ANY (ARRAY[r.namespace]) AND p.process_id = r.process_id
 WHERE r.node_id = @node_id::bigint
   AND NOT (r.fencing_token = ANY (@known_tokens::bigint[]))
   AND r.running_time < statement_timestamp() - (@older_than_us::bigint) * interval '1 microsecond'
   AND coalesce((SELECT l.fencing_token FROM leases l WHERE l.namespace = r.namespace AND l.process_id = r.process_id LIMIT 1), 0) <> r.fencing_token
 LIMIT 1000;

-- ListRunningOf gives the running rows of one node of certain processes, after a commit whose answer was lost. Columns as ListRunning.
-- name: ListRunningOf :many
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.priority, r.fencing_token, r.scheduled_time, r.running_time,
       coalesce(r.retry_interval, interval '0')::interval AS retry_interval, coalesce(r.timer_name, '')::text AS timer_name,
       coalesce(r.history_range::text, '')::text AS history_range, coalesce(r.idempotency_key, '')::text AS idempotency_key,
       r.args, r.context, p.status, coalesce(p.previous_status::text, '')::text AS previous_status, p.status_changed_time,
       coalesce(p.detail, '')::text AS detail, coalesce(p.corrupted_by, 0)::bigint AS corrupted_by, p.aux_state, p.metadata,
       p.last_event_id, p.kind, p.created_time, r.child,
       (SELECT json_build_object('name', j.name, 'takeovers', j.takeovers, 'tags', j.tags, 'options', j.options, 'failures', j.failures,
         'constraints_version', j.constraints_version, 'constraint_keys', j.constraint_keys, 'timeout_us', (extract(epoch FROM j.timeout) * 1000000)::bigint) FROM jobs j WHERE p.kind = 'job' AND j.namespace = p.namespace AND j.process_id = p.process_id)::json AS job
  FROM (SELECT DISTINCT x.namespace, x.process_id FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) AS x(namespace, process_id)) k
  JOIN running r ON r.namespace = ANY (ARRAY[k.namespace]) AND r.process_id = k.process_id
 CROSS JOIN LATERAL (SELECT p.* FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id LIMIT 1) p
 WHERE r.node_id = @node_id::bigint
   AND coalesce((SELECT l.fencing_token FROM leases l WHERE l.namespace = r.namespace AND l.process_id = r.process_id LIMIT 1), 0) <> r.fencing_token;
