package main

const (
	jobDecide    = "engine/jobs/decide.go"
	jobGroup     = "engine/jobs/group.go"
	jobLines     = "engine/jobs/key_queues.go"
	pollGroups   = "sql/poll_groups.sql"
	jobGroups    = "sql/groups.sql"
	groupMembers = "sql/group_members.sql"
	jobLeases    = "sql/leases.sql"
	jobsSQL      = "sql/jobs.sql"

	constraintsSQL = "sql/constraints.sql"
	fairnessSQL    = "migrations/00110_task_functions.sql"
)

// jobMutants are the mutants of jobs, workers, constraints and groups.
var jobMutants = []mutant{
	{
		name: "claim-without-version", breaks: "a claim has the version of the constraints at its time",
		file: "sql/search_timers.sql", old: "c.version AS kind_keys_now",
		planted:  "NULL::bigint AS kind_keys_now",
		packages: "./storage", run: "ClaimsReturnTheJob",
	},
	{
		name: "members-are-counted", breaks: "counts of jobs leave out members of jobs for several workers",
		file: "sql/deliver_starts.sql",
		old:  "     AND NOT starts_with(decided.process_id, '~job/~/')\n", planted: "",
		packages: "./engine/jobs", run: "TestMembersAreNotCounted",
	},
	{
		name: "unstarted-child-is-silent", breaks: "a parent learns that the namespace of its child does not exist",
		file: "sql/deliver_starts.sql", old: "(NOT decided.known OR starts_with", planted: "(false OR starts_with",
		packages: "./engine", run: "TestParentAndChildren",
	},
	{
		name: "polls-by-age", breaks: "one poll takes jobs in the order of their rounds",
		file: "sql/poll.sql", old: "ORDER BY candidate.priority, candidate.round,",
		planted:  "ORDER BY candidate.priority,",
		packages: "./engine/jobs", run: "TestLeasesOfAPollAlternate",
	},
	{
		name: "one-round-for-a-key", breaks: "the jobs of a key wait one round after the other",
		file: fairnessSQL,
		old: "SELECT s.round + 1 FROM schedule s\n" +
			"       WHERE s.namespace COLLATE \"POSIX\" = next_round.namespace\n" +
			"         AND s.waits_for = 'place'",
		planted: "SELECT s.round FROM schedule s\n" +
			"       WHERE s.namespace COLLATE \"POSIX\" = next_round.namespace\n" +
			"         AND s.waits_for = 'place'",
		packages: "./storage", run: "TestRoundsOfABatch",
	},
	{
		name: "new-key-joins-old-round", breaks: "a key without a waiting job joins the current round",
		file: fairnessSQL,
		old: "                         AND s.job_name IS NOT NULL\n" +
			"                         AND s.job_name = next_round.job_name\n",
		planted:  "                         AND s.round = -1\n",
		packages: "./storage", run: "TestRoundsOfABatch",
	},
	{
		name: "retried-job-without-key", breaks: "a retried job waits behind the others of its fairness key",
		file: "sql/retry_tasks.sql", old: "       END,\n       job.fairness_key\n",
		planted:  "       END,\n       NULL\n",
		packages: "./engine/jobs", run: "TestJobThatWaitsAgain",
	},
	{
		name: "sql-job-without-key", breaks: "a job from SQL has a fairness key",
		file: "engine/kind.go", old: "ns.fairnessKey == \"\" {", planted: "ns.fairnessKey != \"\" {",
		packages: "./engine/jobs", run: "TestJobsFromSQLAlternate",
	},
	{
		name: "step-job-without-round", breaks: "the job of a step takes turns with others",
		file: "storage/jobs/enqueue.go", old: "j.FairnessKey == nil &&\n", planted: "\n",
		packages: "./engine/flows", run: "TestStepJobHasAFairnessKey",
	},
	{
		name: "key-queue-by-age", breaks: "jobs that wait for the same key of a constraint get it in rounds",
		file: constraintsSQL, old: "ORDER BY s.priority, s.round, s.task_id LIMIT item.room",
		planted:  "ORDER BY s.priority, s.task_id LIMIT item.room",
		packages: "./engine/jobs", run: "TestJobsInAKeyQueueAlternate",
	},
	{
		name: "group-of-dead-node-unchecked", breaks: "if a node dies, another one checks its groups",
		file: "engine/jobs/jobs.go", old: "func(s storage.NamespaceState) bool { return s.GroupsDue }",
		planted:  "func(storage.NamespaceState) bool { return false }",
		packages: "./engine/jobs", run: "TestGroupThatWasLeft",
	},
	{
		name: "constraints-of-other-node-ignored", breaks: "a node applies constraints that were put on another node",
		file: "engine/jobs/admit.go", old: "if s.ConstraintsVersion > 0 {", planted: "if s.ConstraintsVersion < 0 {",
		packages: "./engine/jobs", run: "TestNodeThatIsBehind|TestLimitHoldsOnTwoNodes|TestRate",
	},
	{
		name: "job-one-retry-more", breaks: "a job is retried max_retry times",
		file: jobDecide, old: "used <= options.GetMaxRetry()", planted: "used <= options.GetMaxRetry()+1",
		packages: "./engine/jobs", run: "Fail|Retr|Backoff|Quorum",
	},
	{
		name: "late-job-leased", breaks: "a claim does not take a job after its start deadline",
		file: "sql/poll.sql",
		old: "          AND (s.start_deadline > statement_timestamp()) IS NOT FALSE\n" +
			"          AND (NOT target.pauses",
		planted:  "          AND (NOT target.pauses",
		packages: "./storage", run: "TestClaimsSkipLateJobs",
	},
	{
		name: "late-job-not-ended", breaks: "the engine ends jobs after their start deadline",
		file: "engine/jobs/late.go", old: "if len(all) == 0 || !all[0].Late {",
		planted:  "if len(all) == 0 || all[0].Late {",
		packages: "./engine/jobs", run: "TestStartDeadline$",
	},
	{
		name: "start-deadline-of-a-retry", breaks: "a start deadline applies only to the first attempt",
		file: "sql/retry_tasks.sql", old: "r.attempt = 1 AND NOT item.counted",
		planted:  "r.attempt = 1",
		packages: "./storage", run: "TestEndLateJobs",
	},
	{
		name: "paused-name-leased", breaks: "a poll for all names does not get jobs of paused names",
		file: "engine/pull/leases.go", old: "pauses := job == \"\" && len(s.engine.PausedNames(name)) > 0",
		planted:  "pauses := job != \"\" && len(s.engine.PausedNames(name)) > 0",
		packages: "./engine/jobs", run: "TestPausedNameIsNotLeased",
	},
	{
		name: "resumed-name-not-notified", breaks: "polls that wait are woken when a job name is resumed",
		file: "engine/paused_names.go", old: "		e.workers.NamespacesChanged(changed)\n", planted: "",
		packages: "./engine/jobs", run: "TestResumedNameWakesPolls",
	},
	{
		name: "paused-name-keeps-keys", breaks: "jobs of a paused name leave their keys to others",
		file: "engine/jobs/admit.go", old: "if err := add(t.ReturnPaused()); err != nil {",
		planted:  "if err := add(nil, nil); err != nil {",
		packages: "./engine/jobs", run: "TestPausedNameLeavesKeys",
	},
	{
		name: "paused-step-begins", breaks: "the node that has ended a step does not begin one of a paused name",
		file: "engine/attempt.go", old: "&& !ns.pulled() && !e.hasPausedNames(ns.name)",
		planted:  "&& !ns.pulled()",
		packages: "./engine/flows", run: "TestStepOfAPausedName",
	},
	{
		name: "retry-after-ignored", breaks: "a failure's retry_after replaces the backoff",
		file: "wire/completion.go", old: "return min(d, process.MaxRetryAfter)",
		planted:  "return min(wait, process.MaxRetryAfter)",
		packages: "./engine/jobs", run: "TestRetryAfter",
	},
	{
		name: "release-delay-ignored", breaks: "a released lease is taken after its delay",
		file: "engine/leased_attempt.go", old: "d.completion.RetryAfter = delay",
		planted:  "d.completion.RetryAfter = 0 * delay",
		packages: "./engine/jobs", run: "TestReleaseWithDelay",
	},
	{
		name: "progress-of-the-last-attempt-lost", breaks: "a lease has the progress of earlier attempts",
		file: "storage/pull/poll.go", old: "		Progress: r.Progress,\n", planted: "",
		packages: "./client", run: "ContinuesAfterAFailure",
	},
	{
		name:   "job-backoff-of-the-first-attempt",
		breaks: "RetryJob does not begin the first attempt of a scheduled job",
		file:   "sql/end_backoff.sql", old: "     AND s.attempt > 0\n", planted: "",
		packages: "./engine/jobs", run: "TestRetryRefusesUnended",
	},
	{
		name: "unended-job-removed", breaks: "RemoveJob removes only jobs that have ended",
		file: "sql/remove_processes.sql", old: "p.kind = 'job' AND p.status = 'ERROR')",
		planted:  "p.kind = 'job')",
		packages: "./engine/jobs", run: "TestRemoveJob",
	},
	{
		name: "args-of-a-running-job", breaks: "the args of a job change only while it waits",
		file: "sql/update_job.sql", old: "(input.sets_run_time OR input.sets_args)",
		planted:  "input.sets_run_time",
		packages: "./engine/jobs", run: "TestUpdateArgs",
	},
	{
		name: "retention-of-failed-jobs", breaks: "failed jobs have their own retention",
		file: "storage/expire.go", old: "{\"ERROR\", keep.Failed}", planted: "{\"ERROR\", keep.Completed}",
		packages: "./engine/jobs", run: "TestRetentionByOutcome",
	},
	{
		name: "job-takeovers-unbounded", breaks: "after max_takeovers, a lost lease is a failed attempt",
		file: jobDecide, old: "end.Takeover = e.Lost && row.Takeovers < takeovers",
		planted:  "end.Takeover = e.Lost && row.Takeovers < takeovers+9",
		packages: "./engine/jobs", run: "Lost|Takeover|Lease|Worker",
	},
	{
		name: "job-takeover-uses-up-a-retry", breaks: "a lost worker does not use up a retry",
		file: jobDecide, old: "		if !f.Takeover {\n			used++",
		planted:  "		if f.Takeover || !f.Takeover {\n			used++",
		packages: "./engine/jobs", run: "Lost|Takeover|Lease|Worker",
	},
	{
		name: "lease-extended-without-salt", breaks: "a heartbeat without the salt of the lease does not extend it",
		file: jobLeases, old: "     AND l.salt = item.salt", planted: "",
		packages: "./engine/jobs", run: "Lease",
	},
	{
		name:   "lease-past-its-deadline",
		breaks: "an attempt that exceeds its timeout has failed, even if its worker sends heartbeats",
		file:   zombies, old: "l.expires_time < statement_timestamp() OR r.deadline < statement_timestamp()\n",
		planted:  "l.expires_time < statement_timestamp()\n",
		packages: "./engine/jobs", run: "Timeout",
	},
	{
		name: "lease-first-beat-late", breaks: "a lease without any heartbeat expires after two intervals",
		file: "sql/poll.sql", old: "2 * r.beat_us",
		planted:  "greatest(r.lease_us, 2 * r.beat_us)",
		packages: "./engine/jobs", run: "Lease",
	},
	{
		name: "poll-misses-a-resume", breaks: "a poll that waits gets tasks of a namespace that is resumed",
		file: "engine/namespaces.go", old: "		e.workers.NamespacesChanged(changed)\n",
		planted:  "		_ = changed\n",
		packages: "./engine/jobs", run: "ResumedNamespace",
	},
	{
		name: "job-update-unlocked", breaks: "concurrent updates of a job all take effect",
		file: "storage/jobs/update.go", old: `s.RunLocked(ctx, "update job", []process.Key{key}`,
		planted:  `s.RunLocked(ctx, "update job", nil`,
		packages: "./engine/jobs", run: "ConcurrentUpdates",
	},
	{
		name: "poll-without-a-limit-in-bytes", breaks: "a Poll returns at most 4 MiB of tasks",
		file: "sql/poll.sql", old: "summed.bytes_before < 4 * 1024 * 1024",
		planted:  "summed.bytes_before < 1000 * 1024 * 1024",
		packages: "./engine/jobs", run: "PollIsBounded",
	},
	{
		name:   "job-forgets-omitted-failures",
		breaks: "a job with more failures than it keeps is retried max_retry times",
		file:   jobDecide, old: "		used += f.Omitted - f.OmittedTakeovers\n", planted: "",
		packages: "./engine/jobs", run: "FailuresAreBounded",
	},
	{
		name:   "lease-lost-in-transit-is-an-attempt",
		breaks: "a lease that never reached its worker does not use up an attempt",
		file:   zombies, old: "2 * l.heartbeat_interval <= r.deadline - r.running_time,\n                   false",
		planted:  "false,\n                   false",
		packages: "./engine/jobs", run: "LeaseThatNeverBeats",
	},
	{
		name: "constraint-float-is-not-a-number", breaks: "a float without a fraction is a number for constraints",
		file: "engine/jobs/constraint.go", old: "args = process.PlainNumbers(args); args == nil",
		planted:  "args == nil",
		packages: "./engine/jobs", run: "KeyText",
	},
	{
		name: "zombies-few-at-a-time", breaks: "the tasks of a dead worker go to other workers after few passes",
		file: "engine/collector.go", old: "maxZombieSaves = 2000", planted: "maxZombieSaves = 200",
		packages: "./engine", run: "LeasesOfADeadWorker",
	},
	{
		name: "group-refused-while-paused", breaks: "a paused namespace accepts jobs for several workers",
		file: "engine/kind_services.go", old: "return err != nil || ns.lease > 0",
		planted:  "return err != nil || ns.pulled()",
		packages: "./engine/jobs", run: "GroupInAPausedNamespace",
	},
	{
		name: "pushed-job-cancelled-late", breaks: "the processor of a job gets its cancel at once",
		file: "engine/cancel.go", old: "			e.attempts.cancelRequested(p.Key)\n", planted: "",
		packages: "./engine/jobs", run: "PushedJobIsCancelledAtOnce/request",
	},
	{
		name:   "pushed-job-cancelled-elsewhere",
		breaks: "a node receives cancels from other nodes and from messages",
		file:   "engine/zombies.go", old: "e.attempts.cancelAttempt(ref, errCancelRequested)", planted: "_ = ref",
		packages: "./engine/jobs", run: "PushedJobIsCancelledAtOnce/message",
	},
	{
		name: "pushed-job-busy-processor", breaks: "a job waits for a busy processor until its timeout",
		file: "engine/jobs/pause.go", old: "left <= 0", planted: "u.Tries > 1",
		packages: "./engine/jobs", run: "PushedJobOf",
	},
	{
		name: "pushed-job-waits-forever", breaks: "a job waits for a busy processor at most until its timeout",
		file: "engine/jobs/pause.go", old: "u.Tries, u.Since = before.Tries+1, before.Since",
		planted:  "u.Tries = before.Tries + 1",
		packages: "./engine/jobs", run: "PushedJobOf",
	},
	{
		name: "pushed-job-keeps-its-slot", breaks: "a job that waits for a busy processor does not hold a slot",
		file: "engine/jobs/jobs.go", old: "Pause: q.pause, ", planted: "",
		packages: "./engine/jobs", run: "BusyProcessorTakesNoSlot",
	},
	{
		name: "lease-beats-too-rarely", breaks: "a worker must send two heartbeats before its lease expires",
		file: jobLeases, old: "least(coalesce(job.beat_us, durations.lease_us / 3), durations.lease_us / 2)",
		planted:  "coalesce(job.beat_us, durations.lease_us / 3)",
		packages: "./engine/jobs", run: "Interval",
	},
	{
		name:   "lease-late-answer-counts",
		breaks: "an answer that comes after the engine has ended the attempt is lost",
		file:   "engine/answered.go", old: "return sameOutcome(&decide(end).completion, stored)",
		planted:  "return !stored.Finished || sameOutcome(&decide(end).completion, stored)",
		packages: "./engine/crons", run: "TimeoutOfAJob",
	},
	{
		name:     "claim-drops-other-tasks",
		breaks:   "a task stays in the queue if the claim takes another task of its process",
		file:     "sql/search_calls.sql",
		old:      "s.process_id = claimed.process_id\n     AND s.task_id = claimed.task_id)",
		planted:  "s.process_id = claimed.process_id)",
		packages: "./storage", run: "TakeOneOfAProcess",
	},
	{
		name:   "group-naming-worker-waits",
		breaks: "a worker gets a place of a job that names it before older places for any worker",
		file:   pollGroups, old: "ORDER BY s.priority, g.worker_ids IS NULL, s.task_id",
		planted:  "ORDER BY s.priority, s.task_id",
		packages: "./engine/jobs", run: "TestNamedWorkerBeforeAnyOther",
	},
	{
		name: "group-named-last", breaks: "among places of the same priority, one that names the worker comes first",
		file: pollGroups, old: "candidate.named DESC, candidate.round, candidate.task_id",
		planted:  "candidate.task_id",
		packages: "./engine/jobs", run: "NamedWorker",
	},
	{
		name: "job-cancelled-runs-again", breaks: "a job whose cancel came first is not retried",
		file: "sql/retry_job.sql",
		old:  "WHERE process.cancel_deadline IS NOT NULL),\ndeleted_schedule AS",
		planted: "WHERE process.cancel_deadline IS NOT NULL AND process.cancel_deadline < 'epoch'),\n" +
			"deleted_schedule AS",
		packages: "./storage ./engine/jobs", run: "Cancel|OfAJob",
	},
	{
		name: "job-result-twice", breaks: "a kept result is returned once",
		file: jobsSQL, old: "UPDATE jobs j\n   SET result = NULL, updated_time = statement_timestamp()",
		planted:  "UPDATE jobs j\n   SET updated_time = statement_timestamp()",
		packages: "./engine/jobs", run: "Result|Pull|Job|Broadcast",
	},
	{
		name: "unique-key-twice", breaks: "at most one job with a unique key has not ended",
		file:     "sql/enqueue.sql",
		old:      "AND input.holder IS NULL\n               AND NOT input.again",
		planted:  "AND NOT input.again",
		packages: "./storage ./engine/jobs", run: "Unique|Enqueue",
	},
	{
		name:   "unique-key-of-a-retry",
		breaks: "a job that is retried does not run while another job has its unique key",
		file:   "sql/retry_job.sql", old: "checked.ended AND checked.holder IS NULL AS again",
		planted:  "checked.ended AS again",
		packages: "./storage ./engine/jobs", run: "RetryMeetsEnqueue|RetryOfUnique",
	},
	{
		name: "constraint-one-more", breaks: "never more than max_running jobs of a key run at the same time",
		file: jobLines, old: "r.MaxRunning-s.Held)", planted: "r.MaxRunning+1-s.Held)",
		packages: "./engine/jobs", run: "Limit|Constraint|MaxRunning|Line",
	},
	{
		name: "constraint-one-key-of-two", breaks: "a job has either all keys that it needs or none",
		file: jobLines, old: "l := p.queues[name]; !l.isFree(j) {",
		planted:  "l := p.queues[name]; !l.isFree(j) && name == lines[0] {",
		packages: "./engine/jobs", run: "NeedsAllItsKeys",
	},
	{
		name: "constraint-kept-after-the-end", breaks: "the end of a job frees its keys",
		file: jobDecide, old: "				c.EffectsOnEnd = append(c.EffectsOnEnd, storage.FreeKeys{})\n",
		planted:  "				_ = storage.FreeKeys{}\n",
		packages: "./engine/jobs", run: "EveryEndFreesItsKeys",
	},
	{
		name: "constraint-kept-after-a-fast-path-end", breaks: "the end of a job frees its keys",
		file: "sql/save_completed.sql", old: "FROM results WHERE results.frees)",
		planted:  "FROM results WHERE results.frees AND false)",
		packages: "./engine/jobs", run: "EveryEndFreesItsKeys",
	},
	{
		name: "constraint-one-key-assigned-of-two", breaks: "a job has either all keys that it needs or none",
		file: constraintsSQL, old: "AND job.constraint_keys = candidate.keys)",
		planted:  "AND candidate.keys IS NOT NULL)",
		packages: "./engine/jobs", run: "NeedsAllItsKeys|OfOneKeyAndOfTwo",
	},
	{
		name: "constraint-assigned-not-held", breaks: "never more than max_running jobs of a key run at the same time",
		file: constraintsSQL,
		old: "SELECT taken.namespace, taken.process_id, taken.line\n" +
			"    FROM taken WHERE (SELECT all_alone.given FROM all_alone)",
		planted: "SELECT taken.namespace, taken.process_id, taken.line\n" +
			"    FROM taken WHERE NOT (SELECT all_alone.given FROM all_alone)",
		packages: "./engine/jobs", run: "Limit|Constraint|MaxRunning|Line",
	},
	{
		name:   "constraint-of-another-version",
		breaks: "a job runs only with the keys of the constraints as they are when it is claimed",
		file:   "engine/jobs/admit.go", old: "	return j.ConstraintsVersion == j.ConstraintsNow\n",
		planted:  "	return j.ConstraintsVersion <= j.ConstraintsNow\n",
		packages: "./engine/jobs", run: "Constraint|Change|Limit",
	},
	{
		name: "group-second-place", breaks: "a worker does not get a second place of a job",
		file: pollGroups, old: "THEN g.takers || @worker_id::text ELSE", planted: "THEN g.takers || ''::text ELSE",
		packages: "./storage ./engine/jobs", run: "ManyPolls|Group|Broadcast|Quorum",
	},
	{
		name: "group-start-unrecorded", breaks: "a job for several workers runs when a worker takes its first place",
		file: pollGroups, old: "running_time = coalesce(g.running_time, statement_timestamp())",
		planted:  "running_time = g.running_time",
		packages: "./engine/jobs", run: "TestGroupRunsWithItsWorkers",
	},
	{
		name:     "group-without-workers-runs",
		breaks:   "a job for several workers waits again when no worker runs it any more",
		file:     groupMembers,
		old:      "WHEN s.waits_for = 'members' THEN 'place' ELSE s.waits_for END",
		planted:  "WHEN false THEN 'place' ELSE s.waits_for END",
		packages: "./engine/jobs", run: "TestGroupRunsWithItsWorkers|TestGroupWaitsAfterItsLastWorker",
	},
	{
		name:   "group-starts-after-its-cancel",
		breaks: "a poll does not start a job for several workers that is cancelled at the same time",
		file:   pollGroups, old: "LIMIT 1 FOR SHARE SKIP LOCKED) process", planted: "LIMIT 1) process",
		packages: "./storage", run: "TestGroupStartsOrIsCancelled",
	},
	{
		name: "step-of-named-workers", breaks: "a step runs while a worker has a place of its job",
		file: "sql/flow_steps.sql", old: "FROM running_jobs k", planted: "FROM running k",
		packages: "./engine/flows", run: "TestStepOfNamedWorkers",
	},
	{
		name: "group-any-worker", breaks: "only the workers that a job names get its places",
		file: pollGroups, old: "AND (g.worker_ids IS NULL OR @worker_id::text = ANY (g.worker_ids))", planted: "",
		packages: "./engine/jobs", run: "Group|Broadcast|Quorum|Released",
	},
	{
		name: "group-row-unlocked", breaks: "two polls of one worker at the same time get only one place of a job",
		file: pollGroups, old: "FOR NO KEY UPDATE OF s, p, g SKIP LOCKED",
		planted:  "FOR NO KEY UPDATE OF s, p SKIP LOCKED",
		packages: "./storage", run: "ManyPolls|CurrentGroup",
	},
	{
		name: "group-lost-worker-excluded", breaks: "a worker that is lost may take a place again",
		file: groupMembers, old: "SELECT input.worker_id FROM input\n           WHERE input.leaves\n             AND",
		planted:  "SELECT input.worker_id FROM input\n           WHERE false AND input.leaves\n             AND",
		packages: "./storage ./engine/jobs", run: "PlacesOfMembers|Group|Lost|Released",
	},
	{
		name: "group-one-failure-more", breaks: "a job fails when more than max_failures workers have failed",
		file: jobGroup, old: "t.failed > int(rules.MaxFailures)", planted: "t.failed > int(rules.MaxFailures)+1",
		packages: "./engine/jobs", run: "Group|Quorum|Lost",
	},
	{
		name: "group-success-lost-to-cancel", breaks: "a success before a cancel counts",
		file: jobGroup, old: "	case missing <= 0:\n", planted: "	case missing <= 0 && !g.Cancelling:\n",
		packages: "./engine/jobs", run: "Group",
	},
	{
		name: "group-members-not-cancelled", breaks: "members that still run when their job ends are asked to end",
		file: jobGroup, old: "	step := jobs.GroupStep{Cancel: unasked(t.open), Takers: t.takers}\n",
		planted:  "	step := jobs.GroupStep{Takers: t.takers}\n",
		packages: "./engine/jobs", run: "Group|Lost",
	},
	{
		name: "lost-request-sent-again", breaks: "a request goes to the next URL only if it did not reach user code",
		file: "processor/remote/endpoints.go", old: "err == nil || !processor.Unreachable(err)",
		planted:  "err == nil || false && !processor.Unreachable(err)",
		packages: "./processor/remote", run: "TestLostRequestIsNotRepeated",
	},
	{
		name: "many-keys-starve", breaks: "a job that needs several keys reserves them when others overtake it",
		file: "engine/jobs/reserve.go", old: "if j.Stale || missing >=", planted: "if j.TaskID > 0 || missing >=",
		packages: "./engine/jobs", run: "TestJobOfManyKeysDoesNotStarve|TestReservedKeyIsKept",
	},
	{
		name:   "unique-ttl-ends-with-retention",
		breaks: "a unique key is taken for its TTL, even if its job was removed",
		file:   "sql/expire_processes.sql",
		old:    "SET held_until = kept_key.status_changed_time + kept_key.ttl", planted: "SET held_until = NULL",
		packages: "./engine/jobs", run: "TestUniqueTTLOutlivesRetention",
	},
	{
		name:   "batch-fails-at-concurrent-job",
		breaks: "a batch finds a job that another session creates at the same time",
		file:   "storage/transactions.go", old: "try == insertTries || ", planted: "true || try == insertTries || ",
		packages: "./storage", run: "TestEnqueueMeetsProcess",
	},
	{
		name:   "replacing-fails-at-concurrent-job",
		breaks: "a job that replaces another one finds a concurrent job with its ID",
		file:   "storage/jobs/replace.go", old: "changed = storage.IsUniqueViolation(err); changed",
		planted:  "changed = false; changed",
		packages: "./storage", run: "TestEnqueueMeetsProcess",
	},
	{
		name: "completed-by-status", breaks: "a list of COMPLETED processes by creation reads a bounded number of rows",
		file: "storage/search/order.go", old: `status != "" && status != string(process.StatusCompleted)`,
		planted:  `status != ""`,
		packages: "./storage/search", run: "TestPlans",
	},
}
