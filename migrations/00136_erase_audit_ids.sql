-- +goose Up
-- erase_audit computes the pattern of parts itself, because callers could pass a pattern that
-- matches all entries. It erases only entries about processes, jobs and runs, and two erasures of
-- an ID at the same time store the same hash. A role that adds entries can no longer choose the
-- place of an entry in the hash chain, and other roles cannot execute the functions of the audit.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION erased_parts(ids text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = progressor, pg_temp AS $$
  SELECT '^(' || string_agg(part.pattern, '|') || ')$'
    FROM unnest(ids) AS item(id)
   CROSS JOIN LATERAL (
     SELECT regexp_replace(item.id, '([][(){}.*+?^$|\\])', '\\\1', 'g') AS id) quoted
   CROSS JOIN LATERAL (
     SELECT '~job/~/' || quoted.id || '/[^/]+' AS pattern
     UNION ALL
     SELECT place.prefix || regexp_replace(quoted.id, '^~flow/', '') || place.rest
       FROM (VALUES ('~job/', '/[^/]+'), ('~job/~/~job/', '/[^/]+/[^/]+')) AS place(prefix, rest)
      WHERE starts_with(item.id, '~flow/')) part
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION erased_parts IS
  'Returns a regular expression of the IDs of the processes that belong to others: jobs of the '
  'steps of a run, and members of a job that several workers run.';

-- Older engines pass parts.
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

-- Roles with INSERT on the whole table could choose a position in the chain.
REVOKE ALL ON FUNCTION erase_audit, seal_audit, forget_audit FROM PUBLIC;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER ON audit, audit_chain FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
  granted record;
BEGIN
  FOR granted IN
    SELECT r.rolname, bool_or(x.relation = 'audit' AND x.privilege_type = 'INSERT') AS adds
      FROM (
        SELECT c.relname AS relation, c.relowner, a.grantee, a.privilege_type
          FROM pg_class c
         CROSS JOIN LATERAL aclexplode(c.relacl) a
         WHERE c.oid IN ('audit'::regclass, 'audit_chain'::regclass)
        UNION ALL
        SELECT c.relname, c.relowner, a.grantee, a.privilege_type
          FROM pg_attribute t
          JOIN pg_class c ON c.oid = t.attrelid
         CROSS JOIN LATERAL aclexplode(t.attacl) a
         WHERE c.oid IN ('audit'::regclass, 'audit_chain'::regclass)) x
      JOIN pg_roles r ON r.oid = x.grantee
     WHERE x.grantee <> x.relowner
     GROUP BY r.rolname
  LOOP
    EXECUTE format('REVOKE INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER ON audit, audit_chain FROM %I',
                   granted.rolname);
    IF granted.adds THEN
      EXECUTE format('GRANT INSERT (actor, source, method, namespace, subject, details) ON audit '
                     'TO %I', granted.rolname);
      EXECUTE format('GRANT EXECUTE ON FUNCTION erase_audit, seal_audit, forget_audit TO %I',
                     granted.rolname);
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd

-- An erasure replaces the IDs in fires. That is neither a decision nor the end of a run.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_cron_fires() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, to_status,
                       reason, details)
  WITH found AS MATERIALIZED (
    SELECT n.*
      FROM new_rows n
      JOIN change_settings s
        ON s.namespace = n.namespace
       AND s.kinds ? 'CHANGE_KIND_FIRE'
     WHERE (n.process_id ~ '^erased:[0-9a-f]{64}$') IS NOT TRUE),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number() OVER (PARTITION BY f.namespace ORDER BY f.cron_id, f.fire_time),
         nextval('change_ids'), l."time", 'fire', lower(f.decision::text), '~cron/' || f.cron_id,
         f.status::text, coalesce(f.detail, f.reason),
         jsonb_strip_nulls(jsonb_build_object(
           'fire_time', f.fire_time, 'run_id', f.process_id, 'attempt', NULLIF(f.attempt, 0),
           'manual', NULLIF(f.manual, false), 'count', NULLIF(f.count, 1)))
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- The functions stay, because the previous ones had defects and older engines can use the new ones.
SELECT;
