// Package configfile parses the configuration file of serve: settings, namespaces, templates,
// crons and sinks. It does not apply them; package server does.
//
// The only other package of the command line that it imports is protoyaml. Start with Parse in
// file.go.
package configfile
