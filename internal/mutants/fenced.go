package main

// fencedMutants are the mutants of the list of results that a transaction has not stored.
var fencedMutants = []mutant{
	{
		name: "fenced-result-forgotten", breaks: "a transaction knows which results it has not stored",
		file: saveResult,
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "fast-path-result-forgotten", breaks: "a transaction knows which results the fast path has not stored",
		file: saveFinished,
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "fast-path-end-forgotten", breaks: "a transaction knows which ends the fast path has not stored",
		file: "sql/save_completed.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "fenced-removal-forgotten", breaks: "a transaction knows which late removals it has not executed",
		file: "sql/remove_processes.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(removed.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "OnlyResultsSend",
	},
}
