package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Errors of the engine name the flag, argument or field that is wrong. If another command helps,
// they suggest it.
func TestErrorsNameFlags(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	p := d.Client
	p.OK(t, "namespace", "put", "play", "--pull")
	p.OK(t, "cron", "create", "play", "c", "@yearly", "--job", "mail")
	p.OK(t, "cron", "trigger", "play", "c")
	var at string
	awaitFires(t, p, "c", func(fires []*progressorv1.Fire) bool {
		if len(fires) == 0 || fires[0].GetStatus() != progressorv1.FireStatus_FIRE_STATUS_RUNNING {
			return false
		}
		at = fires[0].GetFireTime().AsTime().Format("2006-01-02T15:04:05.999999999Z07:00")
		return true
	})
	const next = ". Next: progressor cron fires play c"
	for _, c := range []struct {
		args, want string // want is a part of the error
		code       int
	}{
		{"cron cancel play c yesterday", "<fire>: must be a time, such as ", cli.ExitUsage},
		{"cron cancel play c 2020-01-01", "<fire>: the cron has no fire at this time (invalid)" + next, cli.ExitUsage},
		{"cron rerun play c 2020-01-01", "<fire>: the cron has no fire at this time (invalid)" + next, cli.ExitUsage},
		{"cron rerun play c " + at, "the fire of " + at + " is RUNNING: cancel it first (", cli.ExitConflict},
		{"cron rerun play c " + at, next, cli.ExitConflict},
		{"namespace delete play", "or delete it with its data (--with-data)", cli.ExitConflict},
		{"job enqueue play mail --workers 2 --start-deadline 1m",
			"--start-deadline: must not be set together with --workers: ", cli.ExitUsage},
		{"namespace put play --pull --fairness-key tenant",
			"--fairness-key: line 1, column 1: unknown name tenant: use job.name, job.args,", cli.ExitUsage},
	} {
		r := p.Run(t, strings.Fields(c.args)...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: code %d, %s, want %s", c.args, r.Code, r.Stderr, c.want)
		}
	}
	clitest.WantLines(t, p.OK(t, "cron", "cancel", "play", "c", at), "FIRED yes 1")
	awaitFires(t, p, "c", func(fires []*progressorv1.Fire) bool {
		return fires[0].GetStatus() == progressorv1.FireStatus_FIRE_STATUS_CANCELLED
	})
	if r := p.Run(t, "cron", "cancel", "play", "c", at); r.Code != cli.ExitConflict ||
		!strings.Contains(r.Stderr, next) {
		t.Errorf("a second cancel: code %d, %s", r.Code, r.Stderr)
	}
}

// job remove and run remove reject a job or a run that has not ended, and suggest cancelling it
// first.
func TestRemoveCommands(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	l.cli.OK(t, "job", "enqueue", limitsNamespace, "mail", "--id", "j")
	for kind, id := range map[string]string{"job": "j", "run": l.waitingRun()} {
		if r := l.cli.Run(t, kind, "remove", limitsNamespace, id); r.Code != cli.ExitConflict ||
			!strings.Contains(r.Stderr, "Next: progressor "+kind+" cancel "+limitsNamespace+" "+id) {
			t.Errorf("a %s that has not ended: code %d, %s", kind, r.Code, r.Stderr)
		}
		l.cli.OK(t, kind, "cancel", limitsNamespace, id)
		clitest.Eventually(t, "the "+kind+" has ended and is removed", func() error {
			if r := l.cli.Run(t, kind, "remove", limitsNamespace, id); r.Code != cli.ExitOK {
				return errors.New(r.Stderr)
			}
			return nil
		})
		if r := l.cli.Run(t, kind, "get", limitsNamespace, id); r.Code != cli.ExitNotFound {
			t.Errorf("a removed %s: code %d, %s%s", kind, r.Code, r.Stdout, r.Stderr)
		}
	}
}
