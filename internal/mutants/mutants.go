package main

const (
	saveResult   = "sql/save_result.sql"
	prepareCall  = "sql/prepare_call.sql"
	captureCall  = "sql/capture_call.sql"
	saveFinished = "sql/save_finished.sql"
	prepareInit  = "sql/prepare_init.sql"
	searchTimers = "sql/search_timers.sql"
	zombies      = "sql/collect_zombies.sql"
	messages     = "sql/messages.sql"
)

var mutants = []mutant{
	{
		name: "failed-attempts-unbounded", breaks: "the newest 10 failed attempts of a task are kept",
		file: "sql/failed_attempts.sql", old: "f.attempt <= input.attempt - 10",
		planted:  "f.attempt <= input.attempt - 1000",
		packages: "./engine", run: "FailedAttemptsStay",
	},
	{
		name: "backlogs-first", breaks: "a scan begins with the namespaces without a backlog",
		file: "engine/scans.go", old: "return p.emptied == 0 || p.since >= scanLimit", planted: "return true",
		packages: "./engine", run: "TestNamespacesWithout|TestBacklogsDoNotGoFirst|TestFewTimersFire",
	},
	{
		name: "fresh-calls-first", breaks: "a free slot goes to the waiting class with the fewest slots for its weight",
		file: "engine/shares.go", old: "return partA < partB ||", planted: "return b != fresh && partA < partB ||",
		packages: "./engine", run: "TestShares|TimersFireAlongside",
	},
	{
		name: "slot-taken-early", breaks: "a fresh request does not take a slot that belongs to stored tasks or timers",
		file: "engine/slots.go", old: "if !s.shares.getsSlot(fresh, min(s.free(), s.node.free(s)), wanted) {",
		planted:  "if false {",
		packages: "./engine", run: "TestSlotsLeftForStored",
	},
	{
		name: "urgent-call-waits", breaks: "a process waits for a slot with the smallest priority of its waiting tasks",
		file: prepareCall, old: "AND s.priority > lower.queue_priority",
		planted:  "AND s.priority > lower.queue_priority AND lower.queue_priority IS NULL",
		packages: "./storage", run: "UrgentCall|PriorityAfterResume",
	},
	{
		name:   "urgent-task-waits-after-result",
		breaks: "a process that a result leaves waiting has the smallest priority of its waiting tasks",
		file:   saveResult, old: "THEN queue_priority(results.namespace, results.process_id)\n" +
			"                      ELSE",
		planted:  "THEN coalesce(s.own_priority, s.priority)\n                      ELSE",
		packages: "./storage", run: "PriorityAfterAResult",
	},
	{
		name: "queue-moved-at-once", breaks: "a change of status moves a bounded number of waiting tasks",
		file:     "sql/suspend_processes.sql",
		old:      "ORDER BY w.namespace, w.process_id, w.task_id\n                    LIMIT @lim::int) waiting",
		planted:  "ORDER BY w.namespace, w.process_id, w.task_id\n                    LIMIT @lim::int * 1000) waiting",
		packages: "./storage", run: "LargeQueueIsSuspended",
	},
	{
		name: "full-process-gets-messages", breaks: "messages wait while too many tasks wait in their process",
		file: "sql/deliver_notifies.sql", old: "AND candidates.is_full IS NOT TRUE", planted: "",
		packages: "./storage", run: "FullProcess",
	},
	{
		name: "same-target-again", breaks: "the scan of messages takes targets in turn",
		file: messages, old: "m.process_id > t.process_id", planted: "m.process_id >= t.process_id",
		packages: "./storage", run: "SearchMessages",
	},
	{
		name: "repair-outside-of-error", breaks: "a repair runs only in a process with the status ERROR",
		file: "migrations/00110_task_functions.sql", old: "WHEN 'REPAIR' THEN 'ERROR'",
		planted:  "WHEN 'REPAIR' THEN 'RUNNING'",
		packages: "./storage", run: "RepairWithKey|TestRequiredStatus",
	},
	{
		name:     "repaired-before-cancels",
		breaks:   "a process is repaired only after the tasks that its error cancels are cancelled",
		file:     "sql/prepare_repair.sql",
		old:      "input.acceptable\n           AND NOT input.repairing\n           AND NOT input.unsettled",
		planted:  "input.acceptable",
		packages: "./storage", run: "LargeQueueIsRepaired",
	},
	{
		name: "no-fence", breaks: "a result is stored only under the token of the attempt that still holds the process",
		file: saveResult, old: "AND r.task_id = item.task_id\n        AND r.fencing_token = item.fencing_token\n" +
			"      LIMIT 1) attempt", planted: "AND r.task_id = item.task_id LIMIT 1) attempt",
		packages: "./storage", run: "Token|Duplicate|Zombie",
	},
	{
		name:   "restart-trims-running-task",
		breaks: "a task that runs when the history is restarted belongs to the new history",
		file:   "sql/restart_history.sql",
		old:    "coalesce(fencing_token, nextval('fencing_tokens'))", planted: "nextval('fencing_tokens')",
		packages: "./storage", run: "RestartHistory",
	},
	{
		name:   "restart-shows-old-events",
		breaks: "after a restart a history begins with the first event of the new one",
		file:   "storage/history.go", old: "max(rng.Offset, first-1)", planted: "max(rng.Offset, 0)",
		packages: "./storage", run: "RestartHistory",
	},
	{
		name: "same-token-again", breaks: "every attempt has its own fencing token",
		file: searchTimers, old: "nextval('fencing_tokens') AS fencing_token",
		planted:  "coalesce(candidate.attempt, 0)::bigint + 1 AS fencing_token",
		packages: "./storage ./engine", run: "Search|Retry|Zombie|Load",
	},
	{
		name: "no-lock", breaks: "every transaction that moves a task locks its processes first",
		file: "sql/lock_processes.sql", old: " LIMIT 1 FOR UPDATE) p", planted: " LIMIT 1) p",
		packages: "./storage", run: "ResultAndCallOfTwoNodes|UnderTheLock",
	},
	{
		name: "retention-from-request", breaks: "the retention of an idempotency key counts from the end of its task",
		file: "sql/forget.sql", old: "THEN statement_timestamp()\n           ELSE coalesce(",
		planted:  "THEN statement_timestamp()\n           ELSE coalesce(due_requests.created_time,",
		packages: "./storage", run: "TestForget",
	},
	{
		name: "flush-waits-for-locks", breaks: "a flush does not wait for a process that another session has locked",
		file: "storage/lock_processes.go", old: "if s.waitsForLocks {", planted: "if true {",
		packages: "./storage", run: "TestLockedProcess|TestManyLocked|TestFirstStatement",
	},
	{
		name: "locked-in-common-flush", breaks: "the items of a locked process do not join the flushes of others",
		file: "storage/contention.go", old: "return c.other || c.tries >= 7", planted: "return c.tries >= 7",
		packages: "./storage", run: "TestLockedTask",
	},
	{
		name: "two-ends-together", breaks: "a flush stores at most one end of an attempt",
		file: "storage/lane.go", old: "l.flush(l.deferRepetitions(ops), mode)", planted: "l.flush(ops, mode)",
		packages: "./storage", run: "OneFlushStoresOneEnd",
	},
	{
		name: "same-process-fast", breaks: "two calls of one process in a flush are stored in their order",
		file: "storage/prepare_call.go", old: "!it.general && calls[it.key] == 1", planted: "!it.general",
		packages: "./storage", run: "TestCallsOfOneProcess",
	},
	{
		name:   "one-general-item-slows-all",
		breaks: "if an item needs the general statement, the other items still use the fast path",
		file:   "storage/fast_path.go", old: "n >= min(minFastPath, len(items))", planted: "n >= len(items)",
		packages: "./storage", run: "TestFlushUsesBothPaths",
	},
	{
		name: "rejected-result-sends", breaks: "messages of a result that a command ended are not sent",
		file: "storage/fast_path.go", old: "it.general = it.general || ends[it.key]",
		planted:  "it.general = it.general && ends[it.key]",
		packages: "./storage", run: "ResultWithTheEnd",
	},
	{
		name: "timeout-not-split", breaks: "a flush that times out is halved",
		file: "storage/lane.go", old: "len(ops) > 0 && timedOut(err) || len(ops) > 1 && breaks > 1",
		planted:  "len(ops) == 1 && timedOut(err)",
		packages: "./storage", run: "TimesOut",
	},
	{
		name: "changes-unlocked", breaks: "a process does not change without its lock",
		file: prepareCall, old: " AND is_locked(p.namespace, p.process_id)", planted: "",
		packages: "./storage", run: "InsertedBehind",
	},
	{
		name: "portable-listens", breaks: "a node does not listen in a portable database",
		file: "storage/listen.go", old: "if s.portable {\n\t\tup(false)", planted: "if false {\n\t\tup(false)",
		packages: "./storage", run: "TestPortable",
	},
	{
		name: "portable-fast-path", breaks: "a portable database does not use the fast path",
		file: "storage/store.go", old: "|| s.portable", planted: "",
		packages: "./storage", run: "TestPortable",
	},
	{
		name: "portable-unlocked", breaks: "in a portable database, a key is locked by a row",
		file: "migrations/00107_namespaces.sql", old: "WHERE slot = hash & 255 FOR UPDATE",
		planted:  "WHERE slot = hash & 255",
		packages: "./storage", run: "TestLockKey",
	},
	{
		name: "missing-locks-forgotten", breaks: "a transaction knows which processes it has not locked",
		file:     "sql/lock_processes.sql",
		old:      "LIMIT 1 FOR UPDATE) process ON true) locks\n WHERE @again::bool\n    OR locks.missing IS NOT NULL",
		planted:  "LIMIT 1 FOR UPDATE) process ON true) locks\n WHERE @again::bool",
		packages: "./storage", run: "InsertedBehind",
	},
	{
		name: "created-missing", breaks: "a flush acts on processes that it has created",
		file: "storage/item.go", old: "if len(b.lateLocks) > 0 {", planted: "if false {",
		packages: "./storage", run: "CallInTheFlush",
	},
	{
		name: "fast-path-changes-unlocked", breaks: "the fast path does not change a process without its lock",
		file: captureCall, old: " AND (p.xmax = pg_current_xact_id()::xid OR p.xmin = pg_current_xact_id()::xid)",
		planted:  "",
		packages: "./storage", run: "FastPathSkips",
	},
	{
		name: "overdue-cancel-ignored", breaks: "a cancel ends when its grace is over",
		file: "engine/namespaces.go", old: "		overdue = s.Overdue\n", planted: "		overdue = false\n",
		packages: "./engine", run: "TestCancel",
	},
	{
		name: "lost-wake-up", breaks: "a result promotes the call that waits for its process",
		file: saveResult, old: "AND s.waits_for IN ('process', 'place')", planted: "AND s.waits_for IN ('place')",
		packages: "./storage", run: "Call|Order",
	},
	{
		name: "fast-path-lost-wake-up", breaks: "the fast path does not store results of processes with waiting tasks",
		file: saveFinished, old: "WHERE waiting.found IS NULL", planted: "WHERE true",
		packages: "./storage", run: "Call|Order|FastPath",
	},
	{
		name:   "fast-path-no-fence",
		breaks: "the fast path also stores a result only under the token that holds the process",
		file:   saveFinished, old: "AND r.task_id = item.task_id\n        AND r.fencing_token = item.fencing_token\n" +
			"      LIMIT 1) attempt", planted: "AND r.task_id = item.task_id LIMIT 1) attempt",
		packages: "./storage", run: "Token|Duplicate|Zombie",
	},
	{
		name: "fast-path-call-jumps-the-queue", breaks: "the fast path does not overtake a waiting call",
		file: captureCall, old: "AND waiting.found IS NULL", planted: "",
		packages: "./storage ./engine", run: "Order|WithoutSlot|ForTheSlot|Stored|FastPath",
	},
	{
		name: "fast-path-cannot-be-turned-off", breaks: "the fast path can be turned off",
		file: "storage/store.go", old: "generalOnly: cfg.WithoutFastPath", planted: "generalOnly: false",
		packages: "./storage", run: "TestFastPathIsOff",
	},
	{
		name: "call-queue-order", breaks: "calls that wait in memory are stored in the order of their arrival",
		file: "storage/call_queues.go", old: "first := p.calls[0]", planted: "first := p.calls[len(p.calls)-1]",
		packages: "./storage", run: "AreStoredWith",
	},
	{
		name: "call-queue-before-stored", breaks: "a call that waits in memory runs after stored calls",
		file: "storage/call_queues.go", old: "runs && p.leaving+len(p.stored) == 0 && ", planted: "runs && ",
		packages: "./storage", run: "CallLeaves|CallQueueIs",
	},
	{
		name: "call-queue-forgotten", breaks: "a call that waits in memory is stored when no task of its process runs",
		file: "storage/call_queues.go", old: "close(p.take().turn)", planted: "p.take()",
		packages: "./storage", run: "CallLeaves|CallQueue",
	},
	{
		name: "call-queue-lost", breaks: "a call queue is released if its first call was not captured",
		file: "storage/call_queues.go", old: "\tdefault:\n\t\tq.releaseAll(it.key)\n", planted: "",
		packages: "./storage", run: "CallQueueOf",
	},
	{
		name: "call-queue-released", breaks: "calls wait in memory behind stored calls of a process that runs here",
		file: "storage/call_queues.go", old: "outcome == Postponed && here:", planted: "outcome == Postponed && false:",
		packages: "./storage", run: "CallQueueBehind",
	},
	{
		name: "call-queue-behind-others", breaks: "calls do not wait in memory behind many calls of others",
		file: "storage/call_queues.go", old: "p.fromElsewhere > maxFromElsewhere || ", planted: "",
		packages: "./storage", run: "CallQueueYields",
	},
	{
		name: "call-queue-unbounded", breaks: "max_waiting also limits call queues",
		file: "storage/call_queues.go", old: "waiting >= int(it.call.MaxWaiting)",
		planted:  "waiting < 0",
		packages: "./storage", run: "CallLeaves|CallQueueIs",
	},
	{
		name: "latest-call-first", breaks: "calls of one process run in the order in which they were stored",
		file: saveResult, old: "ORDER BY s.namespace, s.process_id, s.task_id LIMIT 1) c",
		planted:  "ORDER BY s.task_id DESC LIMIT 1) c",
		packages: "./storage", run: "Order|Call",
	},
	{
		name: "call-jumps-the-queue", breaks: "a new call does not overtake a waiting call",
		file: prepareCall, old: "AND NOT input.busy AND input.waiting = 0 AS free",
		planted:  "AND NOT input.busy AS free",
		packages: "./storage ./engine", run: "Order|WithoutSlot|ForTheSlot|Stored",
	},
	{
		name: "timer-before-call", breaks: "a waiting call runs before a timer that is due",
		file: searchTimers, old: "c.waits_for::text = 'place')",
		planted:  "c.waits_for::text = 'time' AND c.task_id < 0)",
		packages: "./storage ./engine", run: "Timer",
	},
	{
		name: "timer-early", breaks: "a timer does not fire early by the database clock",
		file: searchTimers, old: "AND s.waits_for = 'time'\n        AND s.scheduled_time <= statement_timestamp()",
		planted: "AND s.waits_for = 'time'\n" +
			"        AND s.scheduled_time <= statement_timestamp() + interval '2 seconds'",
		packages: "./storage ./engine", run: "Timer|Time|Retry",
	},
	{
		name: "timer-kept", breaks: "a new default timer replaces the pending one",
		file: saveResult, old: "results.timer_action IN ('set', 'unset')\n     AND s.namespace",
		planted:  "results.timer_action IN ('unset')\n     AND s.namespace",
		packages: "./storage", run: "Timer",
	},
	{
		name: "timer-from-begin-time", breaks: "transactions read the clock after they have waited for their locks",
		file: saveResult, old: "CASE\n           WHEN item.timer_after_us >= 0\n" +
			"             THEN statement_timestamp() +",
		planted:  "CASE\n           WHEN item.timer_after_us >= 0\n             THEN now() - interval '1 second' +",
		packages: "./storage", run: "TimerDelayAndContext",
	},
	{
		name: "error-is-forgotten", breaks: "a task that fails permanently leaves its process in ERROR",
		file: saveResult, old: "process.cancelling THEN 'CANCELLED' ELSE 'ERROR' END",
		planted:  "process.cancelling THEN 'CANCELLED' ELSE 'RUNNING' END",
		packages: "./storage", run: "Save",
	},
	{
		name:   "suspended-forgotten",
		breaks: "the next status depends on the locked row, not on the attempt",
		file:   saveResult, old: "WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'RUNNING' END",
		planted:  "WHEN 'SUSPENDED' THEN 'RUNNING' ELSE 'RUNNING' END",
		packages: "./storage", run: "Suspended|SuspendWhile",
	},
	{
		name: "event-ids-repeat", breaks: "events are numbered 1, 2, 3 without gaps or repeats",
		file: saveResult, old: "last_event_id = p.last_event_id + result.event_count",
		planted:  "last_event_id = p.last_event_id",
		packages: "./storage", run: "Save|Event",
	},
	{
		name: "key-forgotten", breaks: "a repeated request with the same key gets the answer to the first one",
		file: captureCall, old: "FROM captured WHERE idempotency_key <> ''", planted: "FROM captured WHERE false",
		packages: "./storage", run: "Key",
	},
	{
		name: "waiting-request-repeated", breaks: "a repeat of a request that had to wait gets the same answer",
		file: prepareCall, old: "FROM decided\n   WHERE accepted\n     AND idempotency_key <> ''",
		planted:  "FROM decided\n   WHERE accepted\n     AND false",
		packages: "./storage", run: "Key|FastPath|Duplicate",
	},
	{
		name: "key-of-other-request-accepted", breaks: "a key that was used for another request is refused",
		file: prepareCall, old: "decided.earlier_fingerprint = decided.fingerprint", planted: "true",
		packages: "./storage", run: "Key",
	},
	{
		name: "answer-before-commit", breaks: "no request is answered before the commit",
		file: "storage/replay.go", old: "if closeErr := results.Close(); err == nil {",
		planted:  "if closeErr := results.Close(); err != nil {",
		packages: "./storage", run: "CommitFails",
	},
	{
		name: "applied-twice", breaks: "after an ambiguous commit only items that were not applied are repeated",
		file: "storage/recover.go", old: "case r.Applied:", planted: "case r.Applied && r.Holds:",
		packages: "./storage", run: "Connection|Terminated|Cut",
	},
	{
		name: "nothing-adopted", breaks: "tasks of a commit whose response was lost are run",
		file: "storage/recover.go", old: "err = l.store.adoptKeys(ctx, l.conn, keys, tokensOf(again))",
		planted:  "_ = tokensOf(again)",
		packages: "./storage", run: "ConnectionBreaksAfter",
	},
	{
		name: "unkeyed-repeated", breaks: "a request without a key is never repeated by the engine",
		file: "storage/prepare_call.go", old: "newItem(c.Key, c.bytes(), c.keyed())",
		planted:  "newItem(c.Key, c.bytes(), true)",
		packages: "./storage", run: "Connection|Cut|Terminated",
	},
	{
		name: "zombies-stay", breaks: "the tasks of a dead node run again",
		file: "engine/zombies.go", old: "if c.begin(zombieRef(&z)) {", planted: "if c.begin(zombieRef(&z)) && false {",
		packages: "./engine", run: "Zombie",
	},
	{
		name: "retries-unbounded", breaks: "a task does not exceed the attempts of its policy",
		file: "process/retry.go", old: "if nonRetryable || attempt >= p.MaxAttempts ||", planted: "if nonRetryable ||",
		packages: "./engine", run: "Decide|RetryScenarios",
	},
	{
		name: "calls-retried", breaks: "a failure of a call is not retried: its caller gets it",
		file: "engine/decide.go", old: "if d.completion.TaskType.RetriedOnFailure() {",
		planted:  "if d.completion.TaskType != \"\" {",
		packages: "./engine", run: "Decide",
	},
	{
		name: "one-process-unbounded", breaks: "a process runs a limited number of tasks in sequence while others wait",
		file: "engine/attempt.go", old: "(n < maxConsecutive || !ns.slots.contended())",
		planted:  "(n < 1<<30 || !ns.slots.contended())",
		packages: "./engine", run: "Turn|Room",
	},
	{
		name: "slot-leaks", breaks: "a request that is not captured returns its slot",
		file: "engine/request.go", old: "if r.call.Capture && !captured {",
		planted:  "if r.call.Capture && !captured && r.accepted {",
		packages: "./engine", run: "RefusedRequestReturns",
	},
	{
		name: "in-flight-unbounded", breaks: "a node refuses requests beyond its limit",
		file: "engine/inflight.go", old: "limit - e.inFlight.working.Add(1)",
		planted:  "limit + 0*e.inFlight.working.Add(1)",
		packages: "./engine", run: "InFlight|Overload",
	},
	{
		name: "one-namespace-takes-all", breaks: "a namespace leaves requests of max_in_flight for the others",
		file: "engine/inflight.go", old: "min(shareFactor*free, limit/namespacePortion)", planted: "limit",
		packages: "./engine", run: "InFlight",
	},
	{
		name: "drain-keeps-all", breaks: "a stopping node releases its attempts, which do not count",
		file: "storage/result.go", old: "RetryAfter: after, Uncounted: true", planted: "RetryAfter: after",
		packages: "./engine", run: "Drain|ReleaseOfATask",
	},
	{
		name: "cancel-waits-its-turn", breaks: "a CANCEL task runs before waiting calls",
		file: saveResult, old: "AND (NOT input.cancelling OR s.task_type IN ('INIT', 'CANCEL'))", planted: "",
		packages: "./storage ./engine", run: "Cancel",
	},
	{
		name: "cancel-ends-in-error", breaks: "a process that is being cancelled never goes to ERROR",
		file: saveResult, old: "CASE WHEN process.cancelling THEN 'CANCELLED' ELSE 'ERROR' END", planted: "'ERROR'",
		packages: "./storage ./engine", run: "Cancel",
	},
	{
		name: "no-grace", breaks: "the engine ends a cancel when its grace period is over, and not earlier",
		file:     "sql/cancel_processes.sql",
		old:      "WHEN item.overdue THEN p.cancel_deadline <= statement_timestamp()",
		planted:  "WHEN item.overdue THEN p.cancel_deadline IS NOT NULL",
		packages: "./storage", run: "Cancel",
	},
	{
		name: "suspended-process-continues", breaks: "no new task of a suspended process runs",
		file: "sql/suspend_processes.sql",
		old:  "WHERE input.status IN ('INIT', 'RUNNING')) held", planted: "WHERE false) held",
		packages: "./storage ./engine", run: "Suspend|Commands",
	},
	{
		name: "late-result-sends-messages", breaks: "a refused result does not send messages",
		file: messages, old: "AND t.fencing_token = item.fencing_token\n        AND is_saved(item.fencing_token)",
		planted:  "AND t.fencing_token = item.fencing_token",
		packages: "./storage", run: "OnlyResultsSend|FencedResultWith",
	},
	{
		name: "sql-json-unchecked", breaks: "JSON that comes from SQL is checked like JSON in requests",
		file: "migrations/00118_sql.sql", old: "WHEN (NEW.sender_process_id IS NULL AND", planted: "WHEN (false AND",
		packages: "./storage", run: "FunctionsCheckJSON",
	},
	{
		name: "number-breaks-list", breaks: "attributes that a message cannot hold do not make lists fail",
		file: "wire/value.go", old: "	case r.lenient:\n		return structpb",
		planted:  "	case false:\n		return structpb",
		packages: "./wire ./engine/rpc", run: "Values|EveryRow",
	},
	{
		name: "held-message-kept", breaks: "the messages held for a suspended process are delivered when it continues",
		file: messages, old: "AND o.process_id = released_processes.process_id\n            AND o.held::int = 1",
		planted:  "AND o.process_id = released_processes.process_id\n            AND o.held::int = 2",
		packages: "./storage", run: "Message|Held",
	},
	{
		name: "message-overtakes", breaks: "messages of one process to another arrive in their order",
		file: "sql/deliver_notifies.sql",
		old: "ORDER BY deleted_messages.namespace, deleted_messages.process_id,\n" +
			"                deleted_messages.message_id) numbered),",
		planted: "ORDER BY deleted_messages.namespace, deleted_messages.process_id,\n" +
			"                deleted_messages.message_id DESC) numbered),",
		packages: "./storage ./engine", run: "Message|Order",
	},
	{
		name: "init-twice", breaks: "an ID has at most one process",
		file: prepareInit, old: "FROM input WHERE created),\nupdated_status_counts AS",
		planted: "FROM input WHERE created ON CONFLICT (namespace, process_id) DO UPDATE SET kind = " +
			"EXCLUDED.kind),\nupdated_status_counts AS",
		packages: "./storage", run: "InitMeetsInit",
	},
	{
		name: "bulk-includes-internal-processes", breaks: "a bulk ignores processes of the engine itself",
		file: "engine/bulk/command.go", old: "return f.And(search.OfUsers).And(", planted: "return f.And(",
		packages: "./engine/bulk", run: "Verbs|OwnProcesses",
	},
	{
		name: "bulk-jumps-ahead", breaks: "after a page that ends early, the next one continues where it ended",
		file: "engine/bulk/run.go", old: "w.progress.Cursor = found[did-1].Cursor",
		planted:  "w.progress.Cursor = next.cursor",
		packages: "./engine/bulk", run: "EndsEarly",
	},
	{
		name: "bulk-forgets-retries", breaks: "a bulk ends after the processes that could not be changed were retried",
		file: "engine/bulk/run.go", old: "if !more {\n\t\t\treturn len(w.progress.Again) == 0, nil",
		planted:  "if !more {\n\t\t\treturn true, nil",
		packages: "./engine/bulk", run: "Failures|FaultThatPasses",
	},
	{
		name: "bulk-never-ends", breaks: "a bulk ignores processes that were created after its start",
		file: "engine/bulk/command.go", old: "`created_time <= \"`",
		planted:  "`created_time > \"1970-01-01T00:00:00Z\" OR created_time <= \"`",
		packages: "./engine/bulk", run: "Walks",
	},
	{
		name:   "bulk-history-overflows",
		breaks: "the failures of a bulk can be read regardless of the size of their texts",
		file:   "engine/bulk/run.go", old: "f.size() > maxFailureBytes", planted: "f.size() > 2*maxFailureBytes",
		packages: "./engine/bulk", run: "Failures",
	},
	{
		name: "reference-label-renamed", breaks: "the histograms of the reference have the documented labels",
		file: "engine/metrics.go", old: `"completion_type")`,
		planted:  `"completion")`,
		packages: "./cmd/progressor", run: "TestMetricsOfTheReference",
	},
}
