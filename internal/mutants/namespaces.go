package main

// namespaceMutants break the deletion of namespaces.
var namespaceMutants = []mutant{
	{
		name: "deletes-before-nodes-know", breaks: "nothing is deleted while a live node may accept requests",
		file:     "engine/namespace_remover.go",
		old:      "if err != nil || nodes > 0 {",
		planted:  "if err != nil || nodes < 0 {",
		packages: "./engine", run: "TestDeletionWaitsForNodes",
	},
	{
		name: "late-data-deleted", breaks: "a namespace that is no longer empty is kept",
		file:     "engine/namespace_remover.go",
		old:      "held := storage.HasData(counts)",
		planted:  "held := storage.HasData(counts[:0])",
		packages: "./engine", run: "TestDeletionIsCancelled",
	},
	{
		name: "attempts-outlive-namespace", breaks: "the attempts of a deleted namespace are cancelled",
		file:     "engine/delete_namespace.go",
		old:      "\t\t\te.attempts.cancelNamespace(name, process.ErrNamespaceDeleting)\n",
		planted:  "",
		packages: "./engine", run: "TestDeleteNamespaceWithData",
	},
	{
		name: "waiters-outlive-namespace", breaks: "clients that wait in a deleted namespace get an error",
		file:     "engine/delete_namespace.go",
		old:      "\t\t\te.waiters.cancelNamespace(name)\n",
		planted:  "",
		packages: "./engine", run: "TestDeletionWaitsForNodes",
	},
	{
		name: "deletes-keys-of-others", breaks: "only keys of the deleted namespace are deleted",
		file:     "storage/delete_namespace.go",
		old:      `join += " AND t.namespace = $1"`,
		planted:  `join += ""`,
		packages: "./storage", run: "TestDeleteRows",
	},
	{
		name: "deletion-begins-again", breaks: "a batch of a deletion begins after the last key of the previous batch",
		file:     "storage/delete_namespace.go",
		old:      `strings.Join(key, ", ") + ") > ("`,
		planted:  `strings.Join(key, ", ") + ") IS DISTINCT FROM ("`,
		packages: "./storage", run: "TestDeleteRowsContinuesAfterAKey",
	},
	{
		name: "deletion-forgets-a-table", breaks: "rows of every table are deleted",
		file:     "storage/delete_namespace.go",
		old:      "\t{name: \"answers\", key: []string{\"process_id\", \"task_id\"}, kind: \"answers\"},\n",
		planted:  "",
		packages: "./storage", run: "TestDeleteRows",
	},
	{
		name:     "starts-in-deleted-namespace",
		breaks:   "a message does not start a process in a namespace that is being deleted",
		file:     "sql/deliver_starts.sql",
		old:      "\n              AND n.deletion_requested_time IS NULL) AS known",
		planted:  ") AS known",
		packages: "./storage", run: "TestStartInDeletedNamespace",
	},
	{
		name: "rules-of-deleted-namespace", breaks: "a namespace that is created again has its own constraints",
		file:     "engine/jobs/admit.go",
		old:      "return !live[namespace]",
		planted:  "return false",
		packages: "./engine/jobs", run: "TestConstraintsOfANamespaceCreatedAgain",
	},
	{
		name: "paused-names-uncounted", breaks: "a namespace with paused job names is not empty",
		file:     "storage/delete_namespace.go",
		old:      `kind: "paused_job_names"`,
		planted:  `kind: ""`,
		packages: "./storage ./engine/jobs", run: "TestCountDataKnowsEveryTable|TestDeleteNamespaceWithPausedNames",
	},
	{
		name: "dev-keeps-forever", breaks: "the namespaces of dev keep ended processes for 7 days",
		file:     "cmd/progressor/internal/cli/server/dev.go",
		old:      "Retention: durationpb.New(devRetention),",
		planted:  "Retention: durationpb.New(devRetention - devRetention),",
		packages: "./cmd/progressor", run: "TestDev",
	},
}
