-- AddSealKey stores the key that encrypts secrets, if there is none.
-- name: AddSealKey :exec
INSERT INTO seal_keys (key) VALUES (@key) ON CONFLICT (one_row) DO NOTHING;

-- ReadSealKey returns the key that encrypts secrets.
-- name: ReadSealKey :one
SELECT k.key FROM seal_keys k;

-- PutSecret creates or replaces a secret.
-- name: PutSecret :exec
INSERT INTO secrets (namespaces, name, value)
VALUES (@namespaces, @name, @value)
ON CONFLICT (name, namespaces) DO UPDATE
   SET value = excluded.value, created_by = session_user, updated_time = statement_timestamp();

-- ReadSecrets returns the secrets with a name.
-- name: ReadSecrets :many
SELECT s.namespaces, s.value
  FROM secrets s
 WHERE s.name = @name
 ORDER BY s.namespaces;

-- ListSecrets returns the secrets without their values, sorted by name. key_id identifies the key
-- that encrypted the value.
-- name: ListSecrets :many
SELECT s.name, s.namespaces, split_part(s.value, ':', 2) AS key_id, s.created_by, s.updated_time
  FROM secrets s
 ORDER BY s.name, s.namespaces LIMIT @lim::int;

-- RemoveSecret deletes a secret.
-- name: RemoveSecret :execrows
DELETE FROM secrets
 WHERE name = @name
   AND namespaces = @namespaces;
