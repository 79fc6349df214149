// Command sqlrows generates code that fills the array parameters of sqlc's statements.
// `make generate` runs it after sqlc:
//
//	go run ./internal/sqlrows storage/internal/dbsqlc
//
// Many statements take a list of rows as one array per column, and unnest the arrays together. For
// each such list, rows.go contains:
//
//   - A struct with the columns of a row, by the names that the statement gives them. namespace and
//     process_id are one field Key, and other_namespace and other_process_id one field Other.
//   - A method Append of the parameters, which appends a row to all arrays.
//   - If the list has at least eight columns, a method Grow, which reserves space for rows.
//
// A list with the alias item, or the only list of its statement, has the names Append, Grow and
// StatementItem. Other lists have the names AppendAlias, GrowAlias and StatementAlias.
package main
