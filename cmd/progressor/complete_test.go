package main

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// completions returns the values with which a shell can complete the last word.
func completions(t *testing.T, p clitest.Program, words ...string) (values []string, code int) {
	t.Helper()
	return shellCompletions(t, p, "__complete", words...)
}

// shellCompletions is like completions. command is the first argument, with which the completion
// script of a shell calls the program, such as __complete=bash.
func shellCompletions(t *testing.T, p clitest.Program, command string, words ...string) (values []string, code int) {
	t.Helper()
	r := p.Run(t, append([]string{command}, words...)...)
	for line := range strings.Lines(r.Stdout) {
		value, _, ok := strings.Cut(line, "\t")
		if !ok {
			t.Errorf("%q has no tab", line)
		}
		values = append(values, value)
	}
	return values, r.Code
}

// answeredCompletions is like shellCompletions for values that come from the engine. The program
// waits for the engine for one second. That may be too short on a busy machine, so
// answeredCompletions runs the program again until it prints values.
func answeredCompletions(
	t *testing.T, p clitest.Program, command string, words ...string,
) (values []string, code int) {
	t.Helper()
	for range 20 {
		if values, code = shellCompletions(t, p, command, words...); values != nil || code != cli.ExitOK {
			break
		}
	}
	return values, code
}

// completeEngine returns an engine with three processes, a job, a bulk and a cron.
func completeEngine() *clitest.Engine {
	return &clitest.Engine{
		Pages: []*progressorv1.ListProcessesResponse{{Processes: []*progressorv1.Process{
			{ProcessId: "order:1"}, {ProcessId: "order:2"}, {ProcessId: "line\nbreak"},
		}}},
		Jobs:  []*progressorv1.Job{{JobId: "mail-1"}},
		Bulks: []*progressorv1.Bulk{{BulkId: "b-1"}},
		Cron:  &progressorv1.Cron{CronId: "nightly"},
	}
}

// TestComplete completes command lines. In a command line, | is the position of the cursor. The
// expected values are separated by spaces.
func TestComplete(t *testing.T) {
	t.Parallel()
	f := completeEngine()
	p := clitest.Serve(t, newCommands, f)
	for line, want := range map[string]string{
		"sta|":                                "start",
		"job p|":                              "pause paused",
		"explain s|":                          "sink",
		"ns pu|":                              "put",
		"job list --sta|":                     "--state",
		"job list --state s|":                 "scheduled succeeded",
		"job list --state=s|":                 "--state=scheduled --state=succeeded",
		"list demo --status susp|":            "suspended",
		"cron create demo x --misfire s|":     "skip",
		"namespace put demo --history-mode |": "full none last",
		"changes demo --kind event,ru|":       "event,run",
		"run waits demo --kind |":             "external human",
		"get -o j|":                           "json",
		"get --color a|":                      "auto always",
		"completion |":                        "bash zsh fish powershell",
		"grant add user:ann v|":               "viewer",
		"bench --no-base|":                    "--no-baseline",
		"get demo |":                          "order:1 order:2",
		"get demo order:1|":                   "order:1",
		"get --address " + p.Env["PROGRESSOR_ADDRESS"] + " demo order:2|": "order:2",
		"explain demo order:2|":         "order:2",
		"job get -o json echo |":        "mail-1",
		"cron pause demo night|":        "nightly",
		"bulk get demo |":               "b-1",
		"get demo order:1 |":            "",
		"call demo --idempotency-key |": "",
		"nonsense |":                    "",
		"start demo --args R|":          "",
		"start demo --args @@|":         "",
	} {
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		complete := answeredCompletions
		if want == "" {
			complete = shellCompletions
		}
		if got, code := complete(t, p, "__complete", words...); strings.Join(got, " ") != want || code != cli.ExitOK {
			t.Errorf("%s: %q, code %d", line, got, code)
		}
	}
	// The request to the engine contains the namespace and the beginning of the ID.
	answeredCompletions(t, p, "__complete", "job", "get", "echo", `ma"il*`)
	want := &progressorv1.ListJobsRequest{Namespace: "echo", Filter: `job_id = "ma\"il\**"`, PageSize: 100}
	clitest.WantRequest(t, f.Last, want)
	for _, line := range []string{"put demo x -f ", "dev --data-dir=", "serve --config ./", "start demo --args @R",
		"call demo x --args=@", "run start demo t --payload @"} {
		if got, code := completions(t, p, strings.Split(line, " ")...); code != 3 || got != nil {
			t.Errorf("%s: %q, code %d; want files", line, got, code)
		}
	}
}

// Words are parsed by the quoting rules of the shell. The values are quoted for bash and
// PowerShell, because these shells do not quote completions themselves.
func TestCompleteQuotes(t *testing.T) {
	t.Parallel()
	f := completeEngine()
	f.Jobs = []*progressorv1.Job{{JobId: `it's $5; "a,b"`}}
	p := clitest.Serve(t, newCommands, f)
	for _, c := range []struct{ shell, typed, want string }{
		{"bash", `it`, `it\'s\ \$5\;\ \"a,b\"`}, {"bash", `it\'s\ `, `it\'s\ \$5\;\ \"a,b\"`},
		{"bash", `'it`, `it'\''s $5; "a,b"`}, {"bash", `"it's`, `it's \$5; \"a,b\"`},
		{"bash", `it\`, `it\'s\ \$5\;\ \"a,b\"`}, {"bash", `i"t'`, `t's \$5; \"a,b\"`},
		{"zsh", `it\'s`, `it's $5; "a,b"`}, {"zsh", `"it's`, `it's $5; "a,b"`}, {"zsh", `'it'\''s`, `it's $5; "a,b"`},
		{"fish", `it\'s`, `it's $5; "a,b"`}, {"fish", `'it\'s`, `it's $5; "a,b"`},
		{"fish", `"it's \$`, `it's $5; "a,b"`},
		{"powershell", `it`, `'it''s $5; "a,b"'`}, {"powershell", `'it''s`, `'it''s $5; "a,b"'`},
		{"powershell", "it`'s` `$", `'it''s $5; "a,b"'`}, {"powershell", "\"it's `$5; \"\"a", `'it''s $5; "a,b"'`},
		{"powershell", `""`, `'it''s $5; "a,b"'`},
	} {
		values, code := answeredCompletions(t, p, "__complete="+c.shell, "job", "get", "echo", c.typed)
		if got := strings.Join(values, "\n"); got != c.want || code != cli.ExitOK {
			t.Errorf("%s: %s: %s, code %d; want %s", c.shell, c.typed, got, code, c.want)
		}
	}
	// Values that need no quotes are not quoted. fish passes only the last word with its quotes.
	for shell, namespace := range map[string]string{
		"bash": `'echo'`, "zsh": `ec"ho"`, "fish": "echo", "powershell": "'echo'",
	} {
		values, _ := shellCompletions(t, p, "__complete="+shell, "job", "list", namespace, "--state=s")
		if got := strings.Join(values, " "); got != "--state=scheduled --state=succeeded" {
			t.Errorf("%s: %s", shell, got)
		}
	}
}

// If the engine does not answer, the program ends quickly and prints no values, because a user
// waits at a prompt.
func TestCompleteWithoutEngine(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, address := range []string{"127.0.0.1:1", silent.Addr().String(), "not an address"} {
		begin := time.Now()
		p := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_ADDRESS": address}}
		if got, code := completions(t, p, "get", ""); got != nil || code != cli.ExitOK {
			t.Errorf("%s: %q, code %d", address, got, code)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: it took %s", address, took)
		}
	}
}

// Every argument that is an ID, and every flag whose help lists its values, can be completed. The
// tags `complete` are valid.
func TestEveryChoiceCompletes(t *testing.T) {
	t.Parallel()
	parser, err := cli.Main{Commands: newCommands}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	p := clitest.Serve(t, newCommands, completeEngine())
	without := []string{ // IDs that the engine does not list, or that are new
		"id of start", "id of job enqueue", "id of run start", "key of key rotate", "key of key revoke",
	}
	for _, leaf := range parser.Model.Leaves(true) {
		words := strings.Fields(commandPath(leaf))
		for _, argument := range leaf.Positional {
			name := argument.Name + " of " + commandPath(leaf)
			if slices.Contains([]string{"id", "key", "worker", "bulk", "type"}, argument.Name) &&
				argument.Tag.Get("complete") == "" && !slices.Contains(without, name) {
				t.Errorf("%s cannot be completed: add the tag complete", name)
			}
		}
		for _, flag := range leaf.Flags {
			if of := flag.Tag.Get("complete"); of == "" && isChoice(flag) || of != "" && strings.ToLower(of) != of {
				if got, _ := completions(t, p, append(slices.Clone(words), "--"+flag.Name, "")...); len(got) == 0 {
					t.Errorf("--%s of %s cannot be completed", flag.Name, commandPath(leaf))
				}
			}
		}
	}
}

// isChoice reports whether the help of a flag lists values.
func isChoice(flag *kong.Flag) bool {
	return flag.Enum != "" ||
		slices.Contains([]string{"STATUS", "STATE", "KIND", "ACTION", "POLICY", "MODE", "ROLE"}, flag.PlaceHolder)
}
