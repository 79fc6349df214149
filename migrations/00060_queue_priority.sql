-- +goose Up
-- A process waits for a slot with the smallest priority of its waiting tasks. Older engines ignore the new column: a task that they
-- claim is recorded with the smaller priority.
ALTER TABLE schedule ADD COLUMN own_priority int;
COMMENT ON COLUMN schedule.own_priority IS 'Priority of the task itself if the row has waited for a place with the smaller priority of a task behind it; else NULL.';
COMMENT ON COLUMN schedule.priority IS 'Smaller first, among processes that wait for a place; never within one process. The row of a process that waits for a place has the smallest priority of the waiting tasks of the process.';

CREATE FUNCTION queue_priority(namespace text, process_id text) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT min(coalesce(s.own_priority, s.priority)) FROM schedule s
   WHERE s.namespace = queue_priority.namespace AND s.process_id = queue_priority.process_id AND s.waits_for::text IN ('process', 'place')
$$;
COMMENT ON FUNCTION queue_priority IS 'The smallest priority of the tasks that wait in a process, without timers that are not due; NULL if there are none.';

-- +goose Down
DROP FUNCTION queue_priority;
ALTER TABLE schedule DROP COLUMN own_priority;
COMMENT ON COLUMN schedule.priority IS 'Smaller first, among processes that wait for a place; never within one process.';
