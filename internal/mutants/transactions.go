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
}
