-- ReadHistories reads the events that attempts show their processors, for all attempts that wait for one by one statement.
-- Forward: event_id > bound, ascending; backward: event_id < bound, descending.
-- name: ReadHistories :many
SELECT k.ord::int AS ord, x.event_id, x.task_id, x."timestamp", x.metadata, x.payload
  FROM ROWS FROM (unnest(@ords::int[]), unnest(@namespaces::text[]), unnest(@process_ids::text[]), unnest(@bounds::bigint[]),
                  unnest(@limits::int[]), unnest(@backwards::bool[]))
       AS k(ord, namespace, process_id, bound, lim, backward)
 CROSS JOIN LATERAL (
   (SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload FROM events e
     WHERE NOT k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id > k.bound
     ORDER BY e.namespace, e.process_id, e.event_id LIMIT k.lim)
   UNION ALL
   (SELECT e.event_id, e.task_id, e."timestamp", e.metadata, e.payload FROM events e
     WHERE k.backward AND e.namespace = k.namespace AND e.process_id = k.process_id AND e.event_id < k.bound
     ORDER BY e.namespace DESC, e.process_id DESC, e.event_id DESC LIMIT k.lim)) x;
