-- name: InsertNode :one
INSERT INTO nodes (address, version) VALUES (@address, @version) RETURNING node_id;

-- Beat keeps a node alive; no row: another has buried it, and it must take a new identity.
-- name: Beat :one
UPDATE nodes SET beat_time = statement_timestamp(), draining = @draining WHERE node_id = @node_id RETURNING node_id;

-- name: DeleteNode :exec
DELETE FROM nodes WHERE node_id = @node_id;

-- BuryNodes forgets nodes that are long dead and hold nothing.
-- name: BuryNodes :exec
DELETE FROM nodes n WHERE n.beat_time < statement_timestamp() - interval '1 hour'
   AND NOT EXISTS (SELECT 1 FROM running r WHERE r.node_id = n.node_id);

-- name: ListNodes :many
SELECT * FROM nodes ORDER BY node_id;
