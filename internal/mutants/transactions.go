package main

// txMutants repeat, lose or block the transactions of durable functions.
var txMutants = []mutant{
	{
		name: "tx-repeats", breaks: "a transaction that has committed is not repeated",
		file: "processor/durable/tx.go", old: "claimed.RowsAffected() == 0", planted: "claimed.RowsAffected() < 0",
		packages: "./processor/durable", run: "TestTxOfStaleAttempt",
	},
	{
		name: "tx-forgets-lost-commits", breaks: "a step does not fail if it has committed",
		file: "processor/durable/tx.go", old: "case x.run.isLast(x.step, err):", planted: "case x.step == nil:",
		packages: "./processor/durable", run: "TestTxWithLostCommit",
	},
	{
		name: "tx-fails-without-database", breaks: "a step does not fail while its result is unknown",
		file: "processor/durable/tx.go", old: "x.run.fail(processor.Fail(ReasonTx,",
		planted:  "return nil, (processor.Fail(ReasonTx,",
		packages: "./processor/durable", run: "TestTxWithoutDatabase",
	},
	{
		name: "tx-repeats-errors-after-repairs", breaks: "a failed step that a repair repeats has a new row",
		file: "processor/durable/tx.go", old: "x.step.name]; n > 0 {", planted: "x.step.name]; n > 9 {",
		packages: "./processor/durable", run: "TestTxFails",
	},
	{
		name: "tx-fails-after-commits", breaks: "a value that does not fit into a task is not an error of Tx",
		file: "processor/durable/step.go", old: "if step.settle != nil {",
		planted:  "if step.settle != nil && text == nil {",
		packages: "./processor/durable", run: "TestTxOfLargeValues",
	},
	{
		name: "tx-cancels-without-undo", breaks: "a cancel undoes a step that committed in a lost attempt",
		file: "processor/durable/saga.go", old: "if err := t.settleSteps(); err != nil {",
		planted:  "if err := t.ctx.Err(); err != nil {",
		packages: "./processor/durable", run: "TestTxCancelled",
	},
	{
		name: "tx-waits-for-hanging-clients", breaks: "a transaction ends when its attempt has timed out",
		file: "processor/durable/tx.go", old: "idle = max(time.Until(deadline), time.Millisecond)",
		planted:  "_ = deadline",
		packages: "./processor/durable", run: "TestTxOfHangingAttempt",
	},
	{
		name: "tx-gives-up-after-conflicts", breaks: "a serialization failure is repeated in the same try",
		file: "processor/durable/tx.go", old: "pg.Code != \"40001\" && pg.Code", planted: "pg.Code",
		packages: "./processor/durable", run: "TestTxConflicts",
	},
	{
		name: "tx-lets-bodies-commit", breaks: "the body of a Tx cannot commit",
		file: "processor/durable/tx.go", old: "body(bodyTx{tx, x.run})", planted: "body(tx)",
		packages: "./processor/durable", run: "TestTxEndedByBody",
	},
	{
		name: "kills-share-keys", breaks: "repetitions of KillEverywhere can share a database",
		file: "processor/durable/durabletest/kill.go", old: "req.GetProcess().CreatedTime = r.created", planted: "",
		packages: "./processor/durable", run: "TestVisit",
	},
	{
		name: "vet-ignores-transactions", breaks: "progressor-vet reads the body of Tx",
		file: "processor/durable/durablevet/scan.go", old: "roles[3] = roleStep", planted: "roles[3] = roleUnknown",
		packages: "./processor/durable/durablevet", run: "TestTraps",
	},
	{
		name: "sql-complete-keeps-token", breaks: "after complete, the worker and the collector cannot end the attempt",
		file:     sqlCompleteSalt,
		old:      "rejected.\n  new_token := nextval('fencing_tokens');",
		planted:  "rejected.\n  new_token := lease.leased_fencing_token;",
		packages: "./storage", run: "TestCompleteFromSQL",
	},
	{
		name: "locked-lease-waits", breaks: "a heartbeat does not wait for a lease that an application ends",
		file: "sql/leases.sql", old: "UPDATE OF l SKIP LOCKED) lease", planted: "UPDATE OF l) lease",
		packages: "./storage", run: "TestHeartbeatDuringComplete",
	},
	{
		name: "locked-lease-is-lost", breaks: "a lease that is locked is not lost, and its worker gets the cancel",
		file: "sql/leases.sql", old: "locked.beat_us::bigint AS beat_us\n  FROM locked",
		planted:  "locked.beat_us::bigint AS beat_us\n  FROM locked WHERE NOT locked.skipped",
		packages: "./storage", run: "TestHeartbeatDuringComplete|TestHeartbeatOfLockedLease",
	},
	{
		name: "locked-lease-is-not-extended", breaks: "a heartbeat takes effect after another one of the same lease",
		file: "storage/pull/leases.go", old: "tried == len(lockedLeaseWaits)", planted: "tried == 0",
		packages: "./storage", run: "TestHeartbeatAfterAnother",
	},
	{
		name: "sql-complete-keeps-salt", breaks: "after complete, a worker cannot guess the lease token",
		file: sqlCompleteSalt, old: " salt = uuid_send(gen_random_uuid()),", planted: "",
		packages: "./storage", run: "TestCompleteFromSQL$",
	},
	{
		name: "pending-result-is-a-zombie", breaks: "a lease with a pending result does not expire",
		file: zombies, old: " WHERE l.pending_result IS NULL\n   AND (CASE", planted: " WHERE (CASE",
		packages: "./storage", run: "TestCompleteFromSQL$",
	},
	{
		name: "pending-result-in-zombie-list", breaks: "zombie_list omits attempts that workers have ended from SQL",
		file: "migrations/00162_zombie_list.sql",
		old:  " WHERE l.pending_result IS NULL\n   AND (", planted: " WHERE (",
		packages: "./storage", run: "TestPendingResultIsDescribed",
	},
	{
		name: "pending-result-has-lost-lease", breaks: "the doctor reports no lost lease of an ended attempt",
		file: "sql/find_stuck.sql", old: "   WHERE l.pending_result IS NULL\n     AND (CASE", planted: "   WHERE (CASE",
		packages: "./storage", run: "TestPendingResultIsDescribed",
	},
	{
		name: "pending-result-explained-as-lease", breaks: "an attempt that its worker has ended is explained as such",
		file: "explain/worker.go", old: "	case l.Ended:", planted: "	case l.Ended && false:",
		packages: "./explain", run: "TestEndedFromSQL",
	},
	{
		name: "pending-result-is-released", breaks: "a stopped worker releases no attempt that it has ended from SQL",
		file: "sql/workers.sql", old: "   AND l.pending_result IS NULL\n", planted: "",
		packages: "./storage", run: "TestCompleteFromSQL$",
	},
	{
		name: "pending-result-of-earlier-lease", breaks: "a new lease has no result of an earlier one",
		file: "sql/poll.sql", old: ", pending_result = NULL", planted: "",
		packages: "./storage", run: "TestPendingResultOfEndedProcess",
	},
	{
		name: "pending-result-behind-others", breaks: "results that are left to other nodes do not delay other results",
		file: "engine/pull/pending_results.go", old: "slices.AppendSeq(known, maps.Keys(p.left))", planted: "known",
		packages: "./engine", run: "TestResultsLeftToAnotherNode",
	},
	{
		name: "pending-result-left-to-dead-node", breaks: "another node ends the attempt if a node is dead",
		file: "engine/pull/pending_results.go", old: "late := pass && waited", planted: "late := waited && false",
		packages: "./engine", run: "TestResultsFromSQLOfADeadNode",
	},
	{
		name: "pending-result-without-notice", breaks: "a node stores the result of an attempt at once",
		file:     sqlCompleteSalt,
		old:      "notifies the nodes.\n  PERFORM send_notice('progressor_results');\n",
		planted:  "notifies the nodes.\n",
		packages: "./engine", run: "TestResultsFromSQL$",
	},
	{
		name:   "pending-result-has-another-span",
		breaks: "the spans of a worker that ends its attempt from SQL have a parent",
		file:   "engine/pull/pending_results.go", old: "		l.WorkerToken = r.WorkerToken\n", planted: "",
		packages: "./engine", run: "TestSpanOfAResultFromSQL",
	},
	{
		name: "watcher-misses-result-from-sql", breaks: "a watcher gets the events of an attempt that ends from SQL",
		file:     "engine/leased_attempt.go",
		old:      "e.watchers.recheck(process.Key{Namespace: l.Claim.Namespace, ProcessID: l.Claim.ProcessID})",
		planted:  "_ = 0",
		packages: "./engine", run: "TestResultsFromSQL$",
	},
}
