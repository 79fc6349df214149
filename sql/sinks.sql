-- LockSink locks and returns a sink.
-- name: LockSink :one
SELECT s.config, s.secrets FROM sinks s
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   FOR UPDATE;

-- IsGeneration reports whether a generation of the database is the current one.
-- name: IsGeneration :one
SELECT EXISTS (
  SELECT FROM database_generation g WHERE g.generation = @generation::uuid)::bool AS current;

-- name: CountSinks :one
SELECT count(*) FROM sinks s WHERE s.namespace = @namespace;

-- PutSink creates a sink or replaces its settings. An existing sink keeps its cursor and its state.
-- The first token comes from a sequence. Therefore, if a sink is deleted and created again, the
-- node that delivered for the old sink does not have the lease of the new one.
-- name: PutSink :exec
INSERT INTO sinks AS s (
  namespace, sink_id, config, secrets, revision, state, lanes, seqs, max_lag, resumed_time, token,
  delivered, failures, dead_letters, created_time, updated_time)
VALUES (
  @namespace, @sink_id, @config, @secrets, 1, 'ACTIVE', @lanes::bigint[], @seqs::bigint[],
  (@max_lag_us::bigint) * interval '1 microsecond', statement_timestamp(),
  nextval('sink_tokens'), 0, 0, 0,
  statement_timestamp(), statement_timestamp())
ON CONFLICT (namespace, sink_id) DO UPDATE
  SET config = excluded.config, secrets = excluded.secrets, revision = s.revision + 1,
      max_lag = excluded.max_lag, next_attempt_time = NULL, updated_time = excluded.updated_time;

-- ListSinks returns sinks with their lags, by namespace and ID. It returns the sinks of one
-- namespace or, if namespace is empty, of the namespaces that match a LIKE pattern. If only_id is
-- set, it returns only the sink with that ID.
-- name: ListSinks :many
SELECT s.namespace, s.sink_id, s.config, s.secrets, s.state, s.lanes, s.seqs, s.delivered,
       s.delivered_time, s.failures, coalesce(s.last_error, '')::text AS last_error,
       s.last_error_time, s.next_attempt_time, s.dead_letters, s.created_time, s.updated_time,
       coalesce(CASE WHEN s.lease_time > statement_timestamp() THEN s.node_id END, 0)::bigint
         AS node_id,
       l.changes AS lag_changes,
       coalesce(extract(epoch FROM statement_timestamp() - l.oldest_time) * 1000000, 0)::bigint
         AS lag_us,
       letters.stored AS stored_dead_letters, letters.retries AS retries,
       (SELECT g.generation FROM database_generation g)::uuid AS generation
  FROM sinks s
  JOIN sink_lags l
    ON l.namespace = s.namespace
   AND l.sink_id = s.sink_id
 CROSS JOIN LATERAL (
   SELECT count(*) AS stored, count(d.retry_time) AS retries
     FROM sink_dead_letters d
    WHERE d.namespace = s.namespace
      AND d.sink_id = s.sink_id) letters
 WHERE (s.namespace = @namespace::text
     OR @namespace = '' AND s.namespace LIKE ANY (@visible::text[]))
   AND (@only_id::text = '' OR s.sink_id = @only_id)
   AND (s.namespace, s.sink_id) > (@after_namespace::text, @after_id::text)
 ORDER BY s.namespace, s.sink_id LIMIT @lim::int;

-- ExplainSink returns the data for the explanation of a sink, in addition to the sink itself: the
-- node that has the lease, the number of live nodes that could deliver, and the time at which the
-- lag becomes too large. It also reports whether the namespace records changes, and whether changes
-- were deleted before they were delivered.
-- name: ExplainSink :one
SELECT statement_timestamp()::timestamptz AS now,
       coalesce(s.node_id, 0)::bigint AS node_id,
       coalesce(s.lease_time, 'epoch')::timestamptz AS lease_time,
       coalesce(n.address, '')::text AS address,
       coalesce(n.beat_time, 'epoch')::timestamptz AS beat_time,
       coalesce(n.beat_time
                   >= statement_timestamp() - (@zombie_after_us::bigint) * interval '1 microsecond',
                false)::bool AS alive,
       (
         SELECT count(*) FROM nodes any_node
          WHERE any_node.beat_time >= statement_timestamp()
                  - (@zombie_after_us::bigint) * interval '1 microsecond'
            AND NOT any_node.requests_only)::int AS deliverers,
       coalesce(l.oldest_time, 'epoch')::timestamptz AS oldest_time,
       coalesce(greatest(l.oldest_time, s.resumed_time) + s.max_lag, 'epoch')::timestamptz
         AS break_time,
       EXISTS (
         SELECT 1 FROM change_settings c WHERE c.namespace = s.namespace)::bool AS records,
       EXISTS (
         SELECT 1
           FROM change_drops d
           LEFT JOIN ROWS FROM (unnest(s.lanes), unnest(s.seqs)) AS item(lane, seq)
             ON item.lane = d.lane
          WHERE d.namespace = s.namespace
            AND d.seq > coalesce(item.seq, 0))::bool AS lost
  FROM sinks s
  JOIN sink_lags l
    ON l.namespace = s.namespace
   AND l.sink_id = s.sink_id
  LEFT JOIN nodes n ON n.node_id = s.node_id
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id;

-- name: ListSinkDeadLetters :many
SELECT d.change_id, d.kind, d.type, d.process_id, d.change_time, d.error, d."time", d.attempts,
       d.retry_time, coalesce(d.seq <= x.seq, false)::bool AS change_deleted
  FROM sink_dead_letters d
  LEFT JOIN change_drops x
    ON x.namespace = d.namespace
   AND x.lane = d.lane
 WHERE d.namespace = @namespace
   AND d.sink_id = @sink_id
 ORDER BY d.change_id DESC LIMIT @lim::int;

-- SelectSinkDeadLetters returns the dead letters of a sink that match all conditions, sorted by
-- number. change_deleted reports that the change was deleted after its retention.
-- name: SelectSinkDeadLetters :many
SELECT d.change_id, d.kind, d.type, d.process_id, d.change_time, d.error, d."time", d.attempts,
       d.retry_time, coalesce(d.seq <= x.seq, false)::bool AS change_deleted
  FROM sink_dead_letters d
  LEFT JOIN change_drops x
    ON x.namespace = d.namespace
   AND x.lane = d.lane
 WHERE d.namespace = @namespace
   AND d.sink_id = @sink_id
   AND (cardinality(@change_ids::bigint[]) = 0 OR d.change_id = ANY (@change_ids::bigint[]))
   AND (@process_id::text = '' OR d.process_id = @process_id::text)
   AND (@error::text = '' OR strpos(lower(d.error), lower(@error::text)) > 0)
   AND d."time" >= @since::timestamptz
   AND d."time" < @until::timestamptz
 ORDER BY d.change_id LIMIT @lim::int;

-- MarkSinkRetries marks dead letters to be delivered again.
-- name: MarkSinkRetries :exec
UPDATE sink_dead_letters d
   SET retry_time = statement_timestamp()
 WHERE d.namespace = @namespace
   AND d.sink_id = @sink_id
   AND d.change_id = ANY (@change_ids::bigint[])
   AND d.retry_time IS NULL;

-- NextSinkRetry returns the first dead letter that waits to be delivered again, with its change.
-- stored is false if the change was deleted after its retention. If the lane of the dead letter is
-- unknown, it searches all lanes of the namespace.
-- name: NextSinkRetry :many
SELECT d.change_id, d.kind, d.type, d.process_id, d.change_time AS "time",
       (c.change_id IS NOT NULL)::bool AS stored, coalesce(c.event_id, 0)::bigint AS event_id,
       coalesce(c.from_status, '')::text AS from_status,
       coalesce(c.to_status, '')::text AS to_status, coalesce(c.reason, '')::text AS reason,
       c.metadata::jsonb AS metadata, c.payload::bytea AS payload, c.details::jsonb AS details
  FROM (
    SELECT letter.*
      FROM sink_dead_letters letter
     WHERE letter.namespace = @namespace
       AND letter.sink_id = @sink_id
       AND letter.retry_time IS NOT NULL
     ORDER BY letter.change_id LIMIT 1) d
  LEFT JOIN LATERAL (
    SELECT found.*
      FROM change_heads h
     CROSS JOIN LATERAL (
       SELECT x.*
         FROM changes x
        WHERE x.namespace = h.namespace
          AND x.lane = h.lane
          AND x.seq BETWEEN coalesce(d.seq, 0) AND coalesce(d.seq, 9223372036854775807)
          AND x."time" = d.change_time
          AND x.change_id = d.change_id
        LIMIT 1) found
     WHERE h.namespace = d.namespace
       AND h.lane BETWEEN coalesce(d.lane, 0) AND coalesce(d.lane, 9223372036854775807)
     LIMIT 1) c ON true;

-- CountSinkRetry counts a dead letter that was delivered again, under the lease of the sink.
-- name: CountSinkRetry :execrows
UPDATE sinks s
   SET delivered = s.delivered + 1, delivered_time = statement_timestamp()
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.node_id = @node_id::bigint
   AND s.token = @token;

-- name: DeleteSinkDeadLetter :exec
DELETE FROM sink_dead_letters d
 WHERE d.namespace = @namespace
   AND d.sink_id = @sink_id
   AND d.change_id = @change_id;

-- NoteSinkError stores, under the lease of the sink, the error of a delivery that does not stop the
-- sink.
-- name: NoteSinkError :execrows
UPDATE sinks s
   SET last_error = @error::text, last_error_time = statement_timestamp()
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.node_id = @node_id::bigint
   AND s.token = @token;

-- KeepSinkDeadLetter records that a dead letter could not be delivered again.
-- name: KeepSinkDeadLetter :exec
UPDATE sink_dead_letters d
   SET error = @error::text, "time" = statement_timestamp(), attempts = d.attempts + 1,
       retry_time = NULL
 WHERE d.namespace = @namespace
   AND d.sink_id = @sink_id
   AND d.change_id = @change_id;

-- name: PauseSink :execrows
UPDATE sinks s
   SET state = 'PAUSED', next_attempt_time = NULL
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id;

-- name: ResumeSink :execrows
UPDATE sinks s
   SET state = 'ACTIVE', revision = s.revision + 1, failures = 0, next_attempt_time = NULL,
       resumed_time = statement_timestamp()
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id;

-- RewindSink moves the cursor. It takes the lease from the delivering node, so that this node does
-- not overwrite the cursor.
-- name: RewindSink :execrows
UPDATE sinks s
   SET lanes = @lanes::bigint[], seqs = @seqs::bigint[], token = s.token + 1, node_id = NULL,
       lease_time = NULL, failures = 0, next_attempt_time = NULL,
       resumed_time = statement_timestamp()
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id;

-- name: DeleteSink :execrows
WITH deleted_letters AS (
  DELETE FROM sink_dead_letters d
   WHERE d.namespace = @namespace
     AND d.sink_id = @sink_id)
DELETE FROM sinks s
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id;

-- ReadSinkLeases returns all sinks with the nodes that deliver them. runs is true if the sink
-- should deliver. retries is true if dead letters wait to be delivered again. free is true if no
-- node has the lease: it has expired, or it ends so far in the future that the clock was set back.
-- name: ReadSinkLeases :many
SELECT s.namespace, s.sink_id, s.revision, s.token, coalesce(s.node_id, 0)::bigint AS node_id,
       coalesce(s.asked_node_id, 0)::bigint AS asked_node_id,
       (s.state IN ('ACTIVE', 'FAILING'))::bool AS runs,
       EXISTS (
         SELECT 1 FROM sink_dead_letters d
          WHERE d.namespace = s.namespace
            AND d.sink_id = s.sink_id
            AND d.retry_time IS NOT NULL)::bool AS retries,
       (s.lease_time IS NULL
        OR s.lease_time < statement_timestamp()
        OR s.lease_time > statement_timestamp()
             + (@lease_us::bigint) * interval '1 microsecond')::bool AS free
  FROM sinks s;

-- ClaimSinks takes the free leases of sinks that should deliver. For a short time after a node has
-- asked for a lease, no other node may take it.
-- name: ClaimSinks :many
WITH free AS MATERIALIZED (
  SELECT s.namespace, s.sink_id
    FROM sinks s
   WHERE s.state IN ('ACTIVE', 'FAILING')
     AND (s.lease_time IS NULL
          OR s.lease_time < statement_timestamp()
          OR s.lease_time > statement_timestamp()
               + (@lease_us::bigint) * interval '1 microsecond')
     AND (s.asked_node_id IS NULL
          OR s.asked_node_id = @node_id::bigint
          OR s.asked_time NOT BETWEEN statement_timestamp() - interval '5 seconds'
                                  AND statement_timestamp())
   ORDER BY s.namespace, s.sink_id LIMIT @lim::int FOR UPDATE SKIP LOCKED)
UPDATE sinks s
   SET token = s.token + 1, node_id = @node_id::bigint, asked_node_id = NULL, asked_time = NULL,
       lease_time = statement_timestamp() + (@lease_us::bigint) * interval '1 microsecond'
  FROM free
 WHERE s.namespace = free.namespace
   AND s.sink_id = free.sink_id
RETURNING s.namespace, s.sink_id, s.config, s.secrets, s.revision, s.token, s.lanes, s.seqs,
          s.failures,
          coalesce(extract(epoch FROM s.next_attempt_time - statement_timestamp()) * 1000000,
                   0)::bigint AS wait_us,
          (SELECT g.generation FROM database_generation g)::uuid AS generation;

-- RenewSinks extends leases. It returns the sinks whose leases the node still has. Like the other
-- statements under a lease, it also compares the node: after a failover that lost a claim, two
-- nodes can have the same token.
-- name: RenewSinks :many
UPDATE sinks s
   SET lease_time = statement_timestamp() + (@lease_us::bigint) * interval '1 microsecond'
  FROM ROWS FROM (unnest(@namespaces::text[]), unnest(@sink_ids::text[]),
                  unnest(@node_ids::bigint[]), unnest(@tokens::bigint[]))
       AS held(namespace, sink_id, node_id, token)
 WHERE s.namespace = held.namespace
   AND s.sink_id = held.sink_id
   AND s.token = held.token
   AND s.node_id = held.node_id
RETURNING s.namespace, s.sink_id, held.node_id::bigint AS node_id, s.token;

-- AskForSink asks the node that has the lease of a sink to release it, unless another node has just
-- asked.
-- name: AskForSink :exec
UPDATE sinks s
   SET asked_node_id = @node_id::bigint, asked_time = statement_timestamp()
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.token = @token
   AND (s.asked_node_id IS NULL
        OR s.asked_time NOT BETWEEN statement_timestamp() - interval '10 seconds'
                                AND statement_timestamp());

-- name: ReleaseSink :exec
UPDATE sinks s
   SET node_id = NULL, lease_time = NULL
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.node_id = @node_id::bigint
   AND s.token = @token;

-- AdvanceSink moves the cursor after a delivery, or past changes that the sink does not select. The
-- cursor must be of the current generation, because a failover may have lost changes that were
-- delivered.
-- name: AdvanceSink :execrows
UPDATE sinks s
   SET lanes = @lanes::bigint[], seqs = @seqs::bigint[],
       delivered = s.delivered + @delivered::bigint,
       delivered_time = CASE
         WHEN (@delivered::bigint) > 0 THEN statement_timestamp()
         ELSE s.delivered_time
       END,
       failures = 0, next_attempt_time = NULL, dead_letters = s.dead_letters + @rejected::bigint,
       state = CASE s.state WHEN 'FAILING' THEN 'ACTIVE' ELSE s.state END
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.node_id = @node_id::bigint
   AND s.token = @token
   AND EXISTS (SELECT FROM database_generation g WHERE g.generation = @generation::uuid);

-- FailSink stores a failed attempt. The state is FAILING, BROKEN or DISABLED. A sink that was
-- paused in the meantime stays PAUSED.
-- name: FailSink :execrows
UPDATE sinks s
   SET state = CASE s.state WHEN 'PAUSED' THEN 'PAUSED' ELSE @state::text END,
       failures = s.failures + 1, last_error = @error::text,
       last_error_time = statement_timestamp(),
       next_attempt_time = CASE
         WHEN s.state = 'PAUSED' OR (@state::text) <> 'FAILING' THEN NULL
         ELSE statement_timestamp() + (@wait_us::bigint) * interval '1 microsecond'
       END
 WHERE s.namespace = @namespace
   AND s.sink_id = @sink_id
   AND s.node_id = @node_id::bigint
   AND s.token = @token;

-- AddSinkDeadLetter adds a dead letter, or counts another attempt of an existing one. It deletes
-- the oldest dead letters above the limit, except those that wait to be delivered again. A change
-- that was erased after the sink had read it gets no dead letter. The lock makes a later erasure
-- wait, so that the erasure finds the dead letter.
-- name: AddSinkDeadLetter :exec
WITH deleted AS (
  DELETE FROM sink_dead_letters d
   WHERE d.namespace = @namespace
     AND d.sink_id = @sink_id
     AND d.change_id <> @change_id
     AND d.retry_time IS NULL
     AND d.change_id < (
       SELECT min(newest.change_id)
         FROM (
           SELECT x.change_id
             FROM sink_dead_letters x
            WHERE x.namespace = @namespace
              AND x.sink_id = @sink_id
              AND x.change_id <> @change_id
            ORDER BY x.change_id DESC LIMIT (@kept::int) - 1) newest)),
noted AS (
  UPDATE sinks s
     SET last_error = @error::text, last_error_time = statement_timestamp()
   WHERE s.namespace = @namespace
     AND s.sink_id = @sink_id),
change AS MATERIALIZED (
  SELECT c.process_id FROM changes c
   WHERE c.namespace = @namespace
     AND c.lane = @lane::bigint
     AND c.seq = @seq::bigint
     AND c."time" = @change_time
     FOR SHARE)
INSERT INTO sink_dead_letters AS d (
  namespace, sink_id, change_id, kind, type, process_id, change_time, error, "time", lane, seq)
SELECT @namespace, @sink_id, @change_id::bigint, @kind::text, @type::text, @process_id::text,
       @change_time, @error::text, statement_timestamp(), @lane::bigint, @seq::bigint
 WHERE NOT EXISTS (
   SELECT 1 FROM change
    WHERE change.process_id ~ '^erased:[0-9a-f]{64}$')
ON CONFLICT (namespace, sink_id, change_id) DO UPDATE
  SET error = excluded.error, "time" = excluded."time", attempts = d.attempts + 1,
      lane = excluded.lane, seq = excluded.seq;

-- BreakLaggingSinks sets a sink to BROKEN if its oldest change has waited for longer than max_lag
-- of the sink, counted at the earliest from the time at which the sink was resumed. Only then may
-- the changes of the sink be deleted.
-- name: BreakLaggingSinks :many
UPDATE sinks s
   SET state = 'BROKEN', next_attempt_time = NULL, last_error_time = statement_timestamp(),
       last_error = 'the oldest change that is not delivered is older than max_lag: it is from '
         || to_char(l.oldest_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
         || coalesce('; last error: ' || s.last_error, '')
  FROM sink_lags l
 WHERE l.namespace = s.namespace
   AND l.sink_id = s.sink_id
   AND s.state IN ('ACTIVE', 'FAILING', 'PAUSED')
   AND greatest(l.oldest_time, s.resumed_time) < statement_timestamp() - s.max_lag
RETURNING s.namespace, s.sink_id;
