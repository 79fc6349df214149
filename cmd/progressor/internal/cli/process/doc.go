// Package process contains the commands that read and change processes, one or many (bulks).
//
// It imports cli, output and protoyaml. Start with Commands in process.go.
package process
