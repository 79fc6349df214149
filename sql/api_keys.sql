-- CreateKey stores a key. ttl_us is NULL for a key that does not expire.
-- name: CreateKey :one
INSERT INTO api_keys (key_id, name, secret_hash, expire_time)
VALUES (@key_id, @name, @secret_hash,
        statement_timestamp() + (sqlc.narg('ttl_us')::bigint) * interval '1 microsecond')
RETURNING *;

-- ReadKey returns the name and the hash of a key, whether it is still valid, and its grants: the
-- roles, and in the same order the patterns of their namespaces.
-- name: ReadKey :one
SELECT k.name, k.secret_hash,
       (k.revoked_time IS NOT NULL)::bool AS revoked,
       (k.expire_time IS NOT NULL AND k.expire_time <= statement_timestamp())::bool AS expired,
       ARRAY(
         SELECT g.role FROM grants g
          WHERE g.principal = 'key:' || k.key_id
          ORDER BY g.role, g.namespaces)::text[] AS roles,
       ARRAY(
         SELECT g.namespaces FROM grants g
          WHERE g.principal = 'key:' || k.key_id
          ORDER BY g.role, g.namespaces)::text[] AS patterns
  FROM api_keys k
 WHERE k.key_id = @key_id;

-- ListKeys returns all keys, the newest first.
-- name: ListKeys :many
SELECT * FROM api_keys k ORDER BY k.created_time DESC, k.key_id LIMIT @lim::int;

-- RevokeKey revokes a key. It returns no row if the key does not exist or is revoked.
-- name: RevokeKey :one
UPDATE api_keys
   SET revoked_time = statement_timestamp()
 WHERE key_id = @key_id
   AND revoked_time IS NULL
RETURNING *;
