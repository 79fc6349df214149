// Package wire maps between the messages of progressor/v1 and the types of storage and process. It
// is the only package that does: rows become Process, Task, Job and ProcessRequest messages,
// results become storage.Completion. It also reads and writes the JSON columns that contain
// messages, and replaces what PostgreSQL cannot store.
//
// Package wire imports storage, process and the generated messages. It does no I/O. Functions that
// read a stored value return an error only if the value is not what the engine writes.
//
// Start with request.go (rows to messages) and completion.go (messages to rows).
package wire
