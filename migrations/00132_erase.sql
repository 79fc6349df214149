-- +goose Up
-- Functions with which EraseProcess erases the data of a process: see storage/erase.go.
ALTER TABLE audit ADD COLUMN erased_time timestamptz;
COMMENT ON COLUMN audit.erased_time IS
  'When EraseProcess replaced the subject by erased: and its hash, and deleted the details. NULL '
  'if it has not.';

-- +goose StatementBegin
CREATE FUNCTION erased_id(namespace text, id text) RETURNS text
LANGUAGE sql STABLE SET search_path = progressor, pg_temp AS $$
  SELECT 'erased:' || encode(audit_mac(c.hash_key, $1, $2), 'hex') FROM audit_chain c
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION erased_id IS
  'Returns what replaces the ID of an erased process: erased: and its hash under the key of '
  'audit_chain.';

-- +goose StatementBegin
CREATE FUNCTION erase_audit(
  namespace text, ids text[], parts text, after bigint, max_rows integer, dry_run boolean,
  OUT read bigint, OUT erased bigint, OUT last bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  chain_key bytea := (SELECT c.hash_key FROM audit_chain c);
BEGIN
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
           a.subject = ANY (ids) OR a.subject ~ parts AS is_subject,
           EXISTS (
             SELECT FROM unnest(ids) AS item(id)
              WHERE strpos(a.details::text, to_jsonb(item.id)::text) > 0) AS is_mentioned
      FROM audit a
     WHERE a.namespace = $1
       AND a.audit_id > after
     ORDER BY a.audit_id LIMIT max_rows),
  updated AS (
    UPDATE audit a
       SET subject_hash = coalesce(a.subject_hash, audit_mac(chain_key, a.namespace, a.subject)),
           details_hash = coalesce(a.details_hash,
                                   audit_mac(chain_key, a.namespace, a.details::text)),
           subject = CASE
                       WHEN page.is_subject THEN erased_id(a.namespace, a.subject)
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
  'Erases IDs in at most max_rows rows of audit after one, and returns how many it read and '
  'erased, and the last. parts is a regular expression of the IDs of the parts of the processes. '
  'It needs an entry of EraseProcess for each ID, so that it leaves a trace. It has the rights of '
  'the owner.';
REVOKE ALL ON FUNCTION erase_audit FROM PUBLIC;

-- The roles of engines, which add rows to the audit, may erase IDs.
-- +goose StatementBegin
DO $$
DECLARE
  granted record;
BEGIN
  FOR granted IN
    SELECT DISTINCT r.rolname
      FROM pg_class c
     CROSS JOIN LATERAL aclexplode(c.relacl) a
      JOIN pg_roles r ON r.oid = a.grantee
     WHERE c.oid = 'audit'::regclass
       AND a.privilege_type = 'INSERT'
       AND a.grantee <> c.relowner
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION erase_audit TO %I', granted.rolname);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION erase_audit(text, text[], text, bigint, integer, boolean);
DROP FUNCTION erased_id(text, text);
ALTER TABLE audit DROP COLUMN erased_time;
