package main

const (
	jobEvents     = "sql/job_events.sql"
	jobEventLanes = "migrations/00151_job_event_lanes.sql"
)

// jobEventMutants are the mutants for job events and their counters.
var jobEventMutants = []mutant{
	{
		name: "job-event-in-run", breaks: "a job does not have the events of the run with the same ID",
		file: "storage/search/events.go", old: "WHEN coalesce(a.of_run, a.step_id IS NOT NULL) THEN a.job_id END",
		planted:  "ELSE a.job_id END",
		packages: "./storage/search", run: "TestListEventsOfRun",
	},
	{
		name: "job-event-in-watch-of-run", breaks: "a watch of a job has no events of the run with the same ID",
		file: "storage/search/events.go", old: "if !e.OfRun {", planted: "if false {",
		packages: "./storage/search", run: "TestListEventsOfRun",
	},
	{
		name: "job-event-due-missing", breaks: "a job that becomes due has an event",
		file:     "sql/poll.sql",
		old:      "FROM released\n   WHERE released.job_name IS NOT NULL\n     AND released.mode = 2)",
		planted:  "FROM released\n   WHERE released.job_name IS NOT NULL\n     AND released.mode = 3)",
		packages: "./engine/jobs", run: "TestJobEvents",
	},
	{
		name: "job-event-cancel-missing", breaks: "a job that is asked to end has an event",
		file:     "sql/cancel_processes.sql",
		old:      "(input.asks AND input.mode = 2 OR input.ends AND input.mode > 0)",
		planted:  "(input.ends AND input.mode > 0)",
		packages: "./engine/jobs", run: "TestJobEvents",
	},
	{
		name:     "job-event-cancel-of-retry",
		breaks:   "the events of a job with a cancel request follow from each other, even if its attempt is retried",
		file:     "sql/cancel_processes.sql",
		old:      "CASE WHEN input.cancelling THEN 'cancel_requested' ELSE input.job_state END",
		planted:  "input.job_state",
		packages: "./storage", run: "TestEventsOfCancelWithRetry",
	},
	{
		name:     "job-event-success-missing",
		breaks:   "a job that the fast path ends has an event",
		file:     "sql/save_completed.sql",
		old:      "FROM results\n   WHERE results.job_name <> ''\n     AND results.mode > 0)",
		planted:  "FROM results\n   WHERE results.job_name <> ''\n     AND results.mode > 2)",
		packages: "./engine/jobs", run: "TestJobEvents|TestKeptJobEvents",
	},
	{
		name: "job-count-of-lost-attempts", breaks: "an attempt that the engine ends moves its job in the counters",
		file: jobEvents, old: "CROSS JOIN LATERAL (VALUES ('available', -1), (input.state, 1)) AS change(state, n)",
		planted: "CROSS JOIN LATERAL (VALUES ('available', -1), (input.state, 1)) AS change(state, n) WHERE " +
			"input.type <> 'timeout'",
		packages: "./engine/jobs", run: "TestJobEvents|TestTimeout",
	},
	{
		name: "job-count-of-removed-jobs", breaks: "a job that is removed leaves the counters",
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
		name: "job-event-lane-shared", breaks: "a lane is used by one transaction at a time",
		file: jobEventLanes, old: "ORDER BY l.lane LIMIT 1 FOR UPDATE SKIP LOCKED;",
		planted:  "ORDER BY l.lane LIMIT 1;",
		packages: "./storage", run: "TestWatchPassesLongTransactions|TestWatchUnderLoad",
	},
	{
		name: "job-event-numbered-early", breaks: "the number of an event is assigned under the lock of its lane",
		file: jobEventLanes, old: "  NEW.event_id := nextval('job_events_event_id_seq');\n", planted: "",
		packages: "./storage", run: "TestJobEventIsNumberedUnderTheLock",
	},
	{
		name: "job-event-lane-kept", breaks: "the lane of a transaction ends with its lock",
		file: jobEventLanes, old: "set_config('progressor.job_event_lane', NEW.lane::text, true)",
		planted:  "set_config('progressor.job_event_lane', NEW.lane::text, false)",
		packages: "./storage", run: "TestLaneOfATransaction",
	},
	{
		name: "watch-reads-one-lane", breaks: "a watch has no gap: it reads all lanes",
		file: jobEvents, old: "FROM job_event_lanes l\n    CROSS JOIN LATERAL (",
		planted: "FROM (SELECT min(x.lane) AS lane FROM job_event_lanes x WHERE x.lane > 0) l\n" +
			"    CROSS JOIN LATERAL (",
		packages: "./storage", run: "TestWatchKeepsTheOrderOfAJob",
	},
	{
		name: "watch-reorders-lanes", breaks: "a watch returns the events of a job in their order",
		file: jobEvents, old: "    ORDER BY found.event_id LIMIT @lim::int) event ON true",
		planted:  "    ORDER BY found.lane, found.event_id LIMIT @lim::int) event ON true",
		packages: "./storage", run: "TestWatchKeepsTheOrderOfAJob",
	},
	{
		name: "watch-repeats-events", breaks: "a watch returns each event once",
		file: "engine/jobs/events.go", old: "place.From = place.From.After(found[n].Events...)",
		planted:  "place.From = place.From.After(found[n].Events[0])",
		packages: "./engine/jobs", run: "TestWatchJobEvents",
	},
	{
		name: "watch-behind-retention", breaks: "a watch ends if events after its cursor were deleted",
		file: jobEvents, old: "AND d.event_id > coalesce((listed.position::jsonb->>d.lane::text)::bigint, 0)\n",
		planted:  "AND d.event_id < 0\n",
		packages: "./storage", run: "TestWatchBehindTheRetention",
	},
	{
		name: "job-event-deletion-unrecorded", breaks: "the retention records which events it deletes",
		file: jobEvents, old: "    SET event_id = greatest(d.event_id, excluded.event_id))",
		planted:  "    SET event_id = d.event_id)",
		packages: "./storage", run: "TestWatchBehindTheRetention",
	},
	{
		name: "job-event-cursor-of-lost-database", breaks: "a watch ends if the database was restored",
		file: "storage/jobs/watch.go", old: "case r.Generation != watches[r.Ord].From.Generation:",
		planted:  "case false:",
		packages: "./storage", run: "TestWatchBehindTheRetention",
	},
	{
		name: "job-event-cursor-of-older-engine", breaks: "a cursor of an older engine continues without a gap",
		file: jobEvents, old: "coalesce(next_events.event_id - 1, last.event_id)",
		planted:  "coalesce(next_events.event_id, last.event_id)",
		packages: "./storage", run: "TestWatchFromAnOlderCursor",
	},
}
