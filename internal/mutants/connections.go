package main

var connectionMutants = []mutant{
	{
		name: "silent-host", breaks: "a lane reaches the second host if the first one does not answer",
		file:     "storage/lane_connection.go",
		old:      "limit := connectTimeout + time.Duration(len(l.config.Fallbacks))*l.config.ConnectTimeout",
		planted:  "limit := l.config.ConnectTimeout",
		packages: "./storage", run: "TestHostThatDoesNotAnswer",
	},
	{
		name: "write-not-durable", breaks: "all writes wait until they are durable",
		file: "storage/connect.go", old: "\t\"lock_timeout\":       \"5000\",\n\t\"synchronous_commit\": \"on\",\n",
		planted:  "\t\"lock_timeout\":       \"5000\",\n",
		packages: "./storage", run: "TestWritesAreDurable",
	},
	{
		name: "banner-in-a-failure", breaks: "the failure of a task does not contain the banner of a server",
		file: "processor/remote/failure_class.go", old: "Error() string { return FailureClass(e.err) }",
		planted:  "Error() string { return e.err.Error() }",
		packages: "./processor/remote", run: "TestErrorsShowNothingInternal",
	},
	{
		name: "read-only-session-kept", breaks: "a pool closes a session that is read-only",
		file: "storage/connect.go", old: "return err.Code != stateReadOnly && closes(conn, err)",
		planted:  "return closes(conn, err)",
		packages: "./storage", run: "ReadOnlySessions",
	},
	{
		name: "whole-table-for-one-process", breaks: "a long queue of one process does not change the plans for others",
		file: "storage/connect.go", old: "generalSettings = withPlans(backgroundSettings)",
		planted:  "generalSettings = backgroundSettings",
		packages: "./storage", run: "TestGeneralPlans",
	},
	{
		name: "ready-without-lanes", breaks: "a node whose lanes cannot write is not ready",
		file: "engine/engine.go", old: "return e.store.Ready()", planted: "return nil",
		packages: "./engine", run: "ReadinessCoversLanes",
	},
	{
		name: "lock-timeout-is-internal", breaks: "a statement that waits too long for a lock is UNAVAILABLE",
		file: "storage/errors.go", old: "case lost(err), isTemporary(err):", planted: "case lost(err):",
		packages: "./storage", run: "TestLockTimeoutIsUnavailable",
	},
	{
		name: "checks-use-jit", breaks: "PostgreSQL does not compile the statements of a check",
		file: "storage/invariants.go", old: "SET LOCAL jit = off", planted: "SET LOCAL jit = on",
		packages: "./storage", run: "TestChecksAreNotCompiled",
	},
	{
		name: "constraint-change-gives-up", breaks: "a change of constraints waits for transactions that assign keys",
		file: "storage/jobs/constraints.go", old: `commandLockTimeout = "5000"`, planted: `commandLockTimeout = "250"`,
		packages: "./storage", run: "TestChangeOfConstraintsWaits",
	},
	{
		name: "temporary-error-fails-task", breaks: "only errors of the data turn a result into a failure",
		file: "storage/lane.go", old: "isResult(op) && !rejectsData(err):",
		planted:  "completionOf(op) != nil && isTemporary(err):",
		packages: "./storage", run: "ResultSurvives",
	},
	{
		name: "event-timestamp-ignored", breaks: "an event keeps the timestamp that its processor chose",
		file: saveFinished, old: "NULLIF(event.ts, '0001-01-01Z')", planted: "NULLIF(event.ts, 'epoch')",
		packages: "./storage", run: "EventsKeep",
	},
	{
		name: "password-read-once", breaks: "the password is read for each new connection",
		file: "storage/connect.go", old: "	cfg.Password = password\n	return nil",
		planted:  "	cfg.Password = password\n	s.password = nil\n	return nil",
		packages: "./storage", run: "PasswordIsRead",
	},
	{
		name: "connects-without-limit", breaks: "while the server accepts no connections, a node makes few attempts",
		file: "storage/reconnect.go", old: "if r.err == nil || !now.Before(r.next) {", planted: "if true {",
		packages: "./storage", run: "TestFewAttemptsToConnect",
	},
}
