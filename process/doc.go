// Package process contains the domain types of the engine: statuses, task types, keys, limits, the
// retry policy and the errors of all packages. It does no I/O and imports no other package of the
// project. Start with status.go and errors.go.
package process
