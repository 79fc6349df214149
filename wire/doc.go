// Package wire maps between the messages of progressor/v1 and the types of storage and process. No
// other package does this. It converts rows to Process, Task, Job and ProcessRequest messages, and
// results to storage.Completion. It also reads and writes the JSON columns that contain messages,
// and replaces characters that PostgreSQL cannot store.
//
// Package wire imports storage, process and the generated messages. It does no I/O. A function that
// reads a stored value returns an error only if the engine cannot have written the value.
//
// Start with request.go (rows to messages) and completion.go (messages to rows).
package wire
