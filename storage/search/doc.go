// Package search lists processes, jobs, runs, waits, crons, events and the audit log: with an
// AIP-160 filter, in one of a few orders, page by page.
//
// parse.go parses a filter into a tree, and check.go checks its types with the fields of a table
// (fields.go). compile.go creates SQL from the tree. The SQL consists of constants of this package.
// Values of clients are always parameters.
package search
