// Package sink contains the commands for sinks of the change stream.
//
// It imports cli, output and protoyaml. Start with Commands in sink.go.
package sink
