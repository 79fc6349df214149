-- +goose Up
-- The key of job events is their number in a lane, which watches, retention and erasure read. The
-- key by transaction IDs was one more index to write for each event. Engines before schema version
-- 151 need the key by transaction IDs for watches, which would otherwise read all events of the
-- namespace.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 151::bigint';
ALTER TABLE job_events
  DROP CONSTRAINT job_events_pkey,
  ADD PRIMARY KEY USING INDEX job_events_of_lane;
COMMENT ON COLUMN job_events.xid IS
  'ID of the transaction that wrote the event, or a later one that had ended by then. It '
  'translates cursors of watches that an engine before schema version 151 issued.';

-- +goose Down
ALTER TABLE job_events
  DROP CONSTRAINT job_events_of_lane,
  ADD PRIMARY KEY (namespace, xid, event_id);
CREATE UNIQUE INDEX job_events_of_lane ON job_events (namespace, lane, event_id);
COMMENT ON COLUMN job_events.xid IS
  'ID of the transaction that wrote the event, or a later one that had ended by then. Only engines '
  'of older versions read it.';
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';
