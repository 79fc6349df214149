package main

// bulkMutants break operations on many processes, jobs or runs.
var bulkMutants = []mutant{
	{
		name: "bulk-repairs-without-args", breaks: "a bulk passes its args to each processor",
		file: "engine/bulk/run.go", old: "Args: w.command.Args}", planted: "Args: nil}",
		packages: "./engine/bulk", run: "TestRepairByProcessor",
	},
	{
		name: "bulk-hides-rejected-repairs", breaks: "a rejected repair is a failure of the bulk",
		file: "engine/bulk/run.go", old: "case err == nil, skip",
		planted:  "case err == nil, ok && end.Failure != nil, skip",
		packages: "./engine/bulk", run: "TestRepairByProcessor",
	},
	{
		name: "bulk-counts-unfinished-repairs", breaks: "a bulk counts a repair when it has ended",
		file: "engine/bulk/run.go", old: "case err == nil, skip",
		planted:  "case err == nil, goesOn, skip",
		packages: "./engine/bulk", run: "TestSlowRepairs",
	},
	{
		name:   "bulk-skips-what-it-did",
		breaks: "a bulk counts a process as done if an earlier try, whose result is unknown, took effect",
		file:   "engine/bulk/run.go", old: "case err == nil, skip && a.Unknown:", planted: "case err == nil:",
		packages: "./engine/bulk", run: "TestEffectOfEarlierTry",
	},
	{
		name:   "bulk-does-what-it-did-not",
		breaks: "a bulk does not count a process as done if the earlier try cannot have changed it",
		file:   "engine/bulk/run.go", old: "if a.Barred || w.definition().Keyed {", planted: "if false {",
		packages: "./engine/bulk", run: "TestEffectOfEarlierTry",
	},
	{
		name: "bulk-args-in-metadata", breaks: "readers without payload.read do not see the args of a bulk",
		file: "engine/bulk/command.go", old: "stored.Args, stored.ArgsInInit = nil, len(o.Args) > 0\n", planted: "\n",
		packages: "./engine/bulk", run: "TestArgsAreHidden",
	},
	{
		name: "bulk-args-ignored-if-empty", breaks: "with empty args, a bulk lets the processors repair",
		file: "cmd/progressor/internal/cli/process/bulk.go", old: "case args == nil && c.Args == nil:",
		planted:  "case args == nil && (c.Args == nil || *c.Args == \"\"):",
		packages: "./cmd/progressor/internal/cli/process", run: "TestBulkStart",
	},
}
