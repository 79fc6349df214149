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
}
