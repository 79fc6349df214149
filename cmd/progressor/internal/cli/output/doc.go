// Package output prints what commands show: tables, fields, JSON, and lines of a terminal that are
// redrawn. It formats the values of the API, such as times, payloads and enums.
//
// It imports no other package of the command line. Start with output.go.
package output
