package main

const (
	sqlComplete     = "migrations/00159_complete.sql"
	sqlCompleteSalt = "migrations/00164_complete_salt.sql" // replaces the function complete
)

// durableMutants repeat effects, lose calls or overlook misuse of durable functions.
var durableMutants = []mutant{
	{
		name: "durable-runs-steps-too-early", breaks: "what a step depends on is stored before it runs",
		file: "processor/durable/task.go", old: "if len(t.journal.unsaved()) > 0 {",
		planted:  "if len(t.journal.unsaved()) > 99 {",
		packages: "./processor/durable", run: "TestStoredBeforeSteps",
	},
	{
		name: "durable-confuses-names", breaks: "the second use of a name has a number",
		file: "processor/durable/branch.go", old: "b.names[key]; n > 1 {", planted: "b.names[key]; n > 9 {",
		packages: "./processor/durable", run: "TestSteps$",
	},
	{
		name: "durable-allows-goroutines", breaks: "an operation in another goroutine fails",
		file: "processor/durable/branch.go", old: "case !b.own.hasRoot():", planted: "case b.scope == \"?\":",
		packages: "./processor/durable", run: "TestMisuseInReplay",
	},
	{
		name: "durable-rejects-deep-stacks", breaks: "an operation is allowed at any depth of the stack",
		file: "processor/durable/goroutine.go", old: "n < len(frames)", planted: "n <= len(frames)",
		packages: "./processor/durable", run: "TestMisuseInReplay",
	},
	{
		name: "durable-allows-other-branches", breaks: "an operation with the Ctx of another branch fails",
		file: "processor/durable/branch.go", old: "case r.current != b:", planted: "case r.current == nil:",
		packages: "./processor/durable", run: "TestMisuseInReplay",
	},
	{
		name: "durable-allows-other-processes", breaks: "an operation with the Ctx of another process fails",
		file: "processor/durable/goroutine.go", old: "slices.Equal(s[above:], g.frames)",
		planted:  "s[above+root] == g.frames[root]",
		packages: "./processor/durable", run: "TestCtxOfAnotherProcess",
	},
	{
		name: "durable-cuts-entries", breaks: "parseEntry accepts only entries that encoding/json accepts",
		file: "processor/durable/journal.go", old: "complete && json.Valid(value)", planted: "complete",
		packages: "./processor/durable", run: "TestParseEntry",
	},
	{
		name: "durable-undoes-the-oldest-first", breaks: "steps are undone newest first",
		file: "processor/durable/saga.go", old: "slices.Backward(r.journal.entries)",
		planted: "slices.All(r.journal.entries)", packages: "./processor/durable", run: "TestSaga",
	},
	{
		name: "durable-undoes-in-order-of-journal", breaks: "after a repair, undos use the order of the function",
		file: "processor/durable/saga.go", old: "if r.journal.repaired {", planted: "if r.journal == nil {",
		packages: "./processor/durable", run: "TestRepairByStep",
	},
	{
		name: "durable-rewinds-in-order-of-journal", breaks: "after a repair, a rewind uses the order of the function",
		file: "processor/durable/forget.go", old: "f.place(i) >= f.place(at)", planted: "i >= at",
		packages: "./processor/durable", run: "TestRewindAfterRepair",
	},
	{
		name: "durable-starts-with-a-repair", breaks: "the request of a repair by step does not become the input",
		file: "processor/durable/task.go", old: "isByStep(t.request.GetArgs()); ok {\n			return nil,",
		planted:  "isByStep(t.request.GetArgs()); ok && false {\n			return nil,",
		packages: "./processor/durable", run: "TestRepairOfUnstarted",
	},
	{
		name: "durable-skips-lost-undos", breaks: "a step whose undo no longer exists is not skipped",
		file: "processor/durable/saga.go", old: "(e.Undo || known)", planted: "known",
		packages: "./processor/durable", run: "TestUndoIsGone",
	},
	{
		name: "durable-first-ignores-order", breaks: "First returns what happened first",
		file: "processor/durable/first.go", old: "(first == nil || i < at)", planted: "(first == nil || i < at-99)",
		packages: "./processor/durable", run: "TestFirstIsTheEarliest",
	},
	{
		name: "durable-loses-calls", breaks: "a restart keeps the calls that were not taken",
		file: "processor/durable/call.go", old: "untaken = append(untaken, all...)", planted: "_ = all",
		packages: "./processor/durable", run: "TestRestart",
	},
	{
		name: "durable-stores-rejected-calls", breaks: "a call that Accept rejects is not stored",
		file: "processor/durable/task.go", old: "response, err = q.accept(args)",
		planted:  "response, _ = q.accept(args)",
		packages: "./processor/durable", run: "TestCalls",
	},
	{
		name: "durable-repeats-large-steps", breaks: "a step whose value cannot be stored does not run again",
		file: "processor/durable/step.go", old: "\"the value %w\", err).NonRetryable()",
		planted:  "\"the value %w\", err)",
		packages: "./processor/durable", run: "TestBadValues",
	},
	{
		name: "durable-repeats-keys", breaks: "a process that is created again has new keys",
		file: "processor/durable/step.go", old: "p.GetCreatedTime().AsTime().UnixMicro()", planted: "0",
		packages: "./processor/durable", run: "TestStepKeysOfNewProcess",
	},
	{
		name: "durable-forgets-retries", breaks: "a due retry runs, even if the function has new operations",
		file: "processor/durable/task.go", old: "t.effects.setTimer(retryTimer+step.name, 0)", planted: "_ = step",
		packages: "./processor/durable", run: "TestRetryInChangedFunction",
	},
	{
		name: "durable-overlooks-goexit", breaks: "a body that ends its goroutine has no result",
		file: "processor/durable/run.go", old: "} else if !completed {",
		planted:  "} else if !completed && id == \"\" {",
		packages: "./processor/durable", run: "TestGoexitInBodies",
	},
	{
		name: "durable-loses-retries-after-a-panic", breaks: "a step is retried again if a retry has panicked",
		file: "processor/durable/task.go", old: "t.scheduleSteps()\n\treturn t.done(nil)",
		planted:  "t.result.SetTimerAfter(0)\n\treturn t.done(nil)",
		packages: "./processor/durable", run: "TestPanicInRetry",
	},
	{
		name: "durable-loses-steps-before-a-bad-restart", breaks: "a bad restart does not lose the last step",
		file: "processor/durable/task.go", old: "err = processor.Fail(ReasonBadValue, \"the input of Restart",
		planted:  "return nil, processor.Fail(ReasonBadValue, \"the input of Restart",
		packages: "./processor/durable", run: "TestRestartBadly",
	},
	{
		name: "durable-hides-failures", breaks: "a rejection of a branch does not hide the failure of another",
		file: "processor/durable/errors.go", old: "if !isRejection(found) {",
		planted:  "if !isRejection(found) && cause == nil {",
		packages: "./processor/durable", run: "TestJoinedErrors",
	},
	{
		name: "durable-sets-too-many-timers", breaks: "at most 100 timers are pending",
		file: "processor/durable/run.go", old: "if room <= 0 {", planted: "if room <= -9999 {",
		packages: "./processor/durable", run: "TestManyRetries",
	},
	{
		name: "durable-accepts-too-many-calls", breaks: "a restart can keep all calls",
		file: "processor/durable/call.go", old: "len(calls) >= maxWaiting", planted: "len(calls) >= 9*maxWaiting",
		packages: "./processor/durable", run: "TestTooManyCalls",
	},
	{
		name: "durable-stores-bad-metadata", breaks: "metadata that cannot be stored is an error before a step runs",
		file: "processor/durable/value.go", old: "if err := checkMetadata(merged); err != nil {",
		planted:  "if err := checkMetadata(merged); err != nil && merged == nil {",
		packages: "./processor/durable", run: "TestMisuse",
	},
	{
		name: "durable-repairs-without-undo-again", breaks: "a step that was undone runs again after a repair",
		file: "processor/durable/forget.go", old: "reverted[entryKey{kindStep, e.Name}] = true", planted: "_ = e",
		packages: "./processor/durable", run: "TestRepairByStep",
	},
	{
		name: "durable-rewinds-other-branches", breaks: "a rewind in a branch of Each keeps the other branches",
		file: "processor/durable/forget.go", old: "eachOf(as[i]) == eachOf(bs[i])", planted: "as[i] == bs[i]",
		packages: "./processor/durable", run: "TestRewind$",
	},
	{
		name: "durable-rewinds-ends-of-kept-timers", breaks: "a rewind keeps the ends of timers that it keeps",
		file: "processor/durable/forget.go", old: "ok && f.marked[of]", planted: "ok && of >= 0",
		packages: "./processor/durable", run: "TestRewind$",
	},
	{
		name: "durable-undoes-skipped-steps", breaks: "a skipped step is not undone",
		file: "processor/durable/saga.go", old: "e.Error == nil && !e.Skipped &&", planted: "e.Error == nil &&",
		packages: "./processor/durable", run: "TestRepairByStep",
	},
	{
		name: "durable-repeats-keys-after-a-rewind", breaks: "a completed step that runs again has a new key",
		file: "processor/durable/step.go", old: "r.journal.reruns[name]; n > 0",
		planted:  "r.journal.reruns[name]; n > 9",
		packages: "./processor/durable", run: "TestRepairByStep",
	},
	{
		name: "durable-repeats-children-of-a-rewind", breaks: "a child that is started again has a new ID",
		file: "processor/durable/journal.go", old: "j.origin = event.GetTaskId()\n\t\t}", planted: "_ = event\n\t\t}",
		packages: "./processor/durable", run: "TestRewindChild",
	},
	{
		name: "durable-forgets-running-children", breaks: "a forgotten child that runs is cancelled",
		file: "processor/durable/repair.go", old: "t.effects.commands = cancels", planted: "_ = cancels",
		packages: "./processor/durable", run: "TestRewindChild",
	},
	{
		name: "durable-leaves-timers-of-a-rewind", breaks: "a forgotten timer is removed",
		file: "processor/durable/repair.go", old: "t.effects.unsetTimer(name)", planted: "_ = name",
		packages: "./processor/durable", run: "TestRepairOfRetry",
	},
	{
		name: "durable-repairs-blindly", breaks: "a repair after which the function would fail is rejected",
		file: "processor/durable/repair.go", old: "if err == nil || t.ctx.Err() != nil {",
		planted:  "if err != nil || true {",
		packages: "./processor/durable", run: "TestRepairImpossible",
	},
	{
		name: "durable-repairs-null", breaks: "a repair with null instead of a list or a name is rejected",
		file: "processor/durable/repair.go", old: "list == nil || slices.Contains(list, nil)",
		planted:  "slices.Contains(list[:0], nil)",
		packages: "./processor/durable", run: "TestRepairImpossible",
	},
	{
		name: "history-of-init-begins-with-0", breaks: "the history of a new process begins with event 1",
		file: "storage/prepare_init.go", old: "c.FirstEventID = r.Now, r.Now, 1",
		planted:  "c.FirstEventID = r.Now, r.Now, 0",
		packages: "./engine", run: "TestFirstEventOfInit",
	},
	{
		name: "checkpoint-of-ended-attempt-stored", breaks: "a checkpoint of an ended attempt stores nothing",
		file: "sql/checkpoint.sql", old: "AND r.fencing_token = item.fencing_token", planted: "",
		packages: "./storage", run: "TestCheckpointIsFenced",
	},
	{
		name: "checkpoint-stored-twice", breaks: "a checkpoint that is sent again is stored once",
		file: "sql/checkpoint.sql", old: "AND input.stored_event_id = input.last_event_id),",
		planted:  "AND input.stored_event_id IS NOT NULL),",
		packages: "./storage", run: "TestCheckpointWhoseConnectionBreaks",
	},
	{
		name: "sql-checkpoint-unfenced", breaks: "SQL stores no checkpoint of an ended attempt",
		file: sqlComplete, old: "     AND attempt.fencing_token = lease.fencing_token\n", planted: "",
		packages: "./storage", run: "TestCheckpointFromSQL",
	},
	{
		name: "sql-checkpoint-reads-too-early", breaks: "an attempt does not end while SQL stores its checkpoint",
		file: sqlComplete, old: "= leased_process_id\n     FOR UPDATE;", planted: "= leased_process_id;",
		packages: "./storage", run: "TestCheckpointFromSQLWaits|TestCheckpointFromSQLThatStaysOpen",
	},
	{
		name:   "sql-checkpoint-follows-any-event",
		breaks: "SQL stores a checkpoint only after the events that its caller knows",
		file:   sqlComplete, old: "WHEN stored IS DISTINCT FROM store_for_lease.last_event_id", planted: "WHEN false",
		packages: "./storage", run: "TestCheckpointFromSQLIsRefused",
	},
	{
		name: "sql-checkpoint-without-secret", breaks: "SQL stores a checkpoint only for a caller with the lease token",
		file: sqlComplete, old: "     AND lease.salt = token_salt;", planted: ";",
		packages: "./storage", run: "TestCheckpointFromSQLIsRefused",
	},
	{
		name: "sql-checkpoint-unrecorded", breaks: "a checkpoint from SQL is recorded as a change",
		file: sqlComplete, old: "         last_event_id = new_last_event_id\n",
		planted:  "         last_event_id = stored\n",
		packages: "./storage", run: "TestCheckpointFromSQL$",
	},
	{
		name: "checkpoint-never-yields", breaks: "the response to a checkpoint says that another task waits",
		file: "sql/checkpoint.sql", old: "OR waiting.found IS NOT NULL", planted: "",
		packages: "./storage", run: "TestCheckpointYields",
	},
	{
		name: "checkpoint-gives-up", breaks: "a checkpoint is retried until the server stores it",
		file: "storage/recover.go", old: "return checkpoint || completionOf(op)",
		planted:  "return checkpoint && completionOf(op)",
		packages: "./storage", run: "TestCheckpointSurvives",
	},
	{
		name: "checkpoint-forgotten-by-result", breaks: "the result of an attempt follows its checkpoints",
		file: "engine/checkpoint.go", old: "c.LastEventID, c.AuxState, c.Metadata = p.claim.LastEventID,",
		planted:  "c.LastEventID, c.AuxState, c.Metadata = c.LastEventID,",
		packages: "./engine", run: "TestCheckpoint$",
	},
	{
		name: "checkpoint-in-calls", breaks: "a task that can be rejected stores no checkpoint",
		file: "processor/checkpoint.go", old: "return task == progressorv1.TaskType_TASK_TYPE_TIMEOUT ||",
		planted:  "return task != progressorv1.TaskType_TASK_TYPE_REMOVE ||",
		packages: "./engine", run: "TestCheckpointsThatAreRefused",
	},
	{
		name: "checkpoint-drops-timers", breaks: "a checkpoint with a timer is refused",
		file: "processor/checkpoint.go", old: "if other != \"\" {", planted: "if other == \"x\" {",
		packages: "./engine", run: "TestCheckpointsThatAreRefused",
	},
	{
		name: "checkpoint-repeated-with-other-events", breaks: "a checkpoint does not replace another one",
		file: "engine/checkpoint.go", old: "return saved.Yield, e.checkRepeated(made)",
		planted:  "return saved.Yield, nil",
		packages: "./engine/rpc", run: "TestCheckpointsThatAreRejected",
	},
	{
		name: "checkpoint-of-cached-lease", breaks: "a result follows the checkpoints of its lease on this node",
		file: "engine/pull/answers.go", old: "s.leased.current(t)", planted: "s.leased.get(t)",
		packages: "./engine/rpc", run: "TestCheckpoint$",
	},
	{
		name: "checkpoint-on-another-node", breaks: "a result follows checkpoints that another node stored",
		file: "engine/pull/answers.go", old: "l != nil && a.LastEventID == 0 {", planted: "l != nil {",
		packages: "./client", run: "TestCheckpointsOnAnyNode",
	},
	{
		name: "worker-hides-checkpoints", breaks: "a worker says with its answer that it has stored checkpoints",
		file: "client/held_lease.go", old: "h.answer.LastEventId = lastEventID",
		planted:  "h.answer.LastEventId = 0 * lastEventID",
		packages: "./client", run: "TestCheckpointsOnAnyNode",
	},
	{
		name: "worker-answers-without-knowing", breaks: "no result follows a checkpoint of unknown outcome",
		file: "client/held_lease.go", old: "released = true\n", planted: "released = delay > 0\n",
		packages: "./client", run: "TestCheckpointWithUnknownOutcome",
	},
	{
		name: "worker-checkpoints-in-the-clear", breaks: "a worker encodes the payloads of checkpoints",
		file: "client/checkpoints.go", old: "Encode: h.run.client.payloads.Encode",
		planted:  "Encode: new(Client).payloads.Encode",
		packages: "./client", run: "TestWorkerStoresCheckpoints",
	},
	{
		name: "worker-forgets-lost-responses", breaks: "a refused repeat does not mean that nothing was stored",
		file: "client/checkpoints.go", old: "\t\t\tif uncertain {", planted: "\t\t\tif uncertain && attempt < 0 {",
		packages: "./client", run: "TestCheckpointWithUnknownOutcome",
	},
	{
		name: "durable-needs-checkpoints", breaks: "a function also runs if the engine does not support checkpoints",
		file: "processor/durable/checkpoint.go", old: "errors.Is(err, processor.ErrNoCheckpoints)",
		planted:  "errors.Is(err, processor.ErrNoCheckpoints) && t.yields",
		packages: "./client", run: "TestCheckpointsOfAnOlderEngine",
	},
	{
		name: "durable-checkpoints-without-timers", breaks: "a timer and its entry are stored together",
		file: "processor/durable/checkpoint.go", old: "len(t.effects.timers)+len(t.effects.unset) > 0",
		planted:  "false",
		packages: "./processor/durable", run: "TestCheckpointSetsNoTimers",
	},
	{
		name: "durable-checkpoints-after-failures", breaks: "after a failure, each step has its own task",
		file: "processor/durable/checkpoint.go", old: "t.request.GetAttempt() <= 1", planted: "true",
		packages: "./processor/durable", run: "TestCheckpointsAfterFailures",
	},
	{
		name: "durable-never-yields", breaks: "calls and timers do not wait until all steps have run",
		file: "processor/durable/task.go", old: "} else if !stored || t.yields {", planted: "} else if !stored {",
		packages: "./processor/durable", run: "TestCheckpointsEnd",
	},
	{
		name: "durable-repeats-undos", breaks: "a cancel does not repeat an undo that was stored",
		file: "processor/durable/checkpoint.go", old: "return true // it cannot", planted: "return false // it cannot",
		packages: "./processor/durable", run: "TestCheckpointsOfUndos",
	},
	{
		name: "durable-checkpoints-without-children", breaks: "a checkpoint is not stored if it must start children",
		file: "processor/durable/checkpoint.go", old: "len(t.effects.commands)+len(t.effects.replies) > 0:",
		planted:  "false:",
		packages: "./processor/durable", run: "TestChildBeforeDefect",
	},
	{
		name: "durable-loses-the-ends-of-children", breaks: "the end of a child is stored even if the function panics",
		file: "processor/durable/child.go", old: "Value: value, Error: failed})\n\treturn t.advanceAndFinish(nil)",
		planted: "Value: value, Error: failed})\n\tif err := t.advance(); err != nil {\n\t\treturn nil, err\n\t}\n" +
			"\treturn t.finish(nil)",
		packages: "./processor/durable", run: "TestChildBeforeDefect",
	},
	{
		name: "durable-confuses-children", breaks: "the end of a child of an earlier history is ignored",
		file: "processor/durable/child.go", old: "|| childOf(e).key() != ended ||",
		planted:  "|| ended.ProcessID == \"\" ||",
		packages: "./processor/durable", run: "TestChildAfterRestart",
	},
	{
		name: "durable-responds-with-a-call", breaks: "the response of the last task is the value of the function",
		file: "processor/durable/task.go", old: "case err == nil && (response != nil || t.defers):",
		planted:  "case t.defers:",
		packages: "./processor/durable", run: "TestResponseOfChild",
	},
	{
		name: "durable-hides-rejections-of-children", breaks: "a parent learns that its child returned a rejection",
		file: "processor/durable/child.go", old: "e.Error != nil && e.Error.Rejected {", planted: "e.Error == nil {",
		packages: "./processor/durable", run: "TestChild$",
	},
	{
		name: "durable-starts-too-many-children", breaks: "a result has at most 100 commands",
		file:    "processor/durable/child.go",
		old:     "len(r.effects.commands) < process.MaxCommands && !r.journal.isFull()",
		planted: "!r.journal.isFull()", packages: "./processor/durable", run: "TestManyChildren",
	},
	{
		name: "durable-cancels-too-many-children", breaks: "a result has at most 100 commands",
		file: "processor/durable/child.go", old: "len(t.effects.commands) == process.MaxCommands {", planted: "false {",
		packages: "./processor/durable", run: "TestManyChildren",
	},
	{
		name: "durable-starts-large-children", breaks: "a result has at most 8 MiB",
		file: "processor/durable/child.go", old: "r.journal.bytes += proto.Size(command)",
		planted:  "r.journal.bytes += proto.Size(command) / 1000",
		packages: "./processor/durable", run: "TestManyChildren",
	},
	{
		name: "durable-leaves-children", breaks: "a function that failed cancels its children",
		file: "processor/durable/saga.go", old: "t.cancelChildren(\"the parent has failed\")", planted: "false",
		packages: "./processor/durable", run: "TestManyChildren",
	},
	{
		name: "durable-starts-children-in-a-cancel", breaks: "a cancelled function starts no children",
		file: "processor/durable/child.go", old: "r.request.GetType() != progressorv1.TaskType_TASK_TYPE_CANCEL",
		planted:  "r.request != nil",
		packages: "./processor/durable", run: "TestCancelChildren",
	},
	{
		name: "durabletest-overlooks-children", breaks: "KillEverywhere compares the children",
		file: "processor/durable/durabletest/kill.go", old: "strings.Join(sent(p), \", \"), len",
		planted:  "len(sent(p)) < 0, len",
		packages: "./processor/durable/durabletest", run: "TestOutcomes",
	},
	{
		name: "durabletest-kills-nothing", breaks: "KillEverywhere finds what depends on the attempt",
		file: "processor/durable/durabletest/kill.go", old: "len(r.results) == r.kill", planted: "r.kill < 0",
		packages: "./processor/durable/durabletest", run: "TestOutcomes",
	},
	{
		name: "durable-reads-results-of-jobs", breaks: "the result of a job is never read as a rejection",
		file: "processor/durable/child.go", old: "if !isResult && bytes.HasPrefix(", planted: "if bytes.HasPrefix(",
		packages: "./processor/durable", run: "TestJob$",
	},
	{
		name: "durable-drops-results-of-jobs", breaks: "a function gets the result of its job",
		file: "processor/durable/job.go", old: "o.command.Options.KeepResult = true", planted: "_ = o.command.Options",
		packages: "./processor/durable", run: "TestJob$",
	},
	{
		name: "parents-miss-results-of-jobs", breaks: "a parent gets the result of its job",
		file: "sql/messages.sql", old: "coalesce(answer.response, job.result)", planted: "coalesce(answer.response)",
		packages: "./engine/jobs", run: "TestEnqueueCommand$",
	},
	{
		name: "enqueue-command-to-any-namespace", breaks: "command_namespaces applies to jobs",
		file: "engine/commands.go", old: "return c.Enqueue.GetNamespace()", planted: `return ""`,
		packages: "./engine/jobs", run: "TestEnqueueCommandIsChecked",
	},
	{
		name: "enqueue-command-with-a-unique-key", breaks: "a parent does not wait for a job that is not enqueued",
		file: "processor/check_enqueue.go", old: "case o.GetUnique() != nil:", planted: "case false:",
		packages: "./processor", run: "TestCheckEnqueue",
	},
	{
		name: "enqueue-command-of-workers-lost", breaks: "a command in the result of a worker enqueues a job",
		file: "engine/leased_attempt.go", old: "messages: e.kindMessage,", planted: "",
		packages: "./engine/jobs", run: "TestEnqueueCommandOfWorker",
	},
	{
		name: "parents-get-results-of-groups", breaks: "a parent gets no result of a job for several workers",
		file: "sql/messages.sql", old: "       AND (k.options ? 'workers') IS NOT TRUE\n", planted: "",
		packages: "./engine/jobs", run: "EnqueuedForSeveral",
	},
	{
		name: "vet-allows-goroutines", breaks: "progressor-vet finds operations in goroutines",
		file: "processor/durable/durablevet/walk.go", old: "case w.role == roleGoroutine:", planted: "case false:",
		packages: "./processor/durable/durablevet", run: "TestTraps",
	},
	{
		name: "vet-allows-outer-contexts", breaks: "progressor-vet finds the Ctx of another branch",
		file: "processor/durable/durablevet/walk.go", old: "!contains(w.function, ctx.Pos())", planted: "false",
		packages: "./processor/durable/durablevet", run: "TestTraps",
	},
	{
		name: "vet-allows-literals-in-bodies", breaks: "progressor-vet reads the literals in the body of a step",
		file: "processor/durable/durablevet/walk.go", old: "case w.role.isBody(): // it", planted: "case false: // it",
		packages: "./processor/durable/durablevet", run: "TestTraps",
	},
	{
		name: "vet-reports-keyed-branches", breaks: "the branches of an Each are found by its name",
		file: "processor/durable/durablevet/walk.go", old: "w.scan.roles[literal] == roleBranch {",
		planted:  "w.scan.roles[literal] < 0 {",
		packages: "./processor/durable/durablevet", run: "TestCorrect",
	},
	{
		name: "vet-reports-services", breaks: "a step may change what a parameter points to",
		file: "processor/durable/durablevet/walk.go", old: "(!indirect || !w.scan.params[variable])", planted: "true",
		packages: "./processor/durable/durablevet", run: "TestCorrect",
	},
	{
		name: "vet-reports-helpers", breaks: "a helper may run a function literal in a step",
		file: "processor/durable/durablevet/scan.go", old: "roles[i] = roleUnknown", planted: "roles[i] = roleFunction",
		packages: "./processor/durable/durablevet", run: "TestCorrect",
	},
}
