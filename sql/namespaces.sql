-- name: PutNamespace :one
INSERT INTO namespaces (namespace, config)
VALUES (@namespace, @config)
ON CONFLICT (namespace) DO UPDATE SET config = excluded.config, updated_time = clock_timestamp()
RETURNING *;

-- name: SetNamespacePaused :one
UPDATE namespaces
   SET paused = @paused, updated_time = clock_timestamp()
 WHERE namespace = @namespace
RETURNING *;

-- name: GetNamespace :one
SELECT * FROM namespaces WHERE namespace = @namespace;

-- ListNamespaces lists at most lim namespaces after a name, until their settings exceed max_bytes,
-- including the one that exceeds it.
-- name: ListNamespaces :many
SELECT bounded.namespace, bounded.config, bounded.paused, bounded.created_time, bounded.updated_time
  FROM (
    SELECT n.*,
           sum(octet_length(n.config::text)) OVER (ORDER BY n.namespace ROWS UNBOUNDED PRECEDING)
             - octet_length(n.config::text) AS bytes_before
      FROM (
        SELECT x.* FROM namespaces x
         WHERE x.namespace > @after::text
         ORDER BY x.namespace LIMIT @lim::int) n) bounded
 WHERE bounded.bytes_before <= @max_bytes::bigint
 ORDER BY bounded.namespace;

-- ReadNamespaceStates returns what every node reads once per second: the settings of all
-- namespaces, and whether other nodes have changed them or left tasks there. It is a single
-- statement, so that an idle engine sends few.
--
-- constraints_version: 0 if there have never been constraints. groups_due: jobs of several workers
-- need a decision (see TakeGroups). grouped: such jobs wait for their members. overdue, equal in
-- all rows: a cancel is past its grace period. late, equal in all rows: a job is past its start
-- deadline. (EXISTS could be planned as a hash of all such rows.)
-- name: ReadNamespaceStates :many
SELECT n.namespace, n.config, n.paused, coalesce(c.version, 0)::bigint AS constraints_version,
       coalesce((
         SELECT true FROM schedule s
          WHERE s.taker = '~'
            AND (s.waits_for = 'place')::int = 1
            AND s.namespace COLLATE "POSIX" = n.namespace
          LIMIT 1),
                false)::bool AS groups_due,
       coalesce((
         SELECT true FROM schedule s
          WHERE s.waits_for = 'members'
            AND s.namespace COLLATE "POSIX" = n.namespace
          LIMIT 1),
                false)::bool AS grouped,
       coalesce((
         SELECT true FROM processes p
          WHERE p.cancel_deadline <= statement_timestamp()
            AND p.removed_time IS NULL
          LIMIT 1),
                false)::bool AS overdue,
       coalesce((
         SELECT true FROM schedule s
          WHERE s.start_deadline <= statement_timestamp()
          LIMIT 1),
                false)::bool AS late
  FROM namespaces n
  LEFT JOIN constraint_sets c ON c.namespace = n.namespace;
