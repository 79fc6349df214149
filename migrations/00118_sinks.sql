-- +goose Up
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

-- Like the function of 00113, but a sink that is not BROKEN or DISABLED keeps what it has not
-- delivered.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION drop_change_partition() RETURNS text
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

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION drop_change_partition() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp SET lock_timeout = '500ms'
AS $$
DECLARE
  kept CONSTANT date := (statement_timestamp() AT TIME ZONE 'UTC' - coalesce(
    (SELECT max(s.retention) FROM change_settings s), interval '7 days'))::date;
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
DROP VIEW sink_lags;
DROP TABLE sink_dead_letters, sinks;
