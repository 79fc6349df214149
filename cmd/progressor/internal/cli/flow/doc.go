// Package flow contains the commands for templates and runs of flows.
//
// It imports cli, output and protoyaml. Start with Commands in run.go; tree.go draws the steps of a
// run.
package flow
