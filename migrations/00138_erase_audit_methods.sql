-- +goose Up
-- erase_audit erases only entries about processes, jobs and runs, and two erasures of an ID at the
-- same time store the same hash.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION erase_audit(
  namespace text, ids text[], parts text, after bigint, max_rows integer, dry_run boolean,
  OUT read bigint, OUT erased bigint, OUT last bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  chain_key bytea := (SELECT c.hash_key FROM audit_chain c);
  pattern text := erased_parts(ids);
  -- Subjects of other methods can equal an ID: namespaces, sinks, templates and others.
  methods text[] := '{CancelProcess, PutProcess, RemoveJob, RemoveProcess, RemoveRun, Repair,
                      RestartHistory, ResumeProcess, SuspendProcess}';
BEGIN
  IF coalesce(cardinality(ids), 0) = 0
     OR EXISTS (
       SELECT FROM unnest(ids) AS item(id)
        WHERE coalesce(item.id, '') = ''
           OR item.id ~ '^erased:[0-9a-f]{64}$')
  THEN
    RAISE EXCEPTION 'progressor: ids: must be IDs of processes, at least one, not empty, and no '
                    'hashes of erased IDs'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT dry_run AND EXISTS (
       SELECT FROM unnest(ids) AS item(id)
        WHERE NOT EXISTS (
          SELECT FROM audit a
           WHERE a.namespace = $1
             AND a.method = 'EraseProcess'
             AND a.subject = erased_id($1, item.id)))
  THEN
    RAISE EXCEPTION 'progressor: the audit has no EraseProcess of these IDs'
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  WITH page AS MATERIALIZED (
    SELECT a.audit_id,
           a.method = ANY (methods)
             AND (a.subject = ANY (ids) OR a.subject ~ pattern) AS is_subject,
           a.method = ANY (methods)
             AND EXISTS (
               SELECT FROM jsonb_path_query(a.details, 'strict $.** ? (@.type() == "string")')
                      AS item(value)
                WHERE item.value #>> '{}' = ANY (ids)
                   OR item.value #>> '{}' ~ pattern) AS is_mentioned
      FROM audit a
     WHERE a.namespace = $1
       AND a.audit_id > after
     ORDER BY a.audit_id LIMIT max_rows),
  -- If this waits for another erasure of the row, a is the row that the other one has written. Then
  -- the subject is already a hash, and subject_hash is the hash of the ID.
  updated AS (
    UPDATE audit a
       SET subject_hash = coalesce(a.subject_hash, audit_mac(chain_key, a.namespace, a.subject)),
           details_hash = coalesce(a.details_hash,
                                   audit_mac(chain_key, a.namespace, a.details::text)),
           subject = CASE
                       WHEN page.is_subject
                         THEN 'erased:' || encode(coalesce(a.subject_hash,
                                audit_mac(chain_key, a.namespace, a.subject)), 'hex')
                       ELSE a.subject
                     END,
           details = NULL,
           erased_time = statement_timestamp()
      FROM page
     WHERE NOT dry_run
       AND a.audit_id = page.audit_id
       AND (page.is_subject OR page.is_mentioned))
  SELECT count(*), count(*) FILTER (WHERE page.is_subject OR page.is_mentioned), max(page.audit_id)
    INTO read, erased, last
    FROM page;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION erase_audit IS
  'Erases IDs and those of their parts in at most max_rows rows of audit after one, and returns '
  'how many it read and erased, and the last. It erases only entries about processes, jobs and '
  'runs. It needs an entry of EraseProcess for each ID, so that it leaves a trace. parts is not '
  'used. It has the rights of the owner.';

-- +goose Down
-- The previous function could break the hash chain. The signature is the same.
SELECT;
