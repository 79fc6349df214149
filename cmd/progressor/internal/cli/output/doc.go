// Package output prints the results of commands: tables, fields, JSON, and terminal lines that are
// updated in place. It formats the values of the API, such as times, payloads and enums.
//
// It imports no other package of the command line. Start with output.go.
package output
