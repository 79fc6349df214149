package main

import (
	"net"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// Except for the flags in differ, a flag has the same type and the same short name in all commands.
// Each short name belongs to only one flag.
func TestFlagNamesAreConsistent(t *testing.T) {
	t.Parallel()
	parser, err := cli.Main{Commands: newCommands}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	differ := map[string]string{ // flags that have several types, and the reason
		"file":        "some commands read one file, others several",
		"concurrency": "of a cron: what it does at --max-concurrency; of a worker: its number of concurrent jobs",
		"history":     "of bench: several history modes to measure",
		"job-events":  "of a namespace: one setting; of bench: several settings to measure",
		"metadata":    "of a process: its metadata; of bench: whether to measure metadata",
		"job":         "of a cron: the name of its jobs; of a worker: several names",
		"kind":        "of changes: several kinds; of a bulk or wait: one kind",
		"namespaces":  "of a key: several patterns; of a secret: one pattern",
		"role":        "of a key: several roles; of bench: a PostgreSQL role",
		"overlap":     "of a cron: what it does if a run is active; of a key: how long the old key stays valid",
		"worker-id":   "of a job: several workers; of a worker: its ID",
		"rate":        "of a bulk: processes per second; of a constraint: starts per any unit of time",
	}
	seen, letters := map[string]string{}, map[rune]string{}
	for _, leaf := range parser.Model.Leaves(true) {
		for _, flag := range leaf.Flags {
			kind := flag.Target.Type().String() + " " + string(flag.Short)
			kind = strings.TrimPrefix(kind, "*") // optional
			if _, ok := differ[flag.Name]; !ok && seen[flag.Name] != "" && seen[flag.Name] != kind {
				t.Errorf("--%s of %s is %s, elsewhere %s", flag.Name, commandPath(leaf), kind, seen[flag.Name])
			}
			seen[flag.Name] = kind
			if other := letters[flag.Short]; flag.Short != 0 && other != "" && other != flag.Name {
				t.Errorf("-%c is --%s and --%s", flag.Short, flag.Name, other)
			}
			letters[flag.Short] = flag.Name
		}
	}
	// All commands use the same name for the same thing, for example --reason and not --note.
	for name, instead := range map[string]string{
		"note": "reason", "validate-only": "dry-run", "follow": "watch", "since": "from", "until": "to",
		"after":  "offset",
		"cursor": "from", "lease": "lease-duration",
	} {
		if seen[name] != "" {
			t.Errorf("--%s: use --%s", name, instead)
		}
	}
}

// The logs of dev and serve are text on a terminal, and JSON otherwise. The engine of this test
// does not start, because its port is in use.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	run := func(p clitest.Program, args ...string) string {
		p.Commands, p.Env = newCommands, map[string]string{"PROGRESSOR_UNKNOWN": "x"}
		args = append([]string{"dev", "--listen", used.Addr().String(), "--data-dir", t.TempDir()}, args...)
		log, _, _ := strings.Cut(p.Run(t, args...).Stderr, "\n")
		return log
	}
	terminal := clitest.Program{Terminal: true}
	for text, want := range map[string]string{
		run(clitest.Program{}):                         `"msg":"unknown environment variable ignored"`,
		run(terminal):                                  "\x1b[93mWRN\x1b[0m unknown environment variable ignored",
		run(terminal, "--color", "never"):              " WRN unknown environment variable ignored name=",
		run(terminal, "--log.format", "json"):          `"level":"WARN"`,
		run(clitest.Program{}, "--log.format", "text"): " WRN unknown environment variable ignored name=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in %q", want, text)
		}
	}
}

// --decode changes JSON documents, so it requires -o json.
func TestDecodeRequiresJSON(t *testing.T) {
	t.Parallel()
	p := clitest.Serve(t, newCommands, &clitest.Engine{})
	if r := p.Run(t, "get", "demo", "p", "--decode"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "--decode: requires -o json") {
		t.Errorf("%+v", r)
	}
	p.OK(t, "get", "demo", "p", "--decode", "-o", "json")
}
