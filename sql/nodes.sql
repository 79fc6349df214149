-- name: InsertNode :one
INSERT INTO nodes (address, version, max_connections, requests_only)
VALUES (@address, @version, @max_connections::int, @requests_only)
RETURNING node_id;

-- Beat stores the heartbeat of a node and reports whether an operator asked it to drain. It returns
-- no row if another node has declared this one dead or deleted its row. The node must then register
-- again. lateness_us is -1 if the node has claimed no timer.
-- name: Beat :one
UPDATE nodes
   SET beat_time = statement_timestamp(),
       draining = @draining::bool OR drain_requested_time IS NOT NULL,
       tasks_per_second = @tasks_per_second::double precision,
       timer_lateness_p99 = CASE
                              WHEN (@lateness_us::bigint) >= 0
                                THEN (@lateness_us::bigint) * interval '1 microsecond'
                            END
 WHERE node_id = @node_id
   AND (dead_beat_time = beat_time) IS NOT TRUE
RETURNING (drain_requested_time IS NOT NULL)::bool AS drain;

-- ListBeats returns the heartbeats of all nodes that are not dead, and the time of the database.
-- name: ListBeats :many
SELECT n.node_id, n.beat_time, n.draining, n.requests_only,
       statement_timestamp()::timestamptz AS now
  FROM nodes n WHERE (n.dead_beat_time = n.beat_time) IS NOT TRUE;

-- DeclareDead marks a node as dead, unless it has sent a heartbeat since beat_time was read.
-- name: DeclareDead :execrows
UPDATE nodes
   SET dead_beat_time = beat_time
 WHERE node_id = @node_id
   AND beat_time = @beat_time
   AND (dead_beat_time = beat_time) IS NOT TRUE;

-- name: DeleteNode :exec
DELETE FROM nodes
 WHERE node_id = @node_id;

-- DeleteDeadNodes deletes nodes that were declared dead, sent their last heartbeat more than an
-- hour ago, and run no tasks.
-- name: DeleteDeadNodes :exec
DELETE FROM nodes n
 WHERE n.dead_beat_time = n.beat_time
   AND n.beat_time < statement_timestamp() - interval '1 hour'
   AND NOT EXISTS (SELECT 1 FROM running r WHERE r.node_id = n.node_id);

-- ListNodes lists the nodes with the number of tasks that they run, at most the newest 1,000. It
-- reads all of running, which is a small table.
-- name: ListNodes :many
WITH counts AS MATERIALIZED (
  SELECT r.node_id, count(*) AS running FROM running r GROUP BY r.node_id)
SELECT n.node_id, n.address, n.version, n.started_time, n.beat_time, n.draining, n.requests_only,
       coalesce(counts.running, 0)::int AS running
  FROM (SELECT x.* FROM nodes x ORDER BY x.node_id DESC LIMIT 1000) n
  LEFT JOIN counts ON counts.node_id = n.node_id
 ORDER BY n.node_id;

-- DrainNode asks a node to drain. A second request changes nothing.
-- name: DrainNode :one
UPDATE nodes n
   SET drain_requested_time = coalesce(n.drain_requested_time, statement_timestamp()),
       draining = true
 WHERE n.node_id = @node_id
RETURNING n.node_id, n.address, n.version, n.started_time, n.beat_time, n.draining, n.requests_only,
          (SELECT count(*) FROM running r WHERE r.node_id = @node_id)::int AS running;

-- SendNotice wakes the nodes that listen on a channel. Its commit does not wait for the disk: a
-- notice that is lost in a crash delays work until the next poll.
-- name: SendNotice :exec
SELECT set_config('synchronous_commit', 'off', true), send_notice(@channel);

-- SendNotices is like SendNotice, with several payloads.
-- name: SendNotices :exec
SELECT set_config('synchronous_commit', 'off', true), send_notice(@channel, item.payload)
  FROM unnest(@payloads::text[]) AS item(payload);

-- IsPortable reports whether the setting progressor.portable is on.
-- name: IsPortable :one
SELECT is_portable()::bool AS portable;

-- MergeMetadataIndex moves new entries of the index of metadata from their list into the index.
-- name: MergeMetadataIndex :exec
SELECT merge_metadata_index();
