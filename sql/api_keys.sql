-- CreateKey stores a key. ttl_us is NULL for a key that does not expire. created_by is empty for
-- the role of the session.
-- name: CreateKey :one
INSERT INTO api_keys (key_id, name, secret_hash, expire_time, created_by)
VALUES (@key_id, @name, @secret_hash,
        statement_timestamp() + (sqlc.narg('ttl_us')::bigint) * interval '1 microsecond',
        coalesce(NULLIF(@created_by::text, ''), session_user))
RETURNING *;

-- ReadKey returns the name, the hash and the grants of a key, and reports whether the key is
-- revoked, has expired, or was used within the last minute. The roles and the namespace patterns of
-- the grants have the same order.
-- name: ReadKey :one
SELECT k.name, k.secret_hash,
       (k.revoked_time IS NOT NULL)::bool AS revoked,
       (k.expire_time IS NOT NULL AND k.expire_time <= statement_timestamp())::bool AS expired,
       coalesce(k.used_time > statement_timestamp() - interval '1 minute', false)::bool AS used,
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

-- NoteKeyUse stores the time at which a key was used, unless the stored time is less than a minute
-- old.
-- name: NoteKeyUse :exec
UPDATE api_keys
   SET used_time = statement_timestamp()
 WHERE key_id = @key_id
   AND (used_time IS NULL OR used_time <= statement_timestamp() - interval '1 minute');

-- ListKeys returns keys, newest first, with the first max_roles of their grants: the roles, and in
-- the same order the patterns of their namespaces. after_id is the last key of the previous page,
-- or empty. If valid_only is set, it returns only valid keys. If named is not empty, it returns
-- only keys with this name. If only_id is not empty, it returns only the key with this ID.
-- name: ListKeys :many
SELECT k.key_id, k.name, k.created_by, k.created_time, k.used_time, k.expire_time, k.revoked_time,
       k.replaced_by,
       (k.expire_time IS NOT NULL AND k.expire_time <= statement_timestamp())::bool AS expired,
       (SELECT count(*) FROM grants g WHERE g.principal = 'key:' || k.key_id)::int AS role_count,
       ARRAY(
         SELECT g.role FROM grants g
          WHERE g.principal = 'key:' || k.key_id
          ORDER BY g.role, g.namespaces LIMIT @max_roles::int)::text[] AS roles,
       ARRAY(
         SELECT g.namespaces FROM grants g
          WHERE g.principal = 'key:' || k.key_id
          ORDER BY g.role, g.namespaces LIMIT @max_roles::int)::text[] AS patterns
  FROM api_keys k
 WHERE (@after_id::text = ''
        OR (k.created_time, k.key_id) < (
          SELECT x.created_time, x.key_id FROM api_keys x WHERE x.key_id = @after_id))
   AND (NOT @valid_only::bool
        OR k.revoked_time IS NULL
        AND (k.expire_time IS NULL OR k.expire_time > statement_timestamp()))
   AND (@named::text = '' OR k.name = @named)
   AND (@only_id::text = '' OR k.key_id = @only_id)
 ORDER BY k.created_time DESC, k.key_id DESC LIMIT @lim::int;

-- RevokeKey revokes a key. It returns no row if the key does not exist or is revoked.
-- name: RevokeKey :one
UPDATE api_keys
   SET revoked_time = statement_timestamp()
 WHERE key_id = @key_id
   AND revoked_time IS NULL
RETURNING *;

-- LockValidKey locks and returns a valid key.
-- name: LockValidKey :one
SELECT * FROM api_keys k
 WHERE k.key_id = @key_id
   AND k.revoked_time IS NULL
   AND (k.expire_time IS NULL OR k.expire_time > statement_timestamp())
   FOR UPDATE;

-- ReplaceKey stores which key replaces a key. The old key expires after an overlap, or earlier if
-- its own expiry is earlier. Without an overlap, ReplaceKey revokes the old key.
-- name: ReplaceKey :one
UPDATE api_keys
   SET replaced_by = @replaced_by,
       expire_time = CASE
         WHEN @overlap_us::bigint = 0 THEN expire_time
         ELSE LEAST(expire_time,
                    statement_timestamp() + (@overlap_us::bigint) * interval '1 microsecond')
       END,
       revoked_time = CASE WHEN @overlap_us::bigint = 0 THEN statement_timestamp() END
 WHERE key_id = @key_id
RETURNING *;
