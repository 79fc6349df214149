-- +goose Up
-- The change stream: its lanes and partitions.

CREATE SEQUENCE change_ids;
COMMENT ON SEQUENCE change_ids IS
  'Numbers of changes. A process assigns them under its lock, so its changes are numbered in the '
  'order in which they happened.';

-- A lane is used by one transaction at a time: it locks the row of the lane until its end. The rows
-- are never updated, so that long transactions of others leave no dead versions behind.
CREATE TABLE change_heads (
  namespace    text COLLATE "C" NOT NULL,
  lane         bigint GENERATED ALWAYS AS IDENTITY,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp(),
  PRIMARY KEY (namespace, lane)
);
COMMENT ON TABLE change_heads IS
  'Lanes of the change stream, as many for a namespace as transactions recorded at the same time. '
  'A transaction that records locks a lane until its end.';
COMMENT ON COLUMN change_heads.namespace IS 'Namespace whose changes the lane has.';
COMMENT ON COLUMN change_heads.lane IS 'Number of the lane, unique in the database.';
COMMENT ON COLUMN change_heads.created_time IS
  'When the lane was added, because all others were in use.';

CREATE TABLE change_drops (
  namespace text COLLATE "C" NOT NULL,
  lane      bigint NOT NULL,
  seq       bigint NOT NULL,
  "time"    timestamptz NOT NULL,
  PRIMARY KEY (namespace, lane)
);
COMMENT ON TABLE change_drops IS
  'Up to which number the changes of each lane were deleted after their retention.';
COMMENT ON COLUMN change_drops.namespace IS 'Namespace of the lane.';
COMMENT ON COLUMN change_drops.lane IS 'Lane of change_heads.';
COMMENT ON COLUMN change_drops.seq IS 'Number of the last deleted change of the lane.';
COMMENT ON COLUMN change_drops."time" IS 'Time of that change.';

CREATE TABLE changes (
  namespace   text COLLATE "C" NOT NULL,
  lane        bigint NOT NULL,
  seq         bigint NOT NULL,
  change_id   bigint NOT NULL,
  "time"      timestamptz NOT NULL,
  kind        text NOT NULL,
  type        text NOT NULL,
  process_id  text COLLATE "C" NOT NULL,
  event_id    bigint,
  from_status text,
  to_status   text,
  reason      text,
  metadata    jsonb,
  payload     bytea,
  details     jsonb,
  PRIMARY KEY (namespace, lane, seq, "time"),
  CONSTRAINT changes_kind_check CHECK (
    kind IN ('event', 'lifecycle', 'job', 'step', 'run', 'fire'))
) PARTITION BY RANGE ("time");
COMMENT ON TABLE changes IS
  'Changes of namespaces that record them, written in the transaction of the change and never '
  'changed. It has a partition for each day (UTC). Old partitions are dropped after the longest '
  'retention of all namespaces.';
COMMENT ON COLUMN changes.namespace IS 'Namespace of the change.';
COMMENT ON COLUMN changes.lane IS 'Lane of change_heads in which the change was recorded.';
COMMENT ON COLUMN changes.seq IS
  'Number of the change in its lane: 1, 2, 3, … without gaps, in commit order.';
COMMENT ON COLUMN changes.change_id IS
  'Number of the change. The changes of a process, and those of a lane, are numbered in their '
  'order.';
COMMENT ON COLUMN changes."time" IS
  'When the change was recorded. It never decreases within a lane.';
COMMENT ON COLUMN changes.kind IS 'Kind of the change: event, lifecycle, job, step, run or fire.';
COMMENT ON COLUMN changes.type IS
  'What happened, depending on the kind: see docs/changes.md. For an event: stored.';
COMMENT ON COLUMN changes.process_id IS
  'ID of the process, the job, the run (~flow/ID) or the cron (~cron/ID).';
COMMENT ON COLUMN changes.event_id IS 'Number of the event in its process. NULL for other kinds.';
COMMENT ON COLUMN changes.from_status IS
  'Status before the change. NULL if there was none, or if the status did not change.';
COMMENT ON COLUMN changes.to_status IS
  'Status after the change. NULL if it was removed, or if the status did not change.';
COMMENT ON COLUMN changes.reason IS
  'Why it happened, such as the message of a failure or the reason of a cancel. NULL if unknown.';
COMMENT ON COLUMN changes.metadata IS
  'Metadata of the event, or of the event of a job, step or run. NULL if there is none.';
COMMENT ON COLUMN changes.payload IS
  'Payload of the event. NULL for other kinds, and if the namespace does not record payloads.';
COMMENT ON COLUMN changes.details IS
  'More about the change of a job, step, run or fire, as a JSON object. NULL for other kinds.';

-- Changes of days without a partition are recorded in the partition changes_default.
-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE 'CREATE TABLE changes_default (LIKE changes INCLUDING ALL)';
  EXECUTE 'ALTER TABLE changes ATTACH PARTITION changes_default DEFAULT';
  EXECUTE 'COMMENT ON TABLE changes_default IS ''Changes of days without a partition.''';
END $$;
-- +goose StatementEnd

CREATE VIEW change_settings AS
SELECT n.namespace, n.config->'changes'->'kinds' AS kinds,
       coalesce((n.config->'changes'->>'payloads')::boolean, false) AS payloads,
       coalesce((n.config->'changes'->>'retention')::interval, interval '7 days') AS retention
  FROM namespaces n
 WHERE jsonb_array_length(n.config->'changes'->'kinds') > 0
   AND NOT n.deletes_data;
COMMENT ON VIEW change_settings IS 'Namespaces that record changes, with their settings.';
COMMENT ON COLUMN change_settings.namespace IS 'Name of the namespace.';
COMMENT ON COLUMN change_settings.kinds IS
  'Kinds of changes that it records, as a JSON array of values of the enum ChangeKind of the API.';
COMMENT ON COLUMN change_settings.payloads IS 'True if it records the payloads of events.';
COMMENT ON COLUMN change_settings.retention IS 'How long its changes are kept at least.';

-- take_change_lane never waits. Its last statements see everything that earlier transactions have
-- recorded in the lane, because their snapshots are newer than the lock. Therefore the transaction
-- must be READ COMMITTED. Recent partitions are read first: usually they have the last change.
-- +goose StatementBegin
CREATE FUNCTION take_change_lane(
  namespace text, OUT lane bigint, OUT last_seq bigint, OUT "time" timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
  recent CONSTANT interval := '2 hours';
  last_time timestamptz;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'progressor: changes are recorded only by READ COMMITTED transactions'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  SELECT h.lane INTO take_change_lane.lane
    FROM change_heads h
   WHERE h.namespace = take_change_lane.namespace
   ORDER BY h.lane LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    INSERT INTO change_heads AS h (namespace)
    VALUES (take_change_lane.namespace)
    RETURNING h.lane INTO take_change_lane.lane;
  END IF;
  SELECT c.seq, c."time" INTO last_seq, last_time
    FROM changes c
   WHERE c.namespace = take_change_lane.namespace
     AND c.lane = take_change_lane.lane
     AND c."time" >= date_trunc('day', statement_timestamp() - recent, 'UTC')
   ORDER BY c.seq DESC LIMIT 1;
  IF NOT FOUND THEN
    SELECT c.seq, c."time" INTO last_seq, last_time
      FROM changes c
     WHERE c.namespace = take_change_lane.namespace
       AND c.lane = take_change_lane.lane
     ORDER BY c.seq DESC LIMIT 1;
  END IF;
  IF NOT FOUND THEN
    SELECT d.seq, d."time" INTO last_seq, last_time
      FROM change_drops d
     WHERE d.namespace = take_change_lane.namespace
       AND d.lane = take_change_lane.lane;
  END IF;
  last_seq := coalesce(last_seq, 0);
  "time" := greatest(clock_timestamp(), last_time);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION take_change_lane IS
  'Locks a lane of a namespace for this transaction, and returns the number of its last change and '
  'the time of the next one.';

-- +goose StatementBegin
CREATE FUNCTION check_change_rights() RETURNS void
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
BEGIN
  IF NOT has_table_privilege(session_user, 'progressor.namespaces', 'UPDATE') THEN
    RAISE insufficient_privilege
      USING MESSAGE = 'progressor: recording is for roles that may update table namespaces';
  END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION check_change_rights IS
  'Fails unless the role of the session may configure namespaces.';

-- A day whose changes are in changes_default cannot get a partition. Its changes stay there.
-- +goose StatementBegin
CREATE FUNCTION add_change_partition(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  name CONSTANT text := 'changes_p' || to_char(day, 'YYYYMMDD');
BEGIN
  PERFORM check_change_rights();
  IF to_regclass('progressor.' || name) IS NOT NULL THEN
    RETURN;
  END IF;
  EXECUTE format('CREATE TABLE %I (LIKE changes INCLUDING ALL)', name);
  EXECUTE format('COMMENT ON TABLE %I IS %L', name, 'Changes of ' || day || ' (UTC).');
  EXECUTE format('ALTER TABLE changes ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
                 day || ' 00:00:00Z', day + 1 || ' 00:00:00Z');
EXCEPTION WHEN check_violation OR duplicate_table THEN
  RETURN; -- of changes_default; or another node has just added it
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION add_change_partition IS
  'Adds the partition of table changes for a day (UTC), if it is missing.';

-- drop_change_partition drops the oldest partition if all changes in it are older than the longest
-- retention. The rows of changes_default follow when no such partition is left, so that the changes
-- of a lane are always deleted from its beginning. A sink that is not BROKEN or DISABLED
-- keeps what it has not delivered.
-- +goose StatementBegin
CREATE FUNCTION drop_change_partition() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  retained CONSTANT date := (statement_timestamp() AT TIME ZONE 'UTC' - coalesce(
    (SELECT max(s.retention) FROM change_settings s), interval '7 days'))::date;
  undelivered CONSTANT date := (
    SELECT min(l.oldest_time) AT TIME ZONE 'UTC'
      FROM sink_lags l
      JOIN sinks s
        ON s.namespace = l.namespace
       AND s.sink_id = l.sink_id
     WHERE s.state IN ('ACTIVE', 'FAILING', 'PAUSED'))::date;
  kept CONSTANT date := least(retained, undelivered);
  partition text := (
    SELECT min(c.relname::text)
      FROM pg_inherits i
      JOIN pg_class c
        ON c.oid = i.inhrelid
     WHERE i.inhparent = 'changes'::regclass
       AND c.relname ~ '^changes_p[0-9]{8}$'
       AND c.relname < 'changes_p' || to_char(kept, 'YYYYMMDD'));
  dropped text := partition;
BEGIN
  PERFORM check_change_rights();
  IF dropped IS NULL AND EXISTS (
    SELECT FROM changes_default c WHERE c."time" < kept::timestamp AT TIME ZONE 'UTC') THEN
    dropped := 'changes_default';
  END IF;
  IF dropped IS NULL THEN
    RETURN NULL;
  END IF;
  EXECUTE format(
    'INSERT INTO change_drops AS d (namespace, lane, seq, "time")
     SELECT h.namespace, h.lane, last.seq, last."time"
       FROM change_heads h
      CROSS JOIN LATERAL (
        SELECT c.seq, c."time"
          FROM %I c
         WHERE c.namespace = h.namespace
           AND c.lane = h.lane
           AND c."time" < $1
         ORDER BY c.seq DESC LIMIT 1) last
     ON CONFLICT (namespace, lane) DO UPDATE
       SET seq = greatest(d.seq, excluded.seq), "time" = greatest(d."time", excluded."time")',
    dropped) USING kept::timestamp AT TIME ZONE 'UTC';
  IF partition IS NULL THEN
    DELETE FROM changes_default c WHERE c."time" < kept::timestamp AT TIME ZONE 'UTC';
  ELSE
    EXECUTE format('DROP TABLE %I', partition);
  END IF;
  RETURN dropped;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION drop_change_partition IS
  'Deletes the oldest changes if the longest retention of all namespaces is over and no sink waits '
  'for them, and returns the name of their partition. NULL if there are none.';

-- Triggers record the changes of a namespace in the transactions that make them. They exist only
-- while a namespace records: without them, recording costs nothing.
