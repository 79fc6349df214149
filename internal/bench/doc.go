// Package bench measures the engine on a PostgreSQL server. In the same run, it measures the SQL
// statements of the reference (valitydev/progressor) on this server. They are the baseline: each
// rate of the engine is also reported as a multiple of the rate of the baseline.
//
// Start with command.go. plan.go lists the workloads; each has a file. docs/performance.md
// describes the workloads and the columns of the output.
package bench
