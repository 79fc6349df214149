-- +goose NO TRANSACTION
-- What lists of runs read, and views of runs and steps for people.

-- +goose Up
-- The keys of lists are collated POSIX, see 00001_init.sql: no statement by (namespace, run_id) can take these indexes for the primary key.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_created;
CREATE INDEX CONCURRENTLY flow_runs_created ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX");
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_type;
CREATE INDEX CONCURRENTLY flow_runs_type ON flow_runs (namespace COLLATE "POSIX", template_type COLLATE "POSIX", created_time, run_id COLLATE "POSIX");
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_updated;
CREATE INDEX CONCURRENTLY flow_runs_updated ON flow_runs (namespace COLLATE "POSIX", updated_time, run_id COLLATE "POSIX");
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_unfinished;
CREATE INDEX CONCURRENTLY flow_runs_unfinished ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX") WHERE finished_time IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_unsuccessful;
CREATE INDEX CONCURRENTLY flow_runs_unsuccessful ON flow_runs (namespace COLLATE "POSIX", created_time, run_id COLLATE "POSIX") WHERE status IN ('failed', 'cancelled', 'expired');
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_scope;
CREATE INDEX CONCURRENTLY flow_runs_scope ON flow_runs (namespace COLLATE "POSIX", scope_id COLLATE "POSIX", created_time, run_id COLLATE "POSIX") WHERE scope_id <> '';
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_cron;
CREATE INDEX CONCURRENTLY flow_runs_cron ON flow_runs (namespace COLLATE "POSIX", cron_id COLLATE "POSIX", created_time, run_id COLLATE "POSIX") WHERE cron_id IS NOT NULL;
RESET lock_timeout;

-- status and phase are those of the API: storage/search/runs.go has the same conditions, and a test compares all three.
CREATE OR REPLACE VIEW run_list AS
  SELECT r.namespace, r.run_id, r.template_type, r.template_version,
         CASE WHEN r.status <> 'active' THEN upper(r.status::text) ELSE (
           SELECT CASE WHEN bool_or(NOT k.waits AND NOT k.lies) THEN 'RUNNING' WHEN bool_or(k.waits) AND NOT bool_or(k.lies) THEN 'WAITING_WORKER' ELSE 'QUEUED' END
             FROM (SELECT f.wait IS NOT NULL OR f.process_id IS NULL AND f.due_time IS NULL AND coalesce((SELECT i.wait IS NOT NULL FROM flow_steps i
                            WHERE i.namespace = f.namespace AND i.run_id = f.run_id AND i.step_id = f.step_id AND i.index = 0), false) AS waits,
                          coalesce(starts_with(f.process_id, '~job/') AND (SELECT u.task_id FROM running u
                            WHERE u.namespace = coalesce(f.process_namespace, f.namespace) AND u.process_id = f.process_id) IS NULL, false) AS lies
                     FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.index = -1 AND f.status = 'running') k) END AS status,
         CASE WHEN r.finished_time IS NULL THEN coalesce(
           (SELECT f.step_id FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.index = -1 AND f.status = 'running'
               AND NOT coalesce(starts_with(f.process_id, '~job/') AND (SELECT u.task_id FROM running u
                 WHERE u.namespace = coalesce(f.process_namespace, f.namespace) AND u.process_id = f.process_id) IS NULL, false) ORDER BY f.ord LIMIT 1),
           (SELECT x.step->>'stepId' FROM flow_templates v CROSS JOIN LATERAL jsonb_array_elements(v.definition->'steps') WITH ORDINALITY AS x(step, n)
             WHERE v.namespace = r.namespace AND v.template_type = r.template_type AND v.version = r.template_version
               AND NOT EXISTS (SELECT 1 FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.step_id = x.step->>'stepId'
                                  AND f.index = -1 AND f.status NOT IN ('pending', 'running'))
             ORDER BY x.n LIMIT 1)) END AS phase,
         r.attempt, r.blocked_on, r.scope, r.scope_id, r.created_time, r.updated_time, r.run_time, r.running_time, r.finished_time,
         coalesce(r.finished_time, statement_timestamp()) - r.running_time AS runs_for, r.cancel_requested_time, r.cancel_reason,
         r.cron_id, r.fire_time, r.parent_run_id, r.repeat_of_run_id, r.failure->>'reason' AS failure_reason, r.failure->>'message' AS failure_message,
         r.payload, r.result, p.metadata
    FROM flow_runs r JOIN processes p ON p.namespace = r.namespace AND p.process_id = '~flow/' || r.run_id AND p.removed_time IS NULL;
COMMENT ON VIEW run_list IS 'The runs of templates, each with the status and the phase that the API shows. Name a namespace, or use LIMIT: the steps of runs that are not at their end are looked at for each row.';
COMMENT ON COLUMN run_list.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN run_list.run_id IS 'The run; its process is ~flow/ and this.';
COMMENT ON COLUMN run_list.template_type IS 'Template that it executes.';
COMMENT ON COLUMN run_list.template_version IS 'Version of the template.';
COMMENT ON COLUMN run_list.status IS 'PENDING, QUEUED, RUNNING, WAITING_WORKER, CANCEL_REQUESTED, COMPENSATING, SUCCEEDED, FAILED, CANCELLED or EXPIRED.';
COMMENT ON COLUMN run_list.phase IS 'The step that runs, or comes next; of several the first of the template. NULL: the run is at its end.';
COMMENT ON COLUMN run_list.attempt IS 'Attempts of the whole run; 0: no step has begun.';
COMMENT ON COLUMN run_list.blocked_on IS 'Of PENDING: what it waits for.';
COMMENT ON COLUMN run_list.scope IS 'Whom it is for: user, account, system, …';
COMMENT ON COLUMN run_list.scope_id IS 'Which one of these.';
COMMENT ON COLUMN run_list.created_time IS 'When it was stored.';
COMMENT ON COLUMN run_list.updated_time IS 'When its own row was written last; its steps have rows of their own.';
COMMENT ON COLUMN run_list.run_time IS 'Not before; NULL: at once.';
COMMENT ON COLUMN run_list.running_time IS 'When its first step began.';
COMMENT ON COLUMN run_list.finished_time IS 'When it came to its end.';
COMMENT ON COLUMN run_list.runs_for IS 'How long since its first step began, until its end or now.';
COMMENT ON COLUMN run_list.cancel_requested_time IS 'When somebody asked it to end.';
COMMENT ON COLUMN run_list.cancel_reason IS 'Why.';
COMMENT ON COLUMN run_list.cron_id IS 'The cron that started it.';
COMMENT ON COLUMN run_list.fire_time IS 'The fire time of that cron.';
COMMENT ON COLUMN run_list.parent_run_id IS 'The run whose step it is.';
COMMENT ON COLUMN run_list.repeat_of_run_id IS 'The run whose payload it was started with again.';
COMMENT ON COLUMN run_list.failure_reason IS 'Of the step that failed it: the reason.';
COMMENT ON COLUMN run_list.failure_message IS 'Of the step that failed it: the message.';
COMMENT ON COLUMN run_list.payload IS 'What it was started with.';
COMMENT ON COLUMN run_list.result IS 'Of SUCCEEDED.';
COMMENT ON COLUMN run_list.metadata IS 'Its searchable attributes, a JSON object.';

CREATE OR REPLACE VIEW step_list AS
  SELECT f.namespace, f.run_id, f.ord, f.step_id, NULLIF(f.index, -1) AS index, CASE WHEN f.status = 'running' AND u.task_id IS NULL AND starts_with(f.process_id, '~job/') THEN 'PENDING' ELSE upper(f.status::text) END AS status, f.attempt,
         coalesce(f.process_namespace, f.namespace) AS process_namespace, f.process_id,
         CASE WHEN f.status <> 'running' THEN f.reason WHEN f.token IS NOT NULL THEN 'an answer' WHEN f.due_time IS NOT NULL THEN 'its time'
              WHEN starts_with(f.process_id, '~job/') AND u.task_id IS NULL THEN 'a worker' END AS reason,
         coalesce(l.worker_id, f.worker_id) AS worker_id, l.expires_time AS lease_expires_time, f.due_time, f.running_time, f.finished_time,
         coalesce(f.finished_time, statement_timestamp()) - f.running_time AS runs_for,
         f.failure->>'reason' AS failure_reason, f.failure->>'message' AS failure_message, upper(f.compensation_status::text) AS compensation_status,
         f.wait->>'title' AS title, f.wait->'assignees' AS assignees, f.input, f.result, coalesce(j.progress, f.progress) AS progress
    FROM flow_steps f
    LEFT JOIN LATERAL (SELECT k.progress FROM jobs k WHERE f.status = 'running' AND k.namespace = coalesce(f.process_namespace, f.namespace) AND k.process_id = f.process_id LIMIT 1) j ON true
    LEFT JOIN LATERAL (SELECT k.task_id, k.fencing_token FROM running k WHERE f.status = 'running' AND k.namespace = coalesce(f.process_namespace, f.namespace) AND k.process_id = f.process_id LIMIT 1) u ON true
    LEFT JOIN LATERAL (SELECT k.worker_id, k.expires_time FROM leases k WHERE k.namespace = coalesce(f.process_namespace, f.namespace) AND k.process_id = f.process_id AND k.fencing_token = u.fencing_token LIMIT 1) l ON true
  UNION ALL
  SELECT r.namespace, r.run_id, x.n::int - 1, x.step->>'stepId', NULL, 'PENDING', 0, r.namespace, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM flow_runs r
    JOIN flow_templates v ON v.namespace = r.namespace AND v.template_type = r.template_type AND v.version = r.template_version
   CROSS JOIN LATERAL jsonb_array_elements(v.definition->'steps') WITH ORDINALITY AS x(step, n)
   WHERE NOT EXISTS (SELECT 1 FROM flow_steps f WHERE f.namespace = r.namespace AND f.run_id = r.run_id AND f.step_id = x.step->>'stepId' AND f.index = -1);
COMMENT ON VIEW step_list IS 'The steps of runs and the items of for_each, those too that have not begun. Name a namespace and a run.';
COMMENT ON COLUMN step_list.namespace IS 'Namespace of the run.';
COMMENT ON COLUMN step_list.run_id IS 'The run.';
COMMENT ON COLUMN step_list.ord IS 'Place of the step in its template, from 0: ORDER BY ord, index NULLS FIRST.';
COMMENT ON COLUMN step_list.step_id IS 'The step.';
COMMENT ON COLUMN step_list.index IS 'Item of for_each, from 0; NULL: the step itself.';
COMMENT ON COLUMN step_list.status IS 'PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED or CANCELLED.';
COMMENT ON COLUMN step_list.attempt IS 'How often it has begun.';
COMMENT ON COLUMN step_list.process_namespace IS 'Namespace of the job, process or run that does it.';
COMMENT ON COLUMN step_list.process_id IS 'The job, process or run that does it.';
COMMENT ON COLUMN step_list.reason IS 'What it waits for, once it has begun; else why it was skipped or cancelled.';
COMMENT ON COLUMN step_list.worker_id IS 'The worker that holds its job, or has answered its wait.';
COMMENT ON COLUMN step_list.lease_expires_time IS 'Silent until then, the worker has lost it; NULL: no worker holds it.';
COMMENT ON COLUMN step_list.due_time IS 'Of a wait or a delay: until when.';
COMMENT ON COLUMN step_list.running_time IS 'When it began last.';
COMMENT ON COLUMN step_list.finished_time IS 'When it ended.';
COMMENT ON COLUMN step_list.runs_for IS 'How long since it began, until its end or now.';
COMMENT ON COLUMN step_list.failure_reason IS 'Of FAILED: the reason.';
COMMENT ON COLUMN step_list.failure_message IS 'Of FAILED: the message.';
COMMENT ON COLUMN step_list.compensation_status IS 'What became of undoing it; NULL: nobody has tried.';
COMMENT ON COLUMN step_list.title IS 'Of a wait: what is asked.';
COMMENT ON COLUMN step_list.assignees IS 'Of a wait: who may answer, a JSON array; NULL: anyone.';
COMMENT ON COLUMN step_list.input IS 'What it was given; NULL: the payload of the run.';
COMMENT ON COLUMN step_list.result IS 'What it gave; of for_each the results of the items in their order.';
COMMENT ON COLUMN step_list.progress IS 'What was told of it last: percent and summary, as JSON.';

-- +goose Down
DROP VIEW IF EXISTS step_list;
DROP VIEW IF EXISTS run_list;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_cron;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_scope;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_unsuccessful;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_unfinished;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_updated;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_type;
DROP INDEX CONCURRENTLY IF EXISTS flow_runs_created;
CREATE INDEX CONCURRENTLY flow_runs_created ON flow_runs (namespace, created_time, run_id);
CREATE INDEX CONCURRENTLY flow_runs_type ON flow_runs (namespace, template_type, created_time, run_id);
