package bench

import (
	"context"
	"fmt"
)

// neighborState is a state of a tenant that must not disturb other namespaces.
type neighborState struct {
	note func(c *Command) string
	// prepare fills the tables. The tenant is quiet until run.
	prepare func(n *neighborhood, ctx context.Context) error
	// run begins the state. It may return before ctx ends. ctx ends with the window.
	run func(n *neighborhood, ctx context.Context) error
}

// neighborNames lists the states in the order of the report.
var neighborNames = []string{
	"timers", "calls", "large-calls", "queue-fails", "queue-suspended", "queue-resumed", "queue-removed",
	"held-messages", "locked-target", "many-messages", "locked-row", "fresh-calls", "stored-calls", "waiting-clients",
}

var neighborStates = map[string]neighborState{
	"timers": {
		func(c *Command) string {
			return fmt.Sprintf("%d due timers in each of %d namespaces", rowsOfNamespace, c.NeighborNamespaces)
		},
		(*neighborhood).fillTimers, (*neighborhood).resumeTenant,
	},
	"calls": {
		func(c *Command) string {
			return fmt.Sprintf("%d waiting calls in each of %d namespaces", rowsOfNamespace, c.NeighborNamespaces)
		},
		(*neighborhood).fillCalls, (*neighborhood).resumeTenant,
	},
	"large-calls": {
		func(c *Command) string { return fmt.Sprintf("%d waiting calls of 1 MiB", c.NeighborLargeCalls) },
		(*neighborhood).fillLargeCalls, (*neighborhood).resumeTenant,
	},
	"queue-fails":     {noteQueue, (*neighborhood).fillBehindFailure, (*neighborhood).openGate},
	"queue-suspended": {noteQueue, (*neighborhood).fillBehindTask, (*neighborhood).suspendQueue},
	"queue-resumed":   {noteQueue, (*neighborhood).fillSuspended, (*neighborhood).resumeQueue},
	"queue-removed":   {noteQueue, (*neighborhood).fillSuspended, (*neighborhood).removeQueue},
	"held-messages": {
		func(c *Command) string {
			return fmt.Sprintf("%d held messages of a process that is resumed", c.NeighborQueue)
		},
		(*neighborhood).fillHeld, (*neighborhood).resumeQueue,
	},
	"locked-target": {
		func(c *Command) string { return fmt.Sprintf("%d SQL messages to a locked process", c.NeighborBacklog) },
		(*neighborhood).startQueue, (*neighborhood).messageLocked,
	},
	"many-messages": {
		func(c *Command) string { return fmt.Sprintf("%d SQL messages to one process", c.NeighborBacklog) },
		(*neighborhood).startQueue, (*neighborhood).message,
	},
	"locked-row": {
		func(*Command) string { return fmt.Sprintf("%d clients call a process that is locked", lockedClients) },
		(*neighborhood).startQueue, (*neighborhood).callLocked,
	},
	"fresh-calls": {
		func(*Command) string { return "calls at the peak rate" },
		(*neighborhood).startTenants, (*neighborhood).floodTenant,
	},
	"stored-calls": {
		func(c *Command) string { return fmt.Sprintf("%d waiting calls in one namespace", c.NeighborBacklog) },
		(*neighborhood).fillStored, (*neighborhood).resumeTenant,
	},
	"waiting-clients": {
		func(c *Command) string { return fmt.Sprintf("%d clients of slow processes", c.NeighborClients) },
		(*neighborhood).fillClients, (*neighborhood).keepClients,
	},
}

func noteQueue(c *Command) string {
	return fmt.Sprintf("a process with %d waiting notifications", c.NeighborQueue)
}

// neighborVariants returns one case for each of --neighbor-states, with the largest number of
// clients for the peak.
func neighborVariants(c *Command, name string) []variant {
	states := c.NeighborStates
	if len(states) == 0 {
		states = neighborNames
	}
	var variants []variant
	for _, state := range states {
		v := overloadVariants(c, name)[0]
		v.state = state
		variants = append(variants, v)
	}
	return variants
}
