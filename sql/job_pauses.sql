-- LockNamespace locks the row of a namespace, so that pauses of its job names are counted one after
-- another. It reports whether the namespace is being deleted, and returns nothing if the namespace
-- does not exist.
-- name: LockNamespace :one
SELECT (n.deletion_requested_time IS NOT NULL)::bool AS deleting
  FROM namespaces n
 WHERE n.namespace = @namespace
   FOR NO KEY UPDATE;

-- PauseJobs pauses a job name. If the name is already paused, its reason and its actor change. It
-- returns nothing if the namespace has @most other paused names. It runs after LockNamespace.
-- name: PauseJobs :one
INSERT INTO job_pauses (namespace, name, reason, actor)
SELECT @namespace, @name, @reason, NULLIF(@actor::text, '')
 WHERE @most::int > (
   SELECT count(*) FROM job_pauses p
    WHERE p.namespace = @namespace
      AND p.name <> @name)
ON CONFLICT (namespace, name) DO UPDATE SET
       reason = excluded.reason, actor = excluded.actor
RETURNING namespace, name, reason, coalesce(actor, '')::text AS actor, paused_time;

-- ResumeJobs resumes a job name.
-- name: ResumeJobs :execrows
DELETE FROM job_pauses p
 WHERE p.namespace = @namespace
   AND p.name = @name;

-- ListPausedJobs returns the paused job names of a namespace, sorted.
-- name: ListPausedJobs :many
SELECT p.namespace, p.name, p.reason, coalesce(p.actor, '')::text AS actor, p.paused_time
  FROM job_pauses p
 WHERE p.namespace = @namespace
 ORDER BY p.name;
