-- +goose Up
-- The state of a cron is a line of JSON, followed by its definition in protobuf. These functions read
-- the fields of a protobuf message. They never fail: a message that is cut off yields fewer fields.

-- +goose StatementBegin
CREATE FUNCTION protobuf_varint(message bytea, INOUT pos integer, OUT number bigint)
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
COMMENT ON FUNCTION protobuf_varint(bytea, integer) IS 'Reads a variable-length integer at a position, which moves behind it.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_fields(message bytea)
RETURNS TABLE (field integer, number bigint, bytes bytea)
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
COMMENT ON FUNCTION protobuf_fields(bytea) IS 'The fields of a protobuf message, in order: integers as number, strings and messages as bytes.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_text(value bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN position('\x00'::bytea IN value) > 0 THEN encode(value, 'escape')
              ELSE convert_from(value, 'UTF8') END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_text(bytea) IS 'A string of a protobuf message; escaped if it contains zero bytes, which text cannot.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_interval(duration bytea) RETURNS interval
LANGUAGE sql IMMUTABLE STRICT SET search_path = progressor, pg_temp AS $$
  SELECT coalesce(sum(CASE field WHEN 1 THEN number * interval '1 second'
                                 WHEN 2 THEN number / 1000 * interval '1 microsecond' END), '0')
    FROM protobuf_fields(duration)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_interval(bytea) IS 'A google.protobuf.Duration.';

-- +goose StatementBegin
CREATE FUNCTION protobuf_timestamp(stamp bytea) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT SET search_path = progressor, pg_temp AS $$
  SELECT timestamptz '1970-01-01T00:00:00Z' + protobuf_interval(stamp)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION protobuf_timestamp(bytea) IS 'A google.protobuf.Timestamp.';

CREATE VIEW cron_list AS
  SELECT p.namespace,
         substr(p.process_id, 7) AS cron_id,
         spec.expressions,
         coalesce(spec.timezone, 'UTC') AS timezone,
         spec.start_time,
         spec.end_time,
         spec.jitter,
         spec.exclude_expressions,
         coalesce(spec.max_fires, 0) AS max_fires,
         (ARRAY['ALLOW', 'SKIP', 'CANCEL_PREV', 'PARALLEL', 'BUFFER_ONE'])
           [coalesce(policy.overlap_action, 1)] AS overlap_action,
         (ARRAY['RUN_NEW', 'SKIP', 'RETRY', 'BACKOFF', 'HALF_OPEN'])
           [coalesce(policy.failure_action, 1)] AS failure_action,
         (ARRAY['SKIP', 'QUEUE'])[coalesce(policy.concurrency_policy, 1)] AS concurrency_policy,
         coalesce(policy.max_concurrency, 1) AS max_concurrency,
         (ARRAY['FIRE_NOW', 'SKIP', 'CATCH_UP_LIMITED'])
           [coalesce(policy.misfire_policy, 1)] AS misfire_policy,
         policy.catchup_limit,
         policy.catchup_window,
         policy.timeout,
         (ARRAY['START_PROCESS', 'ENQUEUE_JOB', 'NOTIFY_PROCESS', 'HTTP', 'START_RUN'])
           [target.kind] AS target,
         coalesce(target.namespace, CASE WHEN target.kind <> 4 THEN p.namespace END) AS target_namespace,
         target.name AS target_name,
         coalesce((head.state->'cron'->>'paused')::boolean, false) AS paused,
         head.state->>'pause_note' AS pause_note,
         (head.state->>'next')::timestamptz AS next_fire_time,
         (head.state->>'last_fire')::timestamptz AS last_fire_time,
         coalesce(jsonb_array_length(head.state->'cron'->'running'), 0) AS running,
         coalesce(jsonb_array_length(head.state->'cron'->'queue'), 0) AS queued,
         coalesce((head.state->'cron'->>'failures')::integer, 0) AS failures,
         p.created_time,
         (head.state->>'updated')::timestamptz AS updated_time,
         p.metadata
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
            max(protobuf_text(f.bytes)) FILTER (WHERE f.field = 1 AND t.field IN (1, 2, 3)) AS namespace,
            max(protobuf_text(f.bytes)) FILTER (WHERE f.field = 2 AND t.field IN (2, 3)
                                                   OR f.field = 1 AND t.field IN (4, 5)) AS name
       FROM protobuf_fields(definition.target) t
       LEFT JOIN LATERAL protobuf_fields(t.bytes) f ON true) target
   WHERE p.kind = 'cron'
     AND p.process_id >= '~cron/'
     AND p.process_id < '~cron0'
     AND p.removed_time IS NULL
     AND cut.line_end > 0;
COMMENT ON VIEW cron_list IS 'Crons, each with its definition and what it does next. Use a namespace: the definition is read for each row.';
COMMENT ON COLUMN cron_list.namespace IS 'Namespace of the cron.';
COMMENT ON COLUMN cron_list.cron_id IS 'The cron; its process is ~cron/ and this.';
COMMENT ON COLUMN cron_list.expressions IS 'Its cron expressions.';
COMMENT ON COLUMN cron_list.timezone IS 'Time zone of the expressions.';
COMMENT ON COLUMN cron_list.start_time IS 'It does not fire before; NULL: no limit.';
COMMENT ON COLUMN cron_list.end_time IS 'It does not fire after; NULL: no limit.';
COMMENT ON COLUMN cron_list.jitter IS 'Largest delay of a fire; NULL: none.';
COMMENT ON COLUMN cron_list.exclude_expressions IS 'Times at which it does not fire; NULL: none.';
COMMENT ON COLUMN cron_list.max_fires IS 'Number of runs after which it has ended; 0: no limit.';
COMMENT ON COLUMN cron_list.overlap_action IS 'What a fire does if the run before still runs: ALLOW, SKIP, CANCEL_PREV, PARALLEL or BUFFER_ONE.';
COMMENT ON COLUMN cron_list.failure_action IS 'What a fire does if the run before failed: RUN_NEW, SKIP, RETRY, BACKOFF or HALF_OPEN.';
COMMENT ON COLUMN cron_list.concurrency_policy IS 'What a fire does if max_concurrency is reached: SKIP or QUEUE.';
COMMENT ON COLUMN cron_list.max_concurrency IS 'Largest number of runs at the same time.';
COMMENT ON COLUMN cron_list.misfire_policy IS 'Which of several late fires run: FIRE_NOW, SKIP or CATCH_UP_LIMITED.';
COMMENT ON COLUMN cron_list.catchup_limit IS 'For CATCH_UP_LIMITED: how many late fires are decided.';
COMMENT ON COLUMN cron_list.catchup_window IS 'Fires that are later are MISSED; NULL: no limit.';
COMMENT ON COLUMN cron_list.timeout IS 'Limit of a run; NULL: 10 s for HTTP, else the limit of the target.';
COMMENT ON COLUMN cron_list.target IS 'What it starts: START_PROCESS, ENQUEUE_JOB, NOTIFY_PROCESS, HTTP or START_RUN.';
COMMENT ON COLUMN cron_list.target_namespace IS 'Where it starts it; NULL for HTTP.';
COMMENT ON COLUMN cron_list.target_name IS 'Name of the job, id of the process that is notified, URL, or type of the template; NULL for START_PROCESS.';
COMMENT ON COLUMN cron_list.paused IS 'Whether it is paused.';
COMMENT ON COLUMN cron_list.pause_note IS 'Why it is paused.';
COMMENT ON COLUMN cron_list.next_fire_time IS 'When it fires next, with jitter; NULL: paused, or no fire time is left.';
COMMENT ON COLUMN cron_list.last_fire_time IS 'Fire time of the newest run that was started; NULL: none.';
COMMENT ON COLUMN cron_list.running IS 'Number of its runs that run.';
COMMENT ON COLUMN cron_list.queued IS 'Number of its fires that wait for a run to end.';
COMMENT ON COLUMN cron_list.failures IS 'Consecutive failed runs.';
COMMENT ON COLUMN cron_list.created_time IS 'When it was created.';
COMMENT ON COLUMN cron_list.updated_time IS 'When its definition was last changed.';
COMMENT ON COLUMN cron_list.metadata IS 'Its searchable attributes, a JSON object.';

-- +goose Down
DROP VIEW cron_list;
DROP FUNCTION protobuf_timestamp(bytea), protobuf_interval(bytea), protobuf_text(bytea),
  protobuf_fields(bytea), protobuf_varint(bytea, integer);
