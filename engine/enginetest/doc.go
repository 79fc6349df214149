// Package enginetest runs engines for the tests of package engine and of its kinds, on a real
// PostgreSQL.
package enginetest
