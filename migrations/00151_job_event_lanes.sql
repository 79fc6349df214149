-- +goose Up
-- Watches of job events read lanes, not transaction IDs. Older engines may run: their statements
-- write no lane, and the trigger adds it. They read by transaction IDs, which are still written.

-- A lane is used by one transaction at a time, which locks the row of the lane until the
-- transaction ends. The rows are never updated, so that no dead versions accumulate during long
-- transactions of others.
CREATE TABLE job_event_lanes (
  lane         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_time timestamptz NOT NULL DEFAULT statement_timestamp()
);
COMMENT ON TABLE job_event_lanes IS
  'Lanes of job events: as many as transactions wrote job events at the same time. A transaction '
  'that writes job events locks a lane until its end.';
COMMENT ON COLUMN job_event_lanes.lane IS
  'Number of the lane. Lane 0 has the events that were written before there were lanes.';
COMMENT ON COLUMN job_event_lanes.created_time IS
  'When the lane was added, because all others were in use.';
INSERT INTO job_event_lanes (lane) OVERRIDING SYSTEM VALUE VALUES (0);

CREATE TABLE job_event_drops (
  namespace text COLLATE "C" NOT NULL,
  lane      bigint NOT NULL,
  event_id  bigint NOT NULL,
  PRIMARY KEY (namespace, lane)
);
COMMENT ON TABLE job_event_drops IS
  'Up to which number the job events of each lane were deleted after their retention.';
COMMENT ON COLUMN job_event_drops.namespace IS 'Namespace of the events.';
COMMENT ON COLUMN job_event_drops.lane IS 'Lane of job_event_lanes.';
COMMENT ON COLUMN job_event_drops.event_id IS 'Number of the last deleted event of the lane.';

-- The lane of a transaction is stored in a setting, which the default of the column reads. The
-- setting ends with the lock, even if ROLLBACK TO SAVEPOINT releases the lock. The event gets a new
-- number after the transaction has taken the lock, so that each number in the lane is larger than
-- all numbers of the lane that were committed before. The numbers of the following rows are
-- assigned while the transaction holds the lock.
-- +goose StatementBegin
CREATE FUNCTION take_job_event_lane() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  NEW.lane := nullif(current_setting('progressor.job_event_lane', true), '')::bigint;
  IF NEW.lane IS NULL THEN
    SELECT l.lane INTO NEW.lane
      FROM job_event_lanes l
     WHERE l.lane > 0
     ORDER BY l.lane LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      INSERT INTO job_event_lanes AS l DEFAULT VALUES RETURNING l.lane INTO NEW.lane;
    END IF;
    PERFORM set_config('progressor.job_event_lane', NEW.lane::text, true);
  END IF;
  NEW.event_id := nextval('job_events_event_id_seq');
  RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION take_job_event_lane IS
  'Trigger function that locks a lane for a transaction that writes its first job event.';

ALTER TABLE job_events ADD COLUMN lane bigint NOT NULL DEFAULT 0;
ALTER TABLE job_events ALTER COLUMN lane SET DEFAULT
  coalesce(nullif(current_setting('progressor.job_event_lane', true), ''), '0')::bigint;
CREATE TRIGGER job_events_lane
  BEFORE INSERT ON job_events FOR EACH ROW
  WHEN (NEW.lane = 0) EXECUTE FUNCTION take_job_event_lane();
COMMENT ON COLUMN job_events.lane IS
  'Lane of job_event_lanes in which the event was written. The events of a lane are numbered in '
  'commit order.';
COMMENT ON COLUMN job_events.event_id IS
  'Number of the event. The events of a job, and those of a lane, are numbered in the order in '
  'which they happened.';
COMMENT ON COLUMN job_events.xid IS
  'ID of the transaction that wrote the event, or a later one that had ended by then. Only engines '
  'of older versions read it.';

-- +goose Down
DROP TRIGGER job_events_lane ON job_events;
ALTER TABLE job_events DROP COLUMN lane;
DROP FUNCTION take_job_event_lane;
DROP TABLE job_event_drops;
DROP TABLE job_event_lanes;
COMMENT ON COLUMN job_events.event_id IS
  'Number of the event. The events of a job are numbered in the order in which they happened.';
COMMENT ON COLUMN job_events.xid IS
  'ID of the transaction that wrote the event, or a later one that had ended by then. All events '
  'below pg_snapshot_xmin(pg_current_snapshot()) are visible.';
