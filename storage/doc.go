// Package storage executes all statements of the core: it is the engine's only access to
// PostgreSQL. An operation that moves a task is an item of a group commit. The statements of a
// flush (one transaction of the group commit) run in a fixed order, after the locks on its
// processes.
//
// Store has a method for each operation, in a file of the same name. Start with store.go, item.go
// (the statements of a flush), lane.go (the group commit) and recover.go (lost responses to
// commits). The statements are in sql/, from which sqlc generates internal/dbsqlc. The parameters
// of a statement that takes a list of rows have a method Append: see internal/sqlrows.
//
// Package engine makes all decisions about processes. This package stores them.
package storage
