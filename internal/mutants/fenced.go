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
		name: "fast-path-continued-forgotten", breaks: "a transaction knows which results the fast path has not stored",
		file: "sql/save_continued.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "continued-before-a-waiting-task", breaks: "a process continues with its oldest task",
		file: "sql/save_continued.sql",
		old:  "s.waits_for IN ('process', 'place')", planted: "s.waits_for = 'place'",
		packages: "./storage", run: "FastPathStoresTheSame",
	},
	{
		name: "continued-with-two-timers", breaks: "a process has one default timer",
		file: "sql/save_continued.sql", old: "OR s.timer_name = '')", planted: "OR false)",
		packages: "./storage", run: "FastPathStoresTheSame",
	},
	{
		name: "continued-with-old-args", breaks: "the fast path stores the same as the general statement",
		file: "sql/save_continued.sql", old: "args = NULL, child = NULL", planted: "child = NULL",
		packages: "./storage", run: "FastPathStoresTheSame",
	},
	{
		name: "fast-path-end-forgotten", breaks: "a transaction knows which ends the fast path has not stored",
		file: "sql/save_completed.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "fast-path-plain-end-forgotten", breaks: "a transaction knows which ends of processes are not stored",
		file: "sql/save_ended.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(saved.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "FencedResultWith",
	},
	{
		name: "fast-path-end-not-counted", breaks: "the counts by status include ends",
		file: "sql/save_ended.sql", old: "('COMPLETED', 1)", planted: "('COMPLETED', 0)",
		packages: "./storage", run: "FastPathStoresTheSame",
	},
	{
		name: "fast-path-end-without-parent", breaks: "a process that ends notifies its parent",
		file: "sql/save_ended.sql", old: "     AND parent.found IS NULL),", planted: "),",
		packages: "./storage ./engine", run: "FastPathStoresTheSame|Child",
	},
	{
		name: "fenced-removal-forgotten", breaks: "a transaction knows which late removals it has not executed",
		file: "sql/remove_processes.sql",
		old:  "ELSE add_unsaved(@fencing_tokens::bigint[], array_agg(removed.fencing_token))", planted: "ELSE true",
		packages: "./storage", run: "OnlyResultsSend",
	},
}
