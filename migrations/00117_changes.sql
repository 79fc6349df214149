-- +goose Up
-- The change stream: its lanes, partitions and triggers, and the sinks that deliver it.

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

-- A day without its own partition is recorded in this one.
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

-- A day that changes_default has changes of cannot get a partition: they stay there.
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

-- The statement below has no join of old_rows and new_rows, because a plan for few rows would be
-- quadratic for many.
-- +goose StatementBegin
CREATE FUNCTION record_updated_processes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, event_id,
                       from_status, to_status, reason, metadata, payload)
  WITH settings AS MATERIALIZED (
    SELECT s.namespace, s.payloads, s.kinds ? 'CHANGE_KIND_EVENT' AS events,
           s.kinds ? 'CHANGE_KIND_LIFECYCLE' AS lifecycle
      FROM change_settings s
     WHERE s.namespace IN (SELECT n.namespace FROM new_rows n)),
  updated AS MATERIALIZED (
    SELECT v.namespace, v.process_id,
           min(v.status) FILTER (WHERE v.before) AS old_status,
           min(v.status) FILTER (WHERE NOT v.before) AS new_status,
           min(v.last_event_id) FILTER (WHERE v.before) AS old_event_id,
           min(v.last_event_id) FILTER (WHERE NOT v.before) AS new_event_id,
           bool_or(v.removed) AND NOT bool_and(v.removed) AS removed,
           min(v.reason) FILTER (WHERE NOT v.before) AS reason
      FROM (
        SELECT o.namespace, o.process_id, true AS before, o.status, o.last_event_id,
               o.removed_time IS NOT NULL AS removed, NULL AS reason
          FROM old_rows o WHERE o.kind = ''
        UNION ALL
        SELECT n.namespace, n.process_id, false, n.status, n.last_event_id,
               n.removed_time IS NOT NULL,
               CASE n.status WHEN 'CANCELLED' THEN n.cancel_reason ELSE n.detail END
          FROM new_rows n WHERE n.kind = '') v
     WHERE v.namespace IN (SELECT s.namespace FROM settings s)
     GROUP BY v.namespace, v.process_id),
  found AS MATERIALIZED (
    SELECT u.namespace, u.process_id, 1 AS ord, 'event' AS kind, 'stored' AS type, e.event_id,
           NULL::text AS from_status, NULL::text AS to_status, NULL::text AS reason, e.metadata,
           CASE WHEN s.payloads THEN e.payload END AS payload
      FROM updated u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.events
     CROSS JOIN LATERAL (
       SELECT e.event_id, e.metadata, e.payload
         FROM events e
        WHERE e.namespace = u.namespace
          AND e.process_id = u.process_id
          AND e.event_id > u.old_event_id
          AND e.event_id <= u.new_event_id
        ORDER BY e.event_id OFFSET 0) e
     WHERE u.new_event_id > u.old_event_id
    UNION ALL
    SELECT u.namespace, u.process_id, CASE WHEN u.type IN ('repaired', 'resumed') THEN 0 ELSE 2 END,
           'lifecycle', u.type, NULL, u.old_status::text,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.new_status::text END,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.reason END, NULL, NULL
      FROM (
        SELECT updated.*,
               CASE
                 WHEN removed THEN 'removed'
                 WHEN new_status = old_status THEN NULL
                 WHEN new_status = 'COMPLETED' THEN 'completed'
                 WHEN new_status = 'CANCELLED' THEN 'cancelled'
                 WHEN new_status = 'ERROR' THEN 'failed'
                 WHEN new_status = 'SUSPENDED' THEN 'suspended'
                 WHEN old_status = 'ERROR' THEN 'repaired'
                 WHEN old_status = 'SUSPENDED' THEN 'resumed'
               END AS type
          FROM updated) u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.lifecycle
     WHERE u.type IS NOT NULL),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number()
           OVER (PARTITION BY f.namespace ORDER BY f.process_id, f.ord, f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.process_id, f.event_id, f.from_status,
         f.to_status, f.reason, f.metadata, f.payload
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION record_updated_processes IS
  'Trigger function that records events and changes of the status of processes.';

-- +goose StatementBegin
CREATE FUNCTION record_created_processes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, event_id,
                       to_status, metadata, payload)
  WITH found AS MATERIALIZED (
    SELECT n.namespace, n.process_id, 'lifecycle' AS kind, 'created' AS type, 0 AS event_id,
           n.status::text AS to_status, NULL::jsonb AS metadata, NULL::bytea AS payload
      FROM new_rows n
      JOIN change_settings s
        ON s.namespace = n.namespace
       AND s.kinds ? 'CHANGE_KIND_LIFECYCLE'
     WHERE n.kind = ''
    UNION ALL
    SELECT n.namespace, n.process_id, 'event', 'stored', e.event_id, NULL, e.metadata,
           CASE WHEN s.payloads THEN e.payload END
      FROM new_rows n
      JOIN change_settings s
        ON s.namespace = n.namespace
       AND s.kinds ? 'CHANGE_KIND_EVENT'
     CROSS JOIN LATERAL (
       SELECT e.event_id, e.metadata, e.payload
         FROM events e
        WHERE e.namespace = n.namespace
          AND e.process_id = n.process_id
        ORDER BY e.event_id OFFSET 0) e
     WHERE n.kind = ''
       AND n.last_event_id > 0), -- imported with its history
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number()
           OVER (PARTITION BY f.namespace ORDER BY f.process_id, f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.process_id, NULLIF(f.event_id, 0),
         f.to_status, f.metadata, f.payload
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION record_created_processes IS
  'Trigger function that records the creation of processes.';

-- +goose StatementBegin
CREATE FUNCTION record_job_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id,
                       from_status, to_status, reason, metadata, details)
  WITH found AS MATERIALIZED (
    SELECT e.*
      FROM (
        SELECT n.*, CASE
                      WHEN n.step_id IS NOT NULL THEN 'step'
                      WHEN starts_with(n.job_id, '~flow/') THEN 'run'
                      ELSE 'job'
                    END AS kind
          FROM new_rows n) e
      JOIN change_settings s
        ON s.namespace = e.namespace
       AND s.kinds ? ('CHANGE_KIND_' || upper(e.kind))),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number() OVER (PARTITION BY f.namespace ORDER BY f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.job_id, f.from_status, f.to_status,
         f.message, f.metadata,
         NULLIF(jsonb_strip_nulls(jsonb_build_object(
           'step_id', f.step_id, 'index', f.index, 'attempt', NULLIF(f.attempt, 0),
           'worker_id', f.worker_id, 'actor', f.actor)), '{}')
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION record_job_events IS
  'Trigger function that records the stored events of jobs, runs and steps.';

-- +goose StatementBegin
CREATE FUNCTION record_cron_fires() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, to_status,
                       reason, details)
  WITH found AS MATERIALIZED (
    SELECT n.*
      FROM new_rows n
      JOIN change_settings s
        ON s.namespace = n.namespace
       AND s.kinds ? 'CHANGE_KIND_FIRE'),
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
COMMENT ON FUNCTION record_cron_fires IS
  'Trigger function that records the decisions about fires of crons, and how their runs ended.';

CREATE VIEW change_triggers AS
SELECT x.name, x.relation, x.operation, x.tables, x.function,
       EXISTS (
         SELECT 1 FROM pg_trigger t
          WHERE t.tgrelid = to_regclass('progressor.' || x.relation)
            AND t.tgname = x.name) AS exists
  FROM (
    SELECT 'processes_created_change' AS name, 'processes' AS relation, 'INSERT' AS operation,
           'NEW TABLE AS new_rows' AS tables, 'record_created_processes' AS function
    UNION ALL
    SELECT 'processes_updated_change', 'processes', 'UPDATE',
           'OLD TABLE AS old_rows NEW TABLE AS new_rows', 'record_updated_processes'
    UNION ALL
    SELECT 'job_events_change', 'job_events', 'INSERT', 'NEW TABLE AS new_rows', 'record_job_events'
    UNION ALL
    SELECT 'cron_fires_created_change', 'cron_fires', 'INSERT', 'NEW TABLE AS new_rows',
           'record_cron_fires'
    UNION ALL
    SELECT 'cron_fires_updated_change', 'cron_fires', 'UPDATE', 'NEW TABLE AS new_rows',
           'record_cron_fires') x;
COMMENT ON VIEW change_triggers IS
  'The triggers that record changes, which exist while a namespace records.';
COMMENT ON COLUMN change_triggers.name IS 'Name of the trigger.';
COMMENT ON COLUMN change_triggers.relation IS 'Table of the trigger.';
COMMENT ON COLUMN change_triggers.operation IS 'Statements after which it runs: INSERT or UPDATE.';
COMMENT ON COLUMN change_triggers.tables IS 'Its transition tables.';
COMMENT ON COLUMN change_triggers.function IS 'Its function.';
COMMENT ON COLUMN change_triggers.exists IS 'True if the trigger exists.';

-- The lock on the table waits for the transactions that write it, and others wait behind it.
-- Therefore each table is a transaction of its own, with a short lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION start_recording(relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  missing record;
BEGIN
  PERFORM check_change_rights();
  IF NOT EXISTS (
    SELECT FROM change_triggers t
     WHERE t.relation = start_recording.relation
       AND NOT t.exists) THEN
    RETURN;
  END IF;
  EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', relation);
  FOR missing IN
    SELECT * FROM change_triggers t
     WHERE t.relation = start_recording.relation
       AND NOT t.exists
  LOOP
    EXECUTE format('CREATE TRIGGER %I AFTER %s ON %I REFERENCING %s '
                   'FOR EACH STATEMENT EXECUTE FUNCTION %I()',
                   missing.name, missing.operation, relation, missing.tables, missing.function);
  END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION start_recording IS
  'Creates the triggers of a table that record changes, if they are missing.';

-- The lock on namespaces waits for transactions that are about to let a namespace record.
-- +goose StatementBegin
CREATE FUNCTION stop_recording(relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  unused record;
BEGIN
  PERFORM check_change_rights();
  LOCK TABLE namespaces IN SHARE ROW EXCLUSIVE MODE;
  IF EXISTS (SELECT FROM change_settings) THEN
    RETURN;
  END IF;
  FOR unused IN
    SELECT * FROM change_triggers t
     WHERE t.relation = stop_recording.relation
       AND t.exists
  LOOP
    EXECUTE format('DROP TRIGGER %I ON %I', unused.name, relation);
  END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION stop_recording IS
  'Drops the triggers of a table that record changes, if no namespace records.';

-- +goose StatementBegin
CREATE FUNCTION require_change_triggers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM change_settings s WHERE s.namespace = NEW.namespace)
     AND EXISTS (SELECT FROM change_triggers t WHERE NOT t.exists) THEN
    RAISE EXCEPTION 'progressor: namespace "%" cannot record changes before start_recording',
      NEW.namespace USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION require_change_triggers IS
  'Trigger function that rejects a namespace with the setting changes while a trigger is missing.';

CREATE TRIGGER namespaces_require_change_triggers
  AFTER INSERT OR UPDATE OF config ON namespaces FOR EACH ROW
  WHEN (NEW.config->'changes' IS NOT NULL) EXECUTE FUNCTION require_change_triggers();

-- Sinks deliver changes to targets. The runner of a sink is a node with a lease on its row.
CREATE TABLE sinks (
  namespace         text COLLATE "C" NOT NULL,
  sink_id           text COLLATE "C" NOT NULL,
  config            jsonb NOT NULL,
  secrets           jsonb NOT NULL,
  revision          bigint NOT NULL,
  state             text NOT NULL,
  lanes             bigint[] NOT NULL,
  seqs              bigint[] NOT NULL,
  max_lag           interval NOT NULL,
  resumed_time      timestamptz NOT NULL,
  token             bigint NOT NULL,
  node_id           bigint,
  lease_time        timestamptz,
  delivered         bigint NOT NULL,
  delivered_time    timestamptz,
  failures          integer NOT NULL,
  last_error        text,
  last_error_time   timestamptz,
  next_attempt_time timestamptz,
  dead_letters      bigint NOT NULL,
  created_time      timestamptz NOT NULL,
  updated_time      timestamptz NOT NULL,
  PRIMARY KEY (namespace, sink_id),
  CONSTRAINT sinks_state_check CHECK (
    state IN ('ACTIVE', 'PAUSED', 'FAILING', 'BROKEN', 'DISABLED')),
  CONSTRAINT sinks_cursor_check CHECK (cardinality(lanes) = cardinality(seqs)),
  CONSTRAINT sinks_lease_check CHECK ((node_id IS NULL) = (lease_time IS NULL))
);
COMMENT ON TABLE sinks IS
  'Sinks of the change stream: where they deliver to, up to where they have delivered, and which '
  'node delivers.';
COMMENT ON COLUMN sinks.namespace IS 'Namespace whose changes the sink delivers.';
COMMENT ON COLUMN sinks.sink_id IS 'ID of the sink, unique in its namespace.';
COMMENT ON COLUMN sinks.config IS 'Settings: the message Sink of the API as JSON, without secrets.';
COMMENT ON COLUMN sinks.secrets IS 'Secrets of the target: the fields of Sink that have them.';
COMMENT ON COLUMN sinks.revision IS 'Number of the settings, incremented by each change.';
COMMENT ON COLUMN sinks.state IS 'ACTIVE, PAUSED, FAILING, BROKEN or DISABLED: see SinkState.';
COMMENT ON COLUMN sinks.lanes IS
  'The cursor: lanes of change_heads. Of a lane that is missing, nothing was delivered.';
COMMENT ON COLUMN sinks.seqs IS 'The number of the last delivered change of each of these lanes.';
COMMENT ON COLUMN sinks.max_lag IS 'How old a change may become before it is delivered.';
COMMENT ON COLUMN sinks.resumed_time IS
  'When the sink was created, resumed or rewound. Its lag counts from then.';
COMMENT ON COLUMN sinks.token IS
  'Number of the lease, incremented by each claim and rewind. Only its holder moves the cursor.';
COMMENT ON COLUMN sinks.node_id IS 'Node that delivers. NULL if there is none.';
COMMENT ON COLUMN sinks.lease_time IS 'When the lease of that node ends.';
COMMENT ON COLUMN sinks.delivered IS 'Number of delivered changes since the sink was created.';
COMMENT ON COLUMN sinks.delivered_time IS 'When the last changes were delivered. NULL if never.';
COMMENT ON COLUMN sinks.failures IS 'Failed attempts in a row.';
COMMENT ON COLUMN sinks.last_error IS 'The last error, also after it was overcome. NULL if none.';
COMMENT ON COLUMN sinks.last_error_time IS 'When it happened.';
COMMENT ON COLUMN sinks.next_attempt_time IS 'When a failed delivery is repeated. NULL if none.';
COMMENT ON COLUMN sinks.dead_letters IS
  'Number of changes that the target rejected for good since the sink was created.';
COMMENT ON COLUMN sinks.created_time IS 'When the sink was created.';
COMMENT ON COLUMN sinks.updated_time IS 'When its settings were changed.';

CREATE TABLE sink_dead_letters (
  namespace   text COLLATE "C" NOT NULL,
  sink_id     text COLLATE "C" NOT NULL,
  change_id   bigint NOT NULL,
  kind        text NOT NULL,
  type        text NOT NULL,
  process_id  text COLLATE "C" NOT NULL,
  change_time timestamptz NOT NULL,
  error       text NOT NULL,
  "time"      timestamptz NOT NULL,
  PRIMARY KEY (namespace, sink_id, change_id)
);
COMMENT ON TABLE sink_dead_letters IS
  'Changes that the target of a sink rejected for good, the newest 1,000 of each sink.';
COMMENT ON COLUMN sink_dead_letters.namespace IS 'Namespace of the sink.';
COMMENT ON COLUMN sink_dead_letters.sink_id IS 'ID of the sink.';
COMMENT ON COLUMN sink_dead_letters.change_id IS 'Number of the change: see the table changes.';
COMMENT ON COLUMN sink_dead_letters.kind IS 'Kind of the change.';
COMMENT ON COLUMN sink_dead_letters.type IS 'Type of the change.';
COMMENT ON COLUMN sink_dead_letters.process_id IS 'ID of its process, job, run or cron.';
COMMENT ON COLUMN sink_dead_letters.change_time IS 'When the change was recorded.';
COMMENT ON COLUMN sink_dead_letters.error IS 'Why the target rejected it.';
COMMENT ON COLUMN sink_dead_letters."time" IS 'When it rejected it.';

CREATE VIEW sink_lags AS
SELECT s.namespace, s.sink_id, coalesce(sum(lane.behind), 0)::bigint AS changes,
       min(lane.oldest_time) AS oldest_time
  FROM sinks s
  LEFT JOIN LATERAL (
    SELECT last.seq - coalesce(done.seq, 0) AS behind, oldest."time" AS oldest_time
      FROM change_heads h
      LEFT JOIN LATERAL (
        SELECT item.seq
          FROM ROWS FROM (unnest(s.lanes), unnest(s.seqs)) AS item(lane, seq)
         WHERE item.lane = h.lane) done ON true
     CROSS JOIN LATERAL (
       SELECT c.seq
         FROM changes c
        WHERE c.namespace = h.namespace
          AND c.lane = h.lane
          AND c.seq > coalesce(done.seq, 0)
        ORDER BY c.seq DESC LIMIT 1) last
     CROSS JOIN LATERAL (
       SELECT c."time"
         FROM changes c
        WHERE c.namespace = h.namespace
          AND c.lane = h.lane
          AND c.seq > coalesce(done.seq, 0)
        ORDER BY c.seq LIMIT 1) oldest
     WHERE h.namespace = s.namespace) lane ON true
 GROUP BY s.namespace, s.sink_id;
COMMENT ON VIEW sink_lags IS 'What each sink has not delivered.';
COMMENT ON COLUMN sink_lags.namespace IS 'Namespace of the sink.';
COMMENT ON COLUMN sink_lags.sink_id IS 'ID of the sink.';
COMMENT ON COLUMN sink_lags.changes IS
  'Number of recorded changes after its cursor, including those that it does not select.';
COMMENT ON COLUMN sink_lags.oldest_time IS 'When the oldest of them was recorded. NULL if none.';
