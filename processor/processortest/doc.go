// Package processortest contains test kits for processors: Process runs a processor against a
// process in memory, with a clock that the test controls, and Recorder is a scripted processor that
// records its requests. Nothing in this package sleeps or polls.
//
// It imports process, processor and the generated messages only. Start with process.go.
package processortest
