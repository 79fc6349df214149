-- +goose Up
ALTER TABLE queue_backlogs ADD COLUMN prepared_task_id bigint NOT NULL DEFAULT 0;
ALTER TABLE queue_backlogs ADD COLUMN running_task_id bigint;
COMMENT ON COLUMN queue_backlogs.prepared_task_id IS 'Waiting tasks up to this task_id have been prepared for a resume.';
COMMENT ON COLUMN queue_backlogs.running_task_id IS 'The task that was running when the resume began; NULL if none was. If it is retried, it waits for the operator, with its old task_id.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION queue_priority(namespace text, process_id text) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT min(first.priority) FROM (
    SELECT coalesce(s.own_priority, s.priority) AS priority FROM schedule s
     WHERE s.namespace = queue_priority.namespace AND s.process_id = queue_priority.process_id AND s.waits_for::text IN ('process', 'place')
     ORDER BY s.namespace, s.process_id, s.task_id LIMIT 2000) first
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION queue_priority IS 'The smallest priority of the first 2,000 tasks that wait in a process, without timers that are not due; NULL if there are none.';

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION queue_priority(namespace text, process_id text) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT min(coalesce(s.own_priority, s.priority)) FROM schedule s
   WHERE s.namespace = queue_priority.namespace AND s.process_id = queue_priority.process_id AND s.waits_for::text IN ('process', 'place')
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION queue_priority IS 'The smallest priority of the tasks that wait in a process, without timers that are not due; NULL if there are none.';
ALTER TABLE queue_backlogs DROP COLUMN running_task_id;
ALTER TABLE queue_backlogs DROP COLUMN prepared_task_id;
