package main

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// The value of a setting comes from the first of these sources that sets it: flag, environment
// variable, file, default.
func TestOrderOfSources(t *testing.T) {
	path := clitest.WriteConfig(t, "listen: 127.0.0.1:1\ndb:\n  lanes: 5\n  max-conns: 6\nlog: {level: debug}\n")
	p := clitest.Program{Commands: newCommands,
		Env: map[string]string{"PROGRESSOR_DB_LANES": "7", "PROGRESSOR_LOG_LEVEL": "warn", "PROGRESSOR_CONFIG": path}}
	var got struct {
		Listen string
		DB     struct {
			Lanes    int
			MaxConns int `yaml:"max_conns"`
		}
		Log    struct{ Level, Format string }
		Engine struct {
			ZombieAfter string `yaml:"zombie_after"`
		}
	}
	out := p.OK(t, "config", "print", "--log.level", "error")
	if err := yaml.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if got.Listen != "127.0.0.1:1" || got.DB.Lanes != 7 || got.DB.MaxConns != 6 || got.Log.Level != "error" ||
		got.Log.Format != "auto" || got.Engine.ZombieAfter != "10s" {
		t.Errorf("configuration = %+v", got)
	}
	clitest.WantLines(t, out, "lanes: 7 # environment PROGRESSOR_DB_LANES", "max_conns: 6 # "+path+" line 4",
		"level: error # flag",
		"format: auto # default")
	// The output of config print is itself a valid configuration file.
	printed := clitest.WriteConfig(t, out)
	if r := (clitest.Program{Commands: newCommands}).Run(t, "config", "print", "-c", printed); r.Code != cli.ExitOK ||
		!strings.Contains(r.Stdout, "lanes: 7") {
		t.Errorf("%+v", r)
	}
}

// Neither config print nor config check shows a password, wherever it is in a DSN, URL or header.
func TestSecretsAreRedacted(t *testing.T) {
	path := clitest.WriteConfig(t, `
namespaces:
  - namespace: orders
    processor: {connect: {url: "http://me:hunter2@127.0.0.1:9000", headers: {authorization: "Bearer hunter2"}}}
`)
	for _, dsn := range []string{
		"postgres://me:hunter2@db/x?sslmode=disable", "postgres://me:hunter2/hunter2@db/x", "postgres://db/x?user=me&password=hunter2",
		"host=db user=me password=hunter2", "host=db password = 'hunter2 \\' hunter2' user=me",
		"host=db sslpassword=hunter2",
		"postgres://me:hunter2%40hunter2@db/x?application_name=a@b",
		"postgres://db:5432/x?password=hunter2@hunter2&user=me", "postgres://db/x?user=me&pass%77ord=hunter2#hunter2",
		"host=db password=a&hunter2 user=me", `host=db password=a\ hunter2 user=me`,
		"host=db password='a hunter2", "host=db password=a hunter2", "host=db password=a://b:c@hunter2",
	} {
		p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
		for _, args := range [][]string{{"print"}, {"print", "-o", "json"}, {"check"},
			{"check", "--listen", "0.0.0.0:1"}} {
			r := p.Run(t, append(append([]string{"config"}, args...), "-c", path)...)
			if strings.Contains(r.Stdout+r.Stderr, "hunter2") {
				t.Errorf("%s, %q: a secret is shown:\n%s%s", dsn, args, r.Stdout, r.Stderr)
			}
		}
	}
}

// config check reports an invalid configuration with the line and key, or the flag, that is wrong.
func TestBadConfiguration(t *testing.T) {
	const dsn = "db: {dsn: 'postgres://db/x'}\n"
	tests := []struct {
		name string
		text string
		args []string
		want string
	}{
		{"unknown key", "db: {max_con: 4}", nil,
			"line 1: unknown key db.max_con; use one of db.dsn, db.lanes, db.max_conns, db.migrate"},
		{"unknown group", "\nbd: {dsn: x}", nil, "line 2: unknown key bd; use one of "},
		{"a client's key", "output: json", nil, "unknown key output"},
		{"set twice", "db: {max_conns: 1, max-conns: 2}", nil, "db.max_conns is set twice"},
		{"list for a value", "listen: [a]", nil, "line 1: listen: must be a single value"},
		{"no mapping", "- a", nil, "the file must contain keys and values"},
		{"two documents", "listen: a\n---\nlisten: b", nil, "must be a single document"},
		{"bad value", dsn + "engine: {zombie_after: soon}", nil, "line 2)"},
		{"bad enum", "log: {level: loud}", nil, "must be one of"},
		{"missing file", "", []string{"-c", "/does/not/exist"}, "no such file"},
		{"no dsn", "", nil, "--db.dsn: is required"},
		{"bad dsn", "db: {dsn: 'postgres://db:port/x'}", nil, "--db.dsn: cannot parse"},
		{"bad host", dsn, []string{"--listen-hosts", "a.example.com,https://b.example.com"},
			`--listen-hosts: must be host names without a port, such as progressor.example.com or *.example.com ` +
				`(got "https://b.example.com")`},
		{"host with a port", dsn + "listen_hosts: a.example.com:8080", nil, "--listen-hosts: must be host names"},
		{"key file", dsn, []string{"--auth.key-file", "x"},
			"--auth.key-file: is used only with --auth.mode local"},
		{"unknown mode", dsn + "auth: {mode: open}", nil, "--auth.mode"},
		{"no port", dsn + "listen: localhost", nil, "want host:port"},
		{"open profiles", dsn, []string{"--debug.listen", ":6060", "--auth.mode", "none"},
			"must be a loopback address"},
		{"lanes", dsn, []string{"--db.lanes", "0"}, "--db.lanes: must be 1 to 64"},
		{"scans", dsn, []string{"--db.scan-conns", "1"}, "--db.scan-conns: must be 2 to 1000 (got 1)"},
		{"reads", dsn, []string{"--db.max-conns", "0"}, "--db.max-conns: must be 1 to 1000 (got 0)"},
		{"namespaces is not a list", "namespaces: {a: b}", nil, "namespaces: must be a list"},
		{"namespace without name", "namespaces: [{max_running: 1}]", nil, "namespaces[0].namespace is missing"},
		{"namespace twice", "namespaces: [{namespace: a}, {namespace: a}]", nil, "namespace a is defined twice"},
		{"unknown field", "namespaces:\n  - namespace: a\n    retry_policy: {attempts: 3}", nil,
			"line 3: namespaces[0].retry_policy.attempts: unknown field"},
		{"unknown enum", "namespaces: [{namespace: a, history_mode: some}]", nil,
			`unknown value "some"; use one of FULL, NONE, LAST`},
		{"duration without unit", "namespaces: [{namespace: a, step_timeout: 10}]", nil,
			"namespaces[0].step_timeout: must be a duration with a unit"},
		{"number", "namespaces: [{namespace: a, max_running: many}]", nil,
			`max_running: must be a number (got "many")`},
		{"out of range", dsn + "namespaces: [{namespace: 'a b', processor: {pull: }}]", nil,
			": line 2: namespaces[0].namespace: "},
		{"no processor of that name", dsn + "namespaces: [{namespace: a, processor: {builtin: {name: ordrs}}}]", nil,
			`line 2: namespaces[0].processor.builtin.name: this node has no processor "ordrs"; it has echo, orders`},
		{"no transport", dsn + "namespaces: [{namespace: a, processor: {}}]", nil,
			"line 2: namespaces[0].processor.transport: is required: set one of connect, pull, builtin"},
		{"a lease that is too long", dsn + "namespaces: [{namespace: a, processor: {pull: {lease_duration: 2h}}}]", nil,
			"line 2: namespaces[0].processor.pull.lease_duration: 2h is more than 1h"},
		{"defaults of a name", "\ndefaults: {namespace: a}", nil,
			"line 2: defaults.namespace: each namespace has its own"},
		{"defaults that pause", "defaults: {paused: true}", nil, "line 1: defaults.paused: each namespace has its own"},
		{"unknown default", "defaults:\n  step: 3s", nil, "line 2: defaults.step: unknown field; use one of "},
		{"list of defaults", "defaults: [a]", nil, "line 1: defaults: must have the fields of a Namespace"},
		{"default of the wrong type", "defaults: {max_running: many}", nil,
			`defaults.max_running: must be a number (got "many")`},
		{"default out of range", dsn + "defaults: {max_running: -1}\nnamespaces: [{namespace: a, processor: {pull: }}]",
			nil, "line 3: namespaces[0].max_running: "},
		{"no target", dsn + "crons: [{namespace: a, cron_id: b, spec: {expressions: ['* * * * *']}, target: {}}]", nil,
			"target: is required: set one of start_process"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"config", "check", "-c", clitest.WriteConfig(t, tt.text)}, tt.args...)
			r := clitest.Program{Commands: newCommands}.Run(t, args...)
			if r.Code != cli.ExitUsage && tt.name != "missing file" || !strings.Contains(r.Stderr, tt.want) {
				t.Errorf("code %d, want %q in: %s", r.Code, tt.want, r.Stderr)
			}
		})
	}
}

func TestGoodConfiguration(t *testing.T) {
	path := clitest.WriteConfig(t, `
# A comment.
db: {dsn: "postgres://db/x"}
listen: localhost:0
namespaces:
  - namespace: shop/orders
    processor: {connect: {url: "http://127.0.0.1:9000", encoding: json, protocol: PROTOCOL_CONNECT}}
    retry_policy: {initial_interval: 250ms, backoff_coefficient: 2, max_attempts: 5, non_retryable_errors: [a, b]}
    retention: 720h
    history_mode: none
  - {namespace: play, processor: {builtin: {name: echo}}}
`)
	if out := (clitest.Program{Commands: newCommands}).OK(t, "config", "check", "-c", path); out !=
		"the configuration is valid: 2 namespaces, 0 crons, 0 templates, 0 sinks\n" {
		t.Errorf("output = %q", out)
	}
	one := clitest.WriteConfig(t,
		"db: {dsn: 'host=db'}\nnamespaces: [{namespace: a, processor: {builtin: {name: echo}}}]")
	if out := (clitest.Program{Commands: newCommands}).OK(t, "config", "check", "-c", one); out !=
		"the configuration is valid: 1 namespace, 0 crons, 0 templates, 0 sinks\n" {
		t.Errorf("output = %q", out)
	}
	out := (clitest.Program{Commands: newCommands}).OK(t, "config", "check", "-c", clitest.WriteConfig(t, ""),
		"--listen", ":0", "--auth.mode", "none", "--db.dsn", "host=db")
	if !strings.Contains(out, "is valid") {
		t.Errorf("output = %q", out)
	}
}

// A variable that looks like a setting but is not one is reported, with the setting that it may
// mean. Variables that Kubernetes sets are not reported.
func TestUnknownVariables(t *testing.T) {
	p := clitest.Program{Commands: newCommands, Env: map[string]string{
		"PROGRESSOR_DB_DSN": "host=db", "PROGRESSOR_ADDRESS": "http://x", "PROGRESSOR_DATA_DIR": "d", "PROGRESSOR_CONFIG": "",
		"PROGRESSOR_ENGINE_ZOMBIEAFTER": "20s", "PROGRESSOR_LISTN": "x", "OTHER": "x", "PROGRESSORX": "x",
		"PROGRESSOR_SERVICE_HOST": "10.0.0.1", "PROGRESSOR_SERVICE_PORT_API": "1", "PROGRESSOR_PORT": "tcp://10.0.0.1:1", "PROGRESSOR_PORT_8080_TCP_ADDR": "10.0.0.1",
	}}
	const want = "progressor: unknown environment variable PROGRESSOR_ENGINE_ZOMBIEAFTER is ignored; did you mean " +
		"PROGRESSOR_ENGINE_ZOMBIE_AFTER?\n" +
		"progressor: unknown environment variable PROGRESSOR_LISTN is ignored; did you mean PROGRESSOR_LISTEN?\n"
	for _, command := range []string{"check", "print"} {
		if r := p.Run(t, "config", command); r.Code != cli.ExitOK || r.Stderr != want {
			t.Errorf("config %s: code %d, %s", command, r.Code, r.Stderr)
		}
	}
	// Serve and dev log this before they connect or listen. In this test, there is no database, and
	// no address to listen on.
	p.Env["PROGRESSOR_DB_DSN"], p.Env["PROGRESSOR_DB_WAIT"] = "host=/does/not/exist", "0s"
	p.Env["PROGRESSOR_LOG_FORMAT"] = "json"
	for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0"},
		{"dev", "--listen", "192.0.2.1:1", "--data-dir", t.TempDir()}} {
		r := p.Run(t, command...)
		if r.Code == cli.ExitOK ||
			!strings.Contains(r.Stderr, `"name":"PROGRESSOR_LISTN","nearest":"PROGRESSOR_LISTEN"`) ||
			strings.Contains(r.Stderr, "SERVICE_HOST") {
			t.Errorf("%s: code %d, %s", command[0], r.Code, r.Stderr)
		}
	}
}

// The configuration file in docs/configuration.md is valid.
func TestDocumentedConfiguration(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, block := range strings.Split(string(doc), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		text += block
	}
	if out := (clitest.Program{Commands: newCommands}).OK(t, "config", "check", "-c",
		clitest.WriteConfig(t, text)); out !=
		"the configuration is valid: 2 namespaces, 2 crons, 1 template, 2 sinks\n" {
		t.Errorf("output = %q", out)
	}
}

// docs/configuration.md contains the flag and the environment variable of every setting.
func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := cli.Main{Commands: newCommands, Stdout: os.Stdout, Stderr: os.Stderr}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		for _, flag := range leaf.Flags {
			if !cli.IsSetting(flag.Value) {
				continue
			}
			for _, want := range []string{"`--" + flag.Name + "`", "`" + cli.EnvName(flag.Name) + "`"} {
				if !strings.Contains(string(doc), want) {
					t.Errorf("%s: %s is missing in docs/configuration.md", commandPath(leaf), want)
				}
			}
		}
	}
}
