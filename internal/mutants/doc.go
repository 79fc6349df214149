// Command mutants plants bugs in the engine, and checks that the tests find each of them. A bug
// replaces a few words of a source file. The changed file is passed to go test -overlay, so the
// source tree does not change. A bug that no test finds is a rule without a test.
//
// A bug is a replacement and not a diff, because a replacement stays valid when the lines around it
// change. Building the tests takes much longer than running those that catch a bug. So one test
// program contains many bugs: a function with bugs calls its version without a bug, or its version
// with the bug that an environment variable selects. First, all selected tests run without a bug. A
// bug that cannot be selected in this way, such as one in a migration, a type or an SDK, is planted
// alone. So is a bug that no test has caught.
//
// A bug in a statement replaces words of sql/*.sql, and the program replaces the same words in the
// code that sqlc has generated.
//
//	go run ./internal/mutants              all bugs
//	go run ./internal/mutants -run fence   those whose name contains fence
//	go run ./internal/mutants -parallel 4
//	go run ./internal/mutants -list
//
// mutants.go and the files by subject contain the bugs.
package main
