-- ReadHistories returns the events for the processors of attempts, for all waiting attempts at
-- once. A forward read returns event_id > bound, ascending. A backward read returns event_id <
-- bound, descending. For each reader, it stops when the payloads and metadata of the returned rows
-- exceed max_bytes, so that an oversized history is not sent in full.
-- name: ReadHistories :many
SELECT item.ord::int AS ord, event.event_id, event.task_id, event."timestamp", event.metadata,
       event.payload
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@bounds::bigint[]), unnest(@limits::int[]), unnest(@backwards::bool[]))
       AS item(ord, namespace, process_id, bound, lim, backward)
 CROSS JOIN LATERAL (
   (
     SELECT bounded.event_id, bounded.task_id, bounded."timestamp", bounded.metadata,
            bounded.payload
       FROM (
         SELECT measured.event_id, measured.task_id, measured."timestamp", measured.metadata,
                measured.payload, measured.size,
                sum(measured.size)
                  OVER (ORDER BY measured.event_id ROWS UNBOUNDED PRECEDING) AS total
           FROM (
             SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
                    octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size
               FROM events e
              WHERE NOT item.backward
                AND e.namespace = item.namespace
                AND e.process_id = item.process_id
                AND e.event_id > item.bound
              ORDER BY e.namespace, e.process_id, e.event_id LIMIT item.lim) measured) bounded
      WHERE bounded.total - bounded.size <= @max_bytes::bigint)
   UNION ALL (
     SELECT bounded.event_id, bounded.task_id, bounded."timestamp", bounded.metadata,
            bounded.payload
       FROM (
         SELECT measured.event_id, measured.task_id, measured."timestamp", measured.metadata,
                measured.payload, measured.size,
                sum(measured.size)
                  OVER (ORDER BY measured.event_id DESC ROWS UNBOUNDED PRECEDING) AS total
           FROM (
             SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
                    octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size
               FROM events e
              WHERE item.backward
                AND e.namespace = item.namespace
                AND e.process_id = item.process_id
                AND e.event_id < item.bound
              ORDER BY e.namespace DESC, e.process_id DESC, e.event_id DESC
              LIMIT item.lim) measured) bounded
      WHERE bounded.total - bounded.size <= @max_bytes::bigint)) event;

-- ReadShortHistories returns short histories. It returns events of more than max_bytes without
-- payload and metadata. If these are needed, the caller uses ReadHistories, which also computes a
-- running total. The running total takes a fifth of the time of ReadHistories.
-- name: ReadShortHistories :many
SELECT item.ord::int AS ord, event.event_id, event.task_id, event."timestamp",
       (CASE WHEN size_limit.fits THEN event.metadata END)::jsonb AS metadata,
       (CASE WHEN size_limit.fits THEN event.payload END)::bytea AS payload
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                  unnest(@bounds::bigint[]), unnest(@limits::int[]), unnest(@backwards::bool[]))
       AS item(ord, namespace, process_id, bound, lim, backward)
 CROSS JOIN LATERAL (
   (
     SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
            octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size
       FROM events e
      WHERE NOT item.backward
        AND e.namespace = item.namespace
        AND e.process_id = item.process_id
        AND e.event_id > item.bound
      ORDER BY e.namespace, e.process_id, e.event_id LIMIT item.lim)
   UNION ALL (
     SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
            octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size
       FROM events e
      WHERE item.backward
        AND e.namespace = item.namespace
        AND e.process_id = item.process_id
        AND e.event_id < item.bound
      ORDER BY e.namespace DESC, e.process_id DESC, e.event_id DESC LIMIT item.lim)) event
 CROSS JOIN LATERAL (SELECT event.size <= @max_bytes::bigint AS fits) size_limit;
