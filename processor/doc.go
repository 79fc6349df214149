// Package processor is the contract between the engine and the code that its users write.
//
// A processor decides what a process does: it is handed one task with the process as it is (state, history, timers) and
// answers with a Result (events, a new state, timers, a response), a Rejection (it says no, nothing changes) or a Failure
// (it could not do its work). The messages are the generated ones of progressor/v1, the same for a processor that runs
// inside the engine, one that is called over HTTP and one that leases its tasks.
//
// There are three ways to write one, from the closest to the messages to the most convenient:
//
//   - Func: one function for all tasks;
//   - Router: one function for each type of task, with Result() to put answers together;
//   - JSON: the same with the state, the arguments and the events as Go values.
//
// Serve runs a processor as a server of its own; Handler makes it a part of yours. Package processortest runs a processor
// against a process in memory, with a clock that the test moves.
//
// A processor may be called more than once for one task, never by two live attempts at a time. What it does outside of
// the process should bear that: ProcessRequest.fencing_token grows with every attempt and tells late ones from new ones.
package processor
