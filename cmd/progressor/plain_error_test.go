package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Errors of a command line are sentences with the names of flags and arguments.
func TestErrorsOfCommandLines(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	two := file("two.yaml", "spec: {expressions: ['@daily']}\ntarget:\n  start_process: {}\n  http: {url: 'http://127.0.0.1/'}\n")
	limit := file("limit.yaml", "match: 'true'\nmax_running: two\n")
	empty := file("empty.yaml", "xx\n")
	config := file("config.yaml", "db: {dsn: 'postgres://localhost/x'}\nnamespaces:\n  - namespace: a\n    processor: {pull: {}}\n  - namespace: b:c\n    processor: {pull: {}}\n")
	for want, args := range map[string][]string{
		`--timeout: must be a duration with a unit, ` +
			`such as 30s or 1h (got "30")`: {"job", "enqueue", "mail", "x", "--timeout", "30"},
		"unknown flag --filterr; did you mean --filter?\n":          {"job", "list", "mail", "--filterr", "x"},
		"unknown flag --action; see progressor bulk start --help\n": {"bulk", "start", "demo", "--action", "fly"},
		"unexpected argument put; did you mean create?\n":           {"cron", "put", "demo", "c"},
		"unexpected argument create; did you mean put?\n":           {"namespace", "create", "demo"},
		"unexpected argument lits; did you mean list?\n":            {"cron", "lits"},
		"unexpected argument 99; pass the task with --task 99\n":    {"await", "demo", "o-1", "99"},
		`--limit: must be a whole number (got "abc")`:               {"get", "demo", "o-1", "--limit", "abc"},
		"--limit: must be a whole number from -2147483648 to 2147483647 " +
			"(got 99999999999)": {"get", "demo", "o-1", "--limit", "99999999999"},
		`--retry-backoff-factor: must be a number, such as 0.5 (got "x")`: {"cron", "create", "demo", "c", "@daily",
			"--retry-backoff-factor", "x"},
		"--simple cannot be used with --args: the processor is not called": {"repair", "demo", "o-1", "--simple",
			"--args", "x"},
		"--simple cannot be used with --args-base64: ": {"repair", "demo", "o-1", "--simple", "--args-base64", "eA=="},
		`progressor: --encoding: unknown value "foo"; use one of PROTO, JSON, MSGPACK` + "\n": {
			"namespace", "put", "x1", "--encoding", "foo"},
		"progressor: --encoding requires --connect-url\n": {"namespace", "put", "x1", "--pull", "--encoding", "json"},
		"progressor: --protocol and --checkpoints require --connect-url\n": {"namespace", "put", "x1", "--pull",
			"--checkpoints", "--protocol", "grpc"},
		"unknown flag --max-retries-of-it; did you mean " +
			"--max-retry?": {"job", "enqueue", "mail", "x", "--max-retries-of-it", "1"},
		"unknown flag --zzzzzzzzz; see progressor job list --help": {"job", "list", "mail", "--zzzzzzzzz"},
		"unexpected argument namespcaes; did you mean namespace?":  {"namespcaes"},
		"unexpected argument zzzzzzzzz; see progressor --help":     {"zzzzzzzzz"},
		"unexpected argument " + two + "; pass a file with -f " +
			two: {"template", "check", two},
		"--backoff and --backoff-steps can't be used " +
			"together": {"job", "enqueue", "mail", "x", "--backoff", "5s", "--backoff-steps", "1s"},
		"--backoff-max and --backoff-steps can't be used " +
			"together": {"job", "update", "mail", "x", "--backoff-max", "5s", "--backoff-steps", "1s"},
		`limit.yaml: line 2: max_running: must be a number ` +
			`(got "two")`: {"constraint", "put", "mail", "c", "-f", limit},
		"line 1: document: must have the fields of a Constraint": {"constraint", "put", "mail", "c", "-f", empty},
		"unexpected argument nofile; pass a file with -f nofile": {"template", "check", "nofile"},
		`unexpected argument {"use":1}; pass the args with --args ` +
			`'{"use":1}'`: {"call", "demo", "o-1", `{"use":1}`},
		`unexpected argument {"use":1}; pass the payload with --payload ` +
			`'{"use":1}'`: {"run", "start", "demo", "order", `{"use":1}`},
		"unexpected argument more\n": {"get", "demo", "o-1", "more"},
		"progressor: --address: must be a URL, such as http://127.0.0.1:8080 or https://engine.example.com (got ftp://x)\n": {"get", "demo", "o-1", "--address", "ftp://x"},
		"engine.example.com (got http://)\n":                             {"job", "enqueue", "mail", "x", "--address", "http://"},
		"line 4: target.http: cannot be set together with start_process": {"cron", "create", "demo", "c", "-f", two},
		"config.yaml: line 5: namespaces[1].namespace: must contain only a-z, A-Z, 0-9, ., _, / " +
			"and -": {"config", "check", "-c", config},
		"run retry: --wait-timeout requires --wait":      {"run", "retry", "demo", "r-1", "--wait-timeout", "5s"},
		"--wait-timeout: must be more than 0s (got -5s)": {"job", "get", "mail", "m-1", "--wait", "--wait-timeout=-5s"},
		"--builtin NAME, --pull":                         {"namespace", "put", "foo"},
		"--from: must be a time, such as 2026-11-20T15:04:05Z, a date " +
			"(midnight UTC)": {"cron", "preview", "-e", "@daily", "--from", "2026-13-01"},
	} {
		if r := (clitest.Program{Commands: newCommands}).Run(t, args...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, want) {
			t.Errorf("%q: code %d, %s\nwant %s", args, r.Code, r.Stderr, want)
		}
	}
	r := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_ADDRESS": "ftp://x"}}.Run(t, "get", "demo", "o-1")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "(got ftp://x) (from environment PROGRESSOR_ADDRESS)") {
		t.Errorf("%+v", r)
	}
	out := clitest.Program{Commands: newCommands}.OK(t, "cron", "preview", "-e", "0 9 1 * *", "--from", "2026-11-01",
		"--to", "2026-12-02")
	clitest.WantLines(t, out, "first: Sun 2026-11-01 09:00:00 +00:00", "DAYS", "1 Nov, 1 Dec")
}

// Errors of the engine about a job have the names of the flags.
func TestJobErrorsNameFlags(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	for field, flag := range map[string]string{
		"options.max_retry": "--max-retry", "options.backoff.factor": "--backoff-factor",
		"options.backoff.initial": "--backoff", "options.tags[2]": "--tag[2]",
		"options.backoff.steps[0]": "--backoff-steps[0]", "options.unique.ttl": "--unique-ttl", "job_id": "--id",
		"name": "NAME",
	} {
		f.Err = clitest.EngineError(connect.CodeInvalidArgument, field+": is wrong",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: field})
		if r := p.Run(t, "job", "enqueue", "mail", "x"); r.Code != cli.ExitUsage ||
			r.Stderr != "progressor: "+flag+": is wrong (invalid)\n" {
			t.Errorf("%s: %+v", field, r)
		}
	}
}

// A job has no result before it ends. job result then fails, and suggests --wait.
func TestJobResultBeforeTheEnd(t *testing.T) {
	f := &clitest.Engine{Jobs: []*progressorv1.Job{{JobId: "m-1", State: progressorv1.JobState_JOB_STATE_RUNNING}}}
	p := clitest.Serve(t, newCommands, f)
	r := p.Run(t, "job", "result", "mail", "m-1")
	if r.Code != cli.ExitConflict ||
		!strings.Contains(r.Stderr,
			"job mail/m-1 is RUNNING: it has no result before it ends. Next: progressor job result mail m-1 "+
				"--wait") {
		t.Errorf("%+v", r)
	}
	if r := p.Run(t, "job", "result", "mail", "m-1", "--wait", "--wait-timeout", "1ms"); r.Code != cli.ExitTimeout ||
		!strings.Contains(r.Stderr, "has not ended after 1ms") {
		t.Errorf("%+v", r)
	}
	p.OK(t, "job", "list", "mail", "--filter", "name = a", "tags:b")
	if got := f.Last.(*progressorv1.ListJobsRequest).GetFilter(); got != "(name = a) AND (tags:b)" {
		t.Errorf("filter %s", got)
	}
}

// An error in a number or a time of a file names its line.
func TestFilesNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"status: running\nevents: 1":                  "line 2: events: unknown field",
		"history:\n  - payload: a\n    event_id: 1.5": `line 3: history[0].event_id: must be a number (got "1.5")`,
		"timers:\n  -\n" +
			"    fire_time: tomorrow": "line 3: timers[0].fire_time: must be a time, such as 2026-11-20T15:04:05Z",
	} {
		p := clitest.Program{Commands: newCommands, Stdin: text}
		if r := p.Run(t, "put", "demo", "o-1", "-f", "-"); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v\nwant %s", text, r, want)
		}
	}
}

// The usual ways to request help and the version work.
func TestHelpAndVersionAliases(t *testing.T) {
	for line, same := range map[string]string{"help": "--help", "help job enqueue": "job enqueue --help",
		"--version": "version", "--version -o json": "version -o json"} {
		if got, want := (clitest.Program{Commands: newCommands}).OK(t, strings.Fields(line)...),
			(clitest.Program{Commands: newCommands}).OK(t, strings.Fields(same)...); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
		}
	}
	if r := (clitest.Program{Commands: newCommands}).Run(t, "help", "fly"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "unexpected argument fly") {
		t.Errorf("%+v", r)
	}
}

// Errors of the engine have the names of the flags and arguments, unless the value may be from a
// file.
func TestErrorsOfFieldsNameFlags(t *testing.T) {
	var failure error
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := connect.NewErrorWriter().Write(w, r, failure); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(engine.Close)
	p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_ADDRESS": engine.URL}}
	file := filepath.Join(t.TempDir(), "ns.yaml")
	if err := os.WriteFile(file, []byte("processor: {pull: {}}\nretention: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, field, want string }{
		{"namespace put x1 --pull --retention -5s", "namespace.retention", "--retention"},
		{"namespace put x1 --retention -5s -f " + file, "namespace.retention", "--retention"},
		{"namespace put x1 -f " + file, "namespace.retention", "namespace.retention"},
		{"namespace put x1 --pull", "namespace.namespace", "<ns>"},
		{"namespace put x1 --connect-url ftp://a", "namespace.processor.connect.url", "--connect-url"},
		{"namespace put x1 --connect-url http://a --connect-url x", "namespace.processor.connect.more_urls[0]",
			"--connect-url[0]"},
		{"namespace put x1 --connect-url http://a --header A=b", `namespace.processor.connect.headers["A"]`,
			`--header["A"]`},
		{"namespace put x1 --pull --max-attempts -1", "namespace.retry_policy.max_attempts", "--max-attempts"},
		{"namespace put x1 --pull --change-retention 1s --changes job", "namespace.changes.retention",
			"--change-retention"},
		{"namespace get x/", "namespace", "<ns>"},
		{"constraint put mail c --max-running -1", "constraint.max_running", "--max-running"},
		{"constraint put mail c --rate 1/1ns", "constraint.rate.per", "--rate"},
		{"constraint put mail c --max-running 1", "constraint.name", "<name>"},
		{"start demo o! --args x", "process_id", "<id>"},
		{"call demo o-1 --priority 7 --timeout 1ns", "timeout", "--wait-timeout"},
		{"get demo o-1 --limit -1", "range.limit", "--limit"},
		{"repair demo o-1 --limit -1", "processor.range.limit", "--limit"},
		{"cancel demo o-1 --grace -1s", "grace", "--grace"},
		{"list demo status=", "filter", "<filter>"},
		{"list demo --filter status=", "filter", "--filter"},
		{"list demo --page-size 5000", "page_size", "--page-size"},
		{"bulk start repair demo status=", "filter", "<filter>"},
		{"bulk start repair demo status=ERROR --rate 0.1", "rate", "--rate"},
		{`run start demo order --payload {"a":{"b":1}}`, "payload.a.b", "--payload: a.b"},
		{"run report demo r-1 s --percent 7", "progress.percent", "--percent"},
		{"run complete demo r-1 s --failure x!", "failure.reason", "--failure"},
		{"run complete demo r-1 s! --result 1", "step_id", "<step>"},
		{"cron backfill demo c --from -24h", "from_time", "--from"},
		{"worker get demo w --leases -1", "max_leases", "--leases"},
		{"node drain x", "node_id", "<node>"},
	} {
		failure = clitest.EngineError(connect.CodeInvalidArgument, c.field+": is wrong",
			&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: c.field})
		r := p.Run(t, strings.Fields(c.args)...)
		text, _, _ := strings.Cut(r.Stderr, ". Next: ")
		if r.Code != cli.ExitUsage || strings.TrimSpace(text) != "progressor: "+c.want+": is wrong (invalid)" {
			t.Errorf("%s: code %d, %s, want %s", c.args, r.Code, r.Stderr, c.want)
		}
	}
	failure = connect.NewError(connect.CodeNotFound, errors.New("node not found: 99"))
	if r := p.Run(t, "node", "drain", "99"); !strings.HasSuffix(r.Stderr, ". Next: progressor node list\n") {
		t.Errorf("node drain: %s", r.Stderr)
	}
}

// The tag field of a flag contains paths of fields that exist.
func TestFieldsOfFlagsExist(t *testing.T) {
	parser, err := cli.Main{Commands: newCommands, Stdout: io.Discard, Stderr: io.Discard}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	var messages []protoreflect.MessageDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(f protoreflect.FileDescriptor) bool {
		for n := range f.Messages().Len() {
			messages = append(messages, f.Messages().Get(n))
		}
		return true
	})
	exists := func(m protoreflect.MessageDescriptor, path string) bool {
		for name := range strings.SplitSeq(path, ".") {
			if m == nil || m.Fields().ByName(protoreflect.Name(name)) == nil {
				return false
			}
			m = m.Fields().ByName(protoreflect.Name(name)).Message()
		}
		return true
	}
	found := 0
	for _, leaf := range parser.Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			if !flag.Tag.Has("field") {
				continue
			}
			for path := range strings.SplitSeq(flag.Tag.Get("field"), ",") {
				found++
				has := func(m protoreflect.MessageDescriptor) bool { return exists(m, path) }
				if !slices.ContainsFunc(messages, has) {
					t.Errorf("%s --%s: no message has the field %s", leaf.Path(), flag.Name, path)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no flag has the tag")
	}
}
