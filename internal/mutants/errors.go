package main

// errorMutants are the mutants of error groups.
var errorMutants = []mutant{
	{
		name: "error-group-reason", breaks: "errors with different reasons are in different groups",
		file: "migrations/00149_error_fingerprint.sql", old: "coalesce(left(reason, 256), '')", planted: "''",
		packages: "./storage/search", run: "TestErrorFingerprint",
	},
	{
		name: "error-group-steps", breaks: "a job of a step is not in a group of processes",
		file: "storage/search/fields.go", old: "notOfStep = `NOT starts_with(p.process_id, '`",
		planted:  "notOfStep = `'' <> concat(p.process_id, '`",
		packages: "./storage/search", run: "TestProcessesOfAnErrorGroup",
	},
	{
		name: "error-group-imported", breaks: "a process that was imported in ERROR is in a group",
		file: "storage/search/jobindexes.go", old: "p.corrupted_by = 0", planted: "p.corrupted_by = -1",
		packages: "./storage/search", run: "TestProcessesOfAnErrorGroup",
	},
	{
		name: "error-group-earlier", breaks: "a process is in the group of its last error only",
		file: "storage/search/fields.go", old: "t.task_id = p.corrupted_by LIMIT 1) END END)",
		planted:  "t.task_id >= p.corrupted_by ORDER BY t.task_id DESC LIMIT 1) END END)",
		packages: "./storage/search", run: "TestProcessesOfAnErrorGroup",
	},
	{
		name: "error-group-child-runs", breaks: "a run that is a step of another run is not in a group",
		file: "storage/search/runs.go", old: "('failed', 'expired') AND r.parent_run_id IS NULL`",
		planted:  "('failed', 'expired')`",
		packages: "./engine/flows", run: "TestFailedRunsAreErrors",
	},
	{
		name: "repair-unrecorded", breaks: "a repair without the processor is recorded as a task, at its time",
		file:     "sql/simple_repair.sql",
		old:      "0,\n         statement_timestamp(), statement_timestamp(),",
		planted:  "0,\n         statement_timestamp() - interval '1 h', statement_timestamp(),",
		packages: "./storage", run: "TestSimpleRepairSetsTimersAgain",
	},
	{
		name: "repair-waits-for-slot", breaks: "a timer that was due before a repair waited for an operator",
		file:     "explain/spans.go",
		old:      "	if t.Type.Timer() {\n		from =",
		planted:  "	if false {\n		from =",
		packages: "./explain", run: "TestSpansOfARepair",
	},
	{
		name: "repair-failed-ends-error", breaks: "a repair that failed does not end the ERROR",
		file: "explain/spans.go", old: "(t.Type != process.TaskRepair || t.Status != process.TaskStatusError)",
		planted:  "true",
		packages: "./explain", run: "TestSpansOfARepair",
	},
}
