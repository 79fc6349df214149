package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// TestCommandsHaveLimits passes the largest values to commands, and values with one more byte. The
// errors name the flag or the field.
func TestCommandsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	for _, c := range []struct {
		want, bound string
		most        int
		args        func(text string) []string // called with "" if the text is on standard input
		text        func(n int) string
	}{
		{"--args", "1 MiB", 1 << 20,
			func(string) []string { return []string{"start", limitsNamespace, "--accepted", "--args", "@-"} }, nil},
		{"metadata", "65536", 64 << 10, func(string) []string {
			return []string{"start", limitsNamespace, "--accepted", "--metadata", "@-"}
		}, func(n int) string { return `{"k":"` + xs("", n-8) + `"}` }},
		{"<id>", "256", 256,
			func(text string) []string { return []string{"start", limitsNamespace, text, "--accepted"} }, nil},
		{"--idempotency-key", "256", 256,
			func(text string) []string { return []string{"start", limitsNamespace, "--accepted", "-k", text} }, nil},
		{"args", "1048576", 1 << 20, func(string) []string {
			return []string{"job", "enqueue", limitsNamespace, "job", "--args", "@-"}
		}, func(n int) string { return `"` + xs("", n-2) + `"` }},
		{"payload", "1048576", 1 << 20, func(string) []string {
			return []string{"run", "start", limitsNamespace, "wait", "--payload", "@-"}
		}, func(n int) string { return `"` + xs("", n-2) + `"` }},
		{"--tag[0]", "256", 256,
			func(text string) []string { return []string{"job", "enqueue", limitsNamespace, "job", "--tag", text} },
			nil},
		{"--header", "8192", 8192, func(text string) []string {
			return []string{"namespace", "put", "pushed", "--connect-url", "http://127.0.0.1:1", "--header", "h=" + text}
		}, nil},
		{"reason", "4096", 4096, func(text string) []string {
			return []string{"run", "cancel", limitsNamespace, l.waitingRun(), "--reason", text}
		}, nil},
	} {
		t.Run(c.want, func(t *testing.T) {
			run := func(n int) clitest.Result {
				text := xs("", n)
				if c.text != nil {
					text = c.text(n)
				}
				cli := l.cli
				cli.Stdin = text
				return cli.Run(t, c.args(text)...)
			}
			if r := run(c.most); r.Code != cli.ExitOK {
				t.Errorf("%d bytes: code %d, %.500s", c.most, r.Code, r.Stderr)
			}
			if r := run(c.most + 1); r.Code == cli.ExitOK || !strings.Contains(r.Stderr, c.want) ||
				!strings.Contains(r.Stderr, c.bound) {
				t.Errorf("%d bytes: code %d, %.500s", c.most+1, r.Code, r.Stderr)
			}
		})
	}
}
