-- AddGrant gives a role in some namespaces to a principal. It returns no row if the principal
-- already has the role. created_by is empty for the role of the session.
-- name: AddGrant :one
INSERT INTO grants (principal, role, namespaces, created_by)
VALUES (@principal, @role, @namespaces, coalesce(NULLIF(@created_by::text, ''), session_user))
ON CONFLICT (principal, role, namespaces) DO NOTHING
RETURNING *;

-- RemoveGrant removes a role from a principal. It returns no row if the principal does not have the
-- role.
-- name: RemoveGrant :one
DELETE FROM grants
 WHERE principal = @principal
   AND role = @role
   AND namespaces = @namespaces
RETURNING *;

-- ListGrants returns the grants of a principal, or of all principals if principal is empty, sorted
-- by principal. It returns the grants after the given one, or the first ones if its fields are
-- empty.
-- name: ListGrants :many
SELECT * FROM grants g
 WHERE (@principal::text = '' OR g.principal = @principal)
   AND (g.principal, g.role, g.namespaces)
         > (@after_principal::text, @after_role::text, @after_namespaces::text)
 ORDER BY g.principal, g.role, g.namespaces LIMIT @lim::int;

-- KeyExists reports whether a key exists and was not revoked.
-- name: KeyExists :one
SELECT EXISTS (
  SELECT 1 FROM api_keys k
   WHERE k.key_id = @key_id
     AND k.revoked_time IS NULL)::bool AS found;

-- ReadGrants returns the grants of some principals, such as a user and its groups: the roles, and
-- in the same order the patterns of their namespaces.
-- name: ReadGrants :one
SELECT ARRAY(
         SELECT g.role FROM grants g
          WHERE g.principal = ANY (@principals::text[])
          ORDER BY g.role, g.namespaces)::text[] AS roles,
       ARRAY(
         SELECT g.namespaces FROM grants g
          WHERE g.principal = ANY (@principals::text[])
          ORDER BY g.role, g.namespaces)::text[] AS patterns;
