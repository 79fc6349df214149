// Package conformance checks that an SDK runs durable functions as docs/journal.md says. It passes
// the tasks of scripted processes to functions of the SDK, as an engine would. It compares their
// results with those of the functions of this package, which package durable runs. Start with
// kit.go.
package conformance
