-- name: PutNamespace :one
INSERT INTO namespaces (namespace, config) VALUES (@namespace, @config)
ON CONFLICT (namespace) DO UPDATE SET config = excluded.config, updated_time = clock_timestamp()
RETURNING *;

-- name: SetNamespacePaused :one
UPDATE namespaces SET paused = @paused, updated_time = clock_timestamp() WHERE namespace = @namespace RETURNING *;

-- name: GetNamespace :one
SELECT * FROM namespaces WHERE namespace = @namespace;

-- name: ListNamespaces :many
SELECT * FROM namespaces ORDER BY namespace;
