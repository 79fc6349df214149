-- ReadWatched returns the changes of watched processes, for all watchers of a node at once and from
-- one snapshot. It returns each process that does not exist, or whose last_event_id or
-- status_changed_time has changed, with the events that its watcher does not know. It omits
-- processes without changes. For each watcher it returns at most lim events, and stops after the
-- event that exceeds max_bytes. For all watchers together it stops when the events exceed
-- max_total. The next call returns the rest. The laterals end in LIMIT so that every process is
-- found by its key, regardless of settings and statistics.
-- name: ReadWatched :many
SELECT bounded.ord::int AS ord, bounded.found::bool AS found,
       bounded.status_changed_time::timestamptz AS status_changed_time,
       bounded.created_time::timestamptz AS created_time,
       bounded.last_event_id::bigint AS last_event_id,
       bounded.first_event_id::bigint AS first_event_id, bounded.event_id::bigint AS event_id,
       bounded.task_id::bigint AS task_id, bounded."timestamp"::timestamptz AS "timestamp",
       bounded.metadata::jsonb AS metadata, bounded.payload::bytea AS payload
  FROM (
    SELECT item_event.*,
           sum(item_event.size)
             OVER (ORDER BY item_event.ord, item_event.event_id ROWS UNBOUNDED PRECEDING) AS total
      FROM (
        SELECT item.ord, process.status IS NOT NULL AS found,
               coalesce(process.status_changed_time, 'epoch') AS status_changed_time,
               coalesce(process.created_time, 'epoch') AS created_time,
               coalesce(process.last_event_id, 0) AS last_event_id,
               coalesce(process.first_event_id, 1) AS first_event_id,
               coalesce(event.event_id, 0) AS event_id, coalesce(event.task_id, 0) AS task_id,
               coalesce(event."timestamp", 'epoch') AS "timestamp", event.metadata, event.payload,
               coalesce(event.size, 0) AS size
          FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]),
                          unnest(@process_ids::text[]), unnest(@after_event_ids::bigint[]),
                          unnest(@status_changed_times::timestamptz[]))
               AS item(ord, namespace, process_id, after_event_id, status_changed_time)
          LEFT JOIN LATERAL (
            SELECT p.status, p.status_changed_time, p.created_time, p.last_event_id,
                   p.first_event_id,
                   greatest(item.after_event_id, p.first_event_id - 1) AS after_event_id
              FROM processes p
             WHERE p.namespace = item.namespace
               AND p.process_id = item.process_id
               AND p.removed_time IS NULL
             LIMIT 1) process ON true
          LEFT JOIN LATERAL (
            SELECT summed.event_id, summed.task_id, summed."timestamp", summed.metadata,
                   summed.payload, summed.size
              FROM (
                SELECT measured.*,
                       sum(measured.size)
                         OVER (ORDER BY measured.event_id ROWS UNBOUNDED PRECEDING) AS total
                  FROM (
                    SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
                           octet_length(e.payload)
                             + coalesce(octet_length(e.metadata::text), 0) AS size
                      FROM events e
                     WHERE process.last_event_id > process.after_event_id
                       AND e.namespace = item.namespace
                       AND e.process_id = item.process_id
                       AND e.event_id > process.after_event_id
                     ORDER BY e.namespace, e.process_id, e.event_id
                     LIMIT @lim::int) measured) summed
             WHERE summed.total - summed.size <= @max_bytes::bigint) event ON true
         WHERE process.status IS NULL
            OR process.last_event_id > process.after_event_id
            OR process.status_changed_time <> item.status_changed_time) item_event) bounded
 WHERE bounded.total - bounded.size <= @max_total::bigint
 ORDER BY bounded.ord, bounded.event_id;

-- ReadProcesses returns processes, and stops after the one that exceeds max_bytes.
-- name: ReadProcesses :many
SELECT summed.namespace, summed.process_id, summed.status, summed.previous_status,
       summed.status_changed_time, summed.attention, summed.attention_time, summed.detail,
       summed.corrupted_by, summed.last_event_id, summed.kind, summed.created_time,
       summed.removed_time, summed.aux_state, summed.metadata, summed.cancel_requested_time,
       summed.cancel_reason, summed.first_event_id, summed.history_restarted_time
  FROM (
    SELECT process.*,
           sum(process.size) OVER (ORDER BY item.ord ROWS UNBOUNDED PRECEDING) AS total
      FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[])) WITH ORDINALITY
           AS item(namespace, process_id, ord)
     CROSS JOIN LATERAL (
       SELECT p.*,
              coalesce(octet_length(p.aux_state), 0) + coalesce(octet_length(p.metadata::text), 0)
                + coalesce(octet_length(p.detail), 0) AS size
         FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id = item.process_id
          AND p.removed_time IS NULL
        LIMIT 1) process) summed
 WHERE summed.total - summed.size <= @max_bytes::bigint;
