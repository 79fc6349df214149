package main

const (
	cronDecide = "cron/decide.go"
	cronTick   = "cron/tick.go"
	cronTask   = "engine/crons/task.go"
	cronOrder  = "engine/crons/command.go"
	cronFires  = "sql/cron_fires.sql"
)

// cronMutants are the mutants of crons.
var cronMutants = []mutant{
	{
		name: "cron-fires-twice", breaks: "a fire time is decided once",
		file: cronTick, old: "	d.s.Decided = fire\n", planted: "	d.s.Decided = fire.Add(-time.Second)\n",
		packages: "./cron ./engine/crons", run: "Late|Decisions|NodesFireOnce",
	},
	{
		name: "cron-row-missing", breaks: "every fire time has a row in the ledger",
		file: cronTask, old: "		t.row(row)\n",
		planted:  "		if fire.Decision == cron.Fired {\n			t.row(row)\n		}\n",
		packages: "./engine/crons", run: "Triggers|Misfires",
	},
	{
		name: "cron-row-of-fenced-result", breaks: "a refused result does not change the ledger",
		file: cronFires, old: "AND t.fencing_token = item.fencing_token\n" +
			"        AND is_saved(item.fencing_token)", planted: "AND t.fencing_token = item.fencing_token",
		packages: "./storage ./engine/crons", run: "Fire|Effects",
	},
	{
		name: "cron-next-from-now", breaks: "the next timer is counted from the last fire time, not from now",
		file: cronDecide, old: "range d.pending(time.Unix(lastInstant, 0)) {",
		planted:  "range d.Schedule.Between(d.now.Add(time.Second), time.Unix(lastInstant, 0)) {",
		packages: "./cron", run: "Decisions|Late|Jitter",
	},
	{
		name: "cron-pause-always-caught-up", breaks: "the fire times of a pause run only if the resume asks for them",
		file: "engine/crons/requests.go", old: "SkipMissed: !r.GetCatchUp()", planted: "SkipMissed: r.GetCatchUp()",
		packages: "./engine/crons", run: "PauseAndResume",
	},
	{
		name: "cron-cancelled-fire-starts", breaks: "a fire that waits and is cancelled never starts",
		file:     "cron/events.go",
		old:      "func(w Wait) bool { return w.Fire.Equal(fire) })\n	withdrawn := len(d.s.Queue) < waiting",
		planted:  "func(w Wait) bool { return false })\n	withdrawn := waiting > 0",
		packages: "./cron", run: "Decisions",
	},
	{
		name: "cron-late-end-ends-rerun", breaks: "the late end of an earlier run of a fire does not end its rerun",
		file: "engine/crons/rerun.go", old: "if n < 0 || t.state.Independent[n].Rerun != rerun {",
		planted:  "if n < 0 {",
		packages: "./engine/crons", run: "LateEndBeforeARerun",
	},
	{
		name: "cron-backfill-at-once", breaks: "the runs of a backfill wait for each other",
		file: "engine/crons/backfill.go", old: "if run.Backfill {\n			slots--",
		planted:  "if run.Rerun > 0 {\n			slots--",
		packages: "./engine/crons", run: "BackfillInOrder",
	},
	{
		name: "cron-oldest-first", breaks: "if several fire times are due, the newest ones run",
		file: cronTick, old: "keep = later(keep, d.newestThatStart(newest))",
		planted:  "keep = later(keep, time.Time{})",
		packages: "./cron", run: "Late|History",
	},
	{
		name: "cron-shifted-not-excluded", breaks: "exclusions also apply to times that daylight saving has shifted",
		file: "cron/calendar.go", old: "_, found := free.next(&month{}, to, to+1)",
		planted:  "_, found := free.next(&month{}, to, to+1000000)",
		packages: "./cron", run: "Exclusions",
	},
	{
		name: "cron-row-of-old-target", breaks: "a row of the ledger names the run that was started",
		file: cronOrder, old: "s.definition.Target, t.cron.Refusable = definition.GetTarget(), next.Refusable",
		planted:  "t.cron.Refusable = next.Refusable",
		packages: "./engine/crons", run: "UpdateOfTheTarget",
	},
	{
		name: "cron-catch-up-is-late", breaks: "fire times that the misfire policy runs later do not count as late",
		file: "engine/crons/metrics.go", old: "fire.Decision != cron.Missed && !madeUp",
		planted:  "fire.Decision != cron.Missed && (!madeUp || madeUp)",
		packages: "./engine/crons", run: "TestMetrics",
	},
	{
		name: "cron-cut-response-succeeds", breaks: "a truncated response does not count as a success",
		file: "engine/crons/http.go", old: "case good && err != nil && !errors.Is(err, io.EOF):",
		planted:  "case false:",
		packages: "./engine/crons", run: "CutResponses",
	},
	{
		name: "cron-request-in-step-timeout", breaks: "a request of a cron may take as long as its policy says",
		file: "engine/cancel.go", old: "	if longer <= ns.stepTimeout {", planted: "	if true {",
		packages: "./engine/crons", run: "Outlast",
	},
	{
		name:   "cron-zone-of-machine",
		breaks: "nodes use the same time zones, regardless of the files of their machines",
		file:   "cron/zone.go", old: "location := embeddedZone(name); location != nil",
		planted:  "location := embeddedZone(name); false",
		packages: "./cron", run: "EmbeddedZones",
	},
	{
		name: "cron-window-ignored", breaks: "fire times before the catch-up window are missed",
		file: cronTick, old: "if d.Policy.CatchUpWindow > 0 {", planted: "if d.Policy.CatchUpWindow > 0 && false {",
		packages: "./cron", run: "Late|Decisions",
	},
	{
		name: "cron-prev-keeps-its-slot", breaks: "a run that CANCEL_PREV asks to end frees its slot at once",
		file: cronDecide, old: "running-- // the previous run frees its slot", planted: "running += 0",
		packages: "./cron", run: "PreviousRun|Matrix",
	},
	{
		name: "cron-prev-not-cancelled", breaks: "CANCEL_PREV asks the previous run to end",
		file: cronDecide, old: "d.step.Cancels = append(d.step.Cancels, d.s.Previous.Fire)",
		planted:  "_ = d.s.Previous.Fire",
		packages: "./cron", run: "PreviousRun|Matrix",
	},
	{
		name: "cron-buffers-two", breaks: "BUFFER_ONE keeps one fire",
		file: cronDecide, old: "if len(d.s.Queue) > 0 {", planted: "if len(d.s.Queue) > 1 {",
		packages: "./cron", run: "PreviousRun|Matrix|Queues",
	},
	{
		name: "cron-failure-skips-all", breaks: "with SKIP, a failure skips only one fire",
		file: cronDecide, old: "		d.s.Previous.Spent = true\n", planted: "		d.s.Previous.Spent = false\n",
		packages: "./cron", run: "Failures|Matrix",
	},
	{
		name:   "cron-update-is-retroactive",
		breaks: "fire times before an update are decided by the policy before the update",
		file:   cronOrder, old: "	t.applyStep(t.cron.Tick(s.Cron, t.Now))\n	if !proto.Equal",
		planted:  "	if !proto.Equal",
		packages: "./engine/crons", run: "Update",
	},
	{
		name: "cron-backfills-twice", breaks: "a backfill ignores fire times that are in the ledger",
		file: "cron/events.go", old: "if !inLedger(fire) {", planted: "if !inLedger(fire) || inLedger(fire) {",
		packages: "./cron ./engine/crons", run: "Triggers|TriggerAndBackfill|Backfill",
	},
	{
		name: "cron-pause-ignored", breaks: "a paused cron does not fire",
		file: cronTick, old: "if d.s.Paused || d.NamespacePaused || d.reachedMaxFires() {",
		planted:  "if d.NamespacePaused || d.reachedMaxFires() {",
		packages: "./cron ./engine/crons", run: "Triggers|TriggerAndBackfill|Decisions|Pause",
	},
	{
		name:   "cron-namespace-pause-ignored",
		breaks: "a command to a cron in a paused namespace does not decide fire times",
		file:   cronTick, old: "if d.s.Paused || d.NamespacePaused || d.reachedMaxFires() {",
		planted:  "if d.s.Paused || d.reachedMaxFires() {",
		packages: "./engine/crons", run: "PausedNamespace",
	},
	{
		name: "cron-jitter-early", breaks: "a fire time is not decided before its jitter is over",
		file: cronTick, old: "if !d.Schedule.Due(d.Key, fire).After(d.now) {", planted: "if !fire.After(d.now) {",
		packages: "./cron", run: "Jitter|Decisions",
	},
	{
		name: "cron-timeout-never", breaks: "a run that exceeds its timeout is TIMEOUT",
		file: cronTask, old: "if !d.Due.After(t.Now) {", planted: "if !d.Due.After(t.Now) && d.Fire.IsZero() {",
		packages: "./engine/crons", run: "Timeout",
	},
	{
		name:     "cron-started-process-continues",
		breaks:   "a process whose run ends with its INIT is cancelled with its run",
		file:     "engine/crons/runs.go",
		old:      "if err := c.cancelStarted(ctx, key, &w, target.GetStartProcess()); err != nil {",
		planted:  "if err := error(nil); err != nil {",
		packages: "./engine/crons", run: "RunEndsBefore",
	},
	{
		name: "cron-next-of-paused", breaks: "the list of crons that fire next excludes paused namespaces",
		file:     "engine/crons/list.go",
		old:      "names = slices.DeleteFunc(names, c.engine.IsPaused)",
		planted:  "names = slices.Clone(names)",
		packages: "./engine/crons", run: "ListNext",
	},
	{
		name: "cron-next-by-timer", breaks: "the crons that fire next are listed in the order of their fire times",
		file:     "sql/next_crons.sql",
		old:      "     ORDER BY head.next, p.namespace, p.process_id LIMIT @lim::int) summed",
		planted:  "     ORDER BY p.process_id, head.next, p.namespace LIMIT @lim::int) summed",
		packages: "./engine/crons", run: "ListNext",
	},
	{
		name: "cron-run-keeps-its-slot", breaks: "a run that waits for a long time sleeps most of that time",
		file: "engine/crons/notify.go", old: "max(waited, 0)/sleepPortion", planted: "max(-waited, 0)/sleepPortion",
		packages: "./engine/crons", run: "TestNotifyWaitsForLong",
	},
	{
		name: "cron-run-of-a-failed-process-is-cancelled", breaks: "a run fails if the process that it notified fails",
		file: "engine/crons/notify.go", old: "case p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:",
		planted:  "case p == nil:",
		packages: "./engine/crons", run: "TestNotifyDefers",
	},
}
