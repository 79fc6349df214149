// Package storagetest creates a PostgreSQL database with the schema for each test. A test binary
// starts one private server for its first test and clones a migrated template for each test, within
// a few hundredths of a second. It needs only the PostgreSQL binaries (see pgembed.FindBinDir). A
// package that uses it declares
//
//	func TestMain(m *testing.M) { storagetest.Main(m) }
//
// and calls storagetest.Pool(t) or storagetest.DSN(t) in its tests, which may run in parallel. When
// a test ends, the package checks the invariants of its database and drops the database. The server
// does not sync to disk, so do not run benchmarks on it.
//
// This package imports storage, so tests of storage that use it are in package storage_test.
package storagetest
