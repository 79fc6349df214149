// Package process is the vocabulary of the engine: statuses, task types, keys, limits, the retry policy and the errors
// that every other package speaks of. It does no I/O and imports nothing of the project.
package process
