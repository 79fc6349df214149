// Package protoyaml parses messages of the API from YAML or JSON, and reports errors with their
// line.
//
// Of the command line, it imports only output. Start with Unmarshal in message.go.
package protoyaml
