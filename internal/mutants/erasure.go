package main

const (
	eraseAudit      = "migrations/00136_erase_audit_ids.sql"
	eraseCheck      = "USING ERRCODE = 'invalid_parameter_value';\n  END IF;\n  "
	erasedTables    = "storage/erasure/erasure.go"
	erasedProcesses = "storage/erasure/processes.go"
	sinkStatements  = "sql/sinks.sql"
)

// erasureMutants leave something of an erased process, or erase what belongs to others.
var erasureMutants = []mutant{
	{
		name: "erased-audit-unchecked", breaks: "an erased audit entry has the hash of its ID",
		file: auditChain, old: `e.Subject == "erased:"+hex.EncodeToString(e.SubjectHash)`, planted: "true",
		packages: "./storage", run: "TestErasedAuditKeepsTheChain",
	},
	{
		name: "erase-without-entry", breaks: "IDs in the audit are erased only after an entry about the erasure",
		file: eraseAudit, old: eraseCheck + "IF NOT dry_run AND EXISTS (",
		planted:  eraseCheck + "IF false AND EXISTS (",
		packages: "./storage", run: "TestErasedAuditKeepsTheChain",
	},
	{
		name: "erase-new-process", breaks: "a repeated erasure does not erase a newer process with the same ID",
		file:     erasedProcesses,
		old:      "e.CreatedBefore != nil && !p.CreatedTime.Before(*e.CreatedBefore)",
		planted:  "false",
		packages: "./cmd/progressor", run: "TestErase",
	},
	{
		name: "erase-records-rejected", breaks: "an erasure that is refused because of a child is not recorded",
		file: "cmd/progressor/internal/cli/process/erase.go", old: "Children: e.Children, DryRun: true,",
		planted:  "DryRun: true,",
		packages: "./cmd/progressor", run: "TestErase",
	},
	{
		name: "erase-forgets-table", breaks: "no table contains an erased ID",
		file:     "storage/erasure/erasure.go",
		old:      `	{name: "job_keys", key: "unique_key text", match: "is(x.process_id)"},` + "\n",
		planted:  "",
		packages: "./storage", run: "TestEraseLeavesNothing",
	},
	{
		name: "erase-skips-events", breaks: "an erasure that an older engine began skips no events",
		file: erasedTables, old: "strings.HasPrefix(p.After, `[\"`)", planted: "false",
		packages: "./storage", run: "TestEraseContinuesAfterAnUpgrade",
	},
	{
		name: "erase-running", breaks: "nothing is erased while one of the processes runs",
		file: erasedProcesses, old: `"p.status IN ('INIT', 'RUNNING') OR `, planted: `"`,
		packages: "./engine", run: "TestEraseInSmallRequests",
	},
	{
		name: "erase-resumed", breaks: "a process that is resumed before its removal is not erased",
		file: "sql/remove_processes.sql", old: "OR p.status NOT IN ('INIT', 'RUNNING'))),",
		planted:  "OR true)),",
		packages: "./engine", run: "TestRemovalLeavesARunningTask",
	},
	{
		name: "removal-stops-tasks", breaks: "a removal that removes nothing does not stop tasks",
		file: "engine/processes.go", old: "for _, key := range removed {",
		planted:  "for _, key := range append(removed, keys...) {",
		packages: "./engine", run: "TestRemovalLeavesARunningTask",
	},
	{
		name: "erase-loses-children", breaks: "steps keep the IDs of their processes until their run is erased",
		file: erasedTables, old: `" AND NOT (x.namespace = $1 AND x.run_id = ANY (@runs::text[]))"`, planted: `""`,
		packages: "./engine", run: "TestEraseInSmallRequests",
	},
	{
		name: "erase-cancels-erased", breaks: "an erased run does not cancel processes that were erased with it",
		file:     "sql/remove_processes.sql",
		old:      "OR NOT is_erased(child.namespace, child.process_id)),",
		planted:  "OR true),",
		packages: "./engine/flows", run: "TestEraseSuspendedRun",
	},
	{
		name: "erase-cancels-hashes", breaks: "a removed run does not send cancels to hashes of IDs",
		file:     "sql/remove_processes.sql",
		old:      "AND deleted_flow_steps.process_id !~ '^erased:[0-9a-f]{64}$') child",
		planted:  "AND deleted_flow_steps.process_id IS NOT NULL) child",
		packages: "./engine/flows", run: "TestEraseSuspendedRun",
	},
	{
		name: "erase-restarted-child-continues", breaks: "a process that was started again is cancelled with its run",
		file:     "sql/remove_processes.sql",
		old:      "WHERE existing.process_id IS NOT NULL\n      OR NOT is_erased(",
		planted:  "WHERE NOT is_erased(",
		packages: "./engine/flows", run: "TestEraseSuspendedRun",
	},
	{
		name: "erase-leaves-actor", breaks: "the audit does not contain IDs of runs as actors",
		file: "engine/flows/cancel.go", old: `process.Actor{Name: "run"}`,
		planted:  `process.Actor{Name: "run " + t.runID}`,
		packages: "./engine/flows", run: "TestEraseActor",
	},
	{
		name: "erase-leaves-actor-elsewhere", breaks: "the audit of another namespace does not contain IDs of runs",
		file: "engine/flows/cancel.go", old: "if namespace == t.key.Namespace {", planted: "if true {",
		packages: "./engine/flows", run: "TestEraseActor",
	},
	{
		name: "erase-events-of-job", breaks: "the erasure of a job leaves the events of a run with the same ID",
		file: erasedTables, old: `CASE WHEN x.of_run OR x.step_id IS NOT NULL THEN`, planted: `CASE WHEN false THEN`,
		packages: "./storage", run: "TestEraseDistinguishesJobsFromRuns",
	},
	{
		name: "erase-events-of-run", breaks: "the erasure of a run leaves the events of a job with the same ID",
		file: erasedTables, old: `p.process_id = x.job_id AND p.kind = 'job'`, planted: `false`,
		packages: "./storage", run: "TestEraseDistinguishesJobsFromRuns",
	},
	{
		name: "erase-changes-of-job", breaks: "the erasure of a job leaves the changes of a run with the same ID",
		file: erasedTables, old: ` AND (x.kind <> 'step' OR starts_with(x.process_id, '~flow/'))`, planted: ``,
		packages: "./storage", run: "TestEraseDistinguishesJobsFromRuns",
	},
	{
		name: "erase-changes-of-run", breaks: "the erasure of a run leaves the changes of a job with the same ID",
		file: erasedTables, old: `p.process_id = x.process_id AND p.kind = 'job'`, planted: `false`,
		packages: "./storage", run: "TestEraseDistinguishesJobsFromRuns",
	},
	{
		name: "erase-dead-letters-first", breaks: "messages are erased before dead letters, which they become",
		file: erasedTables,
		old: `	{name: "messages", key: "process_id text, message_id bigint", match: "is(x.process_id)"},
	{name: "dead_letters", key: "message_id bigint", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR " + sentByErased + " OR " + endOfErased},
`, planted: `	{name: "dead_letters", key: "message_id bigint", whole: true,
		match: "x.namespace = $1 AND is(x.process_id) OR " + sentByErased + " OR " + endOfErased},
	{name: "messages", key: "process_id text, message_id bigint", match: "is(x.process_id)"},
`,
		packages: "./storage", run: "TestEraseFollowsMoves",
	},
	{
		name:   "erase-rejected-becomes-dead-letter",
		breaks: "a rejected change that was erased does not become a dead letter",
		file:   sinkStatements, old: "WHERE change.process_id ~ '^erased:[0-9a-f]{64}$')", planted: "WHERE false)",
		packages: "./storage", run: "TestEraseFollowsMoves",
	},
	{
		name: "erase-dead-letter-does-not-wait", breaks: "a dead letter of a sink waits for the erasure of its change",
		file: sinkStatements, old: "\n     FOR SHARE)", planted: ")",
		packages: "./storage", run: "TestEraseFollowsMoves",
	},
	{
		name: "erase-records-refused", breaks: "a refused request does not add an audit entry",
		file: "engine/erase.go", old: "if err := w.checkErasable(ctx, []erasure.Set{set}); err != nil {",
		planted:  "if err := error(nil); err != nil {",
		packages: "./engine", run: "TestEraseTrustsNoToken",
	},
	{
		name: "erase-another-set", breaks: "a page token continues with its own set",
		file: "engine/erase.go", old: "setDigest(set) == token.Set", planted: "token.Set != \"\"",
		packages: "./engine", run: "TestEraseInSmallRequests",
	},
	{
		name: "erase-without-second-entry", breaks: "a page token does not replace the audit entry",
		file: erasedProcesses, old: "a.time > statement_timestamp() - $4::interval",
		planted:  "(a.time > statement_timestamp() - $4::interval OR $4 > interval '0')",
		packages: "./engine", run: "TestEraseTrustsNoToken",
	},
	{
		name: "erase-rows-of-restarted", breaks: "rows of a process that was started again stay",
		file: erasedTables, old: " AND NOT EXISTS (SELECT FROM existing)", planted: "",
		packages: "./storage", run: "TestEraseLeavesAnExistingProcess",
	},
	{
		name: "erase-keeps-restarted", breaks: "an erasure removes a process that was started again",
		file: erasedTables, old: "case exists:", planted: "case false:",
		packages: "./storage", run: "TestEraseLeavesAnExistingProcess",
	},
	{
		name: "erase-changed-row", breaks: "a row that has changed during the erasure stays",
		file: erasedTables, old: " AND t = page.entry", planted: "",
		packages: "./storage", run: "TestEraseLeavesChangedRows",
	},
	{
		name: "erase-audit-without-ids", breaks: "erase_audit needs IDs",
		file: eraseAudit, old: "IF coalesce(cardinality(ids), 0) = 0", planted: "IF false",
		packages: "./storage", run: "TestEraseAuditErasesOnlyTheIDs",
	},
	{
		name: "erase-audit-by-pattern", breaks: "callers of erase_audit cannot choose a pattern",
		file: eraseAudit, old: "pattern text := erased_parts(ids);", planted: "pattern text := parts;",
		packages: "./storage", run: "TestEraseAuditErasesOnlyTheIDs",
	},
	{
		name: "erase-audit-by-key", breaks: "names of fields in audit entries do not count as IDs",
		file: eraseAudit, old: `OR item.value #>> '{}' ~ pattern) AS is_mentioned`,
		planted:  "OR a.details::text ~ pattern) OR strpos(a.details::text, ids[1]) > 0 AS is_mentioned",
		packages: "./storage", run: "TestEraseAuditErasesOnlyTheIDs",
	},
	{
		name: "erase-audit-twice", breaks: "two erasures of an ID at the same time leave the hash chain intact",
		file: eraseAudit, old: `                       WHEN page.is_subject
                         THEN 'erased:' || encode(coalesce(a.subject_hash,
                                audit_mac(chain_key, a.namespace, a.subject)), 'hex')`,
		planted:  `                       WHEN page.is_subject THEN erased_id(a.namespace, a.subject)`,
		packages: "./storage", run: "TestConcurrentErasuresKeepTheChain",
	},
	{
		name: "erase-audit-of-settings", breaks: "an erasure does not change audit entries about settings",
		file: eraseAudit, old: `           a.method = ANY (methods)
             AND (a.subject = ANY (ids) OR a.subject ~ pattern) AS is_subject,`,
		planted:  `           (a.subject = ANY (ids) OR a.subject ~ pattern) AS is_subject,`,
		packages: "./storage", run: "TestEraseAuditErasesOnlyProcesses",
	},
	{
		name:   "erase-audit-in-settings",
		breaks: "an erasure does not change audit entries that have the ID in their settings",
		file:   eraseAudit, old: `           a.method = ANY (methods)
             AND EXISTS (`,
		planted:  `           EXISTS (`,
		packages: "./storage", run: "TestEraseAuditErasesOnlyProcesses",
	},
	{
		name: "erase-audit-existing", breaks: "audit entries of a process that was started again stay",
		file: erasedTables, old: "@dry_run::boolean OR EXISTS (SELECT FROM existing))", planted: "@dry_run::boolean)",
		packages: "./storage", run: "TestEraseLeavesAnExistingProcess",
	},
	{
		name: "erase-audit-by-any-role", breaks: "only roles that add entries may execute functions of the audit",
		file: eraseAudit, old: "REVOKE ALL ON FUNCTION erase_audit, seal_audit, forget_audit FROM PUBLIC;",
		planted:  "REVOKE ALL ON FUNCTION erase_audit FROM PUBLIC;",
		packages: "./storage", run: "TestEraseAuditNeedsRights",
	},
	{
		name: "erase-audit-rights", breaks: "a role that adds entries cannot choose the position in the chain",
		file: eraseAudit, old: "EXECUTE format('REVOKE INSERT, UPDATE,", planted: "EXECUTE format('REVOKE UPDATE,",
		packages: "./storage", run: "TestMigrationRevokesChainRights",
	},
	{
		name: "erase-records-fires", breaks: "an erasure does not record a change of a fire",
		file: eraseAudit, old: "WHERE (n.process_id ~ '^erased:[0-9a-f]{64}$') IS NOT TRUE", planted: "WHERE true",
		packages: "./storage", run: "TestEraseRecordsNoFire",
	},
}
