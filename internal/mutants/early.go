package main

const durableEarly = "processor/durable/early.go"

// earlyMutants repeat, lose or begin too soon the early steps of durable functions.
var earlyMutants = []mutant{
	{
		name: "early-step-after-value", breaks: "an early step depends only on the args of the start",
		file: durableEarly, old: "len(t.journal.entries) > 1", planted: "len(t.journal.entries) > 9",
		packages: "./processor/durable", run: "TestNoEarlyStep",
	},
	{
		name: "early-step-of-later-attempt", breaks: "only the first attempt at a start runs early steps",
		file: durableEarly, old: "t.request.GetAttempt() > 1", planted: "t.request.GetAttempt() > 9",
		packages: "./processor/durable", run: "TestNoEarlyStep",
	},
	{
		name: "early-step-elsewhere", breaks: "an early step runs only where the next task runs",
		file: durableEarly, old: "!processor.KeptOf(t.ctx).Keeps()", planted: "false",
		packages: "./processor/durable", run: "TestNoEarlyStep",
	},
	{
		name: "early-step-runs-again", breaks: "the next task takes the result of an early step",
		file: "processor/durable/step.go", old: "early := r.takeEarly(step)", planted: "early := (*earlyStep)(nil)",
		packages: "./processor/durable", run: "TestEarlyStepTakesLong",
	},
	{
		name: "early-panic-is-a-result", breaks: "a panic of an early step is not its result",
		file: durableEarly, old: "if !s.ok {", planted: "if s == nil {",
		packages: "./processor/durable", run: "TestEarlyStepPanics",
	},
	{
		name: "early-step-not-cancelled", breaks: "early steps are cancelled with their attempt",
		file: durableEarly, old: "\t\t\tbegun.drop()\n", planted: "",
		packages: "./processor/durable", run: "TestEarlyStepOfCancelledAttempt",
	},
	{
		name: "early-step-not-dropped", breaks: "early steps are cancelled if no task of the process follows",
		file: "engine/attempt.go", old: "if next.kept == nil {", planted: "if next.kept == t.kept {",
		packages: "./processor/durable", run: "TestEarlyStepOfSuspendedProcess",
	},
	{
		name: "early-step-of-version", breaks: "an early step does not depend on an unstored version",
		file: durableEarly, old: "len(t.program.versions) > 0", planted: "len(t.program.versions) > 9",
		packages: "./processor/durable", run: "TestNoEarlyStep",
	},
	{
		name: "early-tx", breaks: "a Tx does not run before its process is stored",
		file: durableEarly, old: "if step.settle != nil {", planted: "if step.name == \"?\" {",
		packages: "./processor/durable", run: "TestNoEarlyStep",
	},
	{
		name: "early-restart-repeats-keys", breaks: "steps before and after a restart have different keys",
		file: "processor/durable/task.go", old: "if t.early { // the keys", planted: "if false { // the keys",
		packages: "./processor/durable", run: "TestRestartAfterEarlyStep",
	},
	{
		name: "early-undo-lost", breaks: "the result of an early step is stored before it is undone",
		file: "processor/durable/saga.go", old: "if n > 0 || len(t.journal.unsaved()) > 0 {", planted: "if n > 0 {",
		packages: "./processor/durable", run: "TestCancelAfterEarlyStep",
	},
	{
		name: "early-step-rejected", breaks: "a rejection after a step does not remove the process",
		file: "processor/durable/task.go", old: "TASK_TYPE_INIT && !t.early", planted: "TASK_TYPE_INIT",
		packages: "./processor/durable", run: "TestRejectionAfterEarlyStep",
	},
	{
		name: "early-step-not-undone", breaks: "a cancel undoes an early step",
		file: "processor/durable/saga.go", old: "early := t.takeEarly(step); early != nil",
		planted:  "early := t.takeEarly(step); early != nil && step == nil",
		packages: "./processor/durable", run: "TestCancelAfterEarlyStep",
	},
}
