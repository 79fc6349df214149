-- LockScope locks a dedupe key. EnterScope and LeaveScopes follow, so their snapshots contain the
-- changes of all earlier holders.
-- name: LockScope :exec
SELECT lock_key(hashtextextended(
  @namespace::text || chr(31) || @template_type::text || chr(31) || @dedupe_key::text,
  7));

-- EnterScope deletes ended holders of a dedupe key and returns the current one: an open run or, if
-- the template is not repeatable, a succeeded run.
-- name: EnterScope :one
WITH holders AS MATERIALIZED (
  SELECT s.run_id AS holder FROM flow_scopes s
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = '~flow/' || s.run_id
     AND p.removed_time IS NULL
     AND p.status NOT IN ('COMPLETED', 'CANCELLED')
   WHERE s.namespace = @namespace
     AND s.template_type = @template_type
     AND s.dedupe_key = @dedupe_key
     AND s.holds
     AND s.run_id <> @run_id),
deleted_flow_scopes AS (
  DELETE FROM flow_scopes x
   WHERE x.namespace = @namespace
     AND x.template_type = @template_type
     AND x.dedupe_key = @dedupe_key
     AND x.holds
     AND x.run_id <> @run_id
     AND NOT EXISTS (SELECT 1 FROM holders)),
succeeded_runs AS MATERIALIZED (
  SELECT r.run_id AS done FROM flow_runs r
   WHERE NOT @repeatable::bool
     AND r.namespace = @namespace
     AND r.template_type = @template_type
     AND r.dedupe_key = @dedupe_key
     AND r.status = 'succeeded'
     AND r.run_id <> @run_id
   ORDER BY r.created_time LIMIT 1)
SELECT coalesce((SELECT holders.holder FROM holders), '')::text AS holder,
       coalesce((SELECT succeeded_runs.done FROM succeeded_runs), '')::text AS done;

-- PeekScope returns the same holder as EnterScope, but changes nothing.
-- name: PeekScope :one
SELECT coalesce((
  SELECT s.run_id FROM flow_scopes s
    JOIN processes p
      ON p.namespace = s.namespace
     AND p.process_id = '~flow/' || s.run_id
     AND p.removed_time IS NULL
     AND p.status NOT IN ('COMPLETED', 'CANCELLED')
   WHERE s.namespace = @namespace
     AND s.template_type = @template_type
     AND s.dedupe_key = @dedupe_key
     AND s.holds
     AND s.run_id <> @run_id),
                '')::text AS holder,
       coalesce((
         SELECT r.run_id FROM flow_runs r
          WHERE NOT @repeatable::bool
            AND r.namespace = @namespace
            AND r.template_type = @template_type
            AND r.dedupe_key = @dedupe_key
            AND r.status = 'succeeded'
            AND r.run_id <> @run_id
          ORDER BY r.created_time LIMIT 1),
                '')::text AS done;

-- TakeScope stores that a run has a dedupe key, or waits for it.
-- name: TakeScope :exec
INSERT INTO flow_scopes (namespace, template_type, dedupe_key, run_id, holds)
VALUES (@namespace, @template_type, @dedupe_key, @run_id, @holds)
ON CONFLICT (namespace, template_type, dedupe_key, run_id) DO UPDATE SET
       holds = flow_scopes.holds OR excluded.holds;

-- LockScopes locks the dedupe keys of ending runs: see LockScope. It locks them in the order of the
-- rows that a portable database locks (see lock_key), then by key.
-- name: LockScopes :exec
SELECT lock_key(wanted.h)
  FROM (
    SELECT dedupe_keys.h
      FROM (
        SELECT DISTINCT hashtextextended(
          item.namespace || chr(31) || item.template_type || chr(31) || item.dedupe_key,
          7) AS h
          FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@template_types::text[]),
                          unnest(@dedupe_keys::text[]))
               AS item(namespace, template_type, dedupe_key)) dedupe_keys
     ORDER BY dedupe_keys.h & 255, dedupe_keys.h) wanted;

-- LeaveScopes frees the dedupe keys of ended runs. It gives each key to the run that has waited
-- longest for it, and notifies this run. It runs after SaveResult and LockScopes, and applies only
-- to items whose task end this transaction has written.
-- name: LeaveScopes :many
WITH input AS MATERIALIZED (
  SELECT item.*
    FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@process_ids::text[]),
                    unnest(@task_ids::bigint[]), unnest(@fencing_tokens::bigint[]),
                    unnest(@template_types::text[]), unnest(@dedupe_keys::text[]),
                    unnest(@run_ids::text[]))
         AS item(namespace, process_id, task_id, fencing_token, template_type, dedupe_key, run_id)
   CROSS JOIN LATERAL (
     SELECT 1 FROM tasks t
      WHERE t.namespace = item.namespace
        AND t.process_id = item.process_id
        AND t.task_id = item.task_id
        AND t.fencing_token = item.fencing_token
        AND is_saved(item.fencing_token)
      LIMIT 1) ended),
deleted_flow_scopes AS (
  DELETE FROM flow_scopes s USING input
   WHERE s.namespace = ANY (ARRAY[input.namespace])
     AND s.template_type = input.template_type
     AND s.dedupe_key = input.dedupe_key
     AND s.run_id = input.run_id
  RETURNING s.namespace, s.template_type, s.dedupe_key, s.holds),
next_runs AS MATERIALIZED (
  SELECT deleted_flow_scopes.namespace, deleted_flow_scopes.template_type,
         deleted_flow_scopes.dedupe_key, next_run.run_id
    FROM deleted_flow_scopes
   CROSS JOIN LATERAL (
     SELECT s.run_id FROM flow_scopes s
      WHERE deleted_flow_scopes.holds
        AND s.namespace = deleted_flow_scopes.namespace
        AND s.template_type = deleted_flow_scopes.template_type
        AND s.dedupe_key = deleted_flow_scopes.dedupe_key
        AND NOT s.holds
        AND EXISTS (
          SELECT 1 FROM processes p
           WHERE p.namespace = ANY (ARRAY[s.namespace])
             AND p.process_id = '~flow/' || s.run_id
             AND p.removed_time IS NULL
             AND p.status NOT IN ('COMPLETED', 'CANCELLED'))
      ORDER BY s.turn LIMIT 1) next_run),
updated_flow_scopes AS (
  UPDATE flow_scopes s
     SET holds = true
    FROM next_runs
   WHERE s.namespace = ANY (ARRAY[next_runs.namespace])
     AND s.template_type = next_runs.template_type
     AND s.dedupe_key = next_runs.dedupe_key
     AND s.run_id = next_runs.run_id)
INSERT INTO messages (namespace, process_id, kind, created_time, args)
SELECT next_runs.namespace, '~flow/' || next_runs.run_id, 'notify', statement_timestamp(),
       convert_to('{"method":"TakeTurn"}', 'UTF8')
  FROM next_runs
RETURNING namespace, process_id;
