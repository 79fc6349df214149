-- +goose Up
-- Namespaces, nodes, workers and the audit log.

CREATE TABLE namespaces (
  namespace               text COLLATE "C" NOT NULL,
  config                  jsonb NOT NULL DEFAULT '{}'::jsonb,
  paused                  boolean NOT NULL DEFAULT false,
  created_time            timestamptz NOT NULL DEFAULT statement_timestamp(),
  updated_time            timestamptz NOT NULL DEFAULT clock_timestamp(),
  deletion_requested_time timestamptz,
  deletes_data            boolean NOT NULL DEFAULT false,
  PRIMARY KEY (namespace),
  CONSTRAINT namespaces_config_check CHECK (jsonb_typeof(config) = 'object'),
  CONSTRAINT namespaces_namespace_check CHECK (namespace ~ '^[a-zA-Z0-9._/-]{1,128}$')
);
COMMENT ON TABLE namespaces IS
  'Units of isolation and policy, each with its processor, retry policy and limits. PutNamespace '
  'writes a row. Every node reads changes within a second.';
COMMENT ON COLUMN namespaces.namespace IS
  'Name of the namespace, 1 to 128 characters of [a-zA-Z0-9._/-].';
COMMENT ON COLUMN namespaces.config IS
  'Configuration of the namespace, as JSON (the message Namespace of the API). Missing fields '
  'have their defaults.';
COMMENT ON COLUMN namespaces.paused IS
  'True if no tasks of the namespace start. Running tasks continue, and requests are stored and '
  'wait.';
COMMENT ON COLUMN namespaces.created_time IS 'When the namespace was created.';
COMMENT ON COLUMN namespaces.updated_time IS
  'When the namespace was last configured, paused or resumed.';
COMMENT ON COLUMN namespaces.deletion_requested_time IS
  'When DeleteNamespace was accepted. The namespace accepts no requests, and its row is deleted '
  'when it has no other rows. NULL if it is not being deleted.';
COMMENT ON COLUMN namespaces.deletes_data IS
  'True if the namespace is being deleted with its data. Otherwise the deletion is cancelled if '
  'there is a process, a task or a template.';

CREATE TABLE nodes (
  node_id              bigint GENERATED ALWAYS AS IDENTITY,
  address              text NOT NULL,
  version              text NOT NULL,
  started_time         timestamptz NOT NULL DEFAULT statement_timestamp(),
  beat_time            timestamptz NOT NULL DEFAULT statement_timestamp(),
  draining             boolean NOT NULL DEFAULT false,
  drain_requested_time timestamptz,
  tasks_per_second     double precision NOT NULL DEFAULT 0,
  timer_lateness_p99   interval,
  dead_beat_time       timestamptz,
  max_connections      int,
  requests_only        boolean NOT NULL DEFAULT false,
  known_deletions      timestamptz[],
  PRIMARY KEY (node_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE nodes IS
  'Engines that run on this database. A row is written when an engine starts, and deleted when it '
  'stops, or an hour after the last heartbeat of a dead node.';
COMMENT ON COLUMN nodes.node_id IS 'ID of the node. An engine gets a new one each time it starts.';
COMMENT ON COLUMN nodes.address IS 'Address of the node, as configured by --engine.address.';
COMMENT ON COLUMN nodes.version IS 'Version of the program.';
COMMENT ON COLUMN nodes.started_time IS 'When the node started.';
COMMENT ON COLUMN nodes.beat_time IS
  'When the node sent its last heartbeat, by the clock of the database. It sends one every three '
  'tenths of --engine.zombie-after (10 seconds by default).';
COMMENT ON COLUMN nodes.draining IS
  'True if the node is stopping, or was asked to drain. It finishes its running tasks and claims '
  'no others.';
COMMENT ON COLUMN nodes.drain_requested_time IS
  'When an operator asked the node to drain. The node learns this with its next heartbeat. NULL '
  'if none has.';
COMMENT ON COLUMN nodes.tasks_per_second IS
  'Results of attempts that the node stored, per second, in the minute before its last heartbeat.';
COMMENT ON COLUMN nodes.timer_lateness_p99 IS
  '99th percentile of the lateness of the timers that the node claimed in the minute before its '
  'last heartbeat. NULL if it claimed none.';
COMMENT ON COLUMN nodes.dead_beat_time IS
  'The beat_time for which another node declared this node dead. The node is dead while beat_time '
  'has this value. NULL if none has.';
COMMENT ON COLUMN nodes.max_connections IS
  'Maximum number of connections of the node to PostgreSQL. NULL for an older version, which has '
  '19 by default.';
COMMENT ON COLUMN nodes.requests_only IS
  'True if the node only takes requests and polls of workers, and runs no tasks.';
COMMENT ON COLUMN nodes.known_deletions IS
  'The deletion_requested_time of the namespaces that are being deleted and for which the node '
  'accepts no requests. NULL if there never was one.';

CREATE TABLE workers (
  namespace      text COLLATE "C" NOT NULL,
  worker_id      text COLLATE "C" NOT NULL,
  last_seen_time timestamptz NOT NULL,
  directive      text,
  lost_time      timestamptz,
  reason         text,
  PRIMARY KEY (namespace, worker_id),
  CONSTRAINT workers_directive_check CHECK (directive IN ('quiet', 'stop')),
  CONSTRAINT workers_stop_has_time CHECK (
    (NOT (directive IS DISTINCT FROM 'stop')) = (lost_time IS NOT NULL)),
  CONSTRAINT workers_worker_id_check CHECK (octet_length(worker_id) BETWEEN 1 AND 256)
)
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
      autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE workers IS
  'Workers that have polled or sent a heartbeat: one row for each namespace of a worker. A row is '
  'updated at most every five seconds, and deleted after a day.';
COMMENT ON COLUMN workers.namespace IS 'Namespace in which the worker has polled.';
COMMENT ON COLUMN workers.worker_id IS
  'ID of the worker, which the worker chooses. It identifies the worker in all namespaces.';
COMMENT ON COLUMN workers.last_seen_time IS
  'When the worker last polled or sent a heartbeat, by the clock of the database. It is written '
  'at most every five seconds.';
COMMENT ON COLUMN workers.directive IS
  'Command of an operator to the worker: quiet (claim no more tasks) or stop (claim no more tasks '
  'and end). NULL to continue.';
COMMENT ON COLUMN workers.lost_time IS
  'For stop: when the remaining leases of the worker go to other workers. NULL otherwise.';
COMMENT ON COLUMN workers.reason IS 'Reason of the command. NULL if there is none.';
CREATE INDEX workers_worker ON workers (worker_id);

CREATE TABLE audit (
  audit_id  bigint GENERATED ALWAYS AS IDENTITY,
  "time"    timestamptz NOT NULL DEFAULT statement_timestamp(),
  actor     text NOT NULL,
  source    text NOT NULL,
  method    text NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  subject   text NOT NULL,
  details   jsonb,
  PRIMARY KEY (audit_id)
);
COMMENT ON TABLE audit IS
  'Commands of operators. A row is written for each command that changed something, in its '
  'transaction, and deleted after 90 days.';
COMMENT ON COLUMN audit.audit_id IS 'Number of the command, ascending.';
COMMENT ON COLUMN audit."time" IS 'When it was carried out.';
COMMENT ON COLUMN audit.actor IS
  'Who sent the command. Empty if unknown: the engine does not authenticate its clients.';
COMMENT ON COLUMN audit.source IS 'Address from which the command was sent.';
COMMENT ON COLUMN audit.method IS 'Method of the API, such as SuspendProcess or PutNamespace.';
COMMENT ON COLUMN audit.namespace IS
  'Namespace to which the command applied. Empty if none, such as for commands to nodes.';
COMMENT ON COLUMN audit.subject IS
  'What the command applied to: a process_id, a namespace or a node_id.';
COMMENT ON COLUMN audit.details IS
  'Other arguments of the command, such as its reason, as JSON without payloads. NULL if there '
  'are none.';
CREATE INDEX audit_namespace ON audit (namespace, audit_id DESC);

CREATE TABLE database_generation (
  one_row           boolean NOT NULL DEFAULT true,
  generation        uuid NOT NULL DEFAULT gen_random_uuid(),
  system_identifier bigint,
  timeline          bigint,
  changed_time      timestamptz NOT NULL DEFAULT statement_timestamp(),
  confirmed_time    timestamptz,
  PRIMARY KEY (one_row),
  CONSTRAINT database_generation_one_row_check CHECK (one_row)
) WITH (fillfactor = 50);
COMMENT ON TABLE database_generation IS
  'The server on which the sequences were last checked: always one row. Engines compare it with '
  'their server on each new connection, and update it after a failover or a restore.';
COMMENT ON COLUMN database_generation.one_row IS 'Always true: the key of the only row.';
COMMENT ON COLUMN database_generation.generation IS
  'Identifies the generation. It changes with every failover, restore or correction of the '
  'sequences.';
COMMENT ON COLUMN database_generation.system_identifier IS
  'System identifier of the cluster (pg_control_system). NULL if the server does not provide it.';
COMMENT ON COLUMN database_generation.timeline IS
  'Timeline of the WAL, which changes with every promotion of a standby. NULL if the server does '
  'not provide it.';
COMMENT ON COLUMN database_generation.changed_time IS 'When the generation began.';
COMMENT ON COLUMN database_generation.confirmed_time IS
  'When an engine last checked, after a broken connection, that commits reach the synchronous '
  'standby. NULL if none has.';

-- +goose StatementBegin
CREATE FUNCTION database_identity(OUT system_identifier bigint, OUT timeline bigint) RETURNS record
LANGUAGE plpgsql AS $$
BEGIN
  system_identifier := (SELECT c.system_identifier FROM pg_control_system() c);
  timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
EXCEPTION WHEN undefined_function OR insufficient_privilege OR feature_not_supported THEN
  -- A compatible database or a restricted role: only the numbers are compared.
  system_identifier := NULL;
  timeline := NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION database_identity IS
  'Returns the system identifier of the cluster and the WAL timeline of this session. They are '
  'NULL if not available. Fails on a standby.';

-- +goose StatementBegin
CREATE FUNCTION confirm_generation(seen_task_id bigint, seen_fencing_token bigint) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  step CONSTANT bigint := 1000000000000;
  own record;
  recorded database_generation;
  behind boolean;
  highest bigint;
BEGIN
  IF NOT has_table_privilege(session_user, 'progressor.running', 'UPDATE') THEN
    RAISE insufficient_privilege
      USING MESSAGE = 'confirm_generation is for roles that may update table running';
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
    IF NOT behind
       AND (own.timeline IS NULL
            OR (own.system_identifier, own.timeline)
                 IS NOT DISTINCT FROM (recorded.system_identifier, recorded.timeline)) THEN
      RETURN recorded.generation;
    END IF;
  END LOOP;
  IF behind OR recorded.timeline IS NOT NULL THEN
    SELECT max(pg_sequence_last_value(s.seqrelid)) INTO highest
      FROM pg_sequence s
      JOIN pg_class c
        ON c.oid = s.seqrelid
     WHERE c.relnamespace = 'progressor'::regnamespace
       AND s.seqtypid = 'bigint'::regtype;
    -- The timeline counts as well: after two failovers in a row that both lost the tail, the second
    -- server may know nothing of what the first one issued.
    highest := greatest((greatest(highest, seen_task_id, seen_fencing_token) / step + 1) * step,
                        (own.timeline - 1) * step);
    PERFORM setval(s.seqrelid, highest)
       FROM pg_sequence s
       JOIN pg_class c
         ON c.oid = s.seqrelid
      WHERE c.relnamespace = 'progressor'::regnamespace
        AND s.seqtypid = 'bigint'::regtype;
    recorded.generation := gen_random_uuid();
  END IF;
  UPDATE database_generation g
     SET generation = recorded.generation, changed_time = statement_timestamp(),
         system_identifier = coalesce(own.system_identifier, g.system_identifier),
         timeline = coalesce(own.timeline, g.timeline);
  RETURN recorded.generation;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION confirm_generation IS
  'Returns the current generation. Engines call it on each new connection with the highest '
  'numbers that they have seen. After a failover or a restore it advances all sequences to the '
  'next multiple of 10^12 and begins a new generation.';

-- +goose StatementBegin
CREATE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$SELECT 32::bigint$$;
-- +goose StatementEnd
COMMENT ON FUNCTION oldest_engine IS
  'Returns the oldest schema version whose engines work with this schema. A migration raises it '
  'when it removes or changes what older engines use.';

INSERT INTO database_generation (system_identifier, timeline)
SELECT i.system_identifier, i.timeline FROM database_identity() i;

-- +goose StatementBegin
CREATE FUNCTION is_deleting(namespace text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = progressor, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM namespaces n
     WHERE n.namespace = is_deleting.namespace
       AND n.deletion_requested_time IS NOT NULL)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION is_deleting IS 'Reports whether a namespace is being deleted.';

-- is_portable reads the setting progressor.portable. It is for databases with PostgreSQL's protocol
-- that lack NOTIFY or advisory locks: see docs/scale-out.md.
CREATE FUNCTION is_portable() RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT coalesce(NULLIF(current_setting('progressor.portable', true), '')::boolean, false)
$$;
COMMENT ON FUNCTION is_portable IS
  'Reports whether the setting progressor.portable is on: the database is used without NOTIFY and '
  'advisory locks.';

-- +goose StatementBegin
CREATE FUNCTION send_notice(channel text) RETURNS void
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
BEGIN
  IF NOT is_portable() THEN
    PERFORM pg_notify(channel, '');
  END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION send_notice IS
  'Wakes the nodes that listen on a channel. In a portable database, nodes poll instead.';

CREATE TABLE key_locks (
  slot integer PRIMARY KEY
);
COMMENT ON TABLE key_locks IS
  'Rows that are locked for keys that have no row of their own, in a portable database. The number '
  'of rows is fixed.';
COMMENT ON COLUMN key_locks.slot IS 'Hash of the key, modulo 256.';

INSERT INTO key_locks SELECT generate_series(0, 255);

-- +goose StatementBegin
CREATE FUNCTION lock_key(hash bigint) RETURNS void
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
BEGIN
  IF is_portable() THEN
    PERFORM FROM key_locks WHERE slot = hash & 255 FOR UPDATE;
  ELSE
    PERFORM pg_advisory_xact_lock(hash);
  END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION lock_key IS
  'Locks a key, by its hash, until the end of the transaction.';
