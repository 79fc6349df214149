-- Views for people, and for what they build on the tables: their names and columns stay when tables change.

-- +goose Up
CREATE VIEW process_list AS
  SELECT p.namespace, p.process_id, p.status, statement_timestamp() - p.status_changed_time AS status_age, p.detail, p.created_time, p.last_event_id,
         r.task_id AS running_task, r.task_type AS running_type, w.waiting, t.next_timer, p.metadata
    FROM processes p
    LEFT JOIN running r ON r.namespace = p.namespace AND r.process_id = p.process_id
   CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM schedule s
                        WHERE s.namespace = p.namespace AND s.process_id = p.process_id AND s.timer_name IS NULL) w
   CROSS JOIN LATERAL (SELECT min(s.scheduled_time) AS next_timer FROM schedule s
                        WHERE s.namespace = p.namespace AND s.process_id = p.process_id AND s.timer_name IS NOT NULL) t
   WHERE p.removed_time IS NULL;
COMMENT ON VIEW process_list IS 'The processes, each with what runs and waits in it. Name a namespace, or use LIMIT: what waits is counted for each row.';
COMMENT ON COLUMN process_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN process_list.process_id IS 'The process.';
COMMENT ON COLUMN process_list.status IS 'INIT, RUNNING, ERROR, SUSPENDED, COMPLETED or CANCELLED.';
COMMENT ON COLUMN process_list.status_age IS 'How long it has had this status.';
COMMENT ON COLUMN process_list.detail IS 'Of ERROR: why.';
COMMENT ON COLUMN process_list.created_time IS 'When it was started.';
COMMENT ON COLUMN process_list.last_event_id IS 'Number of its last event, which is how many it has.';
COMMENT ON COLUMN process_list.running_task IS 'The task that runs now; NULL: none.';
COMMENT ON COLUMN process_list.running_type IS 'Type of the task that runs now.';
COMMENT ON COLUMN process_list.waiting IS 'How many tasks wait in it, timers apart.';
COMMENT ON COLUMN process_list.next_timer IS 'When its next timer is due; NULL: it has none.';
COMMENT ON COLUMN process_list.metadata IS 'Its searchable attributes, a JSON object.';

CREATE VIEW timer_list AS
  SELECT s.namespace, s.process_id, s.task_id, s.timer_name, s.scheduled_time, s.scheduled_time - statement_timestamp() AS due_in,
         s.task_type = 'REMOVE' AS removes, s.attempt, s.waits_for
    FROM schedule s WHERE s.timer_name IS NOT NULL;
COMMENT ON VIEW timer_list IS 'The timers that are set.';
COMMENT ON COLUMN timer_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN timer_list.process_id IS 'The process that has set it.';
COMMENT ON COLUMN timer_list.task_id IS 'The task that it will be.';
COMMENT ON COLUMN timer_list.timer_name IS 'Its name, empty for the default timer.';
COMMENT ON COLUMN timer_list.scheduled_time IS 'When it is due.';
COMMENT ON COLUMN timer_list.due_in IS 'How long until then; negative: it is late by so much.';
COMMENT ON COLUMN timer_list.removes IS 'Whether it removes its process.';
COMMENT ON COLUMN timer_list.attempt IS 'Attempts made: more than 0 where it has failed and is tried again.';
COMMENT ON COLUMN timer_list.waits_for IS 'time, or what it waits for since it was due. With waits_for = ''time'' in WHERE the next timers of a namespace are read from their index.';

CREATE VIEW waiting_list AS
  SELECT s.namespace, s.process_id, s.task_id, s.task_type, s.waits_for,
         CASE s.waits_for
              WHEN 'time' THEN CASE WHEN s.attempt > 0 THEN format('attempt %s, after: %s', s.attempt + 1, coalesce(s.failure->>'message', s.failure->>'reason', ''))
                                    WHEN s.timer_name IS NOT NULL THEN trim('timer ' || s.timer_name) ELSE 'its start time' END
              WHEN 'process' THEN CASE WHEN r.task_id IS NOT NULL THEN format('%s %s runs', r.task_type, r.task_id) ELSE 'what waits before it' END
              WHEN 'place' THEN CASE WHEN n.paused THEN 'the namespace is paused' ELSE 'a node with a free place' END
              WHEN 'operator' THEN 'the process is suspended'
              ELSE s.waits_for::text END AS reason,
         s.scheduled_time, s.priority
    FROM schedule s
    LEFT JOIN running r ON r.namespace = s.namespace AND r.process_id = s.process_id
    LEFT JOIN namespaces n ON n.namespace = s.namespace;
COMMENT ON VIEW waiting_list IS 'What waits, and for what.';
COMMENT ON COLUMN waiting_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN waiting_list.process_id IS 'The process in which it waits.';
COMMENT ON COLUMN waiting_list.task_id IS 'The task that waits.';
COMMENT ON COLUMN waiting_list.task_type IS 'Its type.';
COMMENT ON COLUMN waiting_list.waits_for IS 'See the type waits_for.';
COMMENT ON COLUMN waiting_list.reason IS 'The same in words: what stands before it, or why it is tried again.';
COMMENT ON COLUMN waiting_list.scheduled_time IS 'When it is due; of a request when it was accepted.';
COMMENT ON COLUMN waiting_list.priority IS 'Smaller goes first, among processes that wait for a place.';

CREATE VIEW zombie_list AS
  SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id, statement_timestamp() - r.running_time AS runs_for,
         statement_timestamp() - n.beat_time AS beat_age, r.deadline
    FROM running r LEFT JOIN nodes n ON n.node_id = r.node_id
   WHERE n.node_id IS NULL OR n.beat_time < statement_timestamp() - interval '10 seconds' OR r.deadline < statement_timestamp();
COMMENT ON VIEW zombie_list IS 'Tasks that should not run any more: their node is gone, has not beaten for 10 seconds, or has held them past their deadline. A row that stays: no engine collects them.';
COMMENT ON COLUMN zombie_list.namespace IS 'Namespace of the process.';
COMMENT ON COLUMN zombie_list.process_id IS 'The process that it holds up.';
COMMENT ON COLUMN zombie_list.task_id IS 'The task.';
COMMENT ON COLUMN zombie_list.task_type IS 'Its type.';
COMMENT ON COLUMN zombie_list.attempt IS 'Number of the attempt that runs.';
COMMENT ON COLUMN zombie_list.node_id IS 'The node that ran it.';
COMMENT ON COLUMN zombie_list.runs_for IS 'How long ago the attempt began.';
COMMENT ON COLUMN zombie_list.beat_age IS 'How long ago the node has beaten last; NULL: it is not there any more.';
COMMENT ON COLUMN zombie_list.deadline IS 'When the attempt should have ended.';

CREATE VIEW lag_list AS
  SELECT n.namespace, n.paused, statement_timestamp() - c.since AS place_age, statement_timestamp() - t.since AS timer_age, m.since AS message_age
    FROM namespaces n
   CROSS JOIN LATERAL (SELECT min(q.scheduled_time) AS since FROM (
       SELECT s.scheduled_time FROM schedule s WHERE s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'place'
        ORDER BY s.priority, s.task_id LIMIT 1000) q) c
   CROSS JOIN LATERAL (SELECT min(s.scheduled_time) AS since FROM schedule s
        WHERE s.namespace COLLATE "POSIX" = n.namespace AND s.waits_for = 'time' AND s.scheduled_time <= statement_timestamp()) t
   CROSS JOIN LATERAL (SELECT statement_timestamp() - min(q.created_time) AS since FROM (
       SELECT g.created_time FROM messages g WHERE g.namespace = n.namespace AND g.held IS NOT TRUE
        ORDER BY g.namespace, g.process_id, g.message_id LIMIT 1000) q) m;
COMMENT ON VIEW lag_list IS 'How far each namespace is behind: all ages are NULL where it keeps up.';
COMMENT ON COLUMN lag_list.namespace IS 'The namespace.';
COMMENT ON COLUMN lag_list.paused IS 'Whether it hands nothing out.';
COMMENT ON COLUMN lag_list.place_age IS 'How long the oldest of the next 1,000 tasks that wait for a place has waited.';
COMMENT ON COLUMN lag_list.timer_age IS 'How late the latest timer is that is due.';
COMMENT ON COLUMN lag_list.message_age IS 'The age of the oldest of the next 1,000 messages that can be delivered.';

-- +goose Down
DROP VIEW lag_list, zombie_list, waiting_list, timer_list, process_list;
