package main

// schedulingMutants concern how tasks and requests share a node.
var schedulingMutants = []mutant{
	{
		name: "stale-waiters-kept", breaks: "the set of processes to ask for again is emptied in each turn",
		file: "engine/waiters.go", old: "	clear(w.stale) //", planted: "	if len(asked) < maxPolled {\n		clear(w.stale)\n	} //",
		packages: "./engine", run: "Waiters",
	},
	{
		name: "scan-unbounded", breaks: "one scan claims a bounded number of tasks of all namespaces together",
		file: "engine/scans.go", old: "		if left == 0 {", planted: "		if left < 0 {",
		packages: "./engine", run: "Rooms",
	},
	{
		name: "scan-not-halved", breaks: "a scan that takes too long claims fewer tasks the next time",
		file: "engine/scans.go", old: "b.rows = max(b.rows/2, 1)", planted: "b.rows = max(b.rows, 1)",
		packages: "./engine", run: "ScanBound",
	},
	{
		name: "scan-bytes-unbounded", breaks: "one scan claims a bounded number of bytes",
		file: "storage/internal/dbsqlc/search_calls.sql.go", old: "   WHERE b.bytes_before < 8 * 1024 * 1024),", planted: "),",
		packages: "./storage", run: "ScansAreBounded",
	},
}
