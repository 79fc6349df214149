package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A job name is paused with a reason, listed, explained and resumed. A job with a start deadline
// shows how it failed.
func TestPausedJobs(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "mail", "--pull")
	contains := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in:\n%s", w, text)
			}
		}
	}
	paused := d.Client.OK(t, "job", "pause", "mail", "send", "--reason", "the server is down")
	contains(paused, "send", "paused", "the server is down")
	contains(d.Client.OK(t, "job", "paused", "mail"), "send", "the server is down")
	contains(d.Client.OK(t, "job", "paused", "mail", "-o", "json"), `"pausedTime"`)
	d.Client.OK(t, "job", "enqueue", "mail", "send", "--id", "m-1")
	contains(d.Client.OK(t, "job", "get", "mail", "m-1"), "job name: paused")
	contains(d.Client.OK(t, "explain", "mail", "m-1"), "(the server is down)", "progressor job resume mail send")
	contains(d.Client.OK(t, "job", "resume", "mail", "send"), "resumed")
	contains(d.Client.OK(t, "job", "resume", "mail", "send"), "was not paused")
	for _, c := range []struct{ args, want string }{
		{"pause none send", "namespace not found: none"},
		{"pause mail send --reason " + strings.Repeat("x", 1025), "reason: "},
		{"enqueue mail send --start-deadline 0s", "--start-deadline: must be a positive duration, such as 30s"},
		{"enqueue mail send --start-deadline=-1s", "--start-deadline: must be a positive duration, such as 30s"},
	} {
		r := d.Client.Run(t, append([]string{"job"}, strings.Fields(c.args)...)...)
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%.60s: code %d, %s; want %s", c.args, r.Code, r.Stderr, c.want)
		}
	}
	r := d.Client.Run(t, "job", "enqueue", "mail", "send", "--id", "late", "--start-deadline", "10ms", "--wait")
	contains(r.Stdout, "FAILED", "start_deadline: no attempt began by ")
}
