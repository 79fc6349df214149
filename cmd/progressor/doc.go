// Command progressor contains the engine, its command line and its tools in one binary. `progressor
// dev` runs everything on one machine, `progressor serve` runs an engine of a cluster, and the
// other commands are clients of an engine or manage its database.
//
// Package internal/cli/commands lists the packages with the commands. A command is a struct with
// its flags and a Run method. The tests of this package run the whole program.
//
// The logic of processes is in package engine, not here.
package main
