-- +goose Up
-- Numbers of tasks, attempts and messages must never be issued twice. A failover to a standby that
-- had not received everything, and a restore, move the sequences backward. Engines detect both when
-- they connect, and move all sequences beyond every number that was issued before.
CREATE TABLE database_generation (
  one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
  generation        uuid NOT NULL DEFAULT gen_random_uuid(),
  system_identifier bigint,
  timeline          bigint,
  changed_time      timestamptz NOT NULL DEFAULT statement_timestamp(),
  confirmed_time    timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE database_generation IS 'One row: the server that the sequences were last checked on. Engines compare it with the server that they connect to.';
COMMENT ON COLUMN database_generation.one_row IS 'Always true: the key of the only row.';
COMMENT ON COLUMN database_generation.generation IS 'Changes with every failover, restore or correction of the sequences.';
COMMENT ON COLUMN database_generation.system_identifier IS 'System identifier of the cluster (pg_control_system); NULL if not available.';
COMMENT ON COLUMN database_generation.timeline IS 'Timeline of the WAL, which changes with every promotion of a standby; NULL if not available.';
COMMENT ON COLUMN database_generation.changed_time IS 'When the generation began.';
COMMENT ON COLUMN database_generation.confirmed_time IS 'When an engine last checked, after a broken connection, that commits reach the synchronous standby.';

-- +goose StatementBegin
CREATE FUNCTION database_identity(OUT system_identifier bigint, OUT timeline bigint) LANGUAGE plpgsql AS $$
BEGIN
  system_identifier := (SELECT c.system_identifier FROM pg_control_system() c);
  timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
EXCEPTION WHEN undefined_function OR insufficient_privilege OR feature_not_supported THEN
  system_identifier := NULL; -- a compatible database or a restricted role: only the numbers are compared
  timeline := NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION database_identity() IS 'The cluster and the timeline that this session is connected to. Fails on a standby.';

-- +goose StatementBegin
CREATE FUNCTION confirm_generation(seen_task_id bigint, seen_fencing_token bigint)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  step CONSTANT bigint := 1000000000000;
  own record;
  recorded database_generation;
  behind boolean;
  highest bigint;
BEGIN
  IF NOT has_table_privilege(session_user, 'progressor.running', 'UPDATE') THEN
    RAISE insufficient_privilege USING MESSAGE = 'confirm_generation is for roles that may update table running';
  END IF;
  SELECT i.system_identifier, i.timeline INTO own FROM database_identity() i;
  FOR attempt IN 1..2 LOOP
    behind := coalesce(pg_sequence_last_value('task_ids'), 0) < seen_task_id
           OR coalesce(pg_sequence_last_value('fencing_tokens'), 0) < seen_fencing_token;
    IF attempt = 1 THEN -- the usual case, without a lock and without a write
      SELECT * INTO recorded FROM database_generation;
    ELSE
      SELECT * INTO recorded FROM database_generation FOR UPDATE;
    END IF;
    IF NOT behind AND (own.timeline IS NULL
        OR (own.system_identifier, own.timeline) IS NOT DISTINCT FROM (recorded.system_identifier, recorded.timeline)) THEN
      RETURN recorded.generation;
    END IF;
  END LOOP;
  IF behind OR recorded.timeline IS NOT NULL THEN
    SELECT max(pg_sequence_last_value(s.seqrelid)) INTO highest
      FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
     WHERE c.relnamespace = 'progressor'::regnamespace AND s.seqtypid = 'bigint'::regtype;
    -- The timeline counts as well: after two failovers in a row that both lost the tail, the second
    -- server may know nothing of what the first one issued.
    highest := greatest((greatest(highest, seen_task_id, seen_fencing_token) / step + 1) * step, (own.timeline - 1) * step);
    PERFORM setval(s.seqrelid, highest)
       FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
      WHERE c.relnamespace = 'progressor'::regnamespace AND s.seqtypid = 'bigint'::regtype;
    recorded.generation := gen_random_uuid();
  END IF;
  UPDATE database_generation g SET generation = recorded.generation, changed_time = statement_timestamp(),
         system_identifier = coalesce(own.system_identifier, g.system_identifier), timeline = coalesce(own.timeline, g.timeline);
  RETURN recorded.generation;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION confirm_generation(bigint, bigint) IS 'Called by engines on every new connection, with the highest numbers that they have seen. After a failover or a restore it moves all sequences to the next multiple of 10^12.';

INSERT INTO database_generation (system_identifier, timeline) SELECT i.system_identifier, i.timeline FROM database_identity() i;

-- +goose Down
DROP FUNCTION confirm_generation(bigint, bigint);
DROP FUNCTION database_identity();
DROP TABLE database_generation;
