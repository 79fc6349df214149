package main

const (
	sinkDelivery = "engine/sinks/delivery.go"
	sinkStates   = "storage/internal/dbsqlc/sinks.sql.go"
	sinkWebhook  = "engine/sinks/webhook/webhook.go"
)

// sinkMutants are the mutants of sinks.
var sinkMutants = []mutant{
	{
		name: "sink-lost-cursor", breaks: "the cursor of a sink moves only after the delivery",
		file: sinkDelivery, old: "		err := d.target.Deliver(d.ctx, selected)\n",
		planted:  "		_ = d.advance(next, 0)\n		err := d.target.Deliver(d.ctx, selected)\n",
		packages: "./engine/sinks", run: "TestRetries/error",
	},
	{
		name: "sink-late-node", breaks: "a node without the lease does not move the cursor",
		file: sinkStates, old: "   AND s.token = $7\n", planted: "   AND $7::bigint IS NOT NULL\n",
		packages: "./engine/sinks", run: "TestNodeIsKilled",
	},
	{
		name: "sink-not-taken-over", breaks: "another node continues when the lease is over",
		file: sinkStates, old: "(s.lease_time IS NULL OR s.lease_time < statement_timestamp())::bool AS free",
		planted:  "(s.lease_time IS NULL)::bool AS free",
		packages: "./engine/sinks", run: "TestNodeIsKilled",
	},
	{
		name: "sink-paused-delivers", breaks: "a paused sink delivers nothing",
		file: "engine/sinks/runner.go", old: "case !state.Runs || state.Revision != d.revision:",
		planted:  "case state.Revision != d.revision:",
		packages: "./engine/sinks", run: "TestPauseAndResume",
	},
	{
		name: "sink-resume-waits", breaks: "a resume repeats a failed delivery at once",
		file: sinkStates, old: "SET state = 'ACTIVE', revision = s.revision + 1,", planted: "SET state = 'ACTIVE',",
		packages: "./engine/sinks", run: "TestRetryNow",
	},
	{
		name: "sink-rewind-undone", breaks: "a rewind takes the lease, so that a delivery under way does not undo it",
		file: sinkStates, old: "token = s.token + 1, node_id = NULL,\n       lease_time = NULL, failures = 0",
		planted:  "failures = 0",
		packages: "./engine/sinks", run: "TestRewind",
	},
	{
		name: "sink-filter-ignored", breaks: "a change for which the filter fails is not delivered",
		file: "engine/sinks/filter.go", old: "	if err != nil {\n		return false\n	}\n	matches",
		planted:  "	if err != nil {\n		return true\n	}\n	matches",
		packages: "./engine/sinks", run: "TestFilters",
	},
	{
		name: "sink-shows-secrets", breaks: "secrets are never returned",
		file: "engine/sinks/settings.go", old: "len(hook.GetSecrets()) > 0, nil",
		planted:  "len(hook.GetSecrets()) > 0, hook.GetSecrets()",
		packages: "./engine/sinks", run: "TestSettings",
	},
	{
		name: "sink-gone-retried", breaks: "the status 410 disables a sink",
		file: sinkDelivery, old: "if errors.Is(err, ErrGone) {", planted: "if false {",
		packages: "./engine/sinks", run: "TestGone",
	},
	{
		name: "sink-stuck", breaks: "a change that the target will never accept does not stop the sink",
		file: sinkDelivery, old: "if _, permanent := errors.AsType[*PermanentError](err); permanent {",
		planted:  "if false {",
		packages: "./engine/sinks", run: "TestDeadLetters",
	},
	{
		name: "sink-changes-dropped", breaks: "changes are kept for a sink that has not delivered them",
		file: "migrations/00117_changes.sql", old: "least(retained, undelivered)", planted: "retained",
		packages: "./storage", run: "TestSinksKeepChanges",
	},
	{
		name: "sink-fills-the-disk", breaks: "a sink that lags for longer than max_lag is BROKEN",
		file: sinkStates, old: "< statement_timestamp() - s.max_lag",
		planted:  "< statement_timestamp() - 9 * s.max_lag",
		packages: "./engine/sinks", run: "TestLagLimit",
	},
	{
		name: "webhook-reorders", breaks: "after a failure, later changes of the process are not sent",
		file: sinkWebhook, old: "		b.mu.Unlock()\n		if err != nil {\n			return\n		}\n",
		planted:  "		b.mu.Unlock()\n",
		packages: "./engine/sinks/webhook", run: "TestRepetition",
	},
	{
		name: "webhook-repeats", breaks: "a repetition does not send again what was accepted",
		file: sinkWebhook, old: "b.accepted[c.GetChangeId()] = true", planted: "b.accepted[c.GetChangeId()] = false",
		packages: "./engine/sinks/webhook", run: "TestRepetition",
	},
	{
		name: "webhook-one-signature", breaks: "a request is signed with each of the secrets",
		file: sinkWebhook, old: "for _, key := range d.keys {",
		planted:  "for _, key := range d.keys[:min(1, len(d.keys))] {",
		packages: "./engine/sinks/webhook", run: "TestSignature",
	},
}
