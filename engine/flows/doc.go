// Package flows runs templates with several steps. A run is a process of kind flow with the ID
// ~flow/RUN_ID. Its state is a state of package flow. A step is a job, a process, a wait, a delay
// or another run.
//
// The end of a step, a request of a client and a due time are tasks of that process. Each task
// stores its decision in one transaction: the rows of its steps, the next steps, and its timer. The
// decisions are made by package flow, which is pure. This package loads the facts that a decision
// needs.
//
// Start with flows.go (requests), task.go (tasks), facts.go (decisions) and result.go (results).
package flows
