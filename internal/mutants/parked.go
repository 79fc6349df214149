package main

const (
	engineParked   = "engine/parked.go"
	internalParked = "internal/parked/parked.go"
	durablePark    = "processor/durable/park.go"
	parkingOutside = "processor/parking.go"
	remoteParked   = "processor/remote/parked.go"
)

// parkedMutants continue durable functions in memory that differ from their stored journals, or
// lose the history that a replay needs.
var parkedMutants = []mutant{
	{
		name: "parked-after-failure", breaks: "a value is parked only if its result is stored",
		file: engineParked, old: "done.Outcome != storage.Finished ||", planted: "",
		packages: "./engine", run: "TestParkedValueDependsOnStoredResult",
	},
	{
		name: "parked-after-restart", breaks: "a value of the old history is not parked",
		file: engineParked, old: "done.RestartHistory || saved", planted: "saved",
		packages: "./engine", run: "TestParkedValueDependsOnStoredResult",
	},
	{
		name: "parked-after-lost-response", breaks: "a value is not parked if it is unknown what is stored",
		file: engineParked, old: "saved.ResponseLost ||", planted: "",
		packages: "./engine", run: "TestParkedValueDependsOnStoredResult",
	},
	{
		name: "parked-with-other-events", breaks: "a value is parked only with the events on which it depends",
		file: engineParked, planted: "false",
		old:      "t.kept.Parked().LastEventID != c.LastEventID+int64(len(done.Events))",
		packages: "./engine", run: "TestParkedValueDependsOnStoredResult",
	},
	{
		name: "parked-before-failover", breaks: "a value from before a failover is not parked",
		file: internalParked, old: "p.generation != generation ||", planted: "",
		packages: "./engine", run: "TestParkingIsCleared",
	},
	{
		name: "parked-after-close", breaks: "a node that has stopped parks nothing",
		file: internalParked, old: "p.closed ||", planted: "",
		packages: "./engine", run: "TestParkingIsCleared",
	},
	{
		name: "parked-too-many", breaks: "the number of parked values is limited",
		file: internalParked, old: "len(p.parked) > p.max ||", planted: "",
		packages: "./engine", run: "TestParkingIsBounded",
	},
	{
		name: "parked-too-large", breaks: "the size of the parked values is limited",
		file: internalParked, old: "|| p.bytes > MaxBytes {", planted: "{",
		packages: "./engine", run: "TestParkingIsBounded",
	},
	{
		name: "parked-for-repair", breaks: "a cancel or a repair gets the history",
		file: engineParked, old: "case !usesParked(c) ||", planted: "case",
		packages: "./engine", run: "TestParkedValueFitsClaim",
	},
	{
		name: "parked-of-older-state", breaks: "a node does not continue a function that another has continued",
		file: engineParked, old: "v.last != c.LastEventID ||", planted: "",
		packages: "./engine", run: "TestParkedValueFitsClaim",
	},
	{
		name: "parked-of-older-history", breaks: "a value of an older history is not used",
		file: engineParked, old: "v.first != c.FirstEventID ||", planted: "",
		packages: "./engine", run: "TestParkedValueFitsClaim",
	},
	{
		name: "parked-of-removed-process", breaks: "a new process does not get the value of a removed one",
		file: engineParked, old: "!v.created.Equal(c.CreatedTime) ||", planted: "",
		packages: "./engine", run: "TestParkedValueFitsClaim",
	},
	{
		name: "parked-of-other-processor", breaks: "another processor does not get the value",
		file: engineParked, old: "!bytes.Equal(v.config, ns.config)", planted: "false",
		packages: "./engine", run: "TestParkedValueFitsClaim",
	},
	{
		name: "parked-not-cleared", breaks: "parked functions end with their node",
		file: "engine/engine.go", old: "\te.parking.Close(drainGrace)\n", planted: "",
		packages: "./processor/durable", run: "TestParked",
	},
	{
		name: "parked-through-failover", breaks: "no function continues in memory after a failover",
		file: "engine/engine.go", old: "\t\te.parking.Clear()\n", planted: "",
		packages: "./processor/durable", run: "TestParkedFailover",
	},
	{
		name: "parked-never", breaks: "a parked function continues without a replay",
		file: "engine/attempt.go", old: "d.park.settle(", planted: "(*toPark)(nil).settle(",
		packages: "./processor/durable", run: "TestParked",
	},
	{
		name: "parked-without-history", breaks: "a processor that cannot use its value gets the history",
		file: "engine/attempt.go", old: "again, unreached := t.kept.Repeats()", planted: "again, unreached := false",
		packages: "./processor/durable", run: "TestParkedTwice",
	},
	{
		name: "parked-unstored-entries", breaks: "a function in memory has no entries that are not stored",
		file: durablePark, old: "&& r.journal.last() == req.GetProcess().GetLastEventId() {",
		planted:  "{",
		packages: "./processor/durable", run: "TestParkedTwice",
	},
	{
		name: "parked-entries-stored-again", breaks: "the next task does not store the entries of earlier tasks again",
		file: durablePark, planted: "r.journal.bytes = 0",
		old:      "r.journal.saved, r.journal.bytes = len(r.journal.entries), 0",
		packages: "./processor/durable", run: "TestParked",
	},
	{
		name: "parked-misuse", breaks: "a goroutine that misuses a function in memory does not fail it",
		file: "processor/durable/branch.go", old: "return r.parked.Load() || r.isOver()", planted: "return r.isOver()",
		packages: "./processor/durable", run: "TestParkedMisuse",
	},
	{
		name: "parked-for-new-processor", breaks: "the next task of a changed namespace gets the history",
		file: engineParked, old: "||\n\t\t!bytes.Equal(t.config, ns.config)):", planted: "):",
		packages: "./engine", run: "TestParkedValueFitsNextTask",
	},
	{
		name: "parked-for-kind", breaks: "a process of a kind gets no value",
		file: engineParked, old: "case !keepsFor(ns, t.claim):", planted: "case ns == nil:",
		packages: "./engine", run: "TestParkedValueFitsNextTask",
	},
	{
		name: "parked-for-repair-at-once", breaks: "a cancel or a repair that follows at once gets the history",
		file: engineParked, old: "(!usesParked(t.claim) || before", planted: "(before",
		packages: "./engine", run: "TestParkedValueFitsNextTask",
	},
	{
		name: "parked-range", breaks: "a request for a range of the history gets this range",
		file: "engine/history.go", old: "(!h.whole || length == 0) {", planted: "length == 0 {",
		packages: "./processor/durable", run: "TestParkedRange",
	},
	{
		name: "parked-effects", breaks: "a parked function does not repeat the effects of its last task",
		file: durablePark, old: "idle(t.request), newEffects()", planted: "idle(t.request), t.effects",
		packages: "./processor/durable", run: "TestParkedEffects",
	},
	{
		name: "parked-id-of-another", breaks: "a processor gets only the value with the ID of the request",
		file: parkingOutside, old: "v.id == req.GetParkedId()", planted: "v != nil",
		packages: "./processor", run: "TestParking",
	},
	{
		name: "parked-id-unknown", breaks: "a program that lost the value asks for the history",
		file: parkingOutside, old: "req.GetParkedId() != \"\" && !continued {", planted: "false {",
		packages: "./processor", run: "TestParking",
	},
	{
		name: "parked-unusable-outside", breaks: "a processor that cannot use its value asks for the history",
		file: parkingOutside, old: "if kept.Repeats() {", planted: "if false {",
		packages: "./processor", run: "TestParkingWithoutHistory",
	},
	{
		name: "parked-failure-outside", breaks: "a value is parked only with a result",
		file: parkingOutside, old: "err == nil && resp.GetResult() != nil)", planted: "err == nil)",
		packages: "./processor", run: "TestParkingDrops",
	},
	{
		name: "parked-pushed-history", breaks: "the engine sends the history if the program asks for it",
		file: remoteParked, old: "err == nil && !resp.GetContinued(),", planted: "false,",
		packages: "./engine/rpc", run: "TestPushedFunctionInMemoryIsLost",
	},
	{
		name: "parked-pushed-unreachable", breaks: "another program gets the history if the first is unreachable",
		file: remoteParked, old: "processor.Unreachable(err) && len(p.endpoints.all) > 1:", planted: "false:",
		packages: "./engine/rpc", run: "TestPushedFunctionInMemoryOfOneProgram",
	},
	{
		name: "parked-pushed-elsewhere", breaks: "a task goes to the program that has the function in memory",
		file: remoteParked, planted: "p.endpoints.callAt(ctx, p.endpoints.all[len(p.endpoints.all)-1],",
		old:      "p.endpoints.callAt(ctx, last.at,",
		packages: "./engine/rpc", run: "TestPushedFunctionInMemoryOfOneProgram",
	},
	{
		name: "parked-pushed-events", breaks: "a pushed function in memory has the events of its last result",
		file: remoteParked, old: "last + int64(len(resp.GetResult().GetEvents()))", planted: "last",
		packages: "./engine/rpc", run: "TestPushedFunctionInMemory",
	},
	{
		name: "parked-at-another-worker", breaks: "a worker gets no parked_id of another worker",
		file: engineParked, old: "at.workerID != l.WorkerID ||", planted: "at.workerID == `` ||",
		packages: "./client", run: "TestWorkerTakesFunctionOfAnother",
	},
	{
		name: "parked-worker-history", breaks: "a worker that lost the function gets the history",
		file: "client/held_lease.go", old: "if errors.Is(err, processor.ErrHistoryNeeded) {", planted: "if false {",
		packages: "./client", run: "TestWorkerHasLostFunction",
	},
	{
		name: "parked-worker-not-preferred", breaks: "the worker that has the function in memory gets its tasks",
		file: "engine/pull/pulls.go", old: "n -= p.offerPreferred(l, n)", planted: "_ = p.offerPreferred",
		packages: "./client", run: "TestWorkerWithFunctionIsPreferred",
	},
}
