-- +goose Up
-- The ledger of crons.

CREATE TYPE fire_decision AS ENUM (
  'FIRED', 'QUEUED', 'SKIPPED_OVERLAP', 'SKIPPED_FAILURE', 'SKIPPED_CONCURRENCY', 'MISSED',
  'DROPPED');
COMMENT ON TYPE fire_decision IS
  'What a cron decided about a fire time: FIRED, QUEUED, SKIPPED_OVERLAP, SKIPPED_FAILURE, '
  'SKIPPED_CONCURRENCY, MISSED or DROPPED.';

CREATE TYPE fire_status AS ENUM (
  'SCHEDULED', 'RUNNING', 'SUCCESS', 'FAILED', 'TIMEOUT', 'CANCELLED', 'SKIPPED');
COMMENT ON TYPE fire_status IS
  'Status of the run of a fire: SCHEDULED while it waits to start, RUNNING, or its outcome: '
  'SUCCESS, FAILED, TIMEOUT or CANCELLED. SKIPPED if there is no run.';

CREATE TABLE cron_fires (
  namespace    text COLLATE "C" NOT NULL,
  cron_id      text COLLATE "C" NOT NULL,
  fire_time    timestamptz NOT NULL,
  decision     fire_decision NOT NULL,
  reason       text,
  attempt      int NOT NULL,
  status       fire_status NOT NULL,
  process_id   text COLLATE "C",
  decided_time timestamptz NOT NULL,
  started_time timestamptz,
  ended_time   timestamptz,
  detail       text,
  manual       boolean NOT NULL DEFAULT false,
  count        bigint NOT NULL DEFAULT 1,
  PRIMARY KEY (namespace, cron_id, fire_time),
  CONSTRAINT cron_fires_attempt_check CHECK (attempt >= 0),
  CONSTRAINT cron_fires_count_check CHECK (count >= 1),
  CONSTRAINT cron_fires_cron_id_check CHECK (octet_length(cron_id) BETWEEN 1 AND 200),
  CONSTRAINT cron_fires_detail_check CHECK (octet_length(detail) <= 4096),
  CONSTRAINT cron_fires_ended CHECK ((ended_time IS NULL) = (status IN ('SCHEDULED', 'RUNNING'))),
  CONSTRAINT cron_fires_process_id_check CHECK (octet_length(process_id) BETWEEN 1 AND 256),
  CONSTRAINT cron_fires_reason_check CHECK (octet_length(reason) <= 4096),
  CONSTRAINT cron_fires_run_or_skipped CHECK (
    (status = 'SKIPPED') = (decision NOT IN ('FIRED', 'QUEUED'))),
  CONSTRAINT cron_fires_started CHECK (
    started_time IS NOT NULL
    OR status IN ('SCHEDULED', 'SKIPPED', 'CANCELLED'))
) WITH (fillfactor = 80);
COMMENT ON TABLE cron_fires IS
  'Ledger of crons: one row for each past fire time, written in the transaction of its decision. '
  'Rows are deleted after 30 days by default, but not before the run has ended, and when the cron '
  'is deleted.';
COMMENT ON COLUMN cron_fires.namespace IS 'Namespace of the cron.';
COMMENT ON COLUMN cron_fires.cron_id IS 'ID of the cron. Its process is ~cron/CRON_ID.';
COMMENT ON COLUMN cron_fires.fire_time IS
  'When the fire was due, without jitter. For a triggered fire, when it was triggered, which is '
  'never a whole second.';
COMMENT ON COLUMN cron_fires.decision IS
  'Decision about the fire. A QUEUED fire stays QUEUED when it starts. It becomes '
  'SKIPPED_CONCURRENCY if another run of its scope prevents its run, and FIRED if it is run '
  'again.';
COMMENT ON COLUMN cron_fires.reason IS 'Reason of the decision. NULL if there is none.';
COMMENT ON COLUMN cron_fires.attempt IS
  'Number of the attempt of the run: more than 1 if it repeats a failed run, or if the fire was '
  'run again. 0 if no run has started.';
COMMENT ON COLUMN cron_fires.status IS
  'Status of the run of the fire, SKIPPED if there is none. Only the first end of a run is '
  'stored.';
COMMENT ON COLUMN cron_fires.process_id IS 'ID of the process of the run. NULL if there is none.';
COMMENT ON COLUMN cron_fires.decided_time IS
  'When the fire was decided, or when it was last run again.';
COMMENT ON COLUMN cron_fires.started_time IS 'When the run started. NULL if no run has started.';
COMMENT ON COLUMN cron_fires.ended_time IS
  'When the run ended, or for a fire without a run, when it was skipped. NULL if the run has not '
  'ended.';
COMMENT ON COLUMN cron_fires.detail IS
  'How the run ended, such as the message of its failure. NULL if there is nothing to report.';
COMMENT ON COLUMN cron_fires.manual IS 'True if the fire was triggered, backfilled or run again.';
COMMENT ON COLUMN cron_fires.count IS
  'Number of fire times in this row. It is more than 1 only for old MISSED fires, of which the '
  'row has the newest.';
CREATE INDEX cron_fires_decided ON cron_fires USING brin (decided_time);

-- +goose StatementBegin
CREATE FUNCTION protobuf_varint(message bytea, INOUT pos integer, OUT number bigint) RETURNS record
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  octet integer;
  shift integer := 0;
BEGIN
  number := 0;
  WHILE pos < octet_length(message) AND shift < 64 LOOP
    octet := get_byte(message, pos);
    pos := pos + 1;
    number := number | ((octet & 127)::bigint << shift);
    EXIT WHEN octet < 128;
    shift := shift + 7;
  END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_varint IS
  'Decodes the variable-length integer at byte position pos of a protobuf message. Returns the '
  'number, and in pos the position after it.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_fields(
  message bytea)
RETURNS TABLE(field integer, number bigint, bytes bytea)
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = progressor, pg_temp AS $$
DECLARE
  pos integer := 0;
  tag bigint;
  size bigint;
BEGIN
  WHILE pos < octet_length(message) LOOP
    SELECT v.pos, v.number INTO pos, tag FROM protobuf_varint(message, pos) v;
    field := (tag >> 3) & 536870911;
    number := NULL;
    bytes := NULL;
    size := CASE tag & 7 WHEN 1 THEN 8 WHEN 5 THEN 4 ELSE 0 END;
    CASE tag & 7
      WHEN 0 THEN SELECT v.pos, v.number INTO pos, number FROM protobuf_varint(message, pos) v;
      WHEN 2 THEN SELECT v.pos, v.number INTO pos, size FROM protobuf_varint(message, pos) v;
      WHEN 1, 5 THEN NULL;
      ELSE RETURN;
    END CASE;
    IF size < 0 OR size > octet_length(message) - pos THEN
      RETURN;
    END IF;
    IF tag & 7 <> 0 THEN
      bytes := substring(message FROM pos + 1 FOR size::integer);
      pos := pos + size::integer;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_fields IS
  'Returns the fields of a protobuf message in order: varints as number, all other values as '
  'bytes. It ends before an invalid field.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_interval(duration bytea) RETURNS interval
LANGUAGE sql IMMUTABLE STRICT SET search_path = progressor, pg_temp AS $$
  SELECT coalesce(sum(CASE field WHEN 1 THEN number * interval '1 second'
                                 WHEN 2 THEN number / 1000 * interval '1 microsecond' END), '0')
    FROM protobuf_fields(duration)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_interval IS
  'Converts an encoded google.protobuf.Duration to an interval.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_text(value bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN position('\x00'::bytea IN value) > 0 THEN encode(value, 'escape')
              ELSE convert_from(value, 'UTF8') END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_text IS
  'Converts a string of a protobuf message to text. A string with zero bytes, which text cannot '
  'contain, is escaped.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_timestamp(stamp bytea) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT SET search_path = progressor, pg_temp AS $$
  SELECT timestamptz '1970-01-01T00:00:00Z' + protobuf_interval(stamp)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_timestamp IS
  'Converts an encoded google.protobuf.Timestamp to a timestamp.';

CREATE VIEW cron_list AS
SELECT p.namespace, substr(p.process_id, 7) AS cron_id, spec.expressions,
       coalesce(spec.timezone, 'UTC') AS timezone, spec.start_time, spec.end_time, spec.jitter,
       spec.exclude_expressions, coalesce(spec.max_fires, 0) AS max_fires,
       (ARRAY['ALLOW', 'SKIP', 'CANCEL_PREV', 'PARALLEL', 'BUFFER_ONE']) [
         coalesce(policy.overlap_action, 1)] AS overlap_action,
       (ARRAY['RUN_NEW', 'SKIP', 'RETRY', 'BACKOFF', 'HALF_OPEN']) [
         coalesce(policy.failure_action, 1)] AS failure_action,
       (ARRAY['SKIP', 'QUEUE'])[coalesce(policy.concurrency_policy, 1)] AS concurrency_policy,
       coalesce(policy.max_concurrency, 1) AS max_concurrency,
       (ARRAY['FIRE_NOW', 'SKIP', 'CATCH_UP_LIMITED']) [coalesce(
         policy.misfire_policy, 1)] AS misfire_policy,
       policy.catchup_limit, policy.catchup_window, policy.timeout,
       (ARRAY['START_PROCESS', 'ENQUEUE_JOB', 'NOTIFY_PROCESS', 'HTTP',
              'START_RUN']) [target.kind] AS target,
       coalesce(target.namespace,
                CASE WHEN target.kind <> 4 THEN p.namespace END) AS target_namespace,
       target.name AS target_name,
       coalesce((head.state->'cron'->>'paused')::boolean, false) AS paused,
       head.state->>'pause_note' AS pause_note,
       (head.state->>'next')::timestamptz AS next_fire_time,
       (head.state->>'last_fire')::timestamptz AS last_fire_time,
       coalesce(jsonb_array_length(head.state->'cron'->'running'), 0) AS running,
       coalesce(jsonb_array_length(head.state->'cron'->'queue'), 0) AS queued,
       coalesce((head.state->'cron'->>'failures')::integer, 0) AS failures,
       p.created_time, (head.state->>'updated')::timestamptz AS updated_time, p.metadata
  FROM processes p
 CROSS JOIN LATERAL (SELECT position('\x0a'::bytea IN p.aux_state) AS line_end) cut
 CROSS JOIN LATERAL (
   SELECT replace(convert_from(substring(p.aux_state FROM 1 FOR cut.line_end - 1), 'UTF8'),
                  '\u0000', '\ufffd')::jsonb AS state) head
 CROSS JOIN LATERAL (
   SELECT (array_agg(bytes) FILTER (WHERE field = 3))[1] AS spec,
          (array_agg(bytes) FILTER (WHERE field = 4))[1] AS policy,
          (array_agg(bytes) FILTER (WHERE field = 5))[1] AS target
     FROM protobuf_fields(substring(p.aux_state FROM cut.line_end + 1))) definition
 CROSS JOIN LATERAL (
   SELECT array_agg(protobuf_text(bytes)) FILTER (WHERE field = 1) AS expressions,
          max(protobuf_text(bytes)) FILTER (WHERE field = 2) AS timezone,
          max(protobuf_timestamp(bytes)) FILTER (WHERE field = 3) AS start_time,
          max(protobuf_timestamp(bytes)) FILTER (WHERE field = 4) AS end_time,
          max(protobuf_interval(bytes)) FILTER (WHERE field = 5) AS jitter,
          array_agg(protobuf_text(bytes)) FILTER (WHERE field = 6) AS exclude_expressions,
          max(number) FILTER (WHERE field = 8) AS max_fires
     FROM protobuf_fields(definition.spec)) spec
 CROSS JOIN LATERAL (
   SELECT max(number) FILTER (WHERE field = 1) AS overlap_action,
          max(number) FILTER (WHERE field = 2) AS failure_action,
          max(number) FILTER (WHERE field = 3) AS concurrency_policy,
          max(number) FILTER (WHERE field = 4) AS max_concurrency,
          max(number) FILTER (WHERE field = 6) AS misfire_policy,
          max(number) FILTER (WHERE field = 7) AS catchup_limit,
          max(protobuf_interval(bytes)) FILTER (WHERE field = 8) AS catchup_window,
          max(protobuf_interval(bytes)) FILTER (WHERE field = 9) AS timeout
     FROM protobuf_fields(definition.policy)) policy
 CROSS JOIN LATERAL (
   SELECT max(t.field) AS kind,
          max(protobuf_text(f.bytes))
            FILTER (WHERE f.field = 1 AND t.field IN (1, 2, 3)) AS namespace,
          max(protobuf_text(f.bytes)) FILTER (WHERE f.field = 2 AND t.field IN (2, 3)
                                              OR f.field = 1 AND t.field IN (4, 5)) AS name
     FROM protobuf_fields(definition.target) t
     LEFT JOIN LATERAL protobuf_fields(t.bytes) f ON true) target
 WHERE p.kind = 'cron'
   AND p.process_id >= '~cron/'
   AND p.process_id < '~cron0'
   AND p.removed_time IS NULL
   AND cut.line_end > 0;
COMMENT ON VIEW cron_list IS
  'Crons, each with its definition and what it does next. Use a namespace in WHERE, because the '
  'definition is decoded for each row.';
COMMENT ON COLUMN cron_list.namespace IS 'Namespace of the cron.';
COMMENT ON COLUMN cron_list.cron_id IS 'ID of the cron. Its process is ~cron/CRON_ID.';
COMMENT ON COLUMN cron_list.expressions IS 'Cron expressions that define the fire times.';
COMMENT ON COLUMN cron_list.timezone IS 'Time zone of the expressions, UTC by default.';
COMMENT ON COLUMN cron_list.start_time IS
  'The cron does not fire before this time. NULL for no limit.';
COMMENT ON COLUMN cron_list.end_time IS
  'The cron does not fire after this time. NULL for no limit.';
COMMENT ON COLUMN cron_list.jitter IS 'Maximum delay of a fire. NULL for none.';
COMMENT ON COLUMN cron_list.exclude_expressions IS
  'Cron expressions of times at which the cron does not fire. NULL if there are none.';
COMMENT ON COLUMN cron_list.max_fires IS
  'Number of runs after which the cron has ended. 0 for no limit.';
COMMENT ON COLUMN cron_list.overlap_action IS
  'What a fire does if the previous run is still running: ALLOW, SKIP, CANCEL_PREV, PARALLEL or '
  'BUFFER_ONE.';
COMMENT ON COLUMN cron_list.failure_action IS
  'What a fire does if the previous run has failed: RUN_NEW, SKIP, RETRY, BACKOFF or HALF_OPEN.';
COMMENT ON COLUMN cron_list.concurrency_policy IS
  'What a fire does if max_concurrency is reached: SKIP or QUEUE.';
COMMENT ON COLUMN cron_list.max_concurrency IS 'Maximum number of runs at the same time.';
COMMENT ON COLUMN cron_list.misfire_policy IS
  'Which of several late fires run: FIRE_NOW, SKIP or CATCH_UP_LIMITED.';
COMMENT ON COLUMN cron_list.catchup_limit IS
  'For CATCH_UP_LIMITED: how many of the newest late fires are decided. NULL if not set.';
COMMENT ON COLUMN cron_list.catchup_window IS
  'Fires that are later than this are MISSED. NULL for no limit.';
COMMENT ON COLUMN cron_list.timeout IS
  'Timeout of a run. NULL for 10 seconds with the target HTTP, and otherwise for the limit of the '
  'target itself.';
COMMENT ON COLUMN cron_list.target IS
  'What the cron starts: START_PROCESS, ENQUEUE_JOB, NOTIFY_PROCESS, HTTP or START_RUN.';
COMMENT ON COLUMN cron_list.target_namespace IS
  'Namespace in which the cron starts the target. NULL for HTTP.';
COMMENT ON COLUMN cron_list.target_name IS
  'Name of the job, ID of the process that is notified, URL, or name of the template, depending '
  'on target. NULL for START_PROCESS.';
COMMENT ON COLUMN cron_list.paused IS 'True if the cron is paused.';
COMMENT ON COLUMN cron_list.pause_note IS 'Why the cron is paused. NULL if no reason is known.';
COMMENT ON COLUMN cron_list.next_fire_time IS
  'When the cron fires next, including jitter. NULL if it is paused or no fire time is left.';
COMMENT ON COLUMN cron_list.last_fire_time IS
  'Fire time of the newest run that was started. NULL if there is none.';
COMMENT ON COLUMN cron_list.running IS
  'Number of running runs that the policies count: without runs that were asked to cancel, '
  'reruns, and ordered backfills.';
COMMENT ON COLUMN cron_list.queued IS 'Number of fires that wait for a run to end.';
COMMENT ON COLUMN cron_list.failures IS 'Number of consecutive failed runs.';
COMMENT ON COLUMN cron_list.created_time IS 'When the cron was created.';
COMMENT ON COLUMN cron_list.updated_time IS 'When the definition of the cron was last changed.';
COMMENT ON COLUMN cron_list.metadata IS
  'Searchable attributes of the cron, a JSON object. NULL if there are none.';
