package main

const metadataList = "migrations/00154_metadata_pending_list.sql"

// limitMutants remove bounds of fields and of responses.
var limitMutants = []mutant{
	{
		name: "two-checkpoints-together", breaks: "a flush stores at most one checkpoint of an attempt",
		file: "storage/lane.go", old: "p = part{item.completion.FencingToken, true}", planted: "return item == nil",
		packages: "./storage", run: "TestRepeatedCheckpoints",
	},
	{
		name: "metadata-list-grows", breaks: "engines merge the list of new entries of the index of metadata",
		file: "engine/engine.go", old: "e.listen, e.mergeMetadataIndex,", planted: "e.listen,",
		packages: "./engine", run: "TestMetadataIndexIsMerged",
	},
	{
		name: "metadata-list-stays", breaks: "a merge of the index of metadata moves its new entries",
		file: metadataList, old: "  PERFORM gin_clean_pending_list('processes_metadata');\nEND",
		planted:  "  NULL;\nEND",
		packages: "./storage", run: "TestMergeMetadataIndex",
	},
	{
		name: "metadata-list-portable", breaks: "a portable database does not merge the index of metadata",
		file: "storage/nodes.go", old: "	if s.portable {\n		return nil",
		planted:  "	if false {\n		return nil",
		packages: "./storage", run: "TestPortable",
	},
	{
		name: "metadata-list-merged-idle", breaks: "a node that stores nothing does not merge the index of metadata",
		file: "storage/nodes.go", old: "if !s.hasFlushed.Swap(false) {", planted: "if false {",
		packages: "./storage", run: "TestMergeMetadataIndex",
	},
	{
		name: "metadata-list-public", breaks: "only roles of engines merge the index of metadata",
		file: metadataList, old: "  IF NOT has_table_privilege(", planted: "  IF false AND NOT has_table_privilege(",
		packages: "./storage", run: "TestFunctionsForEngines",
	},
	{
		name: "lease-token-of-any-bytes", breaks: "a lease token with invalid text is an invalid argument",
		file: "engine/pull/tokens.go", old: " && wire.Plain(key.ProcessID) == key.ProcessID", planted: "",
		packages: "./cmd/progressor", run: "TestInventedTokensAreRejected",
	},
	{
		name:   "zero-is-a-bound",
		breaks: "the error about a duration that must not be 0 does not name a bound that includes 0",
		file:   "engine/rpc/check.go", old: "if mustBePositive(fd) {", planted: "if false {",
		packages: "./engine/rpc", run: "TestPositiveDurations",
	},
	{
		name: "wait-failure-without-bound", breaks: "the failure of a wait is bounded",
		file: "engine/flows/answers.go", old: "size > process.MaxPayloadBytes",
		planted:  "size > process.MaxMessageBytes",
		packages: "./cmd/progressor", run: "TestFieldsHaveLimits/CompleteStep",
	},
	{
		name: "metadata-too-deep", breaks: "metadata has at most 100 nested objects and lists",
		file: "engine/rpc/check.go", old: "(*structpb.Struct), 1)", planted: "(*structpb.Struct), 0)",
		packages: "./cmd/progressor", run: "TestFieldsHaveLimits/^Start$",
	},
	{
		name: "error-groups-without-bound", breaks: "an error group has only the beginning of the reason",
		file: "sql/list_broken.sql", old: "left(coalesce(broken.reason, ''), 256)",
		planted:  "left(coalesce(broken.reason, ''), 25600)",
		packages: "./engine", run: "TestFailuresInReadsAreBounded",
	},
	{
		name: "explanation-without-bound", breaks: "an explanation has only the beginnings of failures",
		file:     "sql/explain_process.sql",
		old:      "'message', ''), 1000)::text AS message\n  FROM schedule",
		planted:  "'message', ''), 100000)::text AS message\n  FROM schedule",
		packages: "./engine", run: "TestFailuresInReadsAreBounded",
	},
	{
		name: "namespaces-without-next-page", breaks: "a page of namespaces that is full has a next one",
		file: "storage/namespaces.go", old: "bytes > ListBytes", planted: "false",
		packages: "./engine", run: "TestOperatorReadsAreBounded",
	},
	{
		name: "audit-page-without-bound", breaks: "the next page of audit entries begins after the last one",
		file: "storage/search/audit.go", old: "r.N == int64(window) || bytes > limit", planted: "r.N == int64(window)",
		packages: "./storage/search", run: "TestListAuditIsBoundedInBytes",
	},
	{
		name: "group-failures-without-bound", breaks: "a job for several workers keeps the newest failures",
		file: "sql/groups.sql", old: "AND place.newer < 19", planted: "AND place.newer < 1900",
		packages: "./engine/jobs", run: "TestFailuresOfAGroupAreBounded",
	},
	{
		name: "due-answer-not-checked", breaks: "the value of DueAnswer matches the schema of the question",
		file: "processor/durable/human.go", old: "err = checkSchema(wait)", planted: "err = nil",
		packages: "./processor/durable", run: "TestHumanMisuse",
	},
	{
		name: "bad-answer-breaks-function", breaks: "a function can handle an answer that cannot be decoded",
		file: "processor/durable/child.go", old: "if !f.isQuestion ||", planted: "if f.name != \"\" ||",
		packages: "./processor/durable", run: "TestHumanBadAnswer",
	},
	{
		name: "checks-accept-questions-as-flows", breaks: "a check reports a run that became a question",
		file: "processor/durable/child.go", old: "child.Run != \"\" && child.Run != want.Run",
		planted: "child.Run != \"\" && want.Run == \"\"", packages: "./processor/durable",
		run: "TestCheckQuestionOrFlow",
	},
	{
		name: "wait-patterns-without-limit", breaks: "the patterns of a wait in a result compile fast",
		file: "processor/check_wait.go", old: "n > maxWaitPattern", planted: "n < 0",
		packages: "./processor", run: "TestCheckWait",
	},
}
