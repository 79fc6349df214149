package main

// durableMutants repeat effects, lose calls or overlook misuse of durable functions.
var durableMutants = []mutant{
	{
		name: "durable-runs-steps-too-early", breaks: "what a step depends on is stored before it runs",
		file: "processor/durable/task.go", old: "len(steps) > 0 && len(t.journal.unsaved()) == 0",
		planted: "len(steps) > 0", packages: "./processor/durable", run: "TestStoredBeforeSteps",
	},
	{
		name: "durable-confuses-names", breaks: "the second use of a name has a number",
		file: "processor/durable/branch.go", old: "n := b.names[key]; n > 1", planted: "n := b.names[key]; n > 9",
		packages: "./processor/durable", run: "TestSteps$",
	},
	{
		name: "durable-allows-goroutines", breaks: "an operation in another goroutine fails",
		file: "processor/durable/branch.go", old: "case id != b.id:", planted: "case id == \"\":",
		packages: "./processor/durable", run: "TestMisuse",
	},
	{
		name: "durable-undoes-the-oldest-first", breaks: "steps are undone newest first",
		file: "processor/durable/saga.go", old: "slices.Backward(r.journal.entries)",
		planted: "slices.All(r.journal.entries)", packages: "./processor/durable", run: "TestSaga",
	},
	{
		name: "durable-skips-lost-undos", breaks: "a step whose undo is gone is not skipped",
		file: "processor/durable/saga.go", old: "(e.Undo || known)", planted: "known",
		packages: "./processor/durable", run: "TestUndoIsGone",
	},
	{
		name: "durable-prefers-a-source", breaks: "First returns what happened first",
		file: "processor/durable/first.go", old: "(first == nil || i < at)", planted: "(first == nil || i < at-99)",
		packages: "./processor/durable", run: "TestFirstIsTheEarliest",
	},
	{
		name: "durable-loses-calls", breaks: "a restart keeps the calls that were not taken",
		file: "processor/durable/call.go", old: "taken[e.Name] > *q.taken", planted: "false",
		packages: "./processor/durable", run: "TestRestart",
	},
	{
		name: "durable-stores-rejected-calls", breaks: "a call that Accept rejects is not stored",
		file: "processor/durable/task.go", old: "response, err = q.accept(args)",
		planted:  "response, _ = q.accept(args)",
		packages: "./processor/durable", run: "TestCalls",
	},
	{
		name: "durable-repeats-large-steps", breaks: "a step whose value cannot be stored does not run again",
		file: "processor/durable/step.go", old: "\"the value %w\", err).NonRetryable()",
		planted:  "\"the value %w\", err)",
		packages: "./processor/durable", run: "TestBadValues",
	},
	{
		name: "durable-forgets-retries", breaks: "a step whose wait is over runs, also in another task",
		file: "processor/durable/task.go", old: "t.effects.setTimer(retryTimer+step.name, 0)", planted: "_ = step",
		packages: "./processor/durable", run: "TestRetryInChangedFunction",
	},
	{
		name: "durabletest-kills-nothing", breaks: "KillEverywhere finds what depends on the attempt",
		file: "processor/durable/durabletest/kill.go", old: "len(r.results) != r.kill", planted: "r.kill >= 0",
		packages: "./processor/durable/durabletest", run: "TestOutcomes",
	},
}
