package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const pastExact = "is beyond 2^53 and would lose digits: write it as a string"

// When JSON or YAML is converted to a value of the API, an integer that would lose digits is
// rejected, and the error names its position.
func TestLongIntegersAreRefused(t *testing.T) {
	cron := filepath.Join(t.TempDir(), "cron.yaml")
	if err := os.WriteFile(cron,
		[]byte("spec: {expressions: ['@daily']}\ntarget:\n  enqueue_job:\n    name: send\n"+
			"    args: {n: [1, 9007199254740993]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &clitest.Engine{}
	for _, c := range []struct {
		args  []string
		stdin string
		want  string
	}{
		{args: []string{"job", "enqueue", "mail", "send", "--args", `{"n": 9007199254740993}`},
			want: "--args: args.n: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--args", `[-9007199254740993]`},
			want: "args[0]: the integer -9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--args", `9007199254740993`},
			want: "args: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--metadata", `{"a b": 9007199254740993}`},
			want: `metadata["a b"]: the integer 9007199254740993 ` + pastExact},
		{args: []string{"job", "enqueue", "mail", "--file", "-"},
			stdin: `{"name":"a"}` + "\n" + `{"name":"a","args":{"n":9007199254740993}}`,
			want:  "--file: line 2: args.n: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "--file", "-"}, stdin: `{"name":"a","args":100000000000000000000000}`,
			want: "args: the integer 1000"},
		{args: []string{"cron", "create", "mail", "c", "-f", cron},
			want: "line 5: target.enqueue_job.args.n[1]: the integer 9007199254740993 " + pastExact},
	} {
		p := clitest.Serve(t, newCommands, f)
		p.Stdin = c.stdin
		if r := p.Run(t, c.args...); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%q: code %d, %s", c.args, r.Code, r.Stderr)
		}
	}
	if f.Last != nil {
		t.Errorf("the engine got a request: %v", f.Last)
	}
	p := clitest.Serve(t, newCommands, f)
	p.OK(t, "job", "enqueue", "mail", "send", "--args", `{"n": 9007199254740992, "s": "9007199254740993", "x": 1e300}`)
	args := f.Last.(*progressorv1.EnqueueRequest).GetArgs().GetStructValue().GetFields()
	if n := args["n"].GetNumberValue(); n != 1<<53 {
		t.Errorf("got %f", n)
	}
}
