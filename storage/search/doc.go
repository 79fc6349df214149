// Package search lists processes, jobs, runs, waits, crons, events and the audit log: with an
// AIP-160 filter, in one of a few orders, page by page.
//
// A filter is parsed (parse.go) and type-checked (check.go) with the fields of a table (fields.go)
// to a tree, from which compile.go creates SQL. That SQL consists of constants of this package;
// values of clients are always parameters.
package search
