package main

const (
	keysSQL   = "sql/api_keys.sql"
	accessRPC = "engine/rpc/access.go"
)

// accessMutants break the management of keys, grants and logins.
var accessMutants = []mutant{
	{
		name: "admins-create-keys", breaks: "only root manages keys",
		file: "engine/auth/roles.go", old: "NODE_OPERATE,\n\t\tprogressorv1.Permission_PERMISSION_AUTH_ADMIN)",
		planted:  "NODE_OPERATE)",
		packages: "./engine/auth", run: "TestRoles",
	},
	{
		name: "anyone-creates-keys", breaks: "an engine that does not authenticate changes no keys",
		file: accessRPC, old: "if principalOf(ctx) != nil {", planted: "if true {",
		packages: "./cmd/progressor", run: "TestAccessServiceRejects",
	},
	{
		name: "rotated-key-valid-longer", breaks: "an overlap does not extend the old key",
		file: keysSQL, old: "ELSE LEAST(expire_time,", planted: "ELSE GREATEST(expire_time,",
		packages: "./storage", run: "TestRotateKey",
	},
	{
		name: "rotated-key-not-revoked", breaks: "a rotation without an overlap revokes the old key",
		file: keysSQL, old: "revoked_time = CASE WHEN @overlap_us::bigint = 0",
		planted:  "revoked_time = CASE WHEN @overlap_us::bigint < 0",
		packages: "./storage", run: "TestRotateKey",
	},
	{
		name: "rotated-twice", breaks: "a key can be rotated only once",
		file: "storage/api_keys.go", old: "case before.ReplacedBy != nil:", planted: "case false:",
		packages: "./storage", run: "TestRotateKey",
	},
	{
		name: "wrong-secret-is-a-use", breaks: "a request with a wrong secret does not count as a use of its key",
		file:     "engine/auth/authenticator.go",
		old:      "\thash := Hash(token)\n\tif subtle",
		planted:  "\thash := Hash(token)\n\ta.noteUse(ctx, id, s)\n\tif subtle",
		packages: "./engine/auth", run: "TestUseIsNoted",
	},
	{
		name: "explain-counts-forgotten-entries", breaks: "explain ignores what a repair has forgotten",
		file: "explain/journal.go", old: "if !forgotten[events[n].ID] {", planted: "if n >= 0 {",
		packages: "./explain", run: "TestReadJournal",
	},
	{
		name: "explain-shows-journals-to-all", breaks: "explain reads a journal only for those who see payloads",
		file: "engine/rpc/shown.go", old: "return p == nil || part{", planted: "return p != nil || part{",
		packages: "./engine/rpc", run: "TestExplainShowsPayloads",
	},
}
