package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A flag without a value is an error. Otherwise, a script whose key variable is not set could
// execute a call twice.
func TestFlagsWantTheirValues(t *testing.T) {
	p := clitest.Serve(t, newCommands, &clitest.Engine{})
	key := "--idempotency-key needs a value, as in --idempotency-key KEY"
	for _, tt := range []struct{ line, want string }{
		{"call demo o-1 -k", key},
		{"call demo o-1 --idempotency-key", key},
		{"call demo o-1 -k --accepted", key + "; if you mean --accepted, write --idempotency-key=--accepted"},
		{"call demo o-1 -k -o json", key + "; if you mean -o, write --idempotency-key=-o"},
		{"call demo o-1 -k ''", "--idempotency-key: must not be empty: set KEY, or omit the flag"},
		{"call demo o-1 -k=", "--idempotency-key: must not be empty"},
		{"call demo o-1 --idempotency-key=", "--idempotency-key: must not be empty"},
		{"start demo --args", "--args needs a value, as in --args TEXT|@FILE|@-"},
		{"start demo ''", "[<id>]: must not be empty"},
		{"call demo ''", "<id>: must not be empty"},
		{"call '' o-1", "<ns>: must not be empty"},
		{"job enqueue mail send --id", "--id needs a value, as in --id ID"},
		{"job enqueue mail send --id ''", "--id: must not be empty"},
		{"cancel demo o-1 --reason", "--reason needs a value, as in --reason TEXT"},
		{"call demo o-1 --wait-timeout", "--wait-timeout needs a value, such as 30s"},
		{"top --interval", "--interval needs a value, such as 30s"},
		{"list demo --page-size", "--page-size needs a value, such as 10"},
		{"job update mail m-1 --backoff-steps", "--backoff-steps needs a value, such as 30s"},
		{"list demo -o", "--output needs a value, as in --output table|json"},
	} {
		r := p.Run(t, shellWords(tt.line)...)
		if r.Code != cli.ExitUsage ||
			!strings.HasPrefix(r.Stderr, "progressor: "+tt.want) && !strings.Contains(r.Stderr, `"message":"`+tt.want) {
			t.Errorf("%s: %+v\nwant %s", tt.line, r, tt.want)
		}
	}
}

// Values that are empty or look like a flag are accepted if they are clearly values.
func TestFlagsTakeOddValues(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	for line, want := range map[string]string{
		"call demo o-1 --idempotency-key=--accepted": "--accepted",
		"call demo o-1 -k=--accepted":                "--accepted",
		"call demo o-1 -k=a=b":                       "a=b",
		"call demo o-1 -ka":                          "a",
		"call demo o-1 -k -12":                       "-12",
		"call demo o-1 -k - --args ''":               "-",
		"call demo o-1 -k a --args= --context ''":    "a",
	} {
		p.OK(t, shellWords(line)...)
		if req := f.Last.(*progressorv1.CallRequest); req.GetIdempotencyKey() != want || len(req.GetArgs()) > 0 ||
			req.GetWait() == progressorv1.Wait_WAIT_ACCEPTED {
			t.Errorf("%s: %v", line, req)
		}
	}
	p.OK(t, "list", "demo", "")
	p.OK(t, "call", "demo", "o-1", "--priority", "-5")
}

// shellWords splits a line at spaces; two quotes are an empty word.
func shellWords(line string) []string {
	list := strings.Fields(line)
	for i, word := range list {
		list[i] = strings.ReplaceAll(word, "''", "")
	}
	return list
}

// Values that are too large for an engine are not sent.
func TestPayloadsAreBounded(t *testing.T) {
	p := clitest.Serve(t, newCommands, &clitest.Engine{})
	p.Stdin = strings.Repeat("x", 1<<20)
	p.OK(t, "call", "demo", "o-1", "--args", "@-")
	p.Stdin = `"` + strings.Repeat("x", 20_000_000) + `"`
	for line, want := range map[string]string{
		"call demo o-1 --args @-":           "--args: must have at most 1 MiB (got 20,000,002 bytes)",
		"call demo o-1 --context @-":        "--context: must have at most 1 MiB (got 20,000,002 bytes)",
		"put demo o-1 --aux-state @-":       "--aux-state: must have at most 1 MiB (got 20,000,002 bytes)",
		"put demo o-1 --event @-":           "--event: must have at most 1 MiB (got 20,000,002 bytes)",
		"start demo --metadata @-":          "--metadata: must have at most 16 MiB (got 20,000,002 bytes)",
		"job enqueue mail send --args @-":   "--args: must have at most 16 MiB (got 20,000,002 bytes)",
		"run start demo order --payload @-": "--payload: must have at most 16 MiB (got 20,000,002 bytes)",
	} {
		if r := p.Run(t, shellWords(line)...); r.Code != cli.ExitUsage || r.Stderr != "progressor: "+want+"\n" {
			t.Errorf("%s: %+v\nwant %s", line, r, want)
		}
	}
}
