// Package cli is the base of the command line: it parses arguments, resolves settings, calls an
// engine, and reports errors with an exit code. Its subpackages contain the commands, one package
// per subject. clitest runs them in tests.
//
// It may import output, protoyaml and configfile, but no package with commands. Start with Main.Run
// in app.go. clientflags.go contains the flags of every client command, errors.go the exit codes.
package cli
