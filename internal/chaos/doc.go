// Package chaos injects faults under load and checks afterwards that nothing was lost, done twice
// or reported wrongly.
//
// Its tests run the real binary as several engines on one PostgreSQL, with clients over Connect and
// a processor that is called over HTTP. A fault happens at an observed moment, never after a pause:
// an engine dies while it holds calls, not "after 100 ms". Clients and the processor keep journals
// outside the database, which are compared with its content.
//
// TestChaos injects all faults in a random order:
//
//	go test ./internal/chaos -run TestChaos -v -args -chaos.duration=3m -chaos.seed=7
package chaos
