-- ReadUnkeyedStarts returns the jobs without a fairness key in the messages to a process ID. It
-- omits jobs of several workers and their members, which never have a fairness key.
-- name: ReadUnkeyedStarts :many
SELECT m.message_id, (m.job->>'name')::text AS name,
       coalesce((m.job->>'priority')::int, 0)::int AS priority,
       coalesce(m.job->'tags', 'null')::jsonb AS tags,
       m.args, m.metadata
  FROM messages m
 WHERE m.namespace = @namespace
   AND m.process_id = @process_id
   AND m.kind = 'start'
   AND m.job IS NOT NULL
   AND NOT m.job ?| '{fairnessKey,taker}'
   AND (m.job->'options' ? 'workers') IS NOT TRUE
 ORDER BY m.namespace, m.process_id, m.message_id LIMIT @lim::int;

-- KeyStarts stores the fairness keys of jobs in messages.
-- name: KeyStarts :exec
UPDATE messages m
   SET job = m.job || jsonb_build_object('fairnessKey', item.fairness_key)
  FROM ROWS FROM (unnest(@message_ids::bigint[]), unnest(@fairness_keys::text[]))
       AS item(message_id, fairness_key)
 WHERE m.namespace = @namespace::text
   AND m.process_id = @process_id::text
   AND m.message_id = item.message_id;
