// Package explain describes a process for its operator: where its time went, what it waits for,
// what happens next and what would unblock it.
//
// Explain turns a State into an Explanation. The caller, package engine/insight, reads the rows and
// fills in State. The package is pure: it does no I/O, has no clock (State.Now is the database's)
// and imports only process and internal/durations. Its functions are safe for concurrent use.
//
// Start with explain.go (the types) and situation.go (what a process waits for). spans.go computes
// where the time went. blocked.go, cron.go, function.go, job.go, replies.go, run.go and worker.go
// describe what only some processes have. journal.go reads the journal of a durable function.
package explain
