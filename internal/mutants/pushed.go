package main

// pushedMutants lose or repeat events of checkpoints of pushed tasks, or store those of the wrong
// clients.
var pushedMutants = []mutant{
	{
		name: "pushed-result-before-checkpoints", breaks: "the result of a pushed task follows its checkpoints",
		file: "engine/pushed_attempt.go", old: "c.LastEventID, c.AuxState, c.Metadata = p.LastEventID,",
		planted:  "c.LastEventID, c.AuxState, c.Metadata = c.LastEventID,",
		packages: "./engine/rpc", run: "TestPushedCheckpoint$",
	},
	{
		name: "pushed-state-before-checkpoints", breaks: "the next task gets the state of the checkpoints",
		file: "engine/pushed_attempt.go", old: "c.Metadata = p.LastEventID, p.AuxState,",
		planted:  "c.Metadata = p.LastEventID, c.AuxState,",
		packages: "./engine/rpc", run: "TestPushedCheckpoint$",
	},
	{
		name:   "pushed-result-repeats-events",
		breaks: "a pushed task whose processor does not know its checkpoints has no result",
		file:   "engine/pushed_attempt.go", old: "case p.LastEventID != last:", planted: "case last < 0:",
		packages: "./engine/rpc", run: "TestPushedResultThatIgnoresCheckpoints",
	},
	{
		name: "pushed-conflict-unexplained", breaks: "a result without last_event_id fails with a clear error",
		file: "storage/save_result.go", old: `pg.TableName == "events"`, planted: `pg.TableName == "e"`,
		packages: "./engine/rpc", run: "TestPushedResultThatIgnoresCheckpoints",
	},
	{
		name: "stale-claim-runs", breaks: "the next task gets checkpoints that a response did not report",
		file: "engine/attempt.go", old: "ns.processor == nil || t.stale {", planted: "ns.processor == nil {",
		packages: "./engine/rpc", run: "TestPushedCheckpointsWithoutReport",
	},
	{
		name: "continued-claim-not-compared", breaks: "the fast path reports the last event of the process",
		file: "storage/fast_path.go", old: "LastEventID: r.LastEventID + int64(len(c.events())),",
		planted:  "LastEventID: c.LastEventID + int64(len(c.events())),",
		packages: "./engine/rpc", run: "TestPushedCheckpointsWithoutReport",
	},
	{
		name: "checkpoint-token-in-calls", breaks: "a request of a task that can be rejected has no checkpoint token",
		file: "engine/pushed_attempt.go", old: "GetCheckpoints() && MayCheckpoint(c)",
		planted:  "GetCheckpoints()",
		packages: "./engine/rpc", run: "TestPushedCheckpoint$",
	},
	{
		name: "checkpoint-token-unasked", breaks: "a processor gets checkpoint tokens only if its namespace wants them",
		file: "engine/pushed_attempt.go", old: "ns.connect.GetCheckpoints() &&",
		planted:  "",
		packages: "./engine/rpc", run: "TestPushedWithoutCheckpoints",
	},
	{
		name: "checkpoint-token-forged", breaks: "a checkpoint token cannot be guessed",
		file: "engine/secrets/vault.go", old: "return hmac.Equal(mac, k.sum(message))",
		planted:  "return !hmac.Equal(nil, k.sum(message))",
		packages: "./engine/rpc", run: "TestPushedCheckpointTokens",
	},
	{
		name: "pushed-checkpoint-by-worker-of-jobs", breaks: "a client for certain jobs stores no checkpoints",
		file: "engine/pull/checkpoints.go", old: `callerOf(ctx).checkJob("lease_token", t.Key.Namespace, "")`,
		planted:  `callerOf(ctx).checkJob("lease_token", t.Key.Namespace, "x")`,
		packages: "./cmd/progressor", run: "TestPushedCheckpointKeys",
	},
	{
		name: "unknown-checkpoint-ignored", breaks: "a handler that does not know its checkpoints has no result",
		file: "processor/pushed_checkpoints.go", old: "case unknown != nil:",
		planted:  "case unknown != nil && err != nil:",
		packages: "./processor", run: "TestHandlerDoesNotKnowItsCheckpoints",
	},
	{
		name: "pushed-checkpoint-in-the-clear", breaks: "a handler encodes the payloads of checkpoints",
		file: "processor/pushed_checkpoints.go", old: "Encode: p.payloads.Encode",
		planted:  "Encode: (*codec.Payloads)(nil).Encode",
		packages: "./processor", run: "TestHandlerSendsCheckpoints",
	},
	{
		name: "event-number-of-worker-ignored", breaks: "a worker learns that last_event_id is in the wrong place",
		file: "engine/rpc/worker.go", old: "case r.GetResponse().GetLastEventId() != 0:",
		planted:  "case r.GetResponse().GetLastEventId() < 0:",
		packages: "./engine/rpc", run: "TestCheckpointsThatAreRejected",
	},
	{
		name: "mac-by-first-key-only", breaks: "a MAC stays valid when its key is replaced",
		file: "engine/secrets/vault.go", old: "	keys := v.file\n",
		planted:  "	keys := v.file[:min(len(v.file), 1)]\n",
		packages: "./engine/secrets", run: "TestMAC",
	},
	{
		name: "checkpoint-not-sent-to-the-end", breaks: "a checkpoint is sent even if its context ends",
		file: "internal/checkpoints/attempt.go", old: "a.Send(a.Context, ", planted: "a.Send(ctx, ",
		packages: "./internal/checkpoints", run: "TestSendOutlivesItsContext",
	},
}
