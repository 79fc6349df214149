// Package fastpath stores the usual calls and results with small statements.
//
// # What it saves
//
// The fast path saves CPU time in PostgreSQL. Most calls are for a RUNNING process that has no
// attempt and no waiting task. Most results leave a process without waiting tasks. For these,
// CaptureCalls replaces PrepareCall, and SaveFinished, SaveContinued, SaveEnded and SaveCompleted
// replace SaveResult. The statements of the fast path have half as many plan nodes: PostgreSQL
// spends more time on starting a large statement than on executing it for a few items. They make
// calls of a single client twice as fast, and calls of 128 clients 25% faster. SaveContinued makes
// chains of timers that are due at once 27% faster.
//
// # When it applies
//
// A call takes the fast path if it has a slot, its process is not in Busy, it has not left a call
// queue before its turn, and no other call of the flush is for the same process. A result takes the
// fast path if it is FINISHED or COMPLETED, has no failure or rejection, does not belong to a
// repair, does not set or unset timers, does not restart the history, does not defer its response,
// and has no replies to other tasks (Completion.plain in package storage). It may set the default
// timer if the timer is due now and the process may continue with it at once, as in the first task
// of a durable function. The process must not be in Busy, and the flush must neither cancel nor
// remove the process. The other items of a flush use the general statements. If a flush has calls
// that do not qualify, and fewer than minFastPath calls that qualify, all its calls use the general
// statement. The same is true of results.
//
// The statements check the state of the process themselves. If it is not the usual state, they
// store nothing for the item and return no row for it. The next flush then stores the item with the
// general statement. Busy remembers the process, so that its items need a second flush only once.
//
// # How to turn it off
//
// Set storage.Config.WithoutFastPath. Everything works without the fast path, but more slowly. The
// tests named TestWithoutFastPath check this. TestFastPathStoresTheSame compares what both paths
// store. The fast path may use features that only PostgreSQL has: its statements compare ctid, xmin
// and xmax. On a portable database it is always off. Without the fast path, no run continues in the
// transaction that ends its job (storage/advance_runs.go).
//
// # Where it is used
//
// storage/fast_path.go decides which items of a flush use the fast path, and records what the
// statements return.
package fastpath
