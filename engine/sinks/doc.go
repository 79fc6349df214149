// Package sinks delivers the recorded changes of namespaces to targets outside of the engine.
//
// A sink is a row of the table sinks. A node delivers for it while it holds the lease of the row.
// Unlike a cron or a bulk, a sink is not a process of the engine. A process would write several
// rows for each batch of changes, its state would show the secrets of the target to readers of
// processes, and its history would contain the changes. A lease needs one update per batch, which
// also stores the cursor. The token of the lease fences a node that was replaced, so that the node
// can no longer move the cursor.
//
// A target implements Deliverer in a subpackage: kafka or webhook. Package format encodes changes
// and does not depend on targets. The subpackages of targets import this package for its errors.
// Package targets opens them. Start with sinks.go (commands), runner.go (leases), delivery.go (the
// loop of a sink) and retry.go (dead letters that are delivered again).
//
// A delivery reads changes with package storage/changes, whose Pacer waits for new ones. A commit
// of this node wakes the Pacer. notices.go wakes the deliveries of other nodes.
package sinks
