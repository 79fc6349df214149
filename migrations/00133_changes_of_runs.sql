-- +goose Up
-- Changes of runs and steps have the ID of the process of the run. Changes of runs are of the kind
-- run. Older engines write no of_run: their changes of runs are of the kind job.
ALTER TABLE job_events ADD COLUMN of_run boolean;
COMMENT ON COLUMN job_events.of_run IS
  'True if the event is about a run or one of its steps, so that job_id is the ID of the run. NULL '
  'if it is about a job, or if an older engine wrote it.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_job_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id,
                       from_status, to_status, reason, metadata, details)
  WITH found AS MATERIALIZED (
    SELECT e.*
      FROM (
        SELECT n.*, CASE
                      WHEN n.step_id IS NOT NULL THEN 'step'
                      WHEN n.of_run THEN 'run'
                      ELSE 'job'
                    END AS kind
          FROM new_rows n) e
      JOIN change_settings s
        ON s.namespace = e.namespace
       AND s.kinds ? ('CHANGE_KIND_' || upper(e.kind))),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number() OVER (PARTITION BY f.namespace ORDER BY f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type,
         CASE f.kind WHEN 'job' THEN f.job_id ELSE '~flow/' || f.job_id END,
         f.from_status, f.to_status, f.message, f.metadata,
         NULLIF(jsonb_strip_nulls(jsonb_build_object(
           'step_id', f.step_id, 'index', f.index, 'attempt', NULLIF(f.attempt, 0),
           'worker_id', f.worker_id, 'actor', f.actor)), '{}')
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_job_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id,
                       from_status, to_status, reason, metadata, details)
  WITH found AS MATERIALIZED (
    SELECT e.*
      FROM (
        SELECT n.*, CASE
                      WHEN n.step_id IS NOT NULL THEN 'step'
                      WHEN starts_with(n.job_id, '~flow/') THEN 'run'
                      ELSE 'job'
                    END AS kind
          FROM new_rows n) e
      JOIN change_settings s
        ON s.namespace = e.namespace
       AND s.kinds ? ('CHANGE_KIND_' || upper(e.kind))),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number() OVER (PARTITION BY f.namespace ORDER BY f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.job_id, f.from_status, f.to_status,
         f.message, f.metadata,
         NULLIF(jsonb_strip_nulls(jsonb_build_object(
           'step_id', f.step_id, 'index', f.index, 'attempt', NULLIF(f.attempt, 0),
           'worker_id', f.worker_id, 'actor', f.actor)), '{}')
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd
ALTER TABLE job_events DROP COLUMN of_run;
