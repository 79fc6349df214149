package main

// schedulingMutants break how tasks and requests share a node.
var schedulingMutants = []mutant{
	{
		name: "stale-waiters-kept", breaks: "the set of processes to ask for again is emptied in each turn",
		file: "engine/waiters.go", old: "	clear(w.stale) //",
		planted:  "	if len(asked) < maxPolled {\n		clear(w.stale)\n	} //",
		packages: "./engine", run: "Waiters",
	},
	{
		name: "requests-only-scans", breaks: "a node for requests only claims no stored tasks",
		file: "engine/engine.go", old: "	if e.cfg.RequestsOnly {\n		return takers",
		planted:  "	if e.cfg.RequestsOnly && e.draining.Load() {\n		return takers",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "requests-only-captures", breaks: "a node for requests only does not run what it stores",
		file: "engine/request.go", old: "canRun && e.cfg.RequestsOnly",
		planted:  "canRun && e.cfg.RequestsOnly && e.draining.Load()",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "requests-only-unbounded", breaks: "max_backlog bounds the requests to a node for requests only",
		file: "engine/backlog.go", old: "	return e.countInBacklog(ctx, r.ns, \"\")", planted: "	return nil",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "requests-only-gets-chores", breaks: "chores are not left to a node for requests only",
		file: "engine/peers.go", old: "!b.Draining && !b.RequestsOnly", planted: "!b.Draining",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "stored-unnoticed", breaks: "a node for requests only wakes the others for what it stores",
		file: "engine/call_poller.go", old: "		p.engine.notices.stored()\n", planted: "",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "ends-unnoticed", breaks: "a node wakes those for requests only when tasks end",
		file: "engine/attempt.go", old: "		e.notices.ended()\n", planted: "",
		packages: "./engine", run: "RequestsOnly",
	},
	{
		name: "scan-unbounded", breaks: "one scan claims a bounded number of tasks of all namespaces together",
		file: "engine/scans.go", old: "		if left == 0 {", planted: "		if left < 0 {",
		packages: "./engine", run: "Rooms",
	},
	{
		name: "scan-not-halved", breaks: "a scan that takes too long claims fewer tasks the next time",
		file: "engine/scans.go", old: "b.rows = max(b.rows/2, 1)", planted: "b.rows = max(b.rows, 1)",
		packages: "./engine", run: "ScanBound",
	},
	{
		name: "scans-do-not-wait", breaks: "scans wait while many results of scanned tasks wait to be stored",
		file: "engine/backlog_results.go", old: "return b.results >= limit ||", planted: "_ = limit\n\treturn",
		packages: "./engine", run: "ScansWaitForBacklogResults",
	},
	{
		name: "scans-ignore-large-args", breaks: "scans wait while results with large args wait to be stored",
		file: "engine/backlog_results.go", old: " || b.bytes >= maxBacklogBytes", planted: "",
		packages: "./engine", run: "ScansWaitForBacklogResults",
	},
	{
		name: "scans-ignore-requests", breaks: "scans wait for fewer results while requests wait to be stored",
		file: "engine/backlog_results.go", old: "b.pending() <= int64(b.results)", planted: "b.pending() > 0",
		packages: "./engine", run: "ScansWaitForFewerResults",
	},
	{
		name: "scans-wait-forever", breaks: "results that cannot be stored do not stop scans",
		file: "engine/backlog_results.go", old: "time.NewTimer(maxResultsWait)", planted: "time.NewTimer(time.Hour)",
		packages: "./engine", run: "StuckResults",
	},
	{
		name: "calls-do-not-wait", breaks: "a scan for calls waits for results of scanned tasks",
		file: "engine/call_poller.go", old: "	e.backlog.wait(ctx)\n", planted: "",
		packages: "./engine", run: "PollersWaitForBacklogResults",
	},
	{
		name: "timers-do-not-wait", breaks: "a scan for timers waits for results of scanned tasks",
		file: "engine/timer_poller.go", old: "	e.backlog.wait(ctx)\n", planted: "",
		packages: "./engine", run: "PollersWaitForBacklogResults",
	},
	{
		name: "scanned-results-uncounted", breaks: "the results of tasks that scans claim are counted",
		file: "engine/attempt.go", old: "	if from.scanned {", planted: "	if !from.scanned {",
		packages: "./engine", run: "BacklogResultsAreCounted",
	},
	{
		name: "cut-scan-keeps-room", breaks: "a scan that its bytes have cut makes the next scans smaller",
		file: "engine/scans.go", old: "	if cut {", planted: "	if cut && claimed < 0 {",
		packages: "./engine", run: "ScanOfLargeTasks",
	},
	{
		name: "scan-bytes-unbounded", breaks: "one scan claims a bounded number of bytes",
		file: "storage/internal/dbsqlc/search_calls.sql.go", old: "WHERE summed.bytes_before < 2 * 1024 * 1024),",
		planted:  "),",
		packages: "./storage", run: "ScansAreBounded",
	},
	{
		name: "answers-bytes-unbounded", breaks: "one read of answers returns a bounded number of bytes",
		file: "storage/internal/dbsqlc/read_answers.sql.go", old: "WHERE bounded.bytes_before < $5",
		planted:  "WHERE bounded.bytes_before < 9 * $5",
		packages: "./storage", run: "ReadAnswersIsBounded",
	},
	{
		name: "answers-not-cut", breaks: "whoever reads answers learns that there may be more",
		file: "storage/tasks.go", old: "	return answers, size >= ListBytes,",
		planted:  "	return answers, size < 0,",
		packages: "./storage", run: "ReadAnswersIsBounded",
	},
	{
		name: "lost-claims-bytes-unbounded", breaks: "a node adopts a bounded number of bytes at a time",
		file: "storage/internal/dbsqlc/collect_zombies.sql.go", old: "WHERE bounded.bytes_before < $4",
		planted:  "WHERE bounded.bytes_before < 9 * $4",
		packages: "./storage", run: "RunningRowsAreRead",
	},
	{
		name: "zombies-bytes-unbounded", breaks: "a node collects a bounded number of bytes of zombies at a time",
		file: "storage/internal/dbsqlc/collect_zombies.sql.go", old: "WHERE bounded.bytes_before < $5",
		planted:  "WHERE bounded.bytes_before < 9 * $5",
		packages: "./storage", run: "RunningRowsAreRead",
	},
	{
		name: "steps-bytes-unbounded", breaks: "a page of steps has a bounded number of bytes",
		file: "engine/flows/show.go", old: "MaxBytes: storage.ListBytes,\n\t}",
		planted:  "MaxBytes: 9 * storage.ListBytes,\n\t}",
		packages: "./engine/flows", run: "ListStepsIsBounded",
	},
	{
		name:   "idle-namespaces-cost",
		breaks: "a look at the timers costs nothing for namespaces whose timers are due later",
		file:   "storage/internal/dbsqlc/due_namespaces.sql.go", old: "(s.waits_for = 'time')::int = 1",
		planted:  "s.waits_for = 'time'",
		packages: "./storage", run: "IdleNamespacesCost",
	},
	{
		name:   "busy-namespace-hides-timers",
		breaks: "however much is due in one namespace, the timers of the others are found",
		file:   "storage/search.go", old: "	if tasks < maxDueTimers {", planted: "	if tasks <= maxDueTimers {",
		packages: "./storage", run: "NextTimersOfAll",
	},
	{
		name: "node-bound-ignored", breaks: "a node runs no more than engine.max_running tasks",
		file: "engine/node_slots.go", old: "room := min(free, n.rest(s, free))", planted: "room := n.rest(s, free+1)",
		packages: "./engine", run: "NodeSlots|NodeBound",
	},
	{
		name: "node-slots-out-of-turn", breaks: "namespaces that wait for a slot of the node take turns",
		file: "engine/node_slots.go", old: "if n.rest(other, n.max-n.taken) > 0 {", planted: "if false {",
		packages: "./engine", run: "NodeSlots|NodeBound",
	},
	{
		name:   "full-queue-refuses-repeats",
		breaks: "a repeated request gets its stored outcome although the queue of its process is full",
		file:   "storage/internal/dbsqlc/prepare_call.sql.go",
		old: "WHEN decided.twin_task_id IS NOT NULL AND decided.twin_fingerprint = decided.fingerprint\n" +
			"            THEN 'replayed'",
		planted: "WHEN decided.twin_task_id IS NOT NULL AND decided.twin_fingerprint = decided.fingerprint AND " +
			"decided.waiting < decided.max_waiting THEN 'replayed'",
		packages: "./engine", run: "RepeatedRequests",
	},
	{
		name: "scans-know-removed-namespaces", breaks: "scans forget namespaces that the node does not know any more",
		file: "engine/scans.go", old: "if len(b.known) > len(namespaces) {", planted: "if len(namespaces) == 0 {",
		packages: "./engine", run: "ScansForget",
	},
	{
		name: "resume-reads-all", breaks: "a resume does not read the tasks again that were prepared for it",
		file: "storage/internal/dbsqlc/suspend_processes.sql.go", old: "coalesce(b.prepared_task_id, 0)", planted: "0",
		packages: "./storage", run: "ResumeOfALargeQueue",
	},
	{
		name: "resume-forgets-retry", breaks: "a retry during a resume is resumed, too",
		file: "storage/internal/dbsqlc/suspend_processes.sql.go", old: "s.task_id = b.running_task_id",
		planted:  "s.task_id = 0",
		packages: "./storage", run: "RetryDuringTheResume",
	},
	{
		name:   "next-tasks-unbounded",
		breaks: "the results of one flush have a bounded number of bytes of next tasks run at once",
		file:   "storage/internal/dbsqlc/save_result.sql.go", old: " / cardinality($1::int[]) AS promotable",
		planted:  " AS promotable",
		packages: "./storage", run: "NextTasksAreRead",
	},
	{
		name: "purge-from-the-start", breaks: "a batch of a removal does not read the dead rows of earlier batches",
		file: "storage/remove_processes.go", old: "progress[n] = p.progress[key]",
		planted:  "progress[n].eventID = p.progress[key].eventID",
		packages: "./storage", run: "TestRemoveBesideAnOldSnapshot",
	},
	{
		name:   "purge-attempts-from-the-start",
		breaks: "a batch of a removal does not read the failed attempts that earlier batches deleted",
		file:   "storage/internal/dbsqlc/remove_processes.sql.go", old: "AND v.task_id >= removed.after_failed_id",
		planted:  "AND removed.after_failed_id >= 0",
		packages: "./storage", run: "TestRemoveBesideAnOldSnapshot",
	},
	{
		name: "orphans-of-the-first-batch", breaks: "the search for orphaned failed attempts reads the whole table",
		file: "storage/failed_attempts.go", old: "if r.LookedAt < orphanBatch {",
		planted:  "if r.LookedAt <= orphanBatch {",
		packages: "./storage", run: "TestDeleteOrphanedAttempts",
	},
	{
		name: "attempts-of-waiting-tasks-are-orphans", breaks: "failed attempts are kept as long as their task exists",
		file:     "storage/internal/dbsqlc/failed_attempts.sql.go",
		old:      "AND NOT EXISTS (\n       SELECT 1 FROM schedule s",
		planted:  "AND NOT EXISTS (\n       SELECT 1 FROM running s",
		packages: "./storage", run: "TestDeleteOrphanedAttempts",
	},
	{
		name: "failing-runs-unreported", breaks: "runs whose own task fails for more than a minute are reported",
		file: "storage/internal/dbsqlc/failing_tasks.sql.go", old: "WHERE s.attempt > 0",
		planted:  "WHERE s.attempt > 10",
		packages: "./storage", run: "TestListFailingTasks",
	},
	{
		name:   "trim-from-the-start",
		breaks: "a batch that removes an old history does not read the dead rows of earlier batches",
		file:   "storage/internal/dbsqlc/restart_history.sql.go",
		old:    "AND v.task_id > restart.after_task_id\n        AND", planted: "AND",
		packages: "./storage", run: "TestRemoveBesideAnOldSnapshot",
	},
	{
		name:   "backlog-unbounded",
		breaks: "no more than max_backlog tasks wait when a request is stored that got no slot",
		file:   "engine/backlog.go", old: "if b.waiting >= limit {", planted: "if b.waiting < 0 {",
		packages: "./engine", run: "Backlog",
	},
	{
		name:   "overload-stored",
		breaks: "a request that gets no slot is not stored while the database is the bottleneck",
		file:   "engine/usage.go", old: "return most", planted: "return most || true",
		packages: "./engine", run: "Usage|OverloadOfTheDatabase",
	},
}
