-- +goose Up
ALTER TABLE nodes
  ADD COLUMN tasks_per_second double precision NOT NULL DEFAULT 0,
  ADD COLUMN timer_lateness_p99 interval;
COMMENT ON COLUMN nodes.tasks_per_second IS 'Results of attempts that the node has stored, in its last minute, as it told with its last heartbeat.';
COMMENT ON COLUMN nodes.timer_lateness_p99 IS 'How late the latest of 100 timers began that the node has claimed in its last minute; NULL: it has claimed none.';

-- +goose Down
ALTER TABLE nodes DROP COLUMN tasks_per_second, DROP COLUMN timer_lateness_p99;
