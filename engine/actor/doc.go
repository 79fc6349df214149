// Package actor is the base of the processes that the engine itself runs: crons, runs of flows and
// bulks. An Actor is the processor of such a kind: it makes a Task, reads the state, and calls the
// handler for the type of the task.
//
// A handler changes the state, adds effects and messages to the Task, and builds the Result. They
// are stored in one transaction, or not at all. Handlers may read the database. Packages cron and
// flow, which make the decisions, are pure.
//
// This package imports engine and lower packages. The kinds import it. Start with Actor (actor.go).
// state.go decodes states.
package actor
