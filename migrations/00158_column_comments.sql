-- +goose NO TRANSACTION
-- +goose Up
-- Clearer comments of columns. COMMENT waits for a vacuum of the table, but does not block engines,
-- so it may wait for a long time.
SET lock_timeout = 0;
COMMENT ON COLUMN processes.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, even after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN process_list.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, even after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN processes.removed_time IS
  'When the process was removed. From then on, requests do not find it, and its row is deleted '
  'after its history. NULL if it was not removed.';
COMMENT ON COLUMN schedule.priority IS
  'Priority of the task. Among processes that wait for a slot, the one with the smallest priority '
  'runs first. A task that waits for a slot has the smallest priority of the waiting tasks of its '
  'process.';
COMMENT ON COLUMN waiting_list.priority IS
  'Priority of the task. Among processes that wait for a slot, the one with the smallest priority '
  'runs first. A task that waits for a slot has the smallest priority of the waiting tasks of its '
  'process.';
COMMENT ON COLUMN running.priority IS
  'Priority of the task. Among processes that wait for a slot, the one with the smallest priority '
  'runs first. It does not change the order within a process.';
COMMENT ON COLUMN tasks.priority IS
  'Priority of the task. Among processes that wait for a slot, the one with the smallest priority '
  'runs first. It does not change the order within a process.';
COMMENT ON COLUMN schedule.job_name IS
  'Name of the job, by which workers choose jobs. NULL if the task does not belong to a job.';
COMMENT ON COLUMN schedule.own_priority IS
  'Priority of the task itself, if the column priority contains, or has contained, the smaller '
  'priority of a task behind it. NULL otherwise.';
COMMENT ON COLUMN schedule.start_deadline IS
  'For a job without an attempt: the time by which its first attempt must begin, scheduled_time '
  'plus the option start_deadline. The job is not claimed later. NULL if there is no limit, or if '
  'an attempt was counted.';
COMMENT ON COLUMN running.deadline IS
  'End of the timeout of the attempt. The task becomes a zombie 5 seconds later, or at once if it '
  'is leased to a worker, even if its node is alive.';
COMMENT ON COLUMN tasks.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if its process '
  'was imported in ERROR. NULL if no task cancelled it.';
COMMENT ON COLUMN task_list.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if its process '
  'was imported in ERROR. NULL if no task cancelled it.';
COMMENT ON COLUMN events."timestamp" IS
  'Time of the event, as set by the processor; by default, when the event was stored.';
COMMENT ON COLUMN messages.created_time IS
  'When the message was sent. The node of the sender delivers it at once. If it is older than a '
  'second, any node delivers it.';
COMMENT ON COLUMN messages.grace IS
  'For a cancel: how long the process may take to end. NULL for the default, which is 30 seconds '
  'or, for a job, its own grace period.';
COMMENT ON COLUMN jobs.result_expires_time IS
  'When the kept result expires. NULL if none was kept.';
COMMENT ON COLUMN jobs.unreached IS
  'Set when the processor of a pushed job could not be reached: the attempt, the number of tries, '
  'the time of the first one (since) and the error of the last one (cause), as JSON. It remains '
  'set after a later try succeeds. NULL if the processor was always reached.';
COMMENT ON COLUMN job_keys.held_until IS
  'When the key becomes free after retention has removed the job. NULL while the job exists.';
COMMENT ON COLUMN job_pauses.paused_time IS 'When the pause of the name began.';
COMMENT ON COLUMN job_groups.count IS
  'Number of workers that must succeed. The same number of workers run the job in parallel.';
COMMENT ON COLUMN job_groups.takers IS
  'IDs of the workers that have a member, or whose member has succeeded or failed. They do not get '
  'another member.';
COMMENT ON COLUMN job_groups.running_time IS
  'When the job began to run, which it does while a worker has a member or a member has succeeded. '
  'NULL if it waits for workers or has ended.';
COMMENT ON COLUMN leases.expires_time IS
  'When the lease is lost if no heartbeat arrives. Before the first heartbeat, this is two '
  'heartbeat intervals after leased_time.';
COMMENT ON COLUMN job_list.lease_expires_time IS
  'When the lease is lost if no heartbeat arrives. NULL if no worker has a lease.';
COMMENT ON COLUMN step_list.lease_expires_time IS
  'When the lease is lost if no heartbeat arrives. NULL if no worker has a lease.';
COMMENT ON COLUMN workers.owner IS
  'Client that uses the ID: the name of its key, or of the client. NULL if the engine does not '
  'authenticate clients.';
COMMENT ON COLUMN api_keys.used_time IS
  'When the key was last used, up to about a minute behind. NULL if it was never used.';
COMMENT ON COLUMN console_logins.created_time IS 'When the user logged in.';
COMMENT ON COLUMN console_logins.used_time IS
  'When the login was last used, up to a minute, or a tenth of auth.console.idle if that is less, '
  'behind.';
COMMENT ON COLUMN grants.namespaces IS
  'Namespaces in which the client has the role: the name of a namespace, a prefix and *, such as '
  'shop/*, or * for all.';
COMMENT ON COLUMN secrets.namespaces IS
  'Namespaces that may use the secret: the name of a namespace, a prefix and *, such as shop/*, or '
  '* for all.';
COMMENT ON COLUMN secrets.name IS 'Name of the secret, by which settings refer to it.';
COMMENT ON COLUMN audit."time" IS 'When the command was executed.';
COMMENT ON COLUMN audit.details IS
  'Other arguments of the command, such as its reason, as JSON without payloads. For a change of a '
  'configuration, they include the configuration before and after the change, without secrets. '
  'NULL if there are none.';
COMMENT ON COLUMN audit.erased_time IS
  'When EraseProcess deleted the details, and replaced the subject by its hash after erased:. NULL '
  'if it has not done so.';
COMMENT ON COLUMN flow_steps.attempt IS
  'Number of starts of the step. A job that has not ended counts as started when it was enqueued.';
COMMENT ON COLUMN flow_steps.input IS
  'Input of the step, as JSON. NULL for the payload of the run.';
COMMENT ON COLUMN flow_steps.due_time IS
  'End of a delay, or due time of a wait. NULL if there is none.';
COMMENT ON COLUMN step_list.due_time IS
  'End of a delay, or due time of a wait. NULL if there is none.';
COMMENT ON COLUMN cron_fires.count IS
  'Number of fire times in this row. It is more than 1 only for old MISSED fires, and fire_time is '
  'then the newest of them.';
COMMENT ON COLUMN changes.change_id IS
  'Number of the change. The numbers ascend within a process and within a lane.';
COMMENT ON COLUMN changes.to_status IS
  'Status after the change. NULL if the process or job was removed, or if the status did not '
  'change.';
COMMENT ON COLUMN changes.reason IS
  'Why the change happened, such as the message of a failure or the reason of a cancel. NULL if '
  'unknown.';
COMMENT ON COLUMN changes.details IS
  'More data about the change of a job, step, run or fire, as a JSON object. NULL for other kinds.';
COMMENT ON COLUMN sinks.secrets IS
  'The fields of the message Sink that contain secrets of the target, encrypted.';
COMMENT ON COLUMN sinks.lanes IS
  'The cursor: lanes of change_heads. If a lane is missing here, none of its changes were '
  'delivered.';
COMMENT ON COLUMN sinks.token IS
  'Number of the lease, incremented by each claim and rewind. The first one is from sink_tokens. '
  'Only the holder of the lease moves the cursor.';
COMMENT ON COLUMN sinks.delivered_time IS
  'When the last changes were delivered. NULL if none were.';
COMMENT ON COLUMN sinks.failures IS 'Number of consecutive failed attempts.';
COMMENT ON COLUMN sinks.last_error IS
  'The last error, even if a later attempt succeeded. NULL if there was none.';
COMMENT ON COLUMN sinks.last_error_time IS 'When the last error occurred. NULL if there was none.';
COMMENT ON COLUMN sinks.next_attempt_time IS
  'When the failed delivery is repeated. NULL if the last one succeeded.';
COMMENT ON COLUMN sinks.dead_letters IS
  'Number of changes that the target has rejected permanently since the sink was created.';
COMMENT ON COLUMN sinks.updated_time IS 'When the settings of the sink were last changed.';
COMMENT ON COLUMN sinks.asked_time IS 'When that node asked for the lease. NULL if there is none.';
COMMENT ON COLUMN sink_dead_letters.process_id IS
  'ID of the process, job, run or cron of the change.';
COMMENT ON COLUMN sink_dead_letters.error IS 'Why the last attempt to deliver the change failed.';
COMMENT ON COLUMN sink_dead_letters."time" IS 'When the last attempt to deliver the change failed.';
COMMENT ON COLUMN sink_dead_letters.retry_time IS
  'When the dead letter was selected to be delivered again. NULL if it does not wait for that.';
COMMENT ON COLUMN sink_lags.changes IS
  'Number of recorded changes after the cursor of the sink, including those that the sink does not '
  'select.';
COMMENT ON COLUMN sink_lags.oldest_time IS
  'When the oldest of these changes was recorded. NULL if there are none.';
COMMENT ON COLUMN change_settings.kinds IS
  'Kinds of changes that the namespace records, as a JSON array of values of the enum ChangeKind '
  'of the API.';
COMMENT ON COLUMN change_settings.payloads IS
  'True if the namespace records the payloads of events.';
COMMENT ON COLUMN change_settings.retention IS
  'Minimum time for which the changes of the namespace are kept.';
COMMENT ON COLUMN change_triggers.operation IS
  'Statements after which the trigger runs: INSERT or UPDATE.';
COMMENT ON COLUMN change_triggers.tables IS 'Transition tables of the trigger.';
COMMENT ON COLUMN change_triggers.function IS 'Function of the trigger.';
COMMENT ON COLUMN run_list.updated_time IS
  'When the run or one of its steps last changed. If a step changed last, it may be up to a minute '
  'too early.';
COMMENT ON COLUMN timer_list.waits_for IS
  'time, or what the timer has waited for since it became due: see the type waits_for. With '
  'waits_for = ''time'' in WHERE, the next timers of a namespace are read by an index.';
RESET lock_timeout;

-- +goose Down
SET lock_timeout = 0;
COMMENT ON COLUMN processes.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, also after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN process_list.last_event_id IS
  'Number of the last event. Events are numbered 1, 2, 3, … without gaps, also after a restart of '
  'the history. 0 if there are none.';
COMMENT ON COLUMN processes.removed_time IS
  'When the process was removed. Its row is deleted after its history, and until then requests do '
  'not find it. NULL if it was not removed.';
COMMENT ON COLUMN schedule.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. A task that '
  'waits for a slot has the smallest priority of the waiting tasks of its process.';
COMMENT ON COLUMN waiting_list.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. A task that '
  'waits for a slot has the smallest priority of the waiting tasks of its process.';
COMMENT ON COLUMN running.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. It does not '
  'change the order within a process.';
COMMENT ON COLUMN tasks.priority IS
  'Priority of the task. Smaller runs first, among processes that wait for a slot. It does not '
  'change the order within a process.';
COMMENT ON COLUMN schedule.job_name IS
  'Name of the job, by which workers choose jobs. NULL if the task is not that of a job.';
COMMENT ON COLUMN schedule.own_priority IS
  'Priority of the task itself, if priority is or was the smaller one of a task behind it. NULL '
  'otherwise.';
COMMENT ON COLUMN schedule.start_deadline IS
  'For a job without an attempt: until when its first attempt must begin, scheduled_time plus the '
  'option start_deadline. It is not claimed later. NULL if there is no limit, or if an attempt was '
  'counted.';
COMMENT ON COLUMN running.deadline IS
  'End of the timeout of the attempt. 5 seconds later, or at once if it is leased to a worker, the '
  'task is a zombie, even if its node is alive.';
COMMENT ON COLUMN tasks.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if it was '
  'imported so. NULL if no task did.';
COMMENT ON COLUMN task_list.cancelled_by IS
  'For a CANCELLED task: number of the task whose failure or end cancelled it, or 0 if it was '
  'imported so. NULL if no task did.';
COMMENT ON COLUMN events."timestamp" IS
  'The processor''s time of the event; by default when it was stored.';
COMMENT ON COLUMN messages.created_time IS
  'When the message was sent. The node of the sender delivers it at once, and any node if it is '
  'older than a second.';
COMMENT ON COLUMN messages.grace IS
  'For a cancel: how long the process may take to end. NULL for 30 seconds, or for a job its own '
  'grace period.';
COMMENT ON COLUMN jobs.result_expires_time IS
  'Until when the kept result can be fetched. NULL if none was kept.';
COMMENT ON COLUMN jobs.unreached IS
  'Set when the processor of a pushed job could not be reached: the attempt, the number of tries, '
  'the time of the first one (since) and the error of the last one (cause), as JSON. It stays when '
  'a later try succeeds. NULL if the processor was always reached.';
COMMENT ON COLUMN job_keys.held_until IS
  'Until when the key stays in use after retention has removed the job. NULL while the job exists.';
COMMENT ON COLUMN job_pauses.paused_time IS 'Since when the name has been paused.';
COMMENT ON COLUMN job_groups.count IS
  'Number of workers that must succeed. As many run the job in parallel.';
COMMENT ON COLUMN job_groups.takers IS
  'IDs of the workers that have a member, or whose member has succeeded or failed. They get no '
  'other one.';
COMMENT ON COLUMN job_groups.running_time IS
  'Since when the job runs: a worker has a member, or a member has succeeded. NULL if it waits for '
  'workers or has ended.';
COMMENT ON COLUMN leases.expires_time IS
  'Without a heartbeat until then, the lease is lost. Before the first heartbeat, this is two '
  'heartbeat intervals after leased_time.';
COMMENT ON COLUMN job_list.lease_expires_time IS
  'Without a heartbeat until then, the lease is lost. NULL if no worker has a lease.';
COMMENT ON COLUMN step_list.lease_expires_time IS
  'Without a heartbeat until then, the lease is lost. NULL if no worker has a lease.';
COMMENT ON COLUMN workers.owner IS
  'Client that uses the ID: the name of its key, or of the client. NULL if the engine does not '
  'authenticate.';
COMMENT ON COLUMN api_keys.used_time IS
  'When the key was used. It is behind by at most about a minute. NULL if it was not used.';
COMMENT ON COLUMN console_logins.created_time IS 'When the user has logged in.';
COMMENT ON COLUMN console_logins.used_time IS
  'When the login was used. It is behind by at most a minute, and by a tenth of auth.console.idle.';
COMMENT ON COLUMN grants.namespaces IS
  'Where: the name of a namespace, a prefix and *, such as shop/*, or * for all.';
COMMENT ON COLUMN secrets.namespaces IS
  'Who may use it: the name of a namespace, a prefix and *, such as shop/*, or * for all.';
COMMENT ON COLUMN secrets.name IS 'Name in references.';
COMMENT ON COLUMN audit."time" IS 'When it was carried out.';
COMMENT ON COLUMN audit.details IS
  'Other arguments of the command, such as its reason, as JSON without payloads. A change of a '
  'configuration has it before and after the change, without secrets. NULL if there are none.';
COMMENT ON COLUMN audit.erased_time IS
  'When EraseProcess replaced the subject by erased: and its hash, and deleted the details. NULL '
  'if it has not.';
COMMENT ON COLUMN flow_steps.attempt IS
  'Number of starts of the step. An open job counts from when it was enqueued.';
COMMENT ON COLUMN flow_steps.input IS 'Input of the step, JSON. NULL for the payload of the run.';
COMMENT ON COLUMN flow_steps.due_time IS 'End of a delay, or due time of a wait. NULL if none.';
COMMENT ON COLUMN step_list.due_time IS 'End of a delay, or due time of a wait. NULL if none.';
COMMENT ON COLUMN cron_fires.count IS
  'Number of fire times in this row. It is more than 1 only for old MISSED fires, of which the row '
  'has the newest.';
COMMENT ON COLUMN changes.change_id IS
  'Number of the change. The changes of a process, and those of a lane, are numbered in their '
  'order.';
COMMENT ON COLUMN changes.to_status IS
  'Status after the change. NULL if it was removed, or if the status did not change.';
COMMENT ON COLUMN changes.reason IS
  'Why it happened, such as the message of a failure or the reason of a cancel. NULL if unknown.';
COMMENT ON COLUMN changes.details IS
  'More about the change of a job, step, run or fire, as a JSON object. NULL for other kinds.';
COMMENT ON COLUMN sinks.secrets IS
  'Secrets of the target, encrypted: the fields of Sink that have them.';
COMMENT ON COLUMN sinks.lanes IS
  'The cursor: lanes of change_heads. Of a lane that is missing, nothing was delivered.';
COMMENT ON COLUMN sinks.token IS
  'Number of the lease, incremented by each claim and rewind. The first one is from sink_tokens. '
  'Only its holder moves the cursor.';
COMMENT ON COLUMN sinks.delivered_time IS 'When the last changes were delivered. NULL if never.';
COMMENT ON COLUMN sinks.failures IS 'Failed attempts in a row.';
COMMENT ON COLUMN sinks.last_error IS 'The last error, also after it was overcome. NULL if none.';
COMMENT ON COLUMN sinks.last_error_time IS 'When it happened.';
COMMENT ON COLUMN sinks.next_attempt_time IS 'When a failed delivery is repeated. NULL if none.';
COMMENT ON COLUMN sinks.dead_letters IS
  'Number of changes that the target rejected for good since the sink was created.';
COMMENT ON COLUMN sinks.updated_time IS 'When its settings were changed.';
COMMENT ON COLUMN sinks.asked_time IS 'When it asked.';
COMMENT ON COLUMN sink_dead_letters.process_id IS 'ID of its process, job, run or cron.';
COMMENT ON COLUMN sink_dead_letters.error IS 'Why the last attempt to deliver it failed.';
COMMENT ON COLUMN sink_dead_letters."time" IS 'When it failed.';
COMMENT ON COLUMN sink_dead_letters.retry_time IS
  'Since when it waits to be delivered again. NULL if it does not.';
COMMENT ON COLUMN sink_lags.changes IS
  'Number of recorded changes after its cursor, including those that it does not select.';
COMMENT ON COLUMN sink_lags.oldest_time IS 'When the oldest of them was recorded. NULL if none.';
COMMENT ON COLUMN change_settings.kinds IS
  'Kinds of changes that it records, as a JSON array of values of the enum ChangeKind of the API.';
COMMENT ON COLUMN change_settings.payloads IS 'True if it records the payloads of events.';
COMMENT ON COLUMN change_settings.retention IS 'How long its changes are kept at least.';
COMMENT ON COLUMN change_triggers.operation IS 'Statements after which it runs: INSERT or UPDATE.';
COMMENT ON COLUMN change_triggers.tables IS 'Its transition tables.';
COMMENT ON COLUMN change_triggers.function IS 'Its function.';
COMMENT ON COLUMN run_list.updated_time IS
  'When the run or one of its steps last changed. For a step, it is up to a minute too early.';
COMMENT ON COLUMN timer_list.waits_for IS
  'time, or what the timer waits for since it was due: see the type waits_for. With waits_for = '
  '''time'' in WHERE, the next timers of a namespace are read by an index.';
RESET lock_timeout;
