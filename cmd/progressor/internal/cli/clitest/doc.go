// Package clitest runs command lines in tests, against a fake engine with scripted responses or
// against an engine in the same program.
//
// It may import cli, but no package with commands: a test passes the commands that it runs. Start
// with Program in program.go.
package clitest
