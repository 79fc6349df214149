package main

// userMutants mix processes of users with internal ones.
var userMutants = []mutant{
	{
		name: "suspended-jobs-of-users", breaks: "a suspended job is not counted as a process of users",
		file: "sql/status_counts.sql", old: "job.sign * suspended_jobs.n", planted: "0 * suspended_jobs.n",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "members-of-users", breaks: "members of a job for several workers are not processes of users",
		file: "sql/status_counts.sql", old: "p.process_id < '~job/~0'", planted: "p.process_id < '~job/~/'",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "internal-in-overview", breaks: "the overview of all namespaces sums the internal processes",
		file: "engine/insight/overview.go",
		old:  "overview.InternalByStatus[status] += ns", planted: "overview.InternalByStatus[status] = ns",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "internal-processes-listed", breaks: "a list of processes of users contains no internal processes",
		file: "engine/processes.go", old: "if r.GetUsersOnly() {", planted: "if false {",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "filters-for-internal", breaks: "a filter with the ~ of internal processes lists them",
		file: "cmd/progressor/internal/cli/process/inspect.go",
		old:  "fingerprint)\\b|~`)", planted: "fingerprint)\\b`)",
		packages: "./cmd/progressor/internal/cli/process", run: "TestList",
	},
	{
		name: "ended-runs-in-overview", breaks: "the overview does not count runs that succeeded",
		file: "sql/overview.sql", old: "           AND r.finished_time IS NULL\n", planted: "",
		packages: "./engine/flows", run: "TestOverview",
	},
	{
		name: "other-steps-in-overview", breaks: "the overview counts only steps that are open waits",
		file: "sql/overview.sql", old: "          AND f.token IS NOT NULL\n", planted: "",
		packages: "./engine/flows", run: "TestOverview",
	},
	{
		name: "day-of-last-samples", breaks: "a sample of five minutes has the maximum of its samples",
		file: "engine/insight/sample_history.go", old: "max(m.GetRunnable(), s.GetRunnable())",
		planted:  "min(m.GetRunnable(), s.GetRunnable())",
		packages: "./engine/insight", run: "TestSamplesOfADay",
	},
}
