// Package pull has the statements of engine/pull: polls, leases, heartbeats and workers. The leases
// themselves belong to the core (storage.Lease), because a result ends them. Start with poll.go.
package pull
