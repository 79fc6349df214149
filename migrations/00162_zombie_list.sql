-- +goose Up
-- A task whose worker has ended its attempt with the function complete is not a zombie: a node ends
-- the attempt with the stored result, even if the lease has expired.
CREATE OR REPLACE VIEW zombie_list AS
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id,
       statement_timestamp() - r.running_time AS runs_for,
       statement_timestamp() - n.beat_time AS beat_age, r.deadline, l.worker_id,
       l.expires_time AS lease_expires_time
  FROM running r
  LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
 WHERE l.pending_result IS NULL
   AND (r.deadline < statement_timestamp()
        OR CASE
             WHEN l.worker_id IS NOT NULL THEN l.expires_time < statement_timestamp()
             ELSE n.node_id IS NULL
                  OR n.beat_time < statement_timestamp() - interval '10 seconds'
           END);

-- +goose Down
CREATE OR REPLACE VIEW zombie_list AS
SELECT r.namespace, r.process_id, r.task_id, r.task_type, r.attempt, r.node_id,
       statement_timestamp() - r.running_time AS runs_for,
       statement_timestamp() - n.beat_time AS beat_age, r.deadline, l.worker_id,
       l.expires_time AS lease_expires_time
  FROM running r
  LEFT JOIN nodes n ON n.node_id = r.node_id
  LEFT JOIN leases l
    ON l.namespace = r.namespace
   AND l.process_id = r.process_id
   AND l.fencing_token = r.fencing_token
 WHERE r.deadline < statement_timestamp()
    OR CASE
         WHEN l.worker_id IS NOT NULL THEN l.expires_time < statement_timestamp()
         ELSE n.node_id IS NULL OR n.beat_time < statement_timestamp() - interval '10 seconds'
       END;
