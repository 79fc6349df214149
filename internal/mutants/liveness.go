package main

// livenessMutants break the detection of dead nodes and the handling of the database's clock.
var livenessMutants = []mutant{
	{
		name: "health-best-counts", breaks: "the worst problem is the health of a namespace",
		file: "engine/insight/health.go", old: "status = max(status, p.GetStatus())",
		planted:  "status = min(status, p.GetStatus())",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name: "health-without-connection", breaks: "the health of one namespace covers a connection to its processor",
		file: "engine/insight/health.go", old: "if namespace != \"\" {", planted: "if namespace == \"\" {",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name: "health-of-this-node-only", breaks: "other nodes may run tasks that this node cannot run",
		file: "engine/insight/health.go", old: "if node.Others > 0 { // they", planted: "if node.Others < 0 { // they",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name: "health-without-workers", breaks: "a namespace without workers is down",
		file: "engine/insight/health.go", old: "ns.Lease > 0 && h.GetWorkers() == 0",
		planted:  "ns.Lease > 0 && h.GetWorkers() < 0",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name:   "health-of-the-last-task",
		breaks: "the health of a processor depends on a new connection, not on the last task",
		file:   "engine/insight/health.go", old: "case unreachable != nil && ns.Away:", planted: "case ns.Away:",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name: "old-errors-count", breaks: "an old error does not make a namespace unhealthy",
		file: "engine/insight/health.go", old: " && h.GetNewestErrorAge().AsDuration() < freshError", planted: "",
		packages: "./engine", run: "NamespaceHealth",
	},
	{
		name: "living-node-declared-dead", breaks: "a node that sends heartbeats is not dead",
		file: "engine/peers.go", old: "if !known || !s.beat.Equal(b.BeatTime) {", planted: "if !known {",
		packages: "./engine", run: "TestForwardClockStep|TestZombie",
	},
	{
		name: "age-by-the-clock", breaks: "a step of the database clock does not make a node dead",
		file: "engine/peers.go", old: "unchanged >= e.fenceAfter() && age >= e.cfg.ZombieAfter",
		planted:  "age >= e.cfg.ZombieAfter",
		packages: "./engine", run: "TestNodeIsDead",
	},
	{
		name:   "deadline-by-the-clock",
		breaks: "a step of the database clock does not make a running attempt a zombie",
		file:   "engine/zombies.go", old: "late = s.Overdue && now.Sub(", planted: "late = s.Overdue || now.Sub(",
		packages: "./engine", run: "TestForwardClockStep",
	},
	{
		name:   "lease-by-the-clock",
		breaks: "a step of the database clock does not end a lease that is renewed",
		file:   "engine/zombies.go", old: "s.Leased && s.Expired && now.Sub(known.leaseSince) >= s.Renewal",
		planted:  "s.Leased && s.Expired",
		packages: "./engine/jobs", run: "TestForwardClockStep",
	},
	{
		name: "declared-dead-unnoticed", breaks: "the next heartbeat informs a node that it was declared dead",
		file:     "sql/nodes.sql",
		old:      "WHERE node_id = @node_id\n   AND (dead_beat_time = beat_time) IS NOT TRUE\nRETURNING",
		planted:  "WHERE node_id = @node_id\nRETURNING",
		packages: "./storage ./engine", run: "ReadZombies|DeclaredDead",
	},
	{
		name:     "fence-waits-for-heartbeat",
		breaks:   "a node without heartbeats cancels its attempts even if its heartbeat blocks",
		file:     "engine/heartbeat.go",
		old:      "		if !e.isConnected() {\n			e.cancelAttempts()\n			left",
		planted:  "		if !e.isConnected() {\n			left",
		packages: "./engine", run: "TestFence",
	},
	{
		name: "times-repaired-without-the-lock", breaks: "times of a task are repaired under the lock of its process",
		file: "sql/clock.sql",
		old: "x.running_time > statement_timestamp() + interval '1 second' LIMIT @lim::int\n" +
			"       FOR NO KEY UPDATE OF p SKIP LOCKED",
		planted: "x.running_time > statement_timestamp() + interval '1 second' LIMIT @lim::int\n" +
			"       FOR NO KEY UPDATE OF x SKIP LOCKED",
		packages: "./storage", run: "TestRepairTimesLeavesLockedProcesses",
	},
	{
		name: "gap-ignored", breaks: "a node that was frozen cancels its attempts with its next heartbeat",
		file: "engine/heartbeat.go", old: "	if gap {\n		e.cancelAttempts()\n", planted: "	if gap {\n",
		packages: "./engine", run: "TestGap",
	},
	{
		name:   "lost-attempts-continue",
		breaks: "an attempt that lost its process is cancelled after a gap or a failover",
		file:   "engine/zombies.go", old: "e.attempts.cancelRefs(lost, errNoHeartbeat)", planted: "len(lost) * 0",
		packages: "./engine", run: "TestLostAttempt|TestFailoverThatLosesTheTail",
	},
	{
		name: "heartbeat-shares-a-pool", breaks: "the heartbeat of the node has its own connection",
		file: "storage/nodes.go", old: "s.q.Beat(ctx, s.beats,", planted: "s.q.Beat(ctx, s.kept,",
		packages: "./storage", run: "TestNodeHeartbeat",
	},
	{
		name: "work-takes-all-connections", breaks: "no kind of work uses all connections of a shared pool",
		file: "storage/share.go", old: "max(int(pool.Config().MaxConns)-1, 1)",
		planted:  "max(int(pool.Config().MaxConns), 1)",
		packages: "./storage", run: "TestShares",
	},
	{
		name: "chores-on-every-node", breaks: "one node does each shared chore",
		file:     "engine/peers.go",
		old:      "return !slices.ContainsFunc(live, func(id int64) bool { return weight(chore, id) > own })",
		planted:  "return own > 0 || slices.Contains(live, 0)",
		packages: "./engine", run: "TestNodesDivide",
	},
	{
		name: "messages-wait-for-the-clock", breaks: "messages are delivered after the clock was set back",
		file: messages, old: "OR m.created_time\n" +
			"                 NOT BETWEEN statement_timestamp() - (@age_us::bigint) * interval '1 microsecond'\n" +
			"                     AND statement_timestamp() + (@age_us::bigint) * interval '1 microsecond')",
		planted:  "OR m.created_time < statement_timestamp() - (@age_us::bigint) * interval '1 microsecond')",
		packages: "./engine", run: "TestBackwardClockStep",
	},
	{
		name: "graces-wait-for-the-clock", breaks: "the grace of a cancel ends after the clock was set back",
		file: "storage/clock.go", old: "s.q.RestartGraces, s.q.RestartAttempts", planted: "s.q.RestartAttempts",
		packages: "./engine", run: "TestBackwardClockStep",
	},
	{
		name:   "failed-command-breaks-process",
		breaks: "a command that fails does not break a process that the engine runs itself",
		file:   "engine/decide.go", old: "end.kind.Processor != nil && !d.completion",
		planted:  "end.kind.Processor == nil && !d.completion",
		packages: "./engine", run: "TestKindSurvives",
	},
	{
		name: "tries-share-effects", breaks: "a try without a decision does not affect the next try",
		file: "engine/internal_attempt.go", old: "a.messages, a.effects, a.stored = nil, nil, nil",
		planted:  "a.effects = nil",
		packages: "./engine", run: "TestRepeatedTryOfAKind",
	},
	{
		name: "bulk-pauses-without-failure", breaks: "a bulk does not pause after a page that ends early",
		file: "engine/bulk/run.go", old: "len(due) > 0 && due[0].Tries > 0 ||",
		planted:  "len(due) > 0 ||",
		packages: "./engine/bulk", run: "EndsEarly",
	},
	{
		name: "bulk-pauses-for-repairs", breaks: "a bulk does not pause for slow repairs while others wait",
		file: "engine/bulk/run.go", old: "len(unfinished) > 0 && !w.more", planted: "len(unfinished) > 0",
		packages: "./engine/bulk", run: "TestNoPauseForSlowRepairs",
	},
	{
		name: "bulk-waits-forever", breaks: "a bulk waits for a repair for a limited time",
		file: "engine/bulk/run.go", old: "return w.bulks.limits.polls", planted: "return w.bulks.limits.polls << 20",
		packages: "./engine/bulk", run: "TestRepairThatDoesNotEnd",
	},
	{
		name: "enqueue-command-starts-at-once", breaks: "a result may enqueue an ID twice",
		file: "engine/jobs/jobs.go", old: "m.Plain = false", planted: "m.Plain = m.Plain || false",
		packages: "./engine/jobs", run: "TestEnqueuedTwice",
	},
	{
		name: "enqueue-command-times-unchecked", breaks: "a command that enqueues a job has valid times",
		file: "processor/check_enqueue.go", old: "CheckJobTimes(field+\".\", o), ", planted: "",
		packages: "./processor", run: "TestCheckEnqueue",
	},
	{
		name: "enqueue-command-workers-unchecked", breaks: "a command that enqueues a job has enough workers",
		file: "processor/check_enqueue.go", old: ", CheckWorkerGroup(field+\".workers\", o.GetWorkers())", planted: "",
		packages: "./processor", run: "TestCheckEnqueue",
	},
	{
		name: "slot-of-skipped-task", breaks: "a free slot wakes the poller whose scan skipped a locked process",
		file: "engine/slots.go", old: "if s.takeForScan(c, 1) == 0 {",
		planted:  "if taken, _ := s.inUse(); taken >= s.max {",
		packages: "./engine", run: "TestSlotOfASkippedTask",
	},
}
