-- LockType creates and locks the row of a template, so that versions are stored one after the
-- other.
-- name: LockType :exec
INSERT INTO flow_types AS t (namespace, template_type, version)
VALUES (@namespace, @template_type, 1)
ON CONFLICT (namespace, template_type) DO UPDATE SET version = t.version;

-- NewestVersion returns the number of the newest version of a template, or 0 if there is none. It
-- runs after LockType, which does not report whether it created the row.
-- name: NewestVersion :one
SELECT coalesce(max(v.version), 0)::int AS version
  FROM flow_templates v
 WHERE v.namespace = @namespace
   AND v.template_type = @template_type;

-- InsertTemplate stores a version.
-- name: InsertTemplate :exec
WITH updated_flow_types AS (
  UPDATE flow_types
     SET version = @version, enabled = @enabled
   WHERE namespace = @namespace
     AND template_type = @template_type)
INSERT INTO flow_templates (namespace, template_type, version, definition)
VALUES (@namespace, @template_type, @version, @definition);

-- GetTemplate returns a version. Version 0 is the newest one.
-- name: GetTemplate :one
SELECT v.version, v.definition, v.created_time AS updated_time, t.created_time, t.enabled,
       t.version AS newest
  FROM flow_types t
  JOIN flow_templates v USING (namespace, template_type)
 WHERE t.namespace = @namespace
   AND t.template_type = @template_type
   AND v.version = CASE @version::int WHEN 0 THEN t.version ELSE @version END;

-- HeadTemplate returns the number of a version without its definition, because most callers have
-- already compiled it.
-- name: HeadTemplate :one
SELECT v.version, v.created_time AS updated_time, t.enabled
  FROM flow_types t
  JOIN flow_templates v USING (namespace, template_type)
 WHERE t.namespace = @namespace
   AND t.template_type = @template_type
   AND v.version = CASE @version::int WHEN 0 THEN t.version ELSE @version END;

-- ListVersions returns the numbers of the newest lim versions, in ascending order.
-- name: ListVersions :many
SELECT newest.version
  FROM (
    SELECT v.version FROM flow_templates v
     WHERE v.namespace = @namespace
       AND v.template_type = @template_type
     ORDER BY v.version DESC LIMIT @lim::int) newest
 ORDER BY newest.version;

-- ListTemplates lists the newest versions of templates, and stops after the one that exceeds
-- max_bytes.
-- name: ListTemplates :many
SELECT bounded.template_type, bounded.version, bounded.definition, bounded.updated_time,
       bounded.created_time, bounded.enabled
  FROM (
    SELECT measured.*,
           sum(measured.bytes) OVER (ORDER BY measured.template_type ROWS UNBOUNDED PRECEDING)
             - measured.bytes AS bytes_before
      FROM (
        SELECT v.template_type, v.version, v.definition, v.created_time AS updated_time,
               t.created_time, t.enabled, octet_length(v.definition::text) AS bytes
          FROM flow_types t
          JOIN flow_templates v USING (namespace, template_type, version)
         WHERE t.namespace = @namespace
           AND t.template_type > @after
         ORDER BY t.template_type LIMIT @lim::int) measured) bounded
 WHERE bounded.bytes_before <= @max_bytes::bigint
 ORDER BY bounded.template_type;

-- EnableTemplate allows or prevents new runs.
-- name: EnableTemplate :execrows
UPDATE flow_types
   SET enabled = @enabled
 WHERE namespace = @namespace
   AND template_type = @template_type;

-- DeleteTemplate deletes a template with all its versions, if it has no open run. It locks the row
-- first: see LockType.
-- name: DeleteTemplate :one
WITH locked AS MATERIALIZED (
  SELECT t.namespace, t.template_type
    FROM flow_types t
   WHERE t.namespace = @namespace
     AND t.template_type = @template_type
     FOR UPDATE),
open_runs AS MATERIALIZED (
  SELECT run.run_id FROM locked
   CROSS JOIN LATERAL (
     SELECT r.run_id FROM flow_runs r
      WHERE r.namespace COLLATE "POSIX" = locked.namespace
        AND r.template_type = locked.template_type
        AND r.finished_time IS NULL
      ORDER BY r.created_time, r.run_id COLLATE "POSIX" LIMIT 1) run),
deleted_flow_types AS (
  DELETE FROM flow_types t USING locked
   WHERE t.namespace = locked.namespace
     AND t.template_type = locked.template_type
     AND NOT EXISTS (SELECT 1 FROM open_runs)
  RETURNING 1)
SELECT EXISTS (SELECT 1 FROM locked)::bool AS found,
       coalesce((SELECT open_runs.run_id FROM open_runs), '')::text AS open_run_id;

-- IsRequest reports whether a request with an idempotency key is stored.
-- name: IsRequest :one
SELECT EXISTS (SELECT 1 FROM requests q WHERE q.request_id = @request_id)::bool AS known;
