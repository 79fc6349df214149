package main

// schedulingMutants concern how tasks and requests share a node.
var schedulingMutants = []mutant{
	{
		name: "stale-waiters-kept", breaks: "the set of processes to ask for again is emptied in each turn",
		file: "engine/waiters.go", old: "	clear(w.stale) //", planted: "	if len(asked) < maxPolled {\n		clear(w.stale)\n	} //",
		packages: "./engine", run: "Waiters",
	},
}
