package main

const (
	sinkDelivery = "engine/sinks/delivery.go"
	sinkRetries  = "engine/sinks/retry.go"
	sinkStates   = "sql/sinks.sql"
	sinkWebhook  = "engine/sinks/webhook/webhook.go"
)

// sinkMutants are the mutants of sinks.
var sinkMutants = []mutant{
	{
		name: "sink-cursor-moves-early", breaks: "the cursor of a sink moves only after the delivery",
		file: sinkDelivery, old: "		err := d.deliverSelected(found, selected)\n",
		planted:  "		_ = d.advance(next, 0)\n		err := d.deliverSelected(found, selected)\n",
		packages: "./engine/sinks", run: "TestRetries/error",
	},
	{
		name: "sink-late-node", breaks: "a node without the lease does not move the cursor",
		file: sinkStates, old: "AND s.token = @token\n   AND EXISTS",
		planted:  "AND @token::bigint IS NOT NULL\n   AND EXISTS",
		packages: "./storage", run: "TestLeaseOfASinkIsUnique",
	},
	{
		name: "sink-token-again", breaks: "a sink that is created again has other tokens",
		file: sinkStates, old: "nextval('sink_tokens')", planted: "0",
		packages: "./storage", run: "TestLeaseOfASinkIsUnique",
	},
	{
		name: "sink-token-of-another", breaks: "a node does not move the cursor with the token of another node",
		file:     sinkStates,
		old:      "AND s.node_id = @node_id::bigint\n   AND s.token = @token\n   AND EXISTS",
		planted:  "AND @node_id::bigint IS NOT NULL\n   AND s.token = @token\n   AND EXISTS",
		packages: "./storage", run: "TestLeaseOfASinkIsUnique",
	},
	{
		name: "sink-renews-for-another", breaks: "a node does not renew the lease of another node",
		file: sinkStates, old: "AND s.node_id = held.node_id", planted: "AND s.node_id IS NOT NULL",
		packages: "./storage", run: "TestLeaseOfASinkIsUnique",
	},
	{
		name: "sink-not-taken-over", breaks: "another node continues when the lease has ended",
		file: sinkStates, old: "(s.lease_time IS NULL\n        OR s.lease_time < statement_timestamp()\n",
		planted:  "(s.lease_time IS NULL\n",
		packages: "./engine/sinks", run: "TestNodeIsKilled",
	},
	{
		name: "sink-paused-delivers", breaks: "a paused sink does not deliver",
		file: "engine/sinks/runner.go", old: "case !state.Runs || state.Revision != d.claimed.Revision ||",
		planted:  "case state.Revision != d.claimed.Revision ||",
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
		file: sinkDelivery, old: "if _, permanent := errors.AsType[*PermanentError](err); !permanent {",
		planted:  "if true {",
		packages: "./engine/sinks", run: "TestDeadLetters",
	},
	{
		name:   "sink-settled-again",
		breaks: "changes that were delivered one by one are not delivered again with each attempt",
		file:   sinkDelivery, old: "		d.settled[m.GetChangeId()] = letter\n",
		planted:  "		d.settled[m.GetChangeId()] = letter\n		defer delete(d.settled, m.GetChangeId())\n",
		packages: "./engine/sinks", run: "TestFailureAfterADeadLetter",
	},
	{
		name: "sink-dead-letter-lost", breaks: "a change that was rejected before a failure becomes a dead letter",
		file: sinkDelivery, old: "		rejected = append(rejected, letters...)\n", planted: "",
		packages: "./engine/sinks", run: "TestFailureAfterADeadLetter",
	},
	{
		name: "sink-changes-dropped", breaks: "changes are kept for a sink that has not delivered them",
		file: changesSchema, old: "least(retained, undelivered)", planted: "retained",
		packages: "./storage", run: "TestSinksKeepChanges",
	},
	{
		name: "sink-lag-unbounded", breaks: "a sink that lags for longer than max_lag is BROKEN",
		file: sinkStates, old: "< statement_timestamp() - s.max_lag",
		planted:  "< statement_timestamp() - 9 * s.max_lag",
		packages: "./engine/sinks", run: "TestLagLimit",
	},
	{
		name: "sink-not-woken", breaks: "a commit wakes the sinks of its namespace on the same node",
		file: "storage/lane.go", old: "	l.store.changeReaders.flushed(ops)\n", planted: "",
		packages: "./engine/sinks", run: "TestCommitWakesTheSink",
	},
	{
		name: "sink-not-notified", breaks: "a commit wakes the sinks of its namespace on other nodes",
		file: "engine/sinks/notices.go", old: "	return n.sinks.store.SendNotices(limit, noticeChannel, payloads)\n",
		planted:  "	_ = payloads\n	return limit.Err()\n",
		packages: "./engine/sinks", run: "TestNoticeWakesTheSink",
	},
	{
		name: "sink-requests-only-not-notified", breaks: "a requests-only node wakes the sinks of other nodes",
		file: "engine/sinks/runner.go", old: "	r.notices.follow(rows, r.delivers)\n",
		planted:  "	if !r.engine.RequestsOnly() {\n		r.notices.follow(rows, r.delivers)\n	}\n",
		packages: "./engine/sinks", run: "TestNoticeOfRequestsOnly",
	},
	{
		name: "sink-requests-only-delivers", breaks: "a requests-only node does not deliver changes",
		file: "engine/sinks/runner.go", old: "	case r.engine.RequestsOnly():\n", planted: "	case false:\n",
		packages: "./engine/sinks", run: "TestNoticeOfRequestsOnly",
	},
	{
		name: "sink-skips-after-failover", breaks: "after a failover, a sink continues at its stored position",
		file: "storage/changes/read.go", old: "	if at.Stored && first.Generation != at.Generation {\n",
		planted:  "	if at.Stored {\n		at.Generation = first.Generation\n	}\n	if false {\n",
		packages: "./engine/sinks", run: "TestFailover",
	},
	{
		name: "sink-stores-a-lost-position", breaks: "a position from before a failover is not stored",
		file:     sinkStates,
		old:      "AND EXISTS (SELECT FROM database_generation g WHERE g.generation = @generation::uuid)",
		planted:  "AND @generation::uuid IS NOT NULL",
		packages: "./engine/sinks", run: "TestNodeIsKilled",
	},
	{
		name: "sink-lease-of-the-future", breaks: "a lease from before a backward step of the clock ends",
		file: sinkStates, old: "          OR s.lease_time > statement_timestamp()\n",
		planted:  "          OR false AND s.lease_time > statement_timestamp()\n",
		packages: "./engine/sinks", run: "TestClockIsSetBack",
	},
	{
		name: "sink-one-node-has-all", breaks: "nodes share the sinks",
		file: "engine/sinks/runner.go", old: "	if len(most) < len(r.held)+2 {\n",
		planted:  "	if len(most) >= 0 {\n",
		packages: "./engine/sinks", run: "TestNodesShareSinks",
	},
	{
		name: "sink-not-handed-over", breaks: "a node does not take back a sink that another node has asked for",
		file: sinkStates, old: "     AND (s.asked_node_id IS NULL\n", planted: "     AND (true\n",
		packages: "./engine/sinks", run: "TestNodesShareSinks",
	},
	{
		name: "sink-stays-signed", breaks: "a webhook can be made unsigned",
		file: "engine/sinks/settings.go", old: " && !hook.GetUnsigned() {", planted: " {",
		packages: "./engine/sinks", run: "TestSettings",
	},
	{
		name: "sink-password-in-the-clear", breaks: "a stored password is not sent with less protection than before",
		file: "engine/sinks/settings.go",
		old:  "(before.GetTls() == nil || proto.Equal(now.GetTls(), before.GetTls()))", planted: "true",
		packages: "./engine/sinks", run: "TestKafkaSettings",
	},
	{
		name: "sink-lost-changes-unexplained", breaks: "explain says that deleted changes need a rewind",
		file: "explain/sink.go", old: "	if s.Backlog.Lost {\n		e.Unblock = fmt.Sprintf(",
		planted:  "	if false {\n		e.Unblock = fmt.Sprintf(",
		packages: "./explain", run: "TestExplainSink",
	},
	{
		name: "sink-declared-again", breaks: "a sink of the configuration file that has not changed is not touched",
		file: "engine/sinks/sinks.go", old: "if proto.Equal(declared(wanted), declared(stored)) {",
		planted:  "if stored == nil {",
		packages: "./engine/sinks", run: "TestDeclare",
	},
	{
		name: "sink-beyond-head", breaks: "the cursor of a sink is not after the last change of a lane",
		file: "sql/change_invariants.sql", old: "item.seq NOT BETWEEN 0 AND last.seq",
		planted:  "item.seq < 0",
		packages: "./storage", run: "TestInvariantsAreChecked",
	},
	{
		name: "sink-lane-twice", breaks: "the cursor of a sink contains each lane once",
		file: "sql/change_invariants.sql", old: "WHERE cardinality(s.lanes) <>",
		planted:  "WHERE cardinality(s.lanes) <",
		packages: "./storage", run: "TestInvariantsAreChecked",
	},
	{
		name: "sink-dead-letter-left", breaks: "the dead letters of a sink are deleted with it",
		file:     "sql/sinks.sql",
		old:      "s.secrets FROM sinks s\n WHERE s.namespace = @namespace\n   AND s.sink_id = @sink_id\n   FOR UPDATE",
		planted:  "s.secrets FROM sinks s\n WHERE s.namespace = @namespace\n   AND s.sink_id = @sink_id",
		packages: "./storage", run: "TestDeletedSinkLeavesNoDeadLetters",
	},
	{
		name: "sink-retry-lost", breaks: "a dead letter that could not be delivered again remains",
		file: sinkRetries, old: "	case failure == nil:\n", planted: "	case failure == nil || failure != nil:\n",
		packages: "./engine/sinks", run: "TestRetryDeadLetters",
	},
	{
		name: "sink-retry-fails", breaks: "while a sink fails, its dead letters wait",
		file: sinkRetries, old: "if !d.retries.pending || d.failures > 0 {", planted: "if !d.retries.pending {",
		packages: "./engine/sinks", run: "TestRetryWhileFailing",
	},
	{
		name: "sink-retry-late", breaks: "a node without the lease does not delete a dead letter",
		file: "storage/changes/dead_letters.go", old: "		if err == nil && n == 0 {\n",
		planted:  "		if err == nil && n < 0 {\n",
		packages: "./storage", run: "TestRetryNeedsTheLease",
	},
	{
		name: "sink-retry-dropped", breaks: "a dead letter that waits to be delivered again is kept",
		file: sinkStates, old: "     AND d.retry_time IS NULL\n     AND d.change_id < (",
		planted:  "     AND d.change_id < (",
		packages: "./storage", run: "TestDeadLettersAreBounded",
	},
	{
		name: "sink-retry-not-notified", breaks: "the delivering node is notified of waiting dead letters",
		file: "engine/sinks/runner.go", old: "		case state.Retries:\n", planted: "		case false:\n",
		packages: "./engine/sinks", run: "TestRetryWaits",
	},
	{
		name: "sink-retry-of-deleted-change", breaks: "a dead letter whose change was deleted does not wait",
		file: "storage/changes/dead_letters.go", old: "d.RetryTime == nil && !d.ChangeDeleted {",
		planted:  "d.RetryTime == nil {",
		packages: "./engine/sinks", run: "TestRetryWaits",
	},
	{
		name: "webhook-reorders", breaks: "after a failure, later changes of the process are not sent",
		file: sinkWebhook, old: "		b.mu.Unlock()\n		if err != nil {\n			return\n		}\n",
		planted:  "		b.mu.Unlock()\n",
		packages: "./engine/sinks/webhook", run: "TestRepetition",
	},
	{
		name: "webhook-repeats", breaks: "a retry does not send accepted changes again",
		file: sinkWebhook, old: "b.accepted[c.GetChangeId()] = true", planted: "b.accepted[c.GetChangeId()] = false",
		packages: "./engine/sinks/webhook", run: "TestRepetition",
	},
	{
		name: "webhook-one-signature", breaks: "a request is signed with each of the secrets",
		file: "processor/signature/signature.go", old: "	for _, key := range keys {\n		if text",
		planted:  "	for _, key := range keys[:min(1, len(keys))] {\n		if text",
		packages: "./processor/signature", run: "TestVerifiersOfSDKs",
	},
}
