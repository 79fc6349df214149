package main

import (
	"os"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const sinksOfFile = `
db: {dsn: 'postgres://db/x'}
sinks:
  - namespace: demo
    sink_id: audit
    filter: change.type == "failed"
    webhook:
      url: https://example.com/x
      secrets: [whsec_c2VjcmV0LWtleS1mb3ItdGhlLWV4YW1wbGU=]
  - namespace: demo
    sink-id: stream
    kafka:
      brokers: ['kafka:9092']
      topic: progressor.{namespace}
      sasl: {mechanism: PLAIN, user: kim, password: hunter2}
`

func TestSinksOfTheConfiguration(t *testing.T) {
	checkConfiguration(t, sinksOfFile, "0 crons, 0 templates, 2 sinks", map[string]string{
		`change.type == "failed"|change.typo`: "line 6: sinks[0].filter: line 1, column 7: undefined field 'typo'",
		"https://example|ftp://example":       "line 8: sinks[0].webhook.url: ",
		"whsec_c2VjcmV0|whsec_c2":             "sinks[0].webhook.secrets[0]: must be whsec_ followed by 24 to 64 bytes",
		"kafka:9092|kafka":                    "sinks[1].kafka.brokers[0]: must be host:port",
		"mechanism: PLAIN|mechanism: NONE":    "sinks[1].kafka.sasl.mechanism: ",
		"sink_id: audit|sink_id: stream":      "sinks[1]: sink stream of namespace demo is defined twice",
		"sink_id: audit|max_lag: 1h":          "line 4: sinks[0].sink_id is missing",
		"sink_id: audit|sink_id: a b":         "line 5: sinks[0].sink_id: ",
		"filter:|filters:":                    "line 6: sinks[0].filters: unknown field",
		"sinks:|sink:":                        "unknown key sink; use one of ",
	})
}

// checkConfiguration checks a valid file that has the given parts and no namespaces. The output of
// config print contains no secrets. It is still a valid file, because the engine may have stored
// the secrets. Each key FROM|TO of changes is a change that makes the file invalid. The error
// contains the value of the key.
func checkConfiguration(t *testing.T, file, parts string, changes map[string]string) {
	t.Helper()
	p := clitest.Program{Commands: newCommands}
	path := clitest.WriteConfig(t, file)
	printed := p.OK(t, "config", "print", "-c", path)
	if strings.Contains(printed, "hunter2") || strings.Contains(printed, "whsec_") {
		t.Errorf("a secret is shown:\n%s", printed)
	}
	valid := "the configuration is valid: 0 namespaces, " + parts + "\n"
	for _, path := range []string{path, clitest.WriteConfig(t, printed)} {
		if out := p.OK(t, "config", "check", "-c", path); out != valid {
			t.Errorf("%s", out)
		}
	}
	for change, want := range changes {
		from, to, _ := strings.Cut(change, "|")
		bad := strings.Replace(file, from, to, 1)
		if bad == file {
			t.Fatalf("the configuration does not contain %s", from)
		}
		r := p.Run(t, "config", "check", "-c", clitest.WriteConfig(t, bad))
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "configuration file "+os.TempDir()) ||
			!strings.Contains(r.Stderr, want) {
			t.Errorf("%s: code %d: %s", change, r.Code, r.Stderr)
		}
	}
}

// Sinks in the configuration file are created at startup, replaced if they differ, and otherwise
// not changed. A sink that was paused stays paused. If the engine rejects an entry, it does not
// start.
func TestServePutsSinks(t *testing.T) {
	t.Parallel()
	text := `
namespaces:
  - {namespace: play, processor: {builtin: {name: echo}}, changes: {kinds: [event]}}
sinks:
  - {namespace: play, sink_id: audit, kinds: [event], webhook: {url: 'http://127.0.0.1:1/x'}}
`
	dsn := storagetest.DSN(t)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "-c"}
	puts := func(d *clitest.Daemon) int {
		return strings.Count(d.Client.OK(t, "audit", "play", "-o", "json"), `"PutSink"`)
	}
	d := background(t, nil, append(args, clitest.WriteConfig(t, text))...)
	clitest.WantLines(t, d.Client.OK(t, "sink", "get", "play", "audit"), "state active", "target http://127.0.0.1:1/x")
	clitest.WantLines(t, d.Client.OK(t, "explain", "sink", "play", "audit"), "sink play/audit", "next It delivers")
	d.Client.OK(t, "sink", "pause", "play", "audit")
	d.Stop(t)
	d = background(t, nil, append(args, clitest.WriteConfig(t, text))...)
	if n := puts(d); n != 1 {
		t.Errorf("an unchanged sink was put %d times", n)
	}
	d.Stop(t)
	d = background(t, nil, append(args, clitest.WriteConfig(t, strings.Replace(text, "1/x", "2/x", 1)))...)
	clitest.WantLines(t, d.Client.OK(t, "sink", "get", "play", "audit"), "state paused", "target http://127.0.0.1:2/x")
	clitest.WantLines(t, d.Client.OK(t, "audit", "play"), "PutSink", "configuration file")
	d.Stop(t)
	bad := clitest.WriteConfig(t, strings.Replace(text, "kinds: [event], webhook", "kinds: [event, job], webhook", 1))
	r := clitest.Program{Commands: newCommands}.Run(t, append(args, bad)...)
	if r.Code == cli.ExitOK || !strings.Contains(r.Stderr,
		"line 5: sinks[0].kinds[1]: the namespace does not record JOB: it records EVENT") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
}
