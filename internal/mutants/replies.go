package main

const sqlReplies = "sql/replies.sql"

// replyMutants lose or repeat the responses of calls that a later task answers.
var replyMutants = []mutant{
	{
		name: "reply-ends-a-waiting-call", breaks: "only a call whose response was deferred gets a reply",
		file: sqlReplies, old: "waiting.running_time IS NOT NULL AS is_open",
		planted:  "waiting.task_id IS NOT NULL AS is_open",
		packages: "./engine", run: "TestWrongReplies",
	},
	{
		name: "reply-to-a-trimmed-call-fails", breaks: "a reply to a call of an old history does nothing",
		file: sqlReplies, old: "WHEN input.is_restarted", planted: "WHEN input.is_waiting",
		packages: "./engine", run: "TestOpenCallsSurviveARestart",
	},
	{
		name: "reply-of-the-fast-path", breaks: "the fast path stores no replies",
		file: "storage/completion.go", old: "&& len(c.Replies) == 0", planted: "",
		packages: "./engine", run: "TestReplies",
	},
	{
		name: "deferred-call-is-answered", breaks: "a call whose response is deferred gets no response",
		file: "engine/attempt.go", old: "if !d.completion.DeferResponse {", planted: "if d.stored == nil {",
		packages: "./engine", run: "TestReplies",
	},
	{
		name: "deferred-call-runs-again", breaks: "a call whose response is deferred does not run after a resume",
		file: "sql/suspend_processes.sql", old: "WHEN s.running_time IS NOT NULL THEN 'reply'",
		planted:  "WHEN s.line = '' THEN 'reply'",
		packages: "./engine", run: "TestOpenCallIsSuspended",
	},
	{
		name:   "deferred-call-outlives-its-process",
		breaks: "a call is cancelled if its process ends as it is deferred", file: sqlReplies,
		old: "\n         AND p.status IN ('RUNNING', 'SUSPENDED')", planted: "",
		packages: "./storage", run: "TestProcessEndsAsACallIsDeferred",
	},
	{
		name:   "deferred-call-seems-lost",
		breaks: "a deferred call is stored although the response to the commit was lost",
		file:   "sql/read_answers.sql", old: "WHEN 'defer'", planted: "WHEN 'deferred'",
		packages: "./storage", run: "TestConnectionBreaksAfterReplies",
	},
	{
		name: "rejection-of-itself-is-hidden", breaks: "a task that rejects itself in a result is rejected",
		file: "engine/decide.go", old: "d.rejection, _ = wire.Rejection(c.Rejection)",
		planted:  "_, _ = wire.Rejection(c.Rejection)",
		packages: "./engine", run: "TestReplyToItself",
	},
	{
		name: "durable-repeats-replies", breaks: "a request is answered once",
		file: "processor/durable/request.go", old: "if r.task == 0 || owner.journal.hasReply(r.task) {",
		planted:  "if r.task == 0 {",
		packages: "./processor/durable", run: "TestRequests$",
	},
	{
		name: "durable-loses-replies-by-checkpoint", breaks: "a checkpoint does not have to reply",
		file: "processor/durable/checkpoint.go", old: "+len(t.effects.replies) > 0:", planted: " > 0:",
		packages: "./processor/durable", run: "TestRequests$",
	},
	{
		name: "durable-forgets-requests", breaks: "a function that ends rejects its requests",
		file: "processor/durable/request.go", old: "tasks = append(tasks, e.Task)", planted: "_ = e.Task",
		packages: "./processor/durable", run: "TestUnansweredRequests",
	},
	{
		name: "durable-rejects-kept-requests", breaks: "a restart keeps the requests that were not taken",
		file: "processor/durable/request.go", old: "untaken[e.Task] = true", planted: "untaken[e.Task] = false",
		packages: "./processor/durable", run: "TestUnansweredRequests",
	},
	{
		name: "durable-ends-in-a-deferred-call", breaks: "a call that waits for a reply does not end the function",
		file: "processor/durable/task.go", old: "(response != nil || t.defers):", planted: "response != nil:",
		packages: "./processor/durable", run: "TestReplyInTheTaskOfTheCall|TestUnansweredRequests",
	},
	{
		name: "durable-replies-to-nobody", breaks: "a call that was accepted without a reply gets none",
		file: "processor/durable/request.go", old: "if r.task == 0 || owner", planted: "if owner",
		packages: "./processor/durable", run: "TestCallsBecomeRequests",
	},
	{
		name:   "durable-replies-of-an-import",
		breaks: "an imported process does not reply to the calls of another one",
		file:   "processor/durable/journal.go", old: "if event.GetTaskId() == 0 && e.Kind",
		planted:  "if event.GetEventId() == 0 && e.Kind",
		packages: "./processor/durable", run: "TestRequestsOfAnImportedProcess",
	},
	{
		name:   "open-request-hides-findings",
		breaks: "a check of a process that waits for a timer and a reply is complete",
		file:   "cmd/progressor/internal/cli/deploy/check.go", old: `"operator", "reply"}`, planted: `"operator"}`,
		packages: "./cmd/progressor", run: "TestDeployCheckOfRequests",
	},
	{
		name: "deferred-call-was-busy", breaks: "a process is not busy while a caller waits for its reply",
		file: "explain/spans.go", old: "t.Type == process.TaskCall || t.Type", planted: "t.Type",
		packages: "./explain", run: "TestSpansOfDeferredCalls",
	},
	{
		name: "last-deferred-call-was-busy", breaks: "a call that was cancelled later than its attempt was deferred",
		file: "explain/replies.go", old: "t.Finished.Sub(t.Running) > timeout", planted: "timeout < 0",
		packages: "./explain", run: "TestSpansOfTheLastDeferredCall",
	},
	{
		name: "deferred-call-loses-its-worker", breaks: "a call whose response is deferred keeps its worker",
		file: sqlReplies, old: "running_time, worker_id\n    FROM input", planted: "running_time, NULL\n    FROM input",
		packages: "./storage", run: "TestOpenCallsKeepTheirAttempt",
	},
	{
		name: "cancelled-call-loses-its-attempt", breaks: "an open call that is cancelled keeps its running_time",
		file: "sql/cancel_scheduled.sql", old: "scheduled_time, running_time, statement_timestamp()",
		planted:  "scheduled_time, NULL, statement_timestamp()",
		packages: "./storage", run: "TestOpenCallsKeepTheirAttempt",
	},
	{
		name: "durable-rejects-too-much", breaks: "a rejection that is too large is stored without its details",
		file: "processor/durable/errors.go", old: "short.Details = nil", planted: "_ = size",
		packages: "./processor/durable", run: "TestLargeRejections",
	},
	{
		name: "durable-fails-for-large-responses", breaks: "a response of Accept that is too large rejects the call",
		file: "processor/durable/call.go", old: `processor.Reject(ReasonBadValue, "the response`,
		planted:  `processor.Fail(ReasonBadValue, "the response`,
		packages: "./processor/durable", run: "TestBadResponsesOfAccept",
	},
	{
		name: "durable-rejects-too-many", breaks: "large rejections are stored in several results",
		file: "processor/durable/request.go", old: "owner.journal.bytes += proto.Size(rejected.Rejection)",
		planted:  "_ = proto.Size(rejected.Rejection)",
		packages: "./processor/durable", run: "TestManyLargeReplies",
	},
}
