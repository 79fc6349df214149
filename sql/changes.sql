-- name: StartRecording :exec
SELECT start_recording(@relation::text);

-- name: StopRecording :exec
SELECT stop_recording(@relation::text);

-- name: RecordsChanges :one
SELECT EXISTS (SELECT 1 FROM change_settings)::bool AS records;

-- AddChangePartition adds the partition of a day in the future, if it is missing.
-- name: AddChangePartition :exec
SELECT add_change_partition((statement_timestamp() AT TIME ZONE 'UTC')::date + @days::int);

-- DropChangePartition drops the oldest partition if its retention is over, and returns its name, or
-- "" if there is none.
-- name: DropChangePartition :one
SELECT coalesce(drop_change_partition(), '')::text AS dropped;
