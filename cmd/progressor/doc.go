// Command progressor contains the engine, its command line and its tools in one binary. `progressor
// dev` runs everything on one machine, `progressor serve` runs an engine of a cluster, and the
// other commands are clients of an engine or manage its database.
//
// Type commands (app.go) lists all commands; each is a struct with its flags and a Run method.
// run.go connects the parts of an engine. settings.go resolves settings from the environment and
// the configuration file. errors.go maps errors to exit codes and next steps.
//
// The package contains no logic of processes: that is in package engine.
package main
