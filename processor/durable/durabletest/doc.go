// Package durabletest tests functions of package durable, without an engine or a database.
//
// KillEverywhere runs a function repeatedly, and loses a different result each time. For all other
// tests, processortest.Process runs a durable function like any processor. Start with kill.go.
package durabletest
