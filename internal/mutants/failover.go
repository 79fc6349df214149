package main

// failoverMutants break the handling of data that a failover of the database loses.
var failoverMutants = []mutant{
	{
		name: "numbers-issued-again", breaks: "no number is issued twice, even after a failover that lost it",
		file: "migrations/00107_namespaces.sql", old: "PERFORM setval(s.seqrelid, highest)",
		planted:  "PERFORM pg_sequence_last_value(s.seqrelid)",
		packages: "./storage ./engine", run: "TestNumbersAreNotIssuedTwice|TestFailover",
	},
	{
		name: "failover-unnoticed", breaks: "a failover is noticed on the first new connection",
		file: "storage/generation.go", old: "if before == uuid.Nil || before == generation {",
		planted:  "if generation != uuid.Nil {",
		packages: "./engine", run: "TestFailover",
	},
	{
		name: "lost-task-unreported", breaks: "clients get an error if a failover lost their task",
		file: "engine/failover.go", old: "f.lost(batch[at])", planted: "_ = at",
		packages: "./engine", run: "TestFailoverThatLosesTheTail",
	},
	{
		name: "unreplicated-acknowledged", breaks: "a result is acknowledged when the synchronous standby has it",
		file: "storage/recover.go", old: "err = l.confirmCommits(ctx)", planted: "err = ctx.Err()",
		packages: "./storage", run: "TestResultIsOnTheStandby",
	},
	{
		name:   "cancelled-wait-acknowledged",
		breaks: "a commit whose wait for the standby was cancelled is not acknowledged",
		file:   "storage/generation.go", old: `n.Routine == "SyncRepWaitForLSN"`, planted: `n.Routine == "none"`,
		packages: "./storage", run: "TestResultIsOnTheStandby|TestWriteThatIsNotReplicated",
	},
}
