-- ReadGrowth returns numbers that grow if engines fall behind: by how much the oldest idempotency
-- key has exceeded its retention (µs), how long the oldest undelivered message has waited (µs), and
-- the numbers of undelivered messages, of processes with large queues, and of results that workers
-- have stored with the function complete, each counted up to lim.
-- name: ReadGrowth :one
SELECT greatest(coalesce(extract(epoch FROM statement_timestamp() - (
  SELECT r.created_time FROM requests r
   WHERE r.created_time < statement_timestamp() - (@retention_us::bigint) * interval '1 microsecond'
   ORDER BY r.created_time LIMIT 1)) * 1000000 - @retention_us::bigint,
                         0),
                0)::bigint AS key_overdue_us,
       coalesce(extract(epoch FROM statement_timestamp() - (
         SELECT m.created_time FROM messages m WHERE m.held IS NOT TRUE
          ORDER BY m.created_time LIMIT 1)) * 1000000,
                0)::bigint AS message_age_us,
       (
         SELECT count(*) FROM (
           SELECT 1 FROM messages m WHERE m.held IS NOT TRUE
            LIMIT @lim::int) message)::bigint AS messages,
       (
         SELECT count(*) FROM (
           SELECT 1 FROM queue_backlogs LIMIT @lim::int) queue_backlog)::bigint AS backlogs,
       (
         SELECT count(*) FROM (
           SELECT 1 FROM leases l WHERE l.pending_result IS NOT NULL
            LIMIT @lim::int) result)::bigint AS pending_results;
