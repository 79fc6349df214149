-- StartRecording creates the triggers of a table that record changes, if they are missing.
-- name: StartRecording :exec
SELECT start_recording(@relation::text);

-- StopRecording drops the triggers of a table that record changes, if no namespace records.
-- name: StopRecording :exec
SELECT stop_recording(@relation::text);

-- RecordsChanges reports whether any namespace records changes.
-- name: RecordsChanges :one
SELECT EXISTS (SELECT 1 FROM change_settings)::bool AS records;

-- AddChangePartition adds the partition of a future day if it is missing.
-- name: AddChangePartition :exec
SELECT add_change_partition((statement_timestamp() AT TIME ZONE 'UTC')::date + @days::int);

-- DropChangePartition drops the oldest partition if its retention is over, and returns its name. It
-- returns "" if it has dropped none.
-- name: DropChangePartition :one
SELECT coalesce(drop_change_partition(), '')::text AS dropped;

-- ReadChanges returns the changes of a namespace after a position in each of its lanes, in the
-- order of their numbers. The changes of each process have the same order. It returns at most lim
-- changes, and stops after the change that exceeds max_bytes. All lanes are read from one snapshot:
-- if a change of a process is visible, so is every earlier one, because it was committed before the
-- process was locked again. If there are no changes, it returns one row with change_id 0. lost
-- reports that changes after the position were deleted. known is the number of given lanes that
-- exist.
-- name: ReadChanges :many
WITH lanes AS MATERIALIZED (
  SELECT h.lane, coalesce(item.seq, 0) AS seq, item.lane IS NOT NULL AS known,
         coalesce(item.seq, 0) < coalesce(d.seq, 0) AS lost
    FROM change_heads h
    LEFT JOIN ROWS FROM (unnest(@lanes::bigint[]), unnest(@seqs::bigint[])) AS item(lane, seq)
      ON item.lane = h.lane
    LEFT JOIN change_drops d
      ON d.namespace = h.namespace
     AND d.lane = h.lane
   WHERE h.namespace = @namespace),
found AS (
  SELECT measured.*, sum(measured.size) OVER (
           ORDER BY measured.change_id ROWS UNBOUNDED PRECEDING) AS total
    FROM (
      SELECT c.*
        FROM lanes
       CROSS JOIN LATERAL (
         SELECT x.*, 200 + coalesce(octet_length(x.payload), 0)
                  + coalesce(pg_column_size(x.metadata), 0) AS size
           FROM changes x
          WHERE x.namespace = @namespace
            AND x.lane = lanes.lane
            AND x.seq > lanes.seq
          ORDER BY x.seq LIMIT @lim::int) c
       ORDER BY c.change_id LIMIT @lim::int) measured),
picked AS (
  SELECT * FROM found WHERE found.total - found.size <= @max_bytes::bigint)
SELECT state.generation::uuid AS generation, state.lost::bool AS lost, state.known::int AS known,
       coalesce(picked.lane, 0)::bigint AS lane, coalesce(picked.seq, 0)::bigint AS seq,
       coalesce(picked.change_id, 0)::bigint AS change_id,
       coalesce(picked."time", 'epoch')::timestamptz AS "time",
       coalesce(picked.kind, '')::text AS kind, coalesce(picked.type, '')::text AS type,
       coalesce(picked.process_id, '')::text AS process_id,
       coalesce(picked.event_id, 0)::bigint AS event_id,
       coalesce(picked.from_status, '')::text AS from_status,
       coalesce(picked.to_status, '')::text AS to_status,
       coalesce(picked.reason, '')::text AS reason, picked.metadata::jsonb AS metadata,
       picked.payload::bytea AS payload, picked.details::jsonb AS details
  FROM (
    SELECT g.generation, coalesce((SELECT bool_or(lanes.lost) FROM lanes), false) AS lost,
           (SELECT count(*) FROM lanes WHERE lanes.known) AS known
      FROM database_generation g) state
  LEFT JOIN picked ON true
 ORDER BY picked.change_id;

-- ReadChangeHeads returns, for each lane of a namespace, the position of the last change before a
-- time, or the position of the last deleted change if that is later. If there are no lanes, it
-- returns one row with lane 0. lost reports that changes at or after the time were deleted. records
-- reports whether the namespace records changes.
-- name: ReadChangeHeads :many
SELECT g.generation::uuid AS generation, coalesce(lanes.lane, 0)::bigint AS lane,
       greatest(lanes.last_seq, lanes.deleted_seq, 0)::bigint AS seq,
       coalesce(lanes.deleted_time >= @before::timestamptz, false)::bool AS lost,
       EXISTS (SELECT 1 FROM change_settings s WHERE s.namespace = @namespace)::bool AS records
  FROM database_generation g
  LEFT JOIN (
    SELECT h.lane, d.seq AS deleted_seq, d."time" AS deleted_time,
           (
             SELECT c.seq FROM changes c
              WHERE c.namespace = @namespace
                AND c.lane = h.lane
                AND c."time" < @before::timestamptz
              ORDER BY c.seq DESC LIMIT 1) AS last_seq
      FROM change_heads h
      LEFT JOIN change_drops d
        ON d.namespace = h.namespace
       AND d.lane = h.lane
     WHERE h.namespace = @namespace) lanes ON true;
