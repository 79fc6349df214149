-- name: InsertNode :one
INSERT INTO nodes (address, version) VALUES (@address, @version) RETURNING node_id;

-- Beat keeps a node alive, stores what it has done, and tells whether it was asked to drain; no row: another has buried it, and it must
-- take a new identity. lateness_us -1: no timer.
-- name: Beat :one
UPDATE nodes SET beat_time = statement_timestamp(), draining = @draining::bool OR drain_requested_time IS NOT NULL,
       tasks_per_second = @tasks_per_second::double precision,
       timer_lateness_p99 = CASE WHEN (@lateness_us::bigint) >= 0 THEN (@lateness_us::bigint) * interval '1 microsecond' END
 WHERE node_id = @node_id
RETURNING (drain_requested_time IS NOT NULL)::bool AS drain;

-- name: DeleteNode :exec
DELETE FROM nodes WHERE node_id = @node_id;

-- BuryNodes forgets nodes that are long dead and hold nothing.
-- name: BuryNodes :exec
DELETE FROM nodes n WHERE n.beat_time < statement_timestamp() - interval '1 hour'
   AND NOT EXISTS (SELECT 1 FROM running r WHERE r.node_id = n.node_id);

-- ListNodes lists the nodes with what they run; running is small.
-- name: ListNodes :many
SELECT n.node_id, n.address, n.version, n.started_time, n.beat_time, n.draining, coalesce(r.running, 0)::int AS running
  FROM nodes n LEFT JOIN (SELECT r.node_id, count(*) AS running FROM running r GROUP BY r.node_id) r ON r.node_id = n.node_id
 ORDER BY n.node_id;

-- DrainNode asks a node to drain; a second request changes nothing.
-- name: DrainNode :one
UPDATE nodes n SET drain_requested_time = coalesce(n.drain_requested_time, statement_timestamp()), draining = true WHERE n.node_id = @node_id
RETURNING n.node_id, n.address, n.version, n.started_time, n.beat_time, n.draining,
          (SELECT count(*) FROM running r WHERE r.node_id = @node_id)::int AS running;
