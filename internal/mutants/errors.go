package main

// errorMutants are the mutants of error groups, of failing crons, and of repairs, retries and
// repeated runs.
var errorMutants = []mutant{
	{
		name: "error-group-reason", breaks: "errors with different reasons are in different groups",
		file: "migrations/00149_error_fingerprint.sql", old: "coalesce(left(reason, 256), '')", planted: "''",
		packages: "./storage/search", run: "TestErrorFingerprint",
	},
	{
		name: "error-group-steps", breaks: "the job of a step is not in a group of processes",
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
		name: "error-group-jobs", breaks: "failed jobs are not in the group of processes with the same error",
		file: "engine/insight/error_groups.go", old: `g.Filter += " AND kind != " + process.JobKind`,
		planted:  `g.Filter += ""`,
		packages: "./engine/jobs", run: "TestErrorGroupsOfJobs",
	},
	{
		name: "error-group-newest", breaks: "a group names its newest process",
		file: "engine/insight/error_groups.go", old: "NewestId: id,", planted: `NewestId: "",`,
		packages: "./engine", run: "TestListErrors",
	},
	{
		name: "repair-unrecorded", breaks: "a repair without the processor is recorded as a task, with its own time",
		file:     "sql/simple_repair.sql",
		old:      "0,\n         statement_timestamp(), statement_timestamp(),",
		planted:  "0,\n         statement_timestamp() - interval '1 h', statement_timestamp(),",
		packages: "./storage", run: "TestSimpleRepairSetsTimersAgain",
	},
	{
		name:     "repair-waits-for-slot",
		breaks:   "explain shows that a timer that was due before a repair waited for an operator",
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
	{
		name: "failing-cron-reset", breaks: "a cron is failing until a run succeeds, and not after that",
		file:     "cron/events.go",
		old:      "	if !status.failed() {\n		d.s.Failures = 0",
		planted:  "	if !status.failed() {\n		d.s.Failures++",
		packages: "./engine/crons", run: "TestFailingCrons",
	},
	{
		name: "failing-cron-uncounted", breaks: "failing crons are in the overview",
		file:     "engine/insight/overview.go",
		old:      "ns.FailingCrons = failing[ns.GetNamespace()]",
		planted:  "ns.FailingCrons = 0 * failing[ns.GetNamespace()]",
		packages: "./engine/crons", run: "TestFailingCrons",
	},
	{
		name: "retry-inputs-forgotten", breaks: "the inputs that a retry sets also apply to later retries",
		file: "engine/flows/inputs.go", old: "	maps.Copy(set, all)\n", planted: "",
		packages: "./engine/flows", run: "TestRetryWithInputs",
	},
	{
		name:   "retry-inputs-undo",
		breaks: "the input that a retry sets for a step is also the input of its compensation",
		file:   "engine/flows/rules.go", old: "if input, _, err = r.input(s, scope); err != nil {",
		planted:  "if input, err = r.template.Input(s, scope); err != nil {",
		packages: "./engine/flows", run: "TestRetryWithInputs",
	},
	{
		name: "retry-inputs-of-done-steps", breaks: "a retry cannot set the input of a step that does not run again",
		file: "engine/flows/inputs.go", old: "case status != flow.Pending && status != flow.Failed &&",
		planted:  "case status == flow.Running && status != flow.Failed &&",
		packages: "./engine/flows", run: "TestRetryRefusesInputs",
	},
	{
		name: "retry-inputs-without-effect", breaks: "a retry cannot set an input that the process of a step ignores",
		file: "engine/flows/inputs.go", old: "case s.Source.GetProcess().GetArgs() != nil:", planted: "case false:",
		packages: "./engine/flows", run: "TestRetryRefusesInputs",
	},
	{
		name: "retry-inputs-field", breaks: "the error of a refused retry names the field",
		file: "engine/flows/flows.go", old: `case a.Field != "":`, planted: `case a.Field == "x":`,
		packages: "./engine/flows", run: "TestRetryRefusesInputs",
	},
	{
		name: "retry-inputs-refused-changes-version", breaks: "a refused retry does not change the version of the run",
		file:     "engine/flows/commands.go",
		old:      "		*t.state, *t.state.Run, t.template = before, run, template\n",
		planted:  "		_, _, _ = before, run, template\n",
		packages: "./engine/flows", run: "TestRefusedRetryKeepsVersion",
	},
	{
		name: "repeat-payload-ignored", breaks: "a run is repeated with the payload of the request",
		file:     "engine/flows/flows.go",
		old:      "		payload = r.GetPayload()\n",
		planted:  "		payload = old.GetPayload()\n",
		packages: "./engine/flows", run: "TestRepeatWithAnotherPayload",
	},
}
