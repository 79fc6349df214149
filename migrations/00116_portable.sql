-- +goose Up
-- The setting progressor.portable, for databases with PostgreSQL's protocol that lack NOTIFY or
-- advisory locks: see docs/scale-out.md.
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
INSERT INTO key_locks SELECT generate_series(0, 255);
COMMENT ON TABLE key_locks IS
  'Rows that are locked for keys that have no row of their own, in a portable database. The number '
  'of rows is fixed.';
COMMENT ON COLUMN key_locks.slot IS 'Hash of the key, modulo 256.';

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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION send_message(
  kind message_kind, namespace text, process_id text, args bytea, metadata jsonb,
  start_time timestamptz, reason text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint;
  wrong text;
BEGIN
  wrong := CASE
    WHEN namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = send_message.namespace)
      THEN format('there is no namespace "%s"', namespace)
    WHEN is_deleting(namespace)
      THEN format('namespace "%s" is being deleted', namespace)
    WHEN process_id IS NULL OR octet_length(process_id) NOT BETWEEN 1 AND 256
      THEN format('process_id has %s bytes, 1 to 256 are allowed',
                  coalesce(octet_length(process_id), 0))
    WHEN starts_with(process_id, '~')
      THEN format('process_id "%s" begins with ~: such ids are the engine''s own', process_id)
    WHEN octet_length(args) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args))
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN start_time < '1970-01-01 00:00:00Z' OR start_time >= '10000-01-01 00:00:00Z'
      THEN format('start_time %s is not between 1970 and 9999', start_time)
    WHEN octet_length(reason) > 4096
      THEN format('reason has %s bytes, at most 4096 are allowed', octet_length(reason))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO messages AS m (namespace, process_id, kind, args, metadata, start_time, reason)
  VALUES (send_message.namespace, send_message.process_id, send_message.kind, send_message.args,
          send_message.metadata, send_message.start_time, send_message.reason)
  RETURNING m.message_id INTO sent;
  PERFORM send_notice('progressor_messages');
  RETURN sent;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION enqueue(
    namespace text, name text, args jsonb DEFAULT NULL, job_id text DEFAULT NULL,
    run_time timestamptz DEFAULT NULL, priority integer DEFAULT 0, max_retry integer DEFAULT 0,
    backoff interval[] DEFAULT NULL, timeout interval DEFAULT '00:00:30',
    keep_result boolean DEFAULT false, result_ttl interval DEFAULT NULL,
    max_takeovers integer DEFAULT NULL, cancel_grace interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, unique_key text DEFAULT NULL,
    unique_ttl interval DEFAULT NULL, start_deadline interval DEFAULT NULL)
  RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $body$
DECLARE
  id text := enqueue.job_id;
  wrong text;
  options jsonb;
BEGIN
  IF id IS NULL THEN
    -- A UUID of version 7, as the engine generates: ids of about the same time are neighbors in the
    -- index.
    id := encode(
      set_bit(
        set_bit(
          overlay(uuid_send(gen_random_uuid()) PLACING substring(
            int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
          52, 1),
        53, 1),
      'hex')::uuid::text;
  END IF;
  wrong := CASE
    WHEN enqueue.namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = enqueue.namespace)
      THEN format('there is no namespace "%s"', enqueue.namespace)
    WHEN octet_length(id) NOT BETWEEN 1 AND 256
      THEN format('job_id has %s bytes, 1 to 256 are allowed', octet_length(id))
    WHEN starts_with(id, '~')
      THEN format('job_id "%s" begins with ~: such ids are the engine''s own', id)
    WHEN name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 256
      THEN format('name has %s bytes, 1 to 256 are allowed', coalesce(octet_length(name), 0))
    WHEN octet_length(args::text) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args::text))
    WHEN jsonb_path_exists(
           args, '$.** ? (@.type() == "number" && (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'args has a number beyond 2^53, which would lose digits: write it as a string'
    WHEN run_time < '1970-01-01 00:00:00Z' OR run_time >= '10000-01-01 00:00:00Z'
      THEN format('run_time %s is not between 1970 and 9999', run_time)
    WHEN max_retry < 0 THEN 'max_retry is negative'
    WHEN max_takeovers < 0 THEN 'max_takeovers is negative'
    WHEN timeout = '0' THEN 'timeout is 0: want a positive one, such as 30 seconds'
    WHEN timeout IS NULL OR timeout < '0' OR timeout > '365 days'
      THEN 'timeout is not between 0 and 365 days'
    WHEN start_deadline <= '0' OR start_deadline > '100 years'
      THEN 'start_deadline is not positive and at most 100 years'
    WHEN EXISTS (SELECT FROM unnest(ARRAY[result_ttl, cancel_grace, unique_ttl] || backoff) i
                  WHERE i < '0' OR i > '100 years')
         OR array_position(backoff, NULL) IS NOT NULL
      THEN 'an interval of result_ttl, cancel_grace, unique_ttl or backoff is not between 0 and '
           '100 years'
    WHEN cardinality(backoff) > 1000
      THEN format('backoff has %s steps, at most 1000 are allowed', cardinality(backoff))
    WHEN cardinality(tags) > 100
      THEN format('tags has %s, at most 100 are allowed', cardinality(tags))
    WHEN EXISTS (SELECT FROM unnest(tags) t
                  WHERE t IS NULL OR octet_length(t) NOT BETWEEN 1 AND 256)
      THEN 'a tag has no 1 to 256 bytes'
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN octet_length(unique_key) NOT BETWEEN 1 AND 256
      THEN format('unique_key has %s bytes, 1 to 256 are allowed', octet_length(unique_key))
    WHEN unique_ttl IS NOT NULL AND unique_key IS NULL THEN 'unique_ttl needs a unique_key'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The options are stored as JSON of the API's message JobOptions, without defaults.
  options := jsonb_strip_nulls(jsonb_build_object(
    'maxRetry', NULLIF(max_retry, 0),
    'maxTakeovers', max_takeovers,
    'keepResult', NULLIF(keep_result, false),
    'resultTtl', extract(epoch FROM result_ttl)::numeric(20, 6) || 's',
    'cancelGrace', extract(epoch FROM cancel_grace)::numeric(20, 6) || 's',
    'startDeadline', extract(epoch FROM start_deadline)::numeric(20, 6) || 's',
    'backoff', CASE
      WHEN cardinality(backoff) > 0 THEN jsonb_build_object('steps', (
        SELECT jsonb_agg(extract(epoch FROM i)::numeric(20, 6) || 's' ORDER BY n)
          FROM unnest(backoff) WITH ORDINALITY AS x(i, n)))
    END,
    'unique', CASE
      WHEN unique_key IS NOT NULL THEN jsonb_build_object(
        'key', unique_key, 'ttl', extract(epoch FROM unique_ttl)::numeric(20, 6) || 's')
    END));
  INSERT INTO messages (namespace, process_id, kind, args, metadata, start_time, job)
  VALUES (enqueue.namespace, id, 'start', convert_to(args::text, 'UTF8'), enqueue.metadata,
          enqueue.run_time, jsonb_strip_nulls(jsonb_build_object(
            'name', name,
            'priority', coalesce(priority, 0),
            'timeoutUs', (extract(epoch FROM timeout) * 1000000)::bigint,
            'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END,
            'options', NULLIF(options, '{}'),
            'uniqueKey', unique_key,
            'uniqueTtlUs', (extract(epoch FROM unique_ttl) * 1000000)::bigint)));
  PERFORM send_notice('progressor_messages');
  RETURN id;
END $body$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION send_message(
  kind message_kind, namespace text, process_id text, args bytea, metadata jsonb,
  start_time timestamptz, reason text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint;
  wrong text;
BEGIN
  wrong := CASE
    WHEN namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = send_message.namespace)
      THEN format('there is no namespace "%s"', namespace)
    WHEN is_deleting(namespace)
      THEN format('namespace "%s" is being deleted', namespace)
    WHEN process_id IS NULL OR octet_length(process_id) NOT BETWEEN 1 AND 256
      THEN format('process_id has %s bytes, 1 to 256 are allowed',
                  coalesce(octet_length(process_id), 0))
    WHEN starts_with(process_id, '~')
      THEN format('process_id "%s" begins with ~: such ids are the engine''s own', process_id)
    WHEN octet_length(args) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args))
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN start_time < '1970-01-01 00:00:00Z' OR start_time >= '10000-01-01 00:00:00Z'
      THEN format('start_time %s is not between 1970 and 9999', start_time)
    WHEN octet_length(reason) > 4096
      THEN format('reason has %s bytes, at most 4096 are allowed', octet_length(reason))
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO messages AS m (namespace, process_id, kind, args, metadata, start_time, reason)
  VALUES (send_message.namespace, send_message.process_id, send_message.kind, send_message.args,
          send_message.metadata, send_message.start_time, send_message.reason)
  RETURNING m.message_id INTO sent;
  PERFORM pg_notify('progressor_messages', '');
  RETURN sent;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION enqueue(
    namespace text, name text, args jsonb DEFAULT NULL, job_id text DEFAULT NULL,
    run_time timestamptz DEFAULT NULL, priority integer DEFAULT 0, max_retry integer DEFAULT 0,
    backoff interval[] DEFAULT NULL, timeout interval DEFAULT '00:00:30',
    keep_result boolean DEFAULT false, result_ttl interval DEFAULT NULL,
    max_takeovers integer DEFAULT NULL, cancel_grace interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, unique_key text DEFAULT NULL,
    unique_ttl interval DEFAULT NULL, start_deadline interval DEFAULT NULL)
  RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $body$
DECLARE
  id text := enqueue.job_id;
  wrong text;
  options jsonb;
BEGIN
  IF id IS NULL THEN
    -- A UUID of version 7, as the engine generates: ids of about the same time are neighbors in the
    -- index.
    id := encode(
      set_bit(
        set_bit(
          overlay(uuid_send(gen_random_uuid()) PLACING substring(
            int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
          52, 1),
        53, 1),
      'hex')::uuid::text;
  END IF;
  wrong := CASE
    WHEN enqueue.namespace IS NULL
         OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = enqueue.namespace)
      THEN format('there is no namespace "%s"', enqueue.namespace)
    WHEN octet_length(id) NOT BETWEEN 1 AND 256
      THEN format('job_id has %s bytes, 1 to 256 are allowed', octet_length(id))
    WHEN starts_with(id, '~')
      THEN format('job_id "%s" begins with ~: such ids are the engine''s own', id)
    WHEN name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 256
      THEN format('name has %s bytes, 1 to 256 are allowed', coalesce(octet_length(name), 0))
    WHEN octet_length(args::text) > 1048576
      THEN format('args has %s bytes, at most 1048576 are allowed', octet_length(args::text))
    WHEN jsonb_path_exists(
           args, '$.** ? (@.type() == "number" && (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'args has a number beyond 2^53, which would lose digits: write it as a string'
    WHEN run_time < '1970-01-01 00:00:00Z' OR run_time >= '10000-01-01 00:00:00Z'
      THEN format('run_time %s is not between 1970 and 9999', run_time)
    WHEN max_retry < 0 THEN 'max_retry is negative'
    WHEN max_takeovers < 0 THEN 'max_takeovers is negative'
    WHEN timeout = '0' THEN 'timeout is 0: want a positive one, such as 30 seconds'
    WHEN timeout IS NULL OR timeout < '0' OR timeout > '365 days'
      THEN 'timeout is not between 0 and 365 days'
    WHEN start_deadline <= '0' OR start_deadline > '100 years'
      THEN 'start_deadline is not positive and at most 100 years'
    WHEN EXISTS (SELECT FROM unnest(ARRAY[result_ttl, cancel_grace, unique_ttl] || backoff) i
                  WHERE i < '0' OR i > '100 years')
         OR array_position(backoff, NULL) IS NOT NULL
      THEN 'an interval of result_ttl, cancel_grace, unique_ttl or backoff is not between 0 and '
           '100 years'
    WHEN cardinality(backoff) > 1000
      THEN format('backoff has %s steps, at most 1000 are allowed', cardinality(backoff))
    WHEN cardinality(tags) > 100
      THEN format('tags has %s, at most 100 are allowed', cardinality(tags))
    WHEN EXISTS (SELECT FROM unnest(tags) t
                  WHERE t IS NULL OR octet_length(t) NOT BETWEEN 1 AND 256)
      THEN 'a tag has no 1 to 256 bytes'
    WHEN jsonb_typeof(metadata) <> 'object'
      THEN format('metadata is a JSON %s, not an object', jsonb_typeof(metadata))
    WHEN octet_length(metadata::text) > 65536
      THEN format('metadata has %s bytes, at most 65536 are allowed', octet_length(metadata::text))
    WHEN octet_length(unique_key) NOT BETWEEN 1 AND 256
      THEN format('unique_key has %s bytes, 1 to 256 are allowed', octet_length(unique_key))
    WHEN unique_ttl IS NOT NULL AND unique_key IS NULL THEN 'unique_ttl needs a unique_key'
  END;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The options are stored as JSON of the API's message JobOptions, without defaults.
  options := jsonb_strip_nulls(jsonb_build_object(
    'maxRetry', NULLIF(max_retry, 0),
    'maxTakeovers', max_takeovers,
    'keepResult', NULLIF(keep_result, false),
    'resultTtl', extract(epoch FROM result_ttl)::numeric(20, 6) || 's',
    'cancelGrace', extract(epoch FROM cancel_grace)::numeric(20, 6) || 's',
    'startDeadline', extract(epoch FROM start_deadline)::numeric(20, 6) || 's',
    'backoff', CASE
      WHEN cardinality(backoff) > 0 THEN jsonb_build_object('steps', (
        SELECT jsonb_agg(extract(epoch FROM i)::numeric(20, 6) || 's' ORDER BY n)
          FROM unnest(backoff) WITH ORDINALITY AS x(i, n)))
    END,
    'unique', CASE
      WHEN unique_key IS NOT NULL THEN jsonb_build_object(
        'key', unique_key, 'ttl', extract(epoch FROM unique_ttl)::numeric(20, 6) || 's')
    END));
  INSERT INTO messages (namespace, process_id, kind, args, metadata, start_time, job)
  VALUES (enqueue.namespace, id, 'start', convert_to(args::text, 'UTF8'), enqueue.metadata,
          enqueue.run_time, jsonb_strip_nulls(jsonb_build_object(
            'name', name,
            'priority', coalesce(priority, 0),
            'timeoutUs', (extract(epoch FROM timeout) * 1000000)::bigint,
            'tags', CASE WHEN cardinality(tags) > 0 THEN to_jsonb(tags) END,
            'options', NULLIF(options, '{}'),
            'uniqueKey', unique_key,
            'uniqueTtlUs', (extract(epoch FROM unique_ttl) * 1000000)::bigint)));
  PERFORM pg_notify('progressor_messages', '');
  RETURN id;
END $body$;
-- +goose StatementEnd

DROP FUNCTION lock_key(bigint);
DROP TABLE key_locks;
DROP FUNCTION send_notice(text);
DROP FUNCTION is_portable();
