// Package configfile parses the configuration file of serve: settings, namespaces, templates,
// crons and sinks. It does not apply them; package server does.
//
// Of the command line, it imports only protoyaml. Start with Parse in file.go.
package configfile
