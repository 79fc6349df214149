package main

const (
	changesSchema  = "migrations/00116_changes.sql"
	changeTriggers = "migrations/00117_change_triggers.sql"
	changesOfRuns  = "migrations/00133_changes_of_runs.sql"
	changeUpdates  = "migrations/00145_change_usual_updates.sql"
)

// changeMutants are the mutants of the recording of changes.
var changeMutants = []mutant{
	{
		name: "change-gap", breaks: "the changes of a lane are numbered without gaps",
		file: changesSchema, old: "  last_seq := coalesce(last_seq, 0);",
		planted:  "  last_seq := coalesce(last_seq + 1, 0);",
		packages: "./storage", run: "TestChangesUnderLoad|TestOldChangesAreDropped",
	},
	{
		name: "change-lane-shared", breaks: "a lane is used by one transaction at a time",
		file: changesSchema, old: "ORDER BY h.lane LIMIT 1 FOR UPDATE SKIP LOCKED;",
		planted:  "ORDER BY h.lane LIMIT 1;",
		packages: "./storage", run: "TestChangesWithLongTransactions",
	},
	{
		name: "change-reordered", breaks: "the end of a process follows the events of its last result",
		file:     changeUpdates,
		old:      "CASE WHEN u.type IN ('resumed', 'repaired') THEN 0 ELSE 2 END",
		planted:  "0",
		packages: "./storage", run: "TestChangesOfProcesses",
	},
	{
		name: "change-not-recorded", breaks: "each event of a result is recorded",
		file: changeUpdates, old: "AND e.event_id BETWEEN u.old_event_id + 1 AND u.new_event_id\n",
		planted:  "AND e.event_id BETWEEN u.old_event_id + 2 AND u.new_event_id\n",
		packages: "./storage", run: "TestChangesOfProcesses",
	},
	{
		name: "change-not-recorded-alone", breaks: "each event of a result that changes no status is recorded",
		file: changeUpdates, old: "AND e.event_id > p.old_event_id\n",
		planted:  "AND e.event_id > p.old_event_id + 1\n",
		packages: "./storage", run: "TestChangesOfProcesses",
	},
	{
		name: "change-of-status-unrecorded", breaks: "a change of the status is recorded",
		file: changeUpdates, old: "           AND o.statuses = n.statuses\n", planted: "",
		packages: "./storage", run: "TestChangesOfProcesses",
	},
	{
		name: "change-of-removal-unrecorded", breaks: "the removal of a process that has ended is recorded",
		file: changeUpdates, old: "\n           AND o.removed = n.removed", planted: "",
		packages: "./storage", run: "TestChangesOfProcesses",
	},
	{
		name: "change-of-other-namespace", breaks: "the changes of each namespace of a flush are recorded",
		file: changeUpdates, old: "n.namespace = n.last_namespace\n           AND ", planted: "",
		packages: "./storage", run: "TestChangesOfSeveralNamespaces",
	},
	{
		name: "change-of-import-unrecorded", breaks: "the history of an imported process is recorded",
		file: changeTriggers, old: "AND n.last_event_id > 0), -- imported",
		planted:  "AND n.last_event_id < 0), -- imported",
		packages: "./storage", run: "TestChangesOfOtherWriters",
	},
	{
		name: "rows-twice", breaks: "a statement may unnest a part of a list again",
		file: "internal/sqlrows/parse.go", old: "lists = slices.DeleteFunc(lists, ",
		planted:  "_ = slices.DeleteFunc(lists, ",
		packages: "./internal/sqlrows", run: "TestRun",
	},
	{
		name: "change-of-run-as-job", breaks: "an event of a run is marked when it is stored",
		file: "storage/jobs/events.go", old: `OfRun: e.RunID != ""`,
		planted:  `OfRun: false`,
		packages: "./engine/flows", run: "TestChangesOfRun",
	},
	{
		name: "change-kind-run", breaks: "the changes of runs are of the kind run",
		file: changesOfRuns, old: "WHEN n.of_run THEN 'run'", planted: "WHEN n.of_run THEN 'job'",
		packages: "./engine/flows", run: "TestChangesOfRun",
	},
	{
		name: "change-id-of-run", breaks: "a change of a run or a step has the ID of the process of the run",
		file: changesOfRuns, old: "ELSE '~flow/' || f.job_id END", planted: "ELSE f.job_id END",
		packages: "./engine/flows", run: "TestChangesOfRun",
	},
	{
		name: "run-events-as-job", breaks: "events of a run do not belong to the job with the same ID",
		file: "sql/job_invariants.sql", old: "WHERE v.of_run IS NOT TRUE", planted: "WHERE true",
		packages: "./engine/flows", run: "TestChangesOfRun",
	},
	{
		name: "change-dropped-early", breaks: "changes are kept for the longest retention of all namespaces",
		file: changesSchema, old: "(SELECT max(s.retention) FROM change_settings s)",
		planted:  "(SELECT min(s.retention) FROM change_settings s)",
		packages: "./storage", run: "TestOldChangesAreDropped",
	},
	{
		name: "change-numbers-begin-again", breaks: "the numbers of a lane continue after those that were deleted",
		file: changesSchema, old: "     WHERE d.namespace = take_change_lane.namespace\n",
		planted:  "     WHERE d.namespace <> take_change_lane.namespace\n",
		packages: "./storage", run: "TestOldChangesAreDropped",
	},
	{
		name: "change-triggers-stay", breaks: "without a namespace that records, there are no triggers",
		file: "storage/changes/recording.go", old: "errs = append(errs, ignoreLocked(stop(ctx, s)))",
		planted:  "errs = append(errs, nil)",
		packages: "./storage", run: "TestNoTriggersWithoutRecording",
	},
	{
		name: "change-triggers-missing", breaks: "a namespace cannot record without the triggers",
		file: changeTriggers, old: "AND EXISTS (SELECT FROM change_triggers t WHERE NOT t.exists) THEN",
		planted:  "AND false THEN",
		packages: "./storage", run: "TestNoTriggersWithoutRecording|TestRecordingStartsAgain",
	},
	{
		name: "watch-skips-changes", breaks: "a watch has no gap: it continues after the last change of each lane",
		file: "storage/changes/read.go", old: "		next.Lanes[c.Lane] = c.Seq\n",
		planted:  "		next.Lanes[c.Lane] = c.Seq + 1\n",
		packages: "./engine/streams", run: "TestWatch",
	},
	{
		name: "watch-reorders", breaks: "a watch returns the changes of a process in their order",
		file: "sql/changes.sql", old: "ORDER BY c.change_id LIMIT",
		planted:  "ORDER BY c.lane, c.change_id LIMIT",
		packages: "./engine/streams", run: "TestReadsFollowTheProcess",
	},
	{
		name: "watch-after-deleted-changes", breaks: "a cursor whose changes were deleted is refused",
		file: "storage/changes/read.go", old: "|| first.Lost ||", planted: "||",
		packages: "./engine/streams", run: "TestLostCursors",
	},
	{
		name: "watch-of-another-database", breaks: "a cursor of a database that was restored since is refused",
		file: "storage/changes/read.go", old: "if first.Generation != at.Generation || ",
		planted:  "if ",
		packages: "./engine/streams", run: "TestLostCursors",
	},
	{
		name: "watch-queries-unshared", breaks: "the idle streams of a namespace share their queries",
		file: "engine/streams/heads.go", old: "time.Since(h.queried) > maxAge", planted: "true",
		packages: "./engine/streams", run: "TestStreamsShareQueries",
	},
	{
		name: "watch-idle-forever", breaks: "a stream that has waited finds changes of other nodes",
		file: "engine/streams/heads.go", old: "at.Lanes[lane] < seq", planted: "at.Lanes[lane] > seq",
		packages: "./engine/streams", run: "TestStreamsShareQueries",
	},
	{
		name: "watch-not-woken", breaks: "a commit wakes the streams of its namespace",
		file: "storage/changes/pacer.go", old: "		case p.woken <- struct{}{}:\n", planted: "",
		packages: "./engine/streams", run: "TestCommitWakesTheStream",
	},
}
