package main

// securityMutants remove checks that protect the engine from attackers.
var securityMutants = []mutant{
	{
		name: "any-host", breaks: "a request with a foreign Host is rejected",
		file: "engine/rpc/hosts.go", old: "if !h.allow(r.Host) {", planted: "if false {",
		packages: "./engine/rpc", run: "TestRebinding",
	},
	{
		name: "host-with-prefix", breaks: "a name that only ends with an allowed name is rejected",
		file: "engine/rpc/hosts.go", old: `strings.CutPrefix(lower, "*")`, planted: `strings.CutPrefix(lower, "*.")`,
		packages: "./engine/rpc", run: "TestHosts",
	},
	{
		name: "profiles-for-any-host", breaks: "profiles are served only to known hosts",
		file: "cmd/progressor/internal/cli/server/profiles.go", old: "return hosts.Guard(mux, func() {})",
		planted:  "return mux",
		packages: "./cmd/progressor/internal/cli/server", run: "TestProfiles",
	},
	{
		name: "password-until-ampersand", breaks: "a password with & is hidden completely",
		file: "cmd/progressor/internal/cli/server/config.go", old: `(?:\\.|[^\s\\])+`, planted: `[^\s&]+`,
		packages: "./cmd/progressor", run: "TestSecretsAreRedacted",
	},
}
