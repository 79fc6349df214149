-- +goose Up
-- The hash chain of the audit, which doctor verifies (storage/audit_chain.go). The transaction of a
-- command only inserts its row. seal_audit adds committed rows to the chain later, so that commands
-- do not wait for each other. Only the functions of the owner change a row or the chain.
ALTER TABLE audit
  ADD COLUMN chain_position bigint,
  ADD COLUMN subject_hash bytea,
  ADD COLUMN details_hash bytea,
  ADD COLUMN chain_hash bytea;
COMMENT ON COLUMN audit.chain_position IS
  'Position in the hash chain, without gaps. NULL until seal_audit has added the row, some seconds '
  'after its commit.';
COMMENT ON COLUMN audit.subject_hash IS
  'Hash of namespace and subject under the key of audit_chain. NULL until the row is in the chain.';
COMMENT ON COLUMN audit.details_hash IS
  'Hash of namespace and details under the key of audit_chain. NULL until the row is in the chain.';
COMMENT ON COLUMN audit.chain_hash IS
  'SHA-256 of the chain_hash of the previous position and of this row, with the hashes of its '
  'subject and details. NULL until the row is in the chain.';

CREATE TABLE audit_chain (
  one_row          boolean NOT NULL DEFAULT true,
  hash_key         bytea NOT NULL
    DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
  last_position    bigint NOT NULL DEFAULT 0,
  last_hash        bytea NOT NULL DEFAULT '\x',
  removed_position bigint NOT NULL DEFAULT 0,
  removed_hash     bytea NOT NULL DEFAULT '\x',
  retention        interval NOT NULL DEFAULT '90 days',
  PRIMARY KEY (one_row),
  CONSTRAINT audit_chain_one_row_check CHECK (one_row),
  CONSTRAINT audit_chain_retention_check CHECK (retention >= '1 day')
) WITH (fillfactor = 50);
COMMENT ON TABLE audit_chain IS
  'Start, end and retention of the hash chain of audit: always one row. Only functions of the '
  'owner write it.';
COMMENT ON COLUMN audit_chain.one_row IS 'Always true: the key of the only row.';
COMMENT ON COLUMN audit_chain.hash_key IS
  'Random key of the hashes of subjects and details, so that they cannot be guessed without it.';
COMMENT ON COLUMN audit_chain.last_position IS
  'Position of the last row of the chain. 0 if no row was ever in the chain.';
COMMENT ON COLUMN audit_chain.last_hash IS 'chain_hash of the last row. Empty if there was none.';
COMMENT ON COLUMN audit_chain.removed_position IS
  'Position of the last row that was deleted after its retention. 0 if none was.';
COMMENT ON COLUMN audit_chain.removed_hash IS
  'chain_hash of the last row that was deleted after its retention: the start of the chain.';
COMMENT ON COLUMN audit_chain.retention IS
  'How long rows of audit are kept. Only the owner can change it, at least 1 day.';
INSERT INTO audit_chain DEFAULT VALUES;

-- +goose StatementBegin
CREATE FUNCTION audit_parts(VARIADIC parts text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = progressor, pg_temp AS $$
  SELECT string_agg(
           int4send(octet_length(convert_to(coalesce(item.part, ''), 'UTF8')))
             || convert_to(coalesce(item.part, ''), 'UTF8'),
           ''::bytea ORDER BY item.n)
    FROM unnest(parts) WITH ORDINALITY AS item(part, n)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION audit_parts IS
  'Returns texts as bytes, each after its length, so that different texts have different bytes. '
  'NULL counts as empty.';

-- +goose StatementBegin
CREATE FUNCTION audit_mac(hash_key bytea, namespace text, value text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = progressor, pg_temp AS $$
  SELECT sha256(hash_key || sha256(hash_key || audit_parts(namespace, value)))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION audit_mac IS
  'Returns the keyed hash of a subject, or of details, in a namespace.';

-- +goose StatementBegin
CREATE FUNCTION seal_audit(max_rows integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  chain record;
  entry record;
  sealed bigint := 0;
BEGIN
  IF NOT EXISTS (SELECT FROM audit a WHERE a.chain_position IS NULL) THEN
    RETURN 0;
  END IF;
  SELECT c.hash_key, c.last_position, c.last_hash INTO chain FROM audit_chain c
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0; -- another node does it
  END IF;
  FOR entry IN
    SELECT a.audit_id, a."time", a.actor, a.source, a.method, a.namespace,
           coalesce(a.subject_hash, audit_mac(chain.hash_key, a.namespace, a.subject))
             AS subject_hash,
           coalesce(a.details_hash, audit_mac(chain.hash_key, a.namespace, a.details::text))
             AS details_hash
      FROM audit a
     WHERE a.chain_position IS NULL
     ORDER BY a.audit_id LIMIT max_rows
  LOOP
    sealed := sealed + 1;
    chain.last_position := chain.last_position + 1;
    chain.last_hash := sha256(chain.last_hash || audit_parts(
      chain.last_position::text, entry.audit_id::text,
      ((extract(epoch FROM entry."time") * 1000000)::bigint)::text, entry.actor, entry.source,
      entry.method, entry.namespace, encode(entry.subject_hash, 'hex'),
      encode(entry.details_hash, 'hex')));
    UPDATE audit a
       SET chain_position = chain.last_position,
           subject_hash = entry.subject_hash,
           details_hash = entry.details_hash,
           chain_hash = chain.last_hash
     WHERE a.audit_id = entry.audit_id;
  END LOOP;
  UPDATE audit_chain
     SET last_position = chain.last_position,
         last_hash = chain.last_hash;
  RETURN sealed;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION seal_audit IS
  'Adds at most max_rows committed rows of audit to the hash chain, and returns how many. It has '
  'the rights of the owner, so that the role of an engine needs no UPDATE on audit.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forget_audit(max_rows integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  chain record;
  last_old record;
  deleted bigint;
BEGIN
  IF coalesce((SELECT a."time" FROM audit a
                WHERE a.chain_position IS NOT NULL
                ORDER BY a.chain_position LIMIT 1), 'infinity')
       >= statement_timestamp() - (SELECT c.retention FROM audit_chain c)
  THEN
    RETURN 0;
  END IF;
  SELECT c.retention INTO chain FROM audit_chain c FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0; -- another node does it
  END IF;
  SELECT x.chain_position, x.chain_hash INTO last_old
    FROM (
      SELECT oldest.chain_position, oldest.chain_hash,
             bool_and(oldest."time" < statement_timestamp() - chain.retention)
               OVER (ORDER BY oldest.chain_position) AS old
        FROM (
          SELECT a.chain_position, a.chain_hash, a."time" FROM audit a
           WHERE a.chain_position IS NOT NULL
           ORDER BY a.chain_position LIMIT max_rows) oldest) x
   WHERE x.old
   ORDER BY x.chain_position DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  UPDATE audit_chain
     SET removed_position = last_old.chain_position,
         removed_hash = last_old.chain_hash;
  DELETE FROM audit a WHERE a.chain_position <= last_old.chain_position;
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION forget_audit IS
  'Deletes the rows of audit whose retention is over, among the max_rows at the start of the hash '
  'chain, and keeps the last hash as the new start. It has the rights of the owner, so that the '
  'role of an engine needs no DELETE on audit.';

-- A cancel by an application is a command of the role of the application. Before this migration,
-- such a cancel was not in the audit.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cancel(namespace text, process_id text, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint := send_message('cancel', $1, $2, NULL, NULL, NULL, $3);
BEGIN
  INSERT INTO audit (actor, source, method, namespace, subject, details)
  VALUES ('pg:' || session_user,
          coalesce(host(inet_client_addr()) || ':' || inet_client_port(), ''), 'CancelProcess',
          $1, $2, NULLIF(jsonb_strip_nulls(jsonb_build_object('reason', NULLIF($3, ''))), '{}'));
  RETURN sent;
END $$;
-- +goose StatementEnd

-- Roles that already have rights on all tables, also by default privileges, lose all rights to
-- change the audit and the chain, except INSERT on audit.
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
     WHERE c.oid IN ('audit'::regclass, 'audit_chain'::regclass)
       AND a.grantee <> c.relowner
  LOOP
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM %I', granted.rolname);
    EXECUTE format('REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON audit_chain FROM %I',
                   granted.rolname);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cancel(namespace text, process_id text, reason text DEFAULT NULL)
RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  SELECT send_message('cancel', $1, $2, NULL, NULL, NULL, $3)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forget_audit(max_rows integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
  WITH deleted_rows AS (
    DELETE FROM audit a
     USING (SELECT x.audit_id, x.time FROM audit x ORDER BY x.audit_id LIMIT max_rows) oldest
     WHERE a.audit_id = oldest.audit_id
       AND oldest.time < statement_timestamp() - interval '90 days'
    RETURNING a.audit_id)
  SELECT count(*) FROM deleted_rows
$$;
-- +goose StatementEnd
DROP FUNCTION seal_audit(integer);
DROP FUNCTION audit_mac(bytea, text, text);
DROP FUNCTION audit_parts(text[]);
DROP TABLE audit_chain;
ALTER TABLE audit
  DROP COLUMN chain_position,
  DROP COLUMN subject_hash,
  DROP COLUMN details_hash,
  DROP COLUMN chain_hash;
