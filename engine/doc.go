// Package engine runs processes: it accepts requests, claims tasks that are due, lets processors
// execute them, and stores the results. An attempt is pushed to a processor or leased to a worker
// that polls.
//
// Engine is a node. Start with engine.go, call.go and request.go (the path of a request),
// attempt.go and decide.go (an attempt and its result), and timer_poller.go and call_poller.go
// (claims of timers and stored tasks). Kind (kind.go) is the extension point for the subpackages:
// processes that the engine itself runs (crons, flows and bulks, on package engine/actor), rules
// for processes that others run (jobs), and background work without processes (sinks).
//
// The engine keeps no data in memory that must survive a crash. All statements are in package
// storage, and all RPC handlers in engine/rpc.
package engine
