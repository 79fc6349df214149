package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const pastExact = "is beyond 2^53 and would lose digits: write it as a string"

// Where JSON or YAML becomes a value of the API, an integer that would lose digits is rejected, and
// the error names its position.
func TestLongIntegersAreRefused(t *testing.T) {
	cron := filepath.Join(t.TempDir(), "cron.yaml")
	if err := os.WriteFile(cron, []byte("spec: {expressions: ['@daily']}\ntarget:\n  enqueue_job:\n    name: send\n    args: {n: [1, 9007199254740993]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fakeQueue{}
	for _, c := range []struct {
		args  []string
		stdin string
		says  string
	}{
		{args: []string{"job", "enqueue", "mail", "send", "--args", `{"n": 9007199254740993}`}, says: "--args: args.n: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--args", `[-9007199254740993]`}, says: "args[0]: the integer -9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--args", `9007199254740993`}, says: "args: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "send", "--metadata", `{"a b": 9007199254740993}`}, says: `metadata["a b"]: the integer 9007199254740993 ` + pastExact},
		{args: []string{"job", "enqueue", "mail", "--file", "-"}, stdin: `{"name":"a"}` + "\n" + `{"name":"a","args":{"n":9007199254740993}}`,
			says: "--file: line 2: args.n: the integer 9007199254740993 " + pastExact},
		{args: []string{"job", "enqueue", "mail", "--file", "-"}, stdin: `{"name":"a","args":100000000000000000000000}`, says: "args: the integer 1000"},
		{args: []string{"cron", "create", "mail", "c", "-f", cron}, says: "line 5: target.enqueue_job.args.n[1]: the integer 9007199254740993 " + pastExact},
	} {
		p := serveQueue(t, f)
		p.stdin = c.stdin
		if r := p.run(t, c.args...); r.code != exitUsage || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%q: code %d, %s", c.args, r.code, r.stderr)
		}
	}
	if f.last != nil {
		t.Errorf("the engine was asked: %v", f.last)
	}
	p := serveQueue(t, f)
	p.ok(t, "job", "enqueue", "mail", "send", "--args", `{"n": 9007199254740992, "s": "9007199254740993", "x": 1e300}`)
	if n := f.last.(*progressorv1.EnqueueRequest).GetArgs().GetStructValue().GetFields()["n"].GetNumberValue(); n != 1<<53 {
		t.Errorf("got %f", n)
	}
}

// YAML in a bytes field becomes JSON text, which keeps 64 bits.
func TestLongIntegersInBytes(t *testing.T) {
	read := func(number string) (string, error) {
		r := &progressorv1.StartRequest{}
		err := messageFromText([]byte("args: &a {n: "+number+"}\n"), r)
		return string(r.GetArgs()), err
	}
	for _, number := range []string{"9007199254740993", "18446744073709551615", "-9223372036854775808"} {
		if text, err := read(number); err != nil || text != `{"n":`+number+`}` {
			t.Errorf("%s: %s, %v", number, text, err)
		}
	}
	for _, number := range []string{"18446744073709551616", "-18446744073709551616"} {
		if text, err := read(number); err == nil || !strings.Contains(err.Error(), "line 1: args.n: the integer "+number+" has more than 64 bits") {
			t.Errorf("%s: %s, %v", number, text, err)
		}
	}
}
