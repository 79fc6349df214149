// Package durablecheck asks a build of a durable function what it would do with a process that an
// older build has started. The build replays the journal of the process. It runs no step, undo or
// Accept, and nothing is stored.
//
// The request is a ProcessRequest without a task type, whose timer_name is "durable:check". The
// answer is a result whose metadata contains the report. Neither is encoded, even if the payloads
// of processes are. docs/journal.md describes them. Start with request.go.
package durablecheck
