package main

const (
	callersOfWorkers = "engine/pull/callers.go"
	ownersSQL        = "sql/workers.sql"
	callerTests      = "TestPollsOfLimitedClients|TestLeasesOfLimitedClients|TestNextPollOfLimitedClients"
)

// workerMutants remove limits of workers and their clients, of leases, and of those who may answer
// waits.
var workerMutants = []mutant{
	{
		name: "locked-tasks-not-polled", breaks: "a poll waits for the lock of a process that it was offered",
		file: "engine/pull/leases.go", old: "|| offers == 0 {", planted: "|| offers >= 0 {",
		packages: "./engine/jobs", run: "PollWaitsForLock",
	},
	{
		name: "worker-polls-any-job", breaks: "a worker with a limit cannot poll for other jobs",
		file: callersOfWorkers, old: "if !may.Match(name) {", planted: "if false {",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-repeats-refused-progress", breaks: "a progress that the engine refuses is not sent again",
		file: "client/heartbeat.go", old: "if isRefused(err) {", planted: "if false {",
		packages: "./client", run: "TestRefusedProgress",
	},
	{
		name: "worker-repeats-unencodable-answer", breaks: "an answer that protobuf cannot encode fails its job",
		file: "client/answers.go", old: "\t\tr.replaceUnencodable(batch)\n", planted: "",
		packages: "./client", run: "TestUnencodableAnswer",
	},
	{
		name:   "worker-polls-without-names",
		breaks: "a worker with a limit does not get other jobs by polling without names",
		file:   callersOfWorkers, old: "	return may, true, nil\n", planted: "	return []string{\"\"}, true, nil\n",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-with-prefix-polls-all", breaks: "a worker that is limited to a prefix must send names",
		file:     callersOfWorkers,
		old:      `return strings.HasSuffix(pattern, "*") }):`,
		planted:  `return false }):`,
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-of-all-jobs-gets-tasks", breaks: "a worker of all jobs does not get tasks of other processes",
		file:     callersOfWorkers,
		old:      `	case slices.Contains(may, "*"):` + "\n		return []string{\"\"}, true, nil",
		planted:  `	case slices.Contains(may, "*"):` + "\n		return []string{\"\"}, p.JobsOnly, nil",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-completes-any-job", breaks: "a worker with a limit cannot complete other jobs",
		file:     "engine/pull/answers.go",
		old:      `s.checkAnswer(ctx, "lease_token", l)`,
		planted:  `error(nil)`,
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-repeats-any-answer", breaks: "a worker with a limit cannot see other jobs",
		file:     "engine/pull/answers.go",
		old:      "if err == nil && callerOf(ctx).checkJob(",
		planted:  "if false && callerOf(ctx).checkJob(",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-learns-names-of-jobs", breaks: "a worker with a limit cannot see the names of other jobs",
		file:     "engine/pull/answers.go",
		old:      "err = process.ErrFenced // the salt",
		planted:  `err = callerOf(ctx).checkJob("lease_token", t.Key.Namespace, stored.KindName) // the salt`,
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "statement-per-heartbeat", breaks: "a heartbeat takes the same number of statements for many leases",
		file:     "engine/pull/holders.go",
		old:      "	read, err := pull.ReadHolders(",
		planted:  "	for range unknown { _, _ = s.heldLease(ctx, unknown[0]) }\n	read, err := pull.ReadHolders(",
		packages: "./engine/jobs", run: "TestLeasesTakeFewStatements",
	},
	{
		name: "worker-releases-any-job", breaks: "a worker with a limit cannot release other jobs",
		file:     "engine/pull/release.go",
		old:      "s.checkLeases(ctx, field, parsed)",
		planted:  "error(nil)",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-extends-any-lease", breaks: "a worker with a limit cannot extend leases of other jobs",
		file:     "engine/pull/heartbeats.go",
		old:      "s.checkJobs(ctx, field, tokens)",
		planted:  "s.checkJobs(ctx, field, tokens[:0])",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-continues-with-any-job", breaks: "a worker with a limit cannot poll by Complete",
		file:     callersOfWorkers,
		old:      "range next.Namespaces {",
		planted:  "range next.Namespaces[:0] {",
		packages: "./engine/jobs", run: callerTests,
	},
	{
		name: "worker-commands-own-namespace", breaks: "a worker with a limit cannot send commands",
		file: "engine/rpc/authorize.go", old: "n.own && !rule.limited(p, n.name)", planted: "n.own",
		packages: "./engine/rpc", run: "TestTargets",
	},
	{
		name: "worker-id-of-others", breaks: "a client cannot use the worker ID of another client",
		file: "engine/pull/workers.go", old: "if len(foreign) > 0 {", planted: "if false {",
		packages: "./engine/jobs", run: "TestWorkerIDsHaveOwners",
	},
	{
		name: "worker-id-during-lease", breaks: "a client keeps a worker ID while the worker has leases",
		file:     ownersSQL,
		old:      "AND NOT EXISTS (\n          SELECT 1 FROM leases l",
		planted:  "OR EXISTS (\n          SELECT 1 FROM leases l",
		packages: "./engine/jobs", run: "TestWorkerIDsHaveOwners",
	},
	{
		name: "leases-deleted-in-any-order", breaks: "results delete leases in the order in which heartbeats lock them",
		file: "storage/save_result.go", old: "int { return a.Key.Compare(b.Key) })", planted: "int { return 0 })",
		packages: "./storage", run: "TestLeasesEndInTheOrderOfHeartbeats",
	},
	{
		name: "leases-deleted-twice", breaks: "a flush deletes leases with one statement",
		file: "storage/item.go", old: "endLeaseStages(s, b.saves)...)",
		planted:  "append(endLeaseStages(s, fast), endLeaseStages(s, general)...)...)",
		packages: "./storage", run: "TestLeasesEndInTheOrderOfHeartbeats",
	},
	{
		name: "orphaned-leases-wait", breaks: "the deletion of orphaned leases does not wait for locked leases",
		file: jobLeases, old: "LIMIT 1000 FOR UPDATE OF x SKIP LOCKED", planted: "LIMIT 1000",
		packages: "./storage", run: "TestForgettingLeasesWaitsForNoLease",
	},
	{
		name: "workers-deleted-slowly", breaks: "the deletion of workers reads the leases once",
		file: ownersSQL, old: "l.namespace = ANY (@namespaces::text[]))) IS NOT TRUE",
		planted:  "l.namespace = x.namespace AND l.worker_id = x.worker_id)) IS NOT TRUE",
		packages: "./storage", run: "TestWorkersWithManyLeases",
	},
	{
		name: "workers-listed-slowly", breaks: "a list of workers looks up only their attempts",
		file: ownersSQL, old: "(l.worker_id IN (SELECT known.worker_id FROM known)) IS TRUE", planted: "true",
		packages: "./storage", run: "TestWorkersWithManyLeases",
	},
	{
		name: "lease-of-other-worker", breaks: "a client cannot end leases of another client's worker",
		file: callersOfWorkers, old: `err != nil || c.Owner == "" {`, planted: "true {",
		packages: "./engine/jobs", run: "TestWorkerIDsHaveOwners",
	},
	{
		name: "command-reaches-other-clients", breaks: "a command does not reach workers of other clients",
		file:     ownersSQL,
		old:      "AND x.owner IS NOT DISTINCT FROM target.owner",
		planted:  "",
		packages: "./engine/jobs", run: "TestCommandsReachWorkersOfOneClient",
	},
	{
		name: "directive-of-other-client", breaks: "a worker gets only commands that were sent to its client",
		file:     "engine/pull/workers.go",
		old:      `	if owner == "" {` + "\n		for of",
		planted:  "	if true {\n		for of",
		packages: "./engine/jobs", run: "TestCommandsReachWorkersOfOneClient",
	},
	{
		name: "stop-takes-leases-of-others", breaks: "a stop takes back only leases of the client",
		file: ownersSQL, old: "WHERE coalesce(holder.owner, '') = item.owner",
		planted: "WHERE true", packages: "./engine/jobs", run: "TestCommandsReachWorkersOfOneClient",
	},
	{
		name: "stopped-worker-keeps-its-id", breaks: "another client can take the ID of a stopped worker",
		file: ownersSQL, old: "OR w.lost_time < statement_timestamp())",
		planted: ")", packages: "./engine/jobs", run: "TestStoppedWorkerLosesItsID",
	},
	{
		name: "former-owner-keeps-worker-id", breaks: "a client that loses a worker ID cannot use it",
		file: "engine/pull/workers.go", old: "deleted\n			delete(w.seen, key)\n",
		planted:  "deleted\n			s.noted = now\n",
		packages: "./engine/jobs", run: "TestStoppedWorkerLosesItsID",
	},
	{
		name: "new-key-loses-worker-id", breaks: "a key with the same name keeps the worker IDs",
		file: "engine/auth/authenticator.go", old: ".withKeyName(row.Name)", planted: "",
		packages: "./cmd/progressor", run: "TestWorkerIDsOfKeys",
	},
	{
		name: "limit-of-any-role", breaks: "only the role worker can be limited to some jobs",
		file:     "engine/auth/roles.go",
		old:      "limited && (name != roleWorker || !validJobs(jobs))",
		planted:  "limited && !validJobs(jobs)",
		packages: "./engine/auth", run: "TestJobs",
	},
	{
		name: "anyone-answers", breaks: "only an assignee answers a wait that has assignees",
		file:     "engine/flows/assignees.go",
		old:      "slices.ContainsFunc(names, w.hasAssignee)",
		planted:  "true",
		packages: "./engine/flows", run: "TestAssignees",
	},
	{
		name: "waits-of-anyone-listed", breaks: "a list of answerable waits contains only those of the client",
		file: "storage/search/waits.go", old: "		s.add(ofAssignees, q.Assignees)\n", planted: "",
		packages: "./engine/flows", run: "TestAssignees",
	},
	{
		name: "waits-shared-by-clients", breaks: "clients do not share lists of waits",
		file: "engine/rpc/shared.go", old: "&& ofClient[method]", planted: "&& !ofClient[method]",
		packages: "./engine/rpc", run: "TestSharedByClient",
	},
	{
		name: "assignee-without-prefix-is-a-user", breaks: "an assignee without a prefix is a group",
		file: "engine/flows/assignees.go", old: `return "group:" + assignee`, planted: "return assignee",
		packages: "./engine/flows", run: "TestAssignees",
	},
	{
		name: "waits-of-viewers-listed", breaks: "a client without wait.answer may answer no wait",
		file: "engine/rpc/waits.go", old: "			list, next = nil, \"\"\n", planted: "",
		packages: "./cmd/progressor", run: "TestWaitsOfAllNamespaces",
	},
	{
		name: "waits-of-first-namespace", breaks: "the pages of the waits of all namespaces contain all of them",
		file: "engine/rpc/waits.go", old: "		if name < first {",
		planted:  "		if name <= first && first != \"\" {",
		packages: "./cmd/progressor", run: "TestWaitsOfAllNamespaces",
	},
	{
		name: "answer-without-name", breaks: "an answer records the client that gave it",
		file: "engine/flows/answers.go", old: "cmp.Or(r.GetWorkerId(), by.Name)", planted: "cmp.Or(r.GetWorkerId())",
		packages: "./engine/flows", run: "TestClaim",
	},
	{
		name: "claim-forgotten", breaks: "a report without a worker_id keeps the worker of a wait",
		file: "sql/flow_steps.sql", old: "CASE WHEN item.claims THEN", planted: "CASE WHEN true THEN",
		packages: "./engine/flows", run: "TestClaim",
	},
	{
		name: "anyone-reports", breaks: "only an assignee reports the progress of a wait that has assignees",
		file:     "engine/flows/answers.go",
		old:      "Due: r.GetDue().AsDuration(),\n\t\tNames: names,",
		planted:  "Due: r.GetDue().AsDuration(),\n\t\tNames: map[bool][]string{true: names}[false],",
		packages: "./engine/flows", run: "TestAssignees",
	},
	{
		name: "groups-of-clients-are-stored", breaks: "an answer to a wait does not contain other groups of the client",
		file: "engine/flows/assignees.go", old: "	sent := names[:1:1]\n", planted: "	sent := names\n",
		packages: "./engine/flows", run: "TestAssignees",
	},
	{
		name: "operator-is-anyone", breaks: "only operators answer waits of others",
		file: "engine/rpc/flow.go", old: "p == nil || p.Can(progressorv1.Permission_PERMISSION_PROCESS_OPERATE",
		planted:  "p == nil || p.Can(progressorv1.Permission_PERMISSION_WAIT_ANSWER",
		packages: "./cmd/progressor", run: "TestAssigneesOfKeys",
	},
}

// commandMutants let processors send commands to every namespace.
var commandMutants = []mutant{
	{
		name: "commands-to-any-namespace", breaks: "a processor sends commands only to namespaces that are allowed",
		file: "engine/commands.go", old: `to != "" && !ns.commandsTo.Match(to)`, planted: "false && to == \"\"",
		packages: "./engine", run: "TestCommandsToOtherNamespaces",
	},
	{
		name: "allowed-without-permission", breaks: "commands are allowed only to namespaces of the client",
		file: "engine/rpc/named.go", old: `, "command_namespaces":`, planted: ":",
		packages: "./engine/rpc", run: "TestCommandNamespaces",
	},
}

// startMutants break the start of an engine whose database cannot be reached, the bounds of
// workers, and the stop of a worker.
var startMutants = []mutant{
	{
		name:   "start-waits-with-wrong-password",
		breaks: "a start does not wait for its database after a permanent error",
		file:   "storage/reach.go", old: "			return true\n		}\n		return false\n",
		planted:  "			return true\n		}\n		return true\n",
		packages: "./storage", run: "TestMayBecomeReachable",
	},
	{
		name: "ready-without-database", breaks: "an engine that waits for its database is not ready",
		file: "engine/rpc/front.go", old: "page(w, http.StatusServiceUnavailable, ", planted: "page(w, http.StatusOK, ",
		packages: "./engine/rpc", run: "TestFront",
	},
	{
		name: "worker-ids-unlimited", breaks: "a client has a limited number of worker IDs",
		file: "storage/pull/workers.go", old: "len(crowded) == 0 {\n		return err\n	}\n	return &process",
		planted:  "len(crowded) >= 0 {\n		return err\n	}\n	return &process",
		packages: "./engine/jobs", run: "TestWorkerIDsOfAClientAreLimited",
	},
	{
		name: "worker-with-lost-leases", breaks: "a worker is shown only with its current leases",
		file: ownersSQL, old: "\n      AND r.fencing_token = l.fencing_token\n    LIMIT 1) attempt",
		planted:  "\n    LIMIT 1) attempt",
		packages: "./engine/jobs", run: "TestGetWorker",
	},
	{
		name: "jobs-of-former-worker", breaks: "worker_id finds a job by its last attempt, not by an earlier one",
		file: "storage/search/jobs.go", old: "WHERE p.status IN ('COMPLETED', 'ERROR', 'CANCELLED') AND t.namespace",
		planted:  "WHERE t.namespace",
		packages: "./engine/jobs", run: "TestJobsOfAWorker",
	},
	{
		name: "worker-id-with-lease-deleted", breaks: "a worker with leases keeps its ID",
		file: ownersSQL, old: "\n         WHERE l.namespace = ANY (@namespaces::text[])))",
		planted:  "\n         WHERE false))",
		packages: "./engine/jobs", run: "TestWorkerIDsOfAClientAreLimited",
	},
	{
		name: "stopping-worker-gets-tasks", breaks: "a worker that stops does not get the tasks that it releases",
		file: "engine/pull/end_polls.go", old: "if poll.worker == worker && ", planted: "if false && ",
		packages: "./engine/jobs", run: "TestStoppingWorkerGetsNoReleasedTask",
	},
	{
		name: "stop-ends-polls-of-others", breaks: "a client ends only its own polls",
		file: "engine/pull/end_polls.go", old: "if poll.worker == worker && ",
		planted:  "if poll.worker.WorkerID == worker.WorkerID && ",
		packages: "./engine/jobs", run: "TestPollsOfOtherClientsGoOn",
	},
	{
		name: "stop-ignores-other-nodes", breaks: "the polls of a worker that stops end on all nodes",
		file: "engine/pull/end_polls.go", old: "if notice[0] != s.nodeID() {", planted: "if false {",
		packages: "./engine/jobs", run: "TestPollsEndOnOtherNodes",
	},
	{
		name: "stop-hears-itself", breaks: "a notice ends no poll on the node that sent it",
		file: "engine/pull/end_polls.go", old: "if notice[0] != s.nodeID() {", planted: "if true {",
		packages: "./engine/jobs", run: "TestOwnNoticeEndsNoPoll",
	},
	{
		name: "stop-misses-claims", breaks: "a task that a poll leases after its worker has stopped is released",
		file: "engine/pull/leases.go", old: "ctx.Err() != nil || poll.isEnded()", planted: "ctx.Err() != nil",
		packages: "./engine/jobs", run: "TestStopDuringLease",
	},
	{
		name: "undelivered-leases-expire", breaks: "leases are released if their response does not reach the worker",
		file: "engine/rpc/undelivered.go", old: "if u.do != nil && ", planted: "if false && ",
		packages: "./engine/rpc", run: "TestUndeliveredLeasesAreReleased",
	},
	{
		name: "worker-cancels-its-poll", breaks: "a worker that stops reads the response to its last poll",
		file: "client/worker_run.go", old: "context.WithTimeout(r.requests, pollWait+requestTimeout)",
		planted:  "context.WithTimeout(r.polling, pollWait+requestTimeout)",
		packages: "./client", run: "TestStopDuringPoll",
	},
}
