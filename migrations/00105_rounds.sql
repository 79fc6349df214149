-- +goose Up
-- Jobs with fairness keys run in rounds within a priority: one of each key, then the next one of
-- each.
ALTER TABLE schedule ADD COLUMN round bigint NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN fairness_key text COLLATE "C";
COMMENT ON COLUMN schedule.round IS
  'Round in which a job with a fairness key runs, within its priority, among the jobs that wait '
  'for a slot or for the same key of a constraint. 0 for other tasks, which run first.';
COMMENT ON COLUMN schedule.fairness_key IS
  'Fairness key of the job: the value of the fairness_key of its namespace. NULL if there is none.';

-- The function is volatile so that it sees the rows that the calling statement has already written:
-- the jobs of one key in a batch get one round after the other.
-- +goose StatementBegin
CREATE FUNCTION next_round(
  namespace text, waits_for waits_for, job_name text, line text, priority integer,
  fairness_key text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF fairness_key IS NULL THEN
    RETURN 0;
  END IF;
  IF waits_for = 'place' THEN
    RETURN coalesce((
      SELECT s.round + 1 FROM schedule s
       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
         AND s.waits_for = 'place'
         AND s.job_name = next_round.job_name
         AND s.priority = next_round.priority
         AND s.fairness_key = next_round.fairness_key
       ORDER BY s.round DESC LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'place'
                         AND s.job_name IS NOT NULL
                         AND s.job_name = next_round.job_name
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'place'
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    1);
  END IF;
  IF waits_for = 'constraint' AND line <> '' THEN
    RETURN coalesce((
      SELECT s.round + 1 FROM schedule s
       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
         AND s.waits_for = 'constraint'
         AND s.line = next_round.line
         AND s.priority = next_round.priority
         AND s.fairness_key = next_round.fairness_key
       ORDER BY s.round DESC LIMIT 1),
                    (
                      SELECT s.round FROM schedule s
                       WHERE s.namespace COLLATE "POSIX" = next_round.namespace
                         AND s.waits_for = 'constraint'
                         AND s.line = next_round.line
                         AND s.priority = next_round.priority
                         AND s.round > 0
                       ORDER BY s.round LIMIT 1),
                    1);
  END IF;
  RETURN 0;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION next_round IS
  'Returns the round of a job that begins to wait for a slot or a key: the one after the last '
  'waiting job of its fairness key, or the first one of the queue. 0 if the job has no fairness '
  'key, or does not wait in a queue.';

CREATE OR REPLACE VIEW lag_list AS
SELECT n.namespace, n.paused, statement_timestamp() - c.since AS place_age,
       statement_timestamp() - t.since AS timer_age, m.since AS message_age
  FROM namespaces n
 CROSS JOIN LATERAL (
   SELECT min(q.scheduled_time) AS since
     FROM (
       SELECT s.scheduled_time FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = n.namespace
          AND s.waits_for = 'place'
        ORDER BY s.priority, s.round, s.task_id LIMIT 1000) q) c
 CROSS JOIN LATERAL (
   SELECT min(s.scheduled_time) AS since FROM schedule s
    WHERE s.namespace COLLATE "POSIX" = n.namespace
      AND s.waits_for = 'time'
      AND s.scheduled_time <= statement_timestamp()) t
 CROSS JOIN LATERAL (
   SELECT statement_timestamp() - min(q.created_time) AS since
     FROM (
       SELECT g.created_time FROM messages g
        WHERE g.namespace = n.namespace
          AND g.held IS NOT TRUE
        ORDER BY g.namespace, g.process_id, g.message_id LIMIT 1000) q) m;

-- +goose Down
CREATE OR REPLACE VIEW lag_list AS
SELECT n.namespace, n.paused, statement_timestamp() - c.since AS place_age,
       statement_timestamp() - t.since AS timer_age, m.since AS message_age
  FROM namespaces n
 CROSS JOIN LATERAL (
   SELECT min(q.scheduled_time) AS since
     FROM (
       SELECT s.scheduled_time FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = n.namespace
          AND s.waits_for = 'place'
        ORDER BY s.priority, s.task_id LIMIT 1000) q) c
 CROSS JOIN LATERAL (
   SELECT min(s.scheduled_time) AS since FROM schedule s
    WHERE s.namespace COLLATE "POSIX" = n.namespace
      AND s.waits_for = 'time'
      AND s.scheduled_time <= statement_timestamp()) t
 CROSS JOIN LATERAL (
   SELECT statement_timestamp() - min(q.created_time) AS since
     FROM (
       SELECT g.created_time FROM messages g
        WHERE g.namespace = n.namespace
          AND g.held IS NOT TRUE
        ORDER BY g.namespace, g.process_id, g.message_id LIMIT 1000) q) m;
DROP FUNCTION next_round;
ALTER TABLE schedule DROP COLUMN fairness_key;
ALTER TABLE schedule DROP COLUMN round;
