// Package pull hands tasks to the workers that poll a node, and takes their heartbeats and answers.
// It also knows the workers of the node and passes the commands of operators on to them.
//
// Server is what engine.Workers describes. Start with server.go and leases.go (Poll). The engine
// stores the ends of leased attempts (engine/leased_attempt.go), because they are decided like
// those of other attempts. Package engine does not know this package.
package pull
