// Package processor is the contract between the engine and the code of its users.
//
// A processor decides what a process does. It receives a task together with the process (state,
// metadata, history; not its timers) and returns a Result (events, new state, timers, response), a
// Rejection (nothing changes) or a Failure (the work could not be done). The messages of
// progressor/v1 are the same for a processor inside the engine, one that is called over HTTP
// (Serve, Handler) and one that leases its tasks (package client).
//
// There are three ways to write one. Func is one function for all tasks. Router has one function
// per type of task, which uses Result() to build answers. JSON adds state, arguments and events as
// Go values. Package durable is a layer above: a process is one function from start to end. Package
// processortest runs a processor against a process in memory, with a clock that the test controls.
//
// Inside the engine and in workers, the tasks of timers and cancels can store events before they
// end: see Checkpoint.
//
// A task may be attempted more than once, but it has at most one live attempt at a time. Side
// effects outside the process must allow for repeated attempts: ProcessRequest.fencing_token grows
// with every attempt.
//
// Package processor imports process and the generated messages, but no package of the engine or
// storage. Start with processor.go, then result.go and json.go.
package processor
