// Package actor is the base of the processes that the engine itself runs: crons, runs of flows and
// bulks. An Actor is the processor of such a kind. It creates a Task, reads the state, and calls
// the handler for the type of the task.
//
// A handler changes the state, adds effects and messages to the Task, and builds the Result. All of
// these are stored in one transaction, or none is. Handlers may read the database. The decisions
// are made by the packages cron and flow, which are pure.
//
// This package imports engine and lower packages. The kinds import it. Start with Actor (actor.go).
// state.go decodes states.
package actor
