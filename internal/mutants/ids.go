package main

// idMutants are the mutants of the IDs that the engine generates or derives from keys.
var idMutants = []mutant{
	{
		name: "ids-unordered", breaks: "generated IDs have the order in which they were generated",
		file: "process/short_id.go", old: "low = high<<62 | low&(1<<62-1)", planted: "low = high<<62 | low",
		packages: "./process", run: "TestShortIDsHaveTheOrderOfTheirUUIDs",
	},
	{
		name: "derived-ids-unordered", breaks: "IDs derived from UUIDv7 keys have the order of the keys",
		file: "process/key.go", old: "copy(requestID[:8], key[:8])", planted: "copy(requestID[8:], key[8:])",
		packages: "./process", run: "TestDerivedIDs",
	},
	{
		name: "client-keys-unordered", breaks: "the client's keys have the order of their requests",
		file: "client/options.go", old: "uuid.Must(uuid.NewV7())", planted: "uuid.New()",
		packages: "./client", run: "TestEnqueuedIDsGrow",
	},
}
