// Package protoyaml parses messages of the API from YAML or JSON, and reports errors with their
// line.
//
// The only other package of the command line that it imports is output. Start with Unmarshal in
// message.go.
package protoyaml
