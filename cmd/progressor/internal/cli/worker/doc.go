// Package worker contains the commands that run, list and stop workers. worker run executes a
// program for each job.
//
// It imports cli and output. Start with Commands in worker.go; exec.go runs the program.
package worker
