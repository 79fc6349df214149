// Package server contains the commands that run an engine (dev, serve), manage its database
// (migrate, doctor), show its configuration, or measure it (bench).
//
// It may import every package of the command line except admin, flow, job, process and worker.
// Start with node.run in run.go, which connects the parts of an engine.
package server
