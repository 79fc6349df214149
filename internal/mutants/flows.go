package main

const (
	flowDecide   = "flow/decide.go"
	flowItems    = "flow/items.go"
	flowTurn     = "flow/turn.go"
	flowCommands = "engine/flows/commands.go"
	endSteps     = "sql/end_steps.sql"
	startSteps   = "sql/start_steps.sql"
)

// flowMutants are the mutants of templates, runs and steps.
var flowMutants = []mutant{
	{
		name: "run-metadata-unbounded", breaks: "the metadata of a run has at most 64 KiB",
		file: "engine/flows/template.go", old: "if len(text) > process.MaxMetadataBytes {",
		planted:  "if len(text) > process.MaxMessageBytes {",
		packages: "./cmd/progressor", run: "TestFieldsHaveLimits",
	},
	{
		name: "result-metadata-as-protobuf", breaks: "a result may have the same metadata as a request",
		file: "processor/check_json.go", old: "return compact.Len()", planted: "return size",
		packages: "./cmd/progressor", run: "TestLargestProcess",
	},
	{
		name: "get-run-unbounded", breaks: "GetRun returns at most about 8 MiB of the values of steps",
		file: "engine/flows/show.go", old: "MaxBytes: storage.ListBytes, WithoutValues: true,",
		planted:  "MaxBytes: 1 << 40, WithoutValues: true,",
		packages: "./engine/flows", run: "TestGetRunIsBoundedInBytes",
	},
	{
		name: "get-run-cuts-steps", breaks: "GetRun returns all steps of the template",
		file: "engine/flows/show.go", old: "MaxBytes: storage.ListBytes, WithoutValues: true,",
		planted:  "MaxBytes: storage.ListBytes,",
		packages: "./engine/flows", run: "TestGetRunIsBoundedInBytes",
	},
	{
		name: "flow-undone-oldest-first", breaks: "steps are undone in reverse order of their success",
		file: flowTurn, old: "step := s.Done[len(s.Done)-1]\n		s.Done = s.Done[:len(s.Done)-1]",
		planted:  "step := s.Done[0]\n		s.Done = s.Done[1:]",
		packages: "./flow", run: "RandomGraphs",
	},
	{
		name: "flow-one-item-more", breaks: "at most max_running items run at a time",
		file: flowItems, old: "p.MaxRunning > 0 && each.Running >= p.MaxRunning",
		planted:  "p.MaxRunning > 0 && each.Running > p.MaxRunning",
		packages: "./flow", run: "RandomGraphs",
	},
	{
		name: "flow-items-outlive-their-step", breaks: "the items of a step that is skipped end with it",
		file: flowDecide, old: "			d.dropItems(o.Step, \"its step was skipped by an operator\")\n",
		planted:  "			d.cancelItems(o.Step)\n",
		packages: "./flow", run: "RandomGraphs",
	},
	{
		name: "flow-one-attempt-more", breaks: "a run has max_attempts attempts",
		file: flowDecide, old: "d.State.Attempt >= d.plan.MaxAttempts", planted: "d.State.Attempt > d.plan.MaxAttempts",
		packages: "./engine/flows", run: "StepReasons|ItemsFail",
	},
	{
		name: "flow-any-token", breaks: "only a client with the token of a wait can answer it",
		file: flowCommands, old: "subtle.ConstantTimeCompare([]byte(o.Token), []byte(row.Token)) != 1",
		planted:  "subtle.ConstantTimeCompare([]byte(o.Token), []byte(row.Token)) == 2",
		packages: "./engine/flows", run: "ExternalWait",
	},
	{
		name: "flow-other-answer", breaks: "another answer to a wait that has ended is rejected",
		file: "engine/flows/answers.go", old: "return proto.Equal(stored, answer), err",
		planted:  "return stored != nil || answer != nil, err",
		packages: "./engine/flows", run: "AnswerIsRepeated",
	},
	{
		name: "flow-grace-ignored", breaks: "the processes of steps have the grace of the template",
		file: "engine/flows/cancel.go", old: "		cancel.Grace = &grace\n", planted: "		_ = grace\n",
		packages: "./engine/flows", run: "CancelPolicyOfProcesses",
	},
	{
		name: "flow-waits-for-the-suspended", breaks: "a suspended process does not hold up a run that asks it to end",
		file: flowDecide, old: "if passed(s.CheckAsked) {",
		planted:  "if passed(s.CheckAsked) && s.Mode == ModeWaiting {",
		packages: "./engine/flows", run: "StopOfSuspendedProcess",
	},
	{
		name: "flow-removed-while-it-runs", breaks: "only a run that has ended is removed",
		file: "engine/flows/remove.go", old: "row.ProcessStatus != process.StatusCompleted && ",
		planted:  "row.ProcessStatus == \"\" && ",
		packages: "./engine/flows", run: "TestRemoveRun",
	},
	{
		name:   "flow-large-value-rejected",
		breaks: "a value of an expression may have the size that docs/limits.md says",
		file:   "flow/json.go", old: "c.grow(1)", planted: "c.grow(8)",
		packages: "./flow", run: "LargestValues",
	},
	{
		name:   "flow-item-due-forgotten",
		breaks: "the earliest due time of the items of a step is the deadline of the step",
		file:   "flow/state.go", old: "if index == NoIndex || at.Before(d.At) {", planted: "if index == NoIndex {",
		packages: "./flow", run: "RandomGraphs|DeadlineOfItems",
	},
	{
		name: "flow-timeout-includes-the-queue", breaks: "the timeout of a run counts from the start of its first step",
		file: "engine/flows/task.go", old: "		first = t.now\n",
		planted:  "		first = s.Deadline.Add(-timeout)\n",
		packages: "./engine/flows", run: "TimeoutCountsFromFirstStep",
	},
	{
		name: "flow-step-without-worker", breaks: "the row and the event of a step name the worker of its job",
		file: endSteps, old: "'workerId', ended_steps.worker_id,", planted: "'workerId', '',",
		packages: "./engine/flows", run: "StepNamesItsWorker",
	},
	{
		name: "flow-starts-with-the-enqueue", breaks: "a step starts when a worker takes its job",
		file: "sql/flow_steps.sql",
		old:  "WHEN item.begins AND NOT starts_with(item.does, '~job/')", planted: "WHEN item.begins",
		packages: "./engine/flows", run: "StepWithoutAttempt",
	},
	{
		name:   "flow-untaken-job-is-an-attempt",
		breaks: "a job that no worker took does not count as an attempt of its step",
		file:   "engine/flows/show.go", old: "		if !row.Tried {\n", planted: "		if row.Tried {\n",
		packages: "./engine/flows", run: "RunStartsWithItsFirstWorker",
	},
	{
		name: "flow-skipped-without-start", breaks: "a step that ends before its job keeps the start of that job",
		file: "engine/flows/attempts.go", old: "	return t.readAttempts(open)\n", planted: "	return nil\n",
		packages: "./engine/flows", run: "StepWithoutAttempt",
	},
	{
		name: "flow-row-for-each-step", breaks: "the row of a run is not written for each of its steps",
		file: "engine/flows/write.go", old: "t.now.Sub(last) < maxUnwritten", planted: "t.now.Sub(last) > maxUnwritten",
		packages: "./engine/flows", run: "StepsUpdateTheirRun",
	},
	{
		name: "flow-items-not-undone", breaks: "items that succeeded are undone if their step did not succeed",
		file: flowDecide, old: "each != nil && each.Succeeded > 0 && ",
		planted:  "each != nil && each.Succeeded > 1000000 && ",
		packages: "./flow", run: "RandomGraphs",
	},
	{
		name:   "flow-item-cancelled-by-others",
		breaks: "an item that the run did not ask to end fails if it is cancelled",
		file:   flowDecide, old: "o.Status == Cancelled && s.Mode == ModeRunning && !each.Stopped", planted: "false",
		packages: "./engine/flows", run: "StepJobIsCancelled",
	},
	{
		name: "flow-step-without-result", breaks: "the result of a job is the result of its step",
		file: "engine/flows/result.go", old: "row.Result, row.WorkerID, row.Reason = end.Result, cmp.Or",
		planted:  "row.WorkerID, row.Reason = cmp.Or",
		packages: "./engine/flows", run: "RandomRuns",
	},
	{
		name: "flow-answer-after-cancel", breaks: "after a cancel request, a wait accepts only its acknowledgement",
		file: flowCommands, old: "t.state.Run.Cause == flow.ByCancel && o.Outcome != stepCancelled",
		planted:  "t.state.Run.Cause == flow.ByCancel && o.Outcome == \"\"",
		packages: "./engine/flows", run: "WaitIsCancelled",
	},
	{
		name: "flow-two-of-a-scope", breaks: "at most one run of a scope has not ended",
		file: "engine/flows/task.go", old: "case holder.RunID != \"\" && t.template.rejectsDuplicates():",
		planted:  "case holder.Done != \"\" && t.template.rejectsDuplicates():",
		packages: "./engine/flows", run: "ScopeFromTwoNodes",
	},
	{
		name: "flow-fails-with-the-database", breaks: "a step does not fail because a read failed",
		file: "engine/flows/facts.go", old: "	if err != nil {\n		return readError(err)\n	}\n	for _, row",
		planted:  "	_ = err\n	for _, row",
		packages: "./engine/flows", run: "DatabaseFaultDoesNotFailAStep",
	},
	{
		name:   "flow-undone-before-its-end",
		breaks: "a step that succeeds when its compensation begins is SUCCEEDED and keeps its result",
		file:   "sql/flow_steps.sql",
		old: "status = CASE\n" +
			"                  WHEN excluded.compensation_status IS NULL OR f.status IN ('pending', 'running')\n" +
			"                    THEN",
		planted:  "status = CASE\n                  WHEN excluded.compensation_status IS NULL THEN",
		packages: "./engine/flows", run: "UndoneAsItSucceeds",
	},
	{
		name: "flow-counts-compensated-items", breaks: "items that were compensated run again",
		file: flowTurn, old: "		if s.Round > 1 {", planted: "		if s.Round > 99 {",
		packages: "./engine/flows", run: "SecondRetry",
	},
	{
		name: "flow-mixes-two-lists", breaks: "if a list has changed, an item stays done if its value is still in it",
		file: flowItems, old: "item.Index < len(items) && (item.Hash == nil || *item.Hash == items[item.Index])",
		planted:  "item.Index < len(items)",
		packages: "./flow", run: "RetryWithAnotherList",
	},
	{
		name: "flow-cleans-up-early", breaks: "in a linear template, a cleanup step waits for all steps before it",
		file: flowTurn, old: "all && (!d.plan.Linear || d.allEnded(step))", planted: "all",
		packages: "./flow", run: "CleanUpInLinear",
	},
	{
		name: "flow-ends-at-a-bad-result", breaks: "a run whose result cannot be computed undoes its steps",
		file: flowTurn, old: "		if d.succeed(); s.Mode == ModeEnded || d.backOff() {",
		planted:  "		if d.succeed(); s.Mode == ModeEnded || true {",
		packages: "./flow", run: "TestNoResult",
	},
	{
		name: "flow-cancelled-wait-times-out", breaks: "a cancelled wait does not have the result of its timeout",
		file: flowDecide, old: "case d.Status(o.Step) != Running ||", planted: "case d.Status(o.Step) == Pending ||",
		packages: "./flow", run: "EndOfCancelledWait",
	},
	{
		name: "flow-overdue-continues", breaks: "a process or run that exceeds the timeout of its step is asked to end",
		file: flowDecide, old: "	if o.Overdue {", planted: "	if o.Overdue && o.Undo {",
		packages: "./engine/flows", run: "StepTimeouts",
	},
	{
		name: "flow-failed-items-wait", breaks: "waits end when too many items of their step have failed",
		file: flowItems, old: "d.plan.Steps[step].Waits == NoWait {\n		d.cancelItems",
		planted:  "d.plan.Steps[step].Waits != NoWait {\n		d.cancelItems",
		packages: "./flow", run: "FailedItemsEndWaits",
	},
	{
		name:   "flow-started-step-not-cancelled",
		breaks: "a cancel reaches a step that began while its run was stopping",
		file:   flowDecide, old: "!slices.Contains(s.Asked, step)",
		planted:  "len(s.Asked) == 0 && s.Mode != ModeStopping",
		packages: "./flow", run: "CleanUpIsStopped",
	},
	{
		name: "step-end-during-a-task", breaks: "the end of a step waits while its run runs a task",
		file: endSteps, old: "attempt.found IS NULL AND waiting.task_id IS NULL AND runs.capture AS captured",
		planted:  "waiting.task_id IS NULL AND runs.capture AS captured",
		packages: "./storage", run: "EndsOfSteps",
	},
	{
		name: "step-end-overtakes", breaks: "the end of a step is delivered after the earlier messages to its run",
		file: endSteps, old: "WHERE message.found IS NULL),", planted: "WHERE message.found IS NULL OR message.found),",
		packages: "./storage", run: "EndsOfSteps",
	},
	{
		name: "step-end-notified-twice", breaks: "a run is notified of the end of a step once",
		file: endSteps, old: "WHERE r.namespace = ANY (ARRAY[ended.namespace])",
		planted:  "WHERE false AND r.namespace = ANY (ARRAY[ended.namespace])",
		packages: "./storage", run: "EndsOfSteps",
	},
	{
		name: "step-end-unlocked", breaks: "a run that the flush has not locked gets a message",
		file: endSteps, old: "        AND runs.locked\n", planted: "",
		packages: "./storage", run: "EndsOfSteps",
	},
	{
		name: "step-start-of-late-result", breaks: "a late result does not start a step",
		file: startSteps, old: "AND t.fencing_token = item.fencing_token\n" +
			"        AND is_saved(item.fencing_token)\n      LIMIT 1) task",
		planted:  "AND t.fencing_token = item.fencing_token LIMIT 1) task",
		packages: "./storage", run: "JobsStartWithTheResult",
	},
	{
		name:   "step-start-ignores-constraints",
		breaks: "the job of a step waits for the keys of constraints as any job does",
		file:   startSteps, old: "process.status IS NULL AND constraint_set.version IS NULL AS direct",
		planted:  "process.status IS NULL AS direct",
		packages: "./storage", run: "JobsStartedByMessage",
	},
	{
		name: "flow-result-in-message", breaks: "a run ends regardless of the size of its result",
		file: "engine/flows/result.go", old: "len(text) <= process.MaxPayloadBytes",
		planted:  "len(text) <= process.MaxMessageBytes",
		packages: "./engine/flows", run: "TestLargeResults|TestLargeFailures",
	},
	{
		name: "flow-items-without-bound", breaks: "the results of the items of a step are bounded",
		file: "flow/items.go", old: "case each.Bytes > MaxItemsBytes:", planted: "case each.Bytes > 2*MaxItemsBytes:",
		packages: "./engine/flows", run: "TestLargeItems",
	},
	{
		name: "flow-decision-changes-its-input", breaks: "a decision does not modify its arguments",
		file: "flow/state.go", old: "		c.Each[step] = &copied\n", planted: "		c.Each[step] = each\n",
		packages: "./flow", run: "RandomGraphs",
	},
	{
		name: "flow-facts-without-bound", breaks: "a decision asks for a limited number of facts at a time",
		file: flowTurn, old: "				d.starts++ //", planted: "				//",
		packages: "./flow", run: "TestMissingFacts",
	},
	{
		name: "flow-timeout-ends-compensation", breaks: "the timeout of a run does not end its compensations",
		file: flowDecide, old: "s.Mode != ModeEnded && s.Mode != ModeCompensating && s.Cause != ByTime",
		planted:  "s.Mode != ModeEnded && s.Cause != ByTime",
		packages: "./flow", run: "TimeoutDuringCompensation",
	},
	{
		name:   "flow-compensation-with-the-timeout-of-its-step",
		breaks: "a compensation has the timeout of its own options",
		file:   "engine/flows/rules.go", old: "timeout != nil && !from.Undo {", planted: "timeout != nil {",
		packages: "./engine/flows", run: "TimeoutOfCompensation",
	},
	{
		name:     "flow-purge-from-the-start",
		breaks:   "a batch of a removal does not read steps that earlier batches have deleted",
		file:     "sql/remove_processes.sql",
		old:      "AND (v.step_id, v.index) > (removed.after_step_id, removed.after_index)",
		planted:  "AND (v.step_id, v.index) > (left(removed.after_step_id, 0), -2)",
		packages: "./storage", run: "TestRemoveDuringOldSnapshot",
	},
	{
		name:   "newer-state-rewritten",
		breaks: "a node does not store a state with fields that it does not know",
		file:   "engine/actor/state.go", old: "	decoder.DisallowUnknownFields()\n", planted: "",
		packages: "./engine/flows ./engine/crons ./engine/bulk", run: "StateOfNewerVersion",
	},
	{
		name:   "bulk-of-newer-version-ends",
		breaks: "a bulk with a verb that a node does not know is left to a newer version",
		file:   "engine/bulk/run.go", old: "err = o.notAccepted(w.bulks.check(&o))",
		planted:  "err = w.bulks.check(&o)",
		packages: "./engine/bulk", run: "TestCommandOfNewerVersion",
	},
	{
		name: "retry-of-a-run-unexplained", breaks: "explain says that the own task of a run failed",
		file: "explain/situation.go", old: "process.StatusError && !head.retried() &&\n",
		planted:  "process.StatusError &&\n",
		packages: "./engine/flows", run: "StateOfNewerVersion",
	},
	{
		name:   "newer-state-breaks-a-run",
		breaks: "a run whose state is of a newer version waits for a node with that version",
		file:   "engine/actor/state.go", old: "ok || err == nil", planted: "ok && false || err == nil",
		packages: "./engine/flows", run: "StateOfNewerVersion",
	},
	{
		name: "actor-fails-with-the-database", breaks: "a task of a kind is kept while the database is not available",
		file: "engine/actor/actor.go", old: "if errors.Is(err, process.ErrUnavailable) {",
		planted:  "if errors.Is(err, process.ErrUnavailable) && err == nil {",
		packages: "./engine/actor", run: "TestUnavailable",
	},
	{
		name: "actor-state-unread", breaks: "a task of a kind changes the state that was stored",
		file: "engine/actor/actor.go", old: "!= progressorv1.TaskType_TASK_TYPE_INIT {",
		planted:  "== progressorv1.TaskType_TASK_TYPE_INIT {",
		packages: "./engine/actor", run: "TestHandlers",
	},
	{
		name: "flow-job-without-keys", breaks: "the job of a step has the keys of its namespace",
		file: "engine/flows/result.go", old: "	t.flows.jobs.AddKeys(w.job)\n", planted: "",
		packages: "./engine/flows", run: "StepJobHasAFairnessKey",
	},
	{
		name: "flow-waits-unrecorded", breaks: "the events of a run show when the run waits for an answer",
		file: "engine/flows/write.go", old: "	if waits && !queued {\n", planted: "	if waits && queued {\n",
		packages: "./engine/flows", run: "TestEventsOfRun",
	},
	{
		name: "flow-failures-unsaid", breaks: "the event of a step that failed says why",
		file: "engine/flows/result.go", old: "failureText(failure))", planted: "failureText(nil))",
		packages: "./engine/flows", run: "TestEventsOfRun",
	},
	{
		name: "run-events-of-others", breaks: "run_id does not find events of another run",
		file: "storage/search/events.go", old: "substring(a.job_id FROM '^~job/(.*)/[^/]*$')",
		planted:  "substring(a.job_id FROM '^~job/([^/]*)/')",
		packages: "./storage/search", run: "TestListEventsOfRun",
	},
	{
		name: "flow-reopened-ends", breaks: "a late message does not end a run that was reopened for a retry",
		file: "engine/flows/result.go", old: "return t.before.ended && t.isNotification()", planted: "return false",
		packages: "./engine/flows", run: "TestLateEndLeavesReopenedRun",
	},
	{
		name: "flow-force-waits", breaks: "a forced cancel ends a run that compensates",
		file: flowCommands, old: "case o.Force && s.Mode != flow.ModeEnded:",
		planted:  "case o.Force && s.Mode == flow.ModeRunning:",
		packages: "./engine/flows", run: "TestForceCancel",
	},
}
