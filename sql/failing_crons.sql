-- A failing cron is one whose last run has failed. Then its state, whose first line is JSON,
-- contains the number of consecutive failures. No text in the state contains the pattern that is
-- searched for, because its quotes would be escaped. search/crons.go contains the same condition.
-- CountFailingCrons counts the failing crons of namespaces, among the first lim crons of each.
-- name: CountFailingCrons :many
SELECT item.namespace::text AS namespace, failing.n::bigint AS n
  FROM unnest(@namespaces::text[]) AS item(namespace)
 CROSS JOIN LATERAL (
   SELECT count(*) AS n
     FROM (
       SELECT p.aux_state, p.removed_time FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id >= '~cron/'
          AND p.process_id < '~cron0'
        ORDER BY p.process_id LIMIT @lim::int) cron
    WHERE cron.removed_time IS NULL
      AND position('"failures":'::bytea IN substring(
            cron.aux_state FROM 1 FOR position('\x0a'::bytea IN cron.aux_state))) > 0) failing
 WHERE failing.n > 0;

-- ListFailingCrons lists failing crons, among the first lim crons of each namespace, with the
-- number of consecutive failures. The error is that of the last run that failed, among the newest
-- 1,000 fires.
-- name: ListFailingCrons :many
SELECT failing.namespace, failing.cron_id, failing.failures,
       coalesce(lower(fires.status), '')::text AS reason,
       left(coalesce(fires.detail, ''), @max_detail::int)::text AS message,
       error_fingerprint(lower(fires.status), fires.detail)::text AS fingerprint,
       coalesce(fires.first_time, failing.changed_time)::timestamptz AS first_time,
       coalesce(fires.last_time, failing.changed_time)::timestamptz AS last_time
  FROM (
    SELECT cron.namespace, substr(cron.process_id, 7)::text AS cron_id,
           greatest(coalesce((replace(
             convert_from(substring(cron.aux_state FROM 1 FOR cron.line_end - 1), 'UTF8'),
             '\u0000', '\ufffd')::jsonb->'cron'->>'failures')::bigint, 1), 1)::bigint AS failures,
           cron.status_changed_time AS changed_time
      FROM unnest(@namespaces::text[]) AS item(namespace)
     CROSS JOIN LATERAL (
       SELECT p.namespace, p.process_id, p.aux_state, p.removed_time, p.status_changed_time,
              position('\x0a'::bytea IN p.aux_state) AS line_end
         FROM processes p
        WHERE p.namespace = item.namespace
          AND p.process_id >= '~cron/'
          AND p.process_id < '~cron0'
        ORDER BY p.process_id LIMIT @lim::int) cron
     WHERE cron.removed_time IS NULL
       AND position('"failures":'::bytea IN substring(
             cron.aux_state FROM 1 FOR cron.line_end)) > 0) failing
  LEFT JOIN LATERAL (
    SELECT (array_agg(fire.status::text ORDER BY fire.fire_time DESC))[1] AS status,
           (array_agg(fire.detail ORDER BY fire.fire_time DESC))[1] AS detail,
           min(fire.ended_time) AS first_time, max(fire.ended_time) AS last_time
      FROM (
        SELECT f.fire_time, f.status, f.detail, f.ended_time
          FROM (
            SELECT newest.* FROM cron_fires newest
             WHERE newest.namespace = failing.namespace
               AND newest.cron_id = failing.cron_id
             ORDER BY newest.fire_time DESC LIMIT 1000) f
         WHERE f.status IN ('FAILED', 'TIMEOUT', 'CANCELLED')
         ORDER BY f.fire_time DESC LIMIT failing.failures) fire) fires ON true
 ORDER BY fires.last_time DESC NULLS LAST;
