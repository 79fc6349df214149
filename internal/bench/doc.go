// Package bench measures the engine on a PostgreSQL server and, on the same server in the same run,
// the SQL of the reference (valitydev/progressor), statement by statement. That is the baseline:
// each rate is also reported as a multiple of it.
//
// Start with command.go. plan.go lists the workloads; each has a file. docs/performance.md
// describes the workloads and the columns of the output.
package bench
