// Package pull assigns tasks to the workers that poll a node, and receives their heartbeats and
// answers. It also keeps a list of these workers and sends them the commands of operators.
//
// Server implements engine.Workers. Start with server.go and leases.go (Poll). The engine stores
// the results of leased attempts (engine/leased_attempt.go), with the same decisions as for other
// attempts. Package engine does not import this package.
package pull
