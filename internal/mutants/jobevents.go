package main

const jobEvents = "sql/job_events.sql"

// jobEventMutants are the mutants of the events of jobs and of their counters.
var jobEventMutants = []mutant{
	{
		name: "job-event-in-run", breaks: "the events of a run are not those of a job with its ID",
		file: "storage/search/events.go", old: "WHEN coalesce(a.of_run, a.step_id IS NOT NULL) THEN a.job_id END",
		planted:  "ELSE a.job_id END",
		packages: "./storage/search", run: "TestListEventsOfRun",
	},
	{
		name: "job-event-in-watch-of-run", breaks: "nor in a watch",
		file: "storage/search/events.go", old: "if !e.OfRun {", planted: "if false {",
		packages: "./storage/search", run: "TestListEventsOfRun",
	},
	{
		name: "job-event-due-untold", breaks: "each change of a job's state is an event: its time has come",
		file:     "sql/poll.sql",
		old:      "FROM released\n   WHERE released.job_name IS NOT NULL\n     AND released.mode = 2)",
		planted:  "FROM released\n   WHERE released.job_name IS NOT NULL\n     AND released.mode = 3)",
		packages: "./engine/jobs", run: "TestJobEvents",
	},
	{
		name: "job-event-cancel-untold", breaks: "each change of a job's state is an event: it is asked to end",
		file:     "sql/cancel_processes.sql",
		old:      "(input.asks AND input.mode = 2 OR input.ends AND input.mode > 0)",
		planted:  "(input.ends AND input.mode > 0)",
		packages: "./engine/jobs", run: "TestJobEvents",
	},
	{
		name:     "job-event-cancel-of-retry",
		breaks:   "the events of a job with a cancel request follow from each other, also if its attempt is retried",
		file:     "sql/cancel_processes.sql",
		old:      "CASE WHEN input.cancelling THEN 'cancel_requested' ELSE input.job_state END",
		planted:  "input.job_state",
		packages: "./storage", run: "TestEventsOfCancelWithRetry",
	},
	{
		name:     "job-event-success-untold",
		breaks:   "each change of a job's state is an event: it has succeeded, by the quick statement",
		file:     "sql/save_completed.sql",
		old:      "FROM results\n   WHERE results.job_name <> ''\n     AND results.mode > 0)",
		planted:  "FROM results\n   WHERE results.job_name <> ''\n     AND results.mode > 2)",
		packages: "./engine/jobs", run: "TestJobEvents|TestKeptJobEvents",
	},
	{
		name: "job-count-of-the-reaped", breaks: "an attempt that the engine ends moves its job in the counters",
		file: jobEvents, old: "CROSS JOIN LATERAL (VALUES ('available', -1), (input.state, 1)) AS change(state, n)",
		planted: "CROSS JOIN LATERAL (VALUES ('available', -1), (input.state, 1)) AS change(state, n) WHERE " +
			"input.type <> 'timeout'",
		packages: "./engine/jobs", run: "TestJobEvents|TestTimeout",
	},
	{
		name: "job-count-of-the-removed", breaks: "a job that is removed leaves the counters",
		file:     "sql/remove_processes.sql",
		old:      "SELECT counted_job.namespace, counted_job.job_name, counted_job.state, -count(*)\n    FROM",
		planted:  "SELECT counted_job.namespace, counted_job.job_name, counted_job.state, 1 -count(*)\n    FROM",
		packages: "./engine/jobs", run: "TestQueueStats",
	},
	{
		name: "job-count-of-groups", breaks: "a job that several workers run is counted as running until its end",
		file: "sql/job_events.sql", old: "WHERE g.running_time IS NOT NULL\n   AND g.namespace",
		planted:  "WHERE g.running_time IS NULL\n   AND g.namespace",
		packages: "./storage", run: "TestGroupIsCounted",
	},
	{
		name:   "watch-skips-what-is-on-its-way",
		breaks: "a watch has no gap: it does not return events after the oldest running transaction",
		file:   jobEvents, old: " AND e.xid < pg_snapshot_xmin(pg_current_snapshot())", planted: "",
		packages: "./storage", run: "TestWatchWaitsForWhatIsOnItsWay",
	},
	{
		name: "watch-begins-again", breaks: "a watch brings each event once",
		file: "engine/jobs/events.go", old: "found[n][len(found[n])-1].Position(), false",
		planted:  "found[n][0].Position(), false",
		packages: "./engine/jobs", run: "TestWatchJobEvents",
	},
	{
		name: "cursor-of-the-future", breaks: "a cursor that is ahead of the database is refused",
		file: "storage/jobs/events.go", old: "if ahead {", planted: "if ahead && text == \"\" {",
		packages: "./storage", run: "TestEventsOfAnotherCluster",
	},
}
