-- +goose Up
-- The triggers that record changes, and the sinks that deliver them.

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

-- The lock on the table waits for the transactions that write to it, and other transactions wait
-- behind the lock. Therefore each table gets its own transaction, with a short lock_timeout.
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

-- The lock on namespaces waits for transactions that are about to make a namespace record changes.
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
