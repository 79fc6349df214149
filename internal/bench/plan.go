package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// variant is one case: a workload under one set of conditions.
type variant struct {
	workload string
	clients  int
	keys     bool
	history  string
	metadata bool
	events   string // which events of jobs the namespace keeps; "" means all
	// state depends on the workload: the state of the tenant (neighbors), the name of the attack
	// (attacks), the receiver of the changes (changes), the credentials (auth), or the kind of run
	// (durable).
	state string
}

// eventsAll is the default value of --job-events of a namespace.
const eventsAll = "all"

// The values of --history.
const (
	historyNone = "none"
	historyFull = "full"
)

func (v variant) String() string {
	text := v.workload
	if v.clients > 0 {
		text += fmt.Sprintf(", %d clients", v.clients)
	}
	if v.keys {
		text += ", keys"
	}
	if v.history == historyFull {
		text += ", full history"
	}
	if v.state != "" {
		text += ", " + v.state
	}
	return text
}

// name returns the name of the workload, with the settings that distinguish the case from its other
// cases.
func (v variant) name() string {
	switch {
	case v.events != "":
		return v.workload + " (events: " + v.events + ")"
	case v.state != "":
		return v.workload + " (" + v.state + ")"
	}
	return v.workload
}

func (v variant) row(subject string) *Row {
	return &Row{Workload: v.name(), Subject: subject, Clients: v.clients, Keys: v.keys, History: v.history,
		Metadata: v.metadata}
}

// workload is a kind of load.
type workload struct {
	name string
	// variants lists the cases that the flags ask for.
	variants func(c *Command, name string) []variant
	// run measures one case and adds its rows to the report.
	run func(r *runner, ctx context.Context, v variant) error
}

var workloads = []workload{
	{"start", requestVariants, (*runner).requests},
	{"call", requestVariants, (*runner).requests},
	{"hot", clientVariants, (*runner).requests},
	{"hot-snapshot", snapshotVariants, (*runner).requests},
	{"loop", clientVariants, (*runner).loop},
	{"timers", onceVariant, (*runner).timers},
	{"crons", onceVariant, (*runner).crons},
	{"crons-down", onceVariant, (*runner).cronsDown},
	{"jobs", jobsVariants, (*runner).jobs},
	{jobsKeys, jobsVariants, (*runner).jobs},
	{jobsClaims, jobsVariants, (*runner).claims},
	{"flows", onceVariant, (*runner).flows},
	{"rpc", rpcVariants, (*runner).rpc},
	{"auth", rpcVariants, (*runner).auth},
	{"flat", flatVariants, (*runner).flat},
	{"retention", flatVariants, (*runner).retention},
	{"idle", onceVariant, (*runner).idle},
	{"memory", onceVariant, (*runner).memory},
	{"search", onceVariant, (*runner).search},
	{"overload", overloadVariants, (*runner).overload},
	{"neighbors", neighborVariants, (*runner).neighbors},
	{"attacks", attackVariants, (*runner).attacks},
	{"changes", snapshotVariants, (*runner).changes},
	{"durable", durableVariants, (*runner).durable},
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// planned is a workload with one of its cases.
type planned struct {
	workload workload
	variant  variant
}

func (c *Command) plan() []planned {
	var plan []planned
	for _, name := range c.Workloads {
		for _, w := range workloads {
			if w.name != name {
				continue
			}
			for _, v := range w.variants(c, name) {
				plan = append(plan, planned{w, v})
			}
		}
	}
	return plan
}

func (c *Command) keys() []bool {
	switch c.Keys {
	case "on":
		return []bool{true}
	case "off":
		return []bool{false}
	default:
		return []bool{false, true}
	}
}

// requestVariants returns one case for each combination of clients and keys and, for call, of
// histories.
func requestVariants(c *Command, name string) []variant {
	histories := []string{historyNone}
	if name == "call" {
		histories = c.History
	}
	var variants []variant
	for _, history := range histories {
		for _, keys := range c.keys() {
			for _, clients := range c.Clients {
				variants = append(variants,
					variant{workload: name, clients: clients, keys: keys, history: history, metadata: c.Metadata})
			}
		}
	}
	return variants
}

func clientVariants(c *Command, name string) []variant {
	var variants []variant
	for _, clients := range c.Clients {
		variants = append(variants, variant{workload: name, clients: clients, history: historyNone})
	}
	return variants
}

// snapshotVariants returns one case, with the largest number of clients up to 128. More clients
// would only wait.
func snapshotVariants(c *Command, name string) []variant {
	clients := 0
	for _, n := range c.Clients {
		if n <= 128 {
			clients = max(clients, n)
		}
	}
	clients = cmp.Or(clients, 128)
	return []variant{{workload: name, clients: clients, history: historyNone}}
}

func rpcVariants(c *Command, name string) []variant {
	var variants []variant
	for _, keys := range c.keys() {
		variants = append(variants,
			variant{workload: name, clients: c.RPCClients, keys: keys, history: historyNone, metadata: c.Metadata})
	}
	return variants
}

func flatVariants(c *Command, name string) []variant {
	return []variant{{workload: name, clients: c.FlatClients, history: historyNone}}
}

// overloadVariants returns one case, with the largest number of clients, which determines the peak.
func overloadVariants(c *Command, name string) []variant {
	return []variant{{workload: name, clients: slices.Max(c.Clients), history: historyNone}}
}

// jobsVariants returns one case for each value of --job-events.
func jobsVariants(c *Command, name string) []variant {
	var variants []variant
	for _, events := range c.JobEvents {
		if events == eventsAll {
			events = ""
		}
		variants = append(variants, variant{workload: name, history: historyNone, events: events})
	}
	return variants
}

func onceVariant(_ *Command, name string) []variant {
	return []variant{{workload: name, history: historyNone}}
}
