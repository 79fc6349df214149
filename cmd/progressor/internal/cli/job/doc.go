// Package job contains the commands for jobs and for the constraints that limit them.
//
// It imports cli, output and protoyaml. Start with Commands in job.go.
package job
