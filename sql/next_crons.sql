-- ListNextCrons lists the crons of namespaces that fire next, soonest first, at most lim. The first
-- line of the state of a cron is JSON, with its next fire time. The default timer of a cron is not
-- later than that, but may be earlier: it is also the deadline of its runs. Therefore,
-- ListNextCrons reads the crons whose timers are due first, up to candidates, and sorts them by
-- their fire times. Their states have at most max_bytes in total.
-- name: ListNextCrons :many
SELECT summed.namespace, summed.process_id, summed.aux_state
  FROM (
    SELECT p.namespace, p.process_id, p.aux_state, head.next,
           sum(octet_length(p.aux_state)) OVER first_rows AS bytes
      FROM (
        SELECT due.namespace, due.process_id
          FROM unnest(@namespaces::text[]) AS item(namespace)
         CROSS JOIN LATERAL (
           SELECT s.namespace, s.process_id, s.scheduled_time FROM schedule s
            WHERE s.namespace COLLATE "POSIX" = item.namespace
              AND s.waits_for = 'time'
              AND starts_with(s.process_id, '~cron/')
              AND s.timer_name = ''
            ORDER BY s.scheduled_time LIMIT @candidates::int) due
         ORDER BY due.scheduled_time LIMIT @candidates) timer
      JOIN processes p
        ON p.namespace = timer.namespace
       AND p.process_id = timer.process_id
     CROSS JOIN LATERAL (
       SELECT (replace(
         convert_from(substring(
           p.aux_state FROM 1 FOR nullif(position('\x0a'::bytea IN p.aux_state), 0) - 1), 'UTF8'),
         '\u0000', '\ufffd')::jsonb->>'next')::timestamptz AS next) head
     WHERE p.status = 'RUNNING'
       AND head.next IS NOT NULL
    WINDOW first_rows AS (ORDER BY head.next, p.namespace, p.process_id ROWS UNBOUNDED PRECEDING)
     ORDER BY head.next, p.namespace, p.process_id LIMIT @lim::int) summed
 WHERE summed.bytes <= @max_bytes::bigint
 ORDER BY summed.next, summed.namespace, summed.process_id;
