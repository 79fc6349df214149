package main

const (
	advanceRuns   = "sql/advance_runs.sql"
	advanceEngine = "engine/advance.go"
)

// advanceMutants are the mutants of runs that continue in the transaction that ends their job.
var advanceMutants = []mutant{
	{
		name: "advance-without-the-end", breaks: "a late end of a job does not advance its run",
		file: advanceRuns, old: "   CROSS JOIN LATERAL (\n     SELECT 1 FROM tasks t\n" +
			"      WHERE t.namespace = item.namespace\n        AND t.process_id = item.process_id\n" +
			"        AND t.task_id = item.task_id\n" +
			"        AND t.fencing_token = item.fencing_token\n        AND is_saved(item.fencing_token)\n" +
			"      LIMIT 1) ended_job\n",
		planted:  "",
		packages: "./storage", run: "TestFencedEndDoesNotAdvance",
	},
	{
		name: "advance-notifies-twice", breaks: "a run is notified of the end of a job once",
		file: advanceRuns, old: "   CROSS JOIN LATERAL (\n     SELECT 1 FROM parents r",
		planted:  "   CROSS JOIN LATERAL (\n     SELECT 1 UNION ALL SELECT 1 FROM parents r",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-with-job-of-another-run", breaks: "a run advances only with the ends of its jobs",
		file: advanceRuns, old: "        AND r.parent_process_id = item.run_id\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-from-an-old-state", breaks: "a run that has changed since its decision decides again",
		file: advanceRuns, old: "        AND p.aux_state = item.old_state\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-suspended", breaks: "a suspended run does not advance",
		file: advanceRuns, old: "        AND p.status = 'RUNNING'\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-cancelled", breaks: "a run with a cancel request does not advance",
		file: advanceRuns, old: "        AND p.cancel_deadline IS NULL\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-removed", breaks: "a run that is being removed does not advance",
		file: advanceRuns, old: "        AND p.removed_time IS NULL\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-during-a-task", breaks: "a run does not advance while it runs a task",
		file: advanceRuns, old: "   WHERE attempt.found IS NULL\n     AND waiting", planted: "   WHERE waiting",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-before-a-task", breaks: "a run does not advance before a task that waits",
		file: advanceRuns, old: "s.waits_for IN ('process', 'place')\n", planted: "false\n",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-before-a-timer", breaks: "a run does not advance before a timer that is due",
		file: advanceRuns, old: "s.waits_for::text = 'time' AND s", planted: "s.waits_for::text = 'no' AND s",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-with-timers", breaks: "a run that has ended has no timers",
		file: advanceRuns, old: "(item.completes\n              OR s", planted: "(s",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-before-a-message", breaks: "a run does not advance before its earlier messages are delivered",
		file: advanceRuns, old: "     AND message.found IS NULL\n", planted: "",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-parent-not-notified", breaks: "the parent of a run is notified of its end",
		file: advanceRuns, old: "\n     AND parent.found IS NULL)", planted: ")",
		packages: "./storage", run: "TestChangedRunDoesNotAdvance",
	},
	{
		name: "advance-and-notify", breaks: "a run that has advanced gets no task for the end of the job",
		file: advanceRuns, old: "   WHERE r.namespace = ANY (ARRAY[ended.namespace])",
		planted:  "   WHERE false AND r.namespace = ANY (ARRAY[ended.namespace])",
		packages: "./storage", run: "TestRunAdvancesWithTheEndOfItsJob",
	},
	{
		name: "advance-twice", breaks: "a flush stores at most one result of a run",
		file: "storage/advance_runs.go", old: "c.Advance == nil || advanced[c.Run]", planted: "c.Advance == nil",
		packages: "./storage", run: "TestRunAdvancesOnceInAFlush",
	},
	{
		name: "advance-unlocked", breaks: "a step that a run starts when it advances is locked",
		file: "storage/item.go", old: "		c = c.Advance.Completion\n",
		planted:  "		c = op.(*saveItem).completion\n",
		packages: "./storage", run: "TestConnectionBreaksWhenARunAdvances",
	},
	{
		name: "advance-loses-timers", breaks: "a run that sets a timer does not advance",
		file: "storage/advance_runs.go", old: "return c.plain() && c", planted: "return c",
		packages: "./engine/flows", run: "TestRunAdvances",
	},
	{
		name: "advance-waits-for-reads", breaks: "the end of a job does not wait for the reads of its run",
		file: advanceEngine, old: "	cancel(errReadsAhead)\n", planted: "	defer cancel(errReadsAhead)\n",
		packages: "./engine/flows", run: "TestJobEndsBeforeItsRunReads",
	},
	{
		name: "advance-paused", breaks: "a run of a paused namespace does not continue",
		file: advanceEngine, old: "run == nil || !c.MayContinue ||", planted: "run == nil ||",
		packages: "./engine/flows", run: "TestPausedRunDoesNotAdvance",
	},
	{
		name: "advance-fails-the-job", breaks: "a job succeeds although the result of its run is rejected",
		file: "storage/lane.go", old: "	case c != nil && c.Advance != nil:\n",
		planted:  "	case c != nil && c.Advance != nil && state == \"\":\n",
		packages: "./storage", run: "TestRejectedResultOfARun",
	},
}
