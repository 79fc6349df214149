-- ReadHistories returns the events for the processors of attempts, for all waiting attempts at
-- once. Forward: event_id > bound, ascending; backward: event_id < bound, descending. For each
-- reader it returns rows until their payloads and metadata exceed max_bytes, including the row that
-- exceeds it, so that an oversized history is not sent in full.
-- name: ReadHistories :many
SELECT k.ord::int AS ord, x.event_id, x.task_id, x."timestamp", x.metadata, x.payload
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@bounds::bigint[]),
                  unnest(@limits::int[]), unnest(@backwards::bool[]))
       AS k(ord, namespace, process_id, bound, lim, backward)
 CROSS JOIN LATERAL (
   (SELECT s.event_id, s.task_id, s."timestamp", s.metadata, s.payload FROM (
      SELECT r.event_id, r.task_id, r."timestamp", r.metadata, r.payload, r.size,
             sum(r.size) OVER (ORDER BY r.event_id ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
               octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size FROM events e
         WHERE NOT k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id > k.bound
         ORDER BY e.namespace, e.process_id, e.event_id LIMIT k.lim) r) s
     WHERE s.total - s.size <= @max_bytes::bigint)
   UNION ALL
   (SELECT s.event_id, s.task_id, s."timestamp", s.metadata, s.payload FROM (
      SELECT r.event_id, r.task_id, r."timestamp", r.metadata, r.payload, r.size,
             sum(r.size) OVER (ORDER BY r.event_id DESC ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
               octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size FROM events e
         WHERE k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id < k.bound
         ORDER BY e.namespace DESC, e.process_id DESC, e.event_id DESC LIMIT k.lim) r) s
     WHERE s.total - s.size <= @max_bytes::bigint)) x;

-- ReadShortHistories returns short histories. An event of more than max_bytes comes without payload
-- and metadata; if it is needed, ReadHistories reads it, whose running total costs a fifth of its
-- time.
-- name: ReadShortHistories :many
SELECT k.ord::int AS ord, x.event_id, x.task_id, x."timestamp",
       (CASE WHEN f.fits THEN x.metadata END)::jsonb AS metadata, (CASE WHEN f.fits THEN x.payload END)::bytea AS payload
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@bounds::bigint[]),
                  unnest(@limits::int[]), unnest(@backwards::bool[]))
       AS k(ord, namespace, process_id, bound, lim, backward)
 CROSS JOIN LATERAL (
   (SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
           octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size FROM events e
     WHERE NOT k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id > k.bound
     ORDER BY e.namespace, e.process_id, e.event_id LIMIT k.lim)
   UNION ALL
   (SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload,
           octet_length(e.payload) + coalesce(octet_length(e.metadata::text), 0) AS size FROM events e
     WHERE k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id < k.bound
     ORDER BY e.namespace DESC, e.process_id DESC, e.event_id DESC LIMIT k.lim)) x
 CROSS JOIN LATERAL (SELECT x.size <= @max_bytes::bigint AS fits) f;
