package main

const (
	cliTable    = "cmd/progressor/internal/cli/output/table.go"
	cliStream   = "cmd/progressor/internal/cli/output/stream.go"
	cliDecode   = "cmd/progressor/internal/cli/output/decode.go"
	cliComplete = "cmd/progressor/internal/cli/complete.go"
	cliValues   = "cmd/progressor/internal/cli/completevalues.go"
	cliOutput   = "./cmd/progressor/internal/cli/output"
)

// cliMutants break the output and the completion of the command line.
var cliMutants = []mutant{
	{
		name: "cli-wide-tables", breaks: "a row of a table fits the terminal",
		file: cliTable, old: "over := width(columns) - limit", planted: "over := width(columns) - limit - 2*columnGap",
		packages: cliOutput, run: "TestTablesFitTheTerminal",
	},
	{
		name: "cli-cuts-ids", breaks: "IDs, times, numbers and statuses are cut last",
		file: cliTable, old: "(whole || !c.whole) && ", planted: "(whole || true) && ",
		packages: cliOutput, run: "TestTablesFitTheTerminal|TestNarrowTerminal",
	},
	{
		name: "cli-utc-today", breaks: "whether a time is today depends on the zone of the terminal",
		file: cliStream, old: "t := m.t.In(now.Location())", planted: "t := m.t",
		packages: cliOutput, run: "TestTimes",
	},
	{
		name: "cli-shows-missing-times", breaks: "a field without a time is omitted",
		file: cliTable, old: `if value != "" {`, planted: `if f[1] != "" {`,
		packages: cliOutput, run: "TestEmptyFieldsAreOmitted",
	},
	{
		name: "cli-decode-changes", breaks: "--decode does not change the message",
		file: cliDecode, old: "	m = proto.Clone(m)\n", planted: "",
		packages: cliOutput, run: "TestDecode",
	},
	{
		name: "cli-no-color", breaks: "NO_COLOR turns colors off",
		file: "cmd/progressor/internal/cli/color.go", old: `noColor == "" && `, planted: `noColor != "off" && `,
		packages: "./cmd/progressor", run: "TestTerminal$",
	},
	{
		name: "cli-completion-waits", breaks: "a completion waits for the engine for at most a second",
		file: cliValues, old: "completeTimeout = time.Second", planted: "completeTimeout = time.Hour",
		packages: "./cmd/progressor", run: "TestCompleteWithoutEngine",
	},
	{
		name: "cli-completes-lists", breaks: "the last element of a list is completed",
		file: cliComplete, old: "prefix, typed = prefix+typed[:n+1], typed[n+1:]", planted: "typed = typed[n+1:]",
		packages: "./cmd/progressor", run: "TestComplete$",
	},
	{
		name: "cli-completes-without-quotes", breaks: "values are quoted for the shell",
		file: cliComplete, old: "if quotes.quote != nil {", planted: "if false {",
		packages: "./cmd/progressor", run: "TestCompleteQuotes",
	},
	{
		name: "cli-typographic-quotes-end-strings", breaks: "PowerShell treats typographic quotes as quotes",
		file: "cmd/progressor/internal/cli/completequote.go", old: "\"'‘’‚‛\"", planted: "\"'\"",
		packages: "./cmd/progressor/internal/cli", run: "TestQuotePowerShell",
	},
	{
		name: "cli-deploy-check-ends-at-large-histories", breaks: "a process that is too large does not end a check",
		file: "cmd/progressor/internal/cli/deploy/check.go", old: "return k.askLarge(ctx, id)",
		planted:  "return nil, nil, err",
		packages: "./cmd/progressor", run: "TestDeployCheckOfALargeHistory",
	},
	{
		name: "cli-deploy-check-seems-complete", breaks: "the exit code says that not everything was checked",
		file: "cmd/progressor/internal/cli/deploy/report.go", old: "case len(r.NotChecked) > 0:",
		planted:  "case r == nil:",
		packages: "./cmd/progressor", run: "TestDeployCheckOfALargeHistory",
	},
}
