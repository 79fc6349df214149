-- ReadWatched returns the changes of watched processes, for all watchers of a node at once and from
-- one snapshot: each process that has changed (its last_event_id, its status_changed_time), or not
-- found, with the events after the last one of its watcher. A process without changes is missing.
-- For each watcher it returns at most lim events, until they exceed max_bytes, including the event
-- that exceeds it, and for all together until they exceed max_total; the others are read again. The
-- laterals end in LIMIT so that every process is found by its key, regardless of settings and
-- statistics.
-- name: ReadWatched :many
SELECT x.ord::int AS ord, x.found::bool AS found, x.status_changed_time::timestamptz AS status_changed_time,
       x.created_time::timestamptz AS created_time, x.last_event_id::bigint AS last_event_id,
       x.first_event_id::bigint AS first_event_id, x.event_id::bigint AS event_id, x.task_id::bigint AS task_id,
       x."timestamp"::timestamptz AS "timestamp", x.metadata::jsonb AS metadata, x.payload::bytea AS payload FROM (
  SELECT y.*, sum(y.size) OVER (ORDER BY y.ord, y.event_id ROWS UNBOUNDED PRECEDING) AS total FROM (
    SELECT k.ord, p.status IS NOT NULL AS found, coalesce(p.status_changed_time, 'epoch') AS status_changed_time,
           coalesce(p.created_time, 'epoch') AS created_time, coalesce(p.last_event_id, 0) AS last_event_id,
           coalesce(p.first_event_id, 1) AS first_event_id,
           coalesce(e.event_id, 0) AS event_id, coalesce(e.task_id, 0) AS task_id, coalesce(e."timestamp", 'epoch') AS "timestamp", e.metadata, e.payload,
           coalesce(e.size, 0) AS size
      FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@after_event_ids::bigint[]),
                      unnest(@status_changed_times::timestamptz[]))
           AS k(ord, namespace, process_id, after_event_id, status_changed_time)
      LEFT JOIN LATERAL (
        SELECT p.status, p.status_changed_time, p.created_time, p.last_event_id, p.first_event_id,
               greatest(k.after_event_id, p.first_event_id - 1) AS after_event_id FROM processes p
         WHERE p.namespace = k.namespace AND p.process_id = k.process_id AND p.removed_time IS NULL LIMIT 1) p ON true
      LEFT JOIN LATERAL (
        SELECT s.event_id, s.task_id, s."timestamp", s.metadata, s.payload, s.size FROM (
          SELECT r.*, sum(r.size) OVER (ORDER BY r.event_id ROWS UNBOUNDED PRECEDING) AS total FROM (
            SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
                   octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size FROM events e
             WHERE p.last_event_id > p.after_event_id AND e.namespace = k.namespace AND e.process_id = k.process_id
               AND e.event_id > p.after_event_id
             ORDER BY e.namespace, e.process_id, e.event_id LIMIT @lim::int) r) s
         WHERE s.total - s.size <= @max_bytes::bigint) e ON true
     WHERE p.status IS NULL OR p.last_event_id > p.after_event_id OR p.status_changed_time <> k.status_changed_time) y) x
 WHERE x.total - x.size <= @max_total::bigint
 ORDER BY x.ord, x.event_id;

-- ReadProcesses returns processes until they exceed max_bytes, including the row that exceeds it.
-- name: ReadProcesses :many
SELECT x.namespace, x.process_id, x.status, x.previous_status, x.status_changed_time, x.attention, x.attention_time, x.detail, x.corrupted_by,
       x.last_event_id, x.kind, x.created_time, x.removed_time, x.aux_state, x.metadata, x.cancel_requested_time, x.cancel_reason,
       x.first_event_id, x.history_restarted_time FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY k.ord ROWS UNBOUNDED PRECEDING) AS total
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) WITH ORDINALITY AS k(namespace, process_id, ord)
   CROSS JOIN LATERAL (
     SELECT p.*, coalesce(octet_length(p.aux_state), 0) + coalesce(octet_length(p.metadata::text), 0) + coalesce(octet_length(p.detail), 0) AS size
       FROM processes p WHERE p.namespace = k.namespace AND p.process_id = k.process_id AND p.removed_time IS NULL LIMIT 1) p) x
 WHERE x.total - x.size <= @max_bytes::bigint;
