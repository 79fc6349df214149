-- PutNamespace creates or changes a namespace. It returns no row if the namespace is being deleted.
-- name: PutNamespace :one
INSERT INTO namespaces (namespace, config)
VALUES (@namespace, @config)
ON CONFLICT (namespace) DO UPDATE SET config = excluded.config, updated_time = clock_timestamp()
 WHERE namespaces.deletion_requested_time IS NULL
RETURNING *;

-- NumberOfNamespaces returns the number of namespaces, including those that are being deleted.
-- name: NumberOfNamespaces :one
SELECT count(*)::int AS n
  FROM namespaces;

-- LockNamespaceConfig locks a namespace and returns its configuration.
-- name: LockNamespaceConfig :one
SELECT n.config
  FROM namespaces n
 WHERE n.namespace = @namespace
   FOR UPDATE;

-- SetNamespacePaused pauses or resumes a namespace. It returns no row if the namespace does not
-- exist or is being deleted.
-- name: SetNamespacePaused :one
UPDATE namespaces
   SET paused = @paused, updated_time = clock_timestamp()
 WHERE namespace = @namespace
   AND deletion_requested_time IS NULL
RETURNING *;

-- RequestDeletion marks a namespace for deletion. It returns no row if that changes nothing. If its
-- data must also be deleted, the namespace is paused, so that older engines, which ignore the mark,
-- claim no tasks.
-- name: RequestDeletion :one
UPDATE namespaces
   SET deletion_requested_time = coalesce(deletion_requested_time, statement_timestamp()),
       deletes_data = deletes_data OR @with_data::bool,
       paused = paused OR @with_data::bool,
       updated_time = clock_timestamp()
 WHERE namespace = @namespace
   AND (deletion_requested_time IS NULL OR @with_data::bool AND NOT deletes_data)
RETURNING *;

-- CancelDeletion cancels the deletion of a namespace that turned out to have data.
-- name: CancelDeletion :execrows
UPDATE namespaces
   SET deletion_requested_time = NULL, updated_time = clock_timestamp()
 WHERE namespace = @namespace
   AND deletion_requested_time IS NOT NULL
   AND NOT deletes_data;

-- DeleteNamespace deletes the row of a namespace if its deletion was requested at the given time.
-- name: DeleteNamespace :execrows
DELETE FROM namespaces
 WHERE namespace = @namespace
   AND deletion_requested_time = @requested_time::timestamptz;

-- AcknowledgeDeletions stores the deletions for which the node accepts no more requests. A deletion
-- is identified by the time of its request.
-- name: AcknowledgeDeletions :exec
UPDATE nodes
   SET known_deletions = @times::timestamptz[]
 WHERE node_id = @node_id;

-- CountUnawareNodes returns the number of live nodes that may still accept requests for a namespace
-- whose deletion was requested at the given time.
-- name: CountUnawareNodes :one
SELECT count(*)::int AS n
  FROM nodes n
 WHERE (n.dead_beat_time = n.beat_time) IS NOT TRUE
   AND (@requested_time::timestamptz = ANY (n.known_deletions)) IS NOT TRUE;

-- ListProcessIDs lists processes of a namespace by their ID, including removed ones.
-- name: ListProcessIDs :many
SELECT p.process_id
  FROM processes p
 WHERE p.namespace = @namespace::text
   AND p.process_id > @after::text
 ORDER BY p.namespace, p.process_id LIMIT @lim::int;

-- ListStartTargets lists processes of a namespace to which start messages were sent.
-- name: ListStartTargets :many
SELECT DISTINCT m.process_id
  FROM messages m
 WHERE m.namespace = @namespace::text
   AND m.kind = 'start'
 LIMIT @lim::int;

-- name: GetNamespace :one
SELECT * FROM namespaces WHERE namespace = @namespace;

-- ListNamespaces lists at most lim namespaces whose names follow a given name and match one of the
-- LIKE patterns. It stops after the namespace with which the settings exceed max_bytes.
-- name: ListNamespaces :many
SELECT bounded.namespace, bounded.config, bounded.paused, bounded.created_time,
       bounded.updated_time, bounded.deletion_requested_time, bounded.deletes_data
  FROM (
    SELECT n.*,
           sum(octet_length(n.config::text)) OVER (ORDER BY n.namespace ROWS UNBOUNDED PRECEDING)
             - octet_length(n.config::text) AS bytes_before
      FROM (
        SELECT x.* FROM namespaces x
         WHERE x.namespace > @after::text
           AND x.namespace LIKE ANY (@visible::text[])
         ORDER BY x.namespace LIMIT @lim::int) n) bounded
 WHERE bounded.bytes_before <= @max_bytes::bigint
 ORDER BY bounded.namespace;

-- ReadNamespaceStates returns the state that every node reads once per second: the settings of all
-- namespaces, and which of them have certain kinds of work. It is a single statement, so that an
-- idle engine sends few statements.
--
-- constraints_version is 0 if there have never been constraints. groups_due is true if jobs of
-- several workers need a decision (see TakeGroups), and grouped is true if such jobs wait for their
-- members. overdue is true if a cancel of any namespace is past its grace period, and late is true
-- if a job of any namespace is past its start deadline. Both are equal in all rows. paused_names
-- contains the paused job names, sorted. (The subqueries use LIMIT 1, because PostgreSQL may plan
-- EXISTS as a hash of all such rows.)
-- name: ReadNamespaceStates :many
SELECT n.namespace, n.config, n.paused, n.deletion_requested_time, n.deletes_data,
       coalesce(c.version, 0)::bigint AS constraints_version,
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
                false)::bool AS late,
       ARRAY(
         SELECT p.name FROM job_pauses p
          WHERE p.namespace = n.namespace
          ORDER BY p.name)::text[] AS paused_names
  FROM namespaces n
  LEFT JOIN constraint_sets c ON c.namespace = n.namespace;
