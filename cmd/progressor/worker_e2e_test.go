package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A worker runs a command for each job. The command reports the progress of its job, and the job
// can be cancelled. On SIGTERM, the worker stops and releases its jobs.
func TestWorkerRun(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "jobs", "--pull")
	c := client.New(d.URL)
	enqueue := func(id, name string, args any) {
		t.Helper()
		v, err := structpb.NewValue(args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Job.Enqueue(t.Context(),
			&progressorv1.EnqueueRequest{Namespace: "jobs", JobId: id, Name: name, Args: v,
				Options: &progressorv1.JobOptions{
					KeepResult: true, Timeout: durationpb.New(time.Hour),
					HeartbeatInterval: durationpb.New(50 * time.Millisecond),
				}})
		if err != nil {
			t.Fatal(err)
		}
	}
	job := func(id string, wait time.Duration) *progressorv1.Job {
		t.Helper()
		resp, err := c.Job.GetJob(t.Context(),
			&progressorv1.GetJobRequest{Namespace: "jobs", JobId: id, AwaitEnd: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetJob()
	}
	var stdout, stderr clitest.LockedBuffer
	signals, ended := make(chan os.Signal, 1), make(chan int, 1)
	m := cli.Main{Commands: newCommands, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Signals: signals, Environ: os.Environ, Getenv: func(string) (string, bool) { return "", false }}
	command := `case $PROGRESSOR_JOB_NAME in echo) cat;; break) echo no >&2; exit 9;; *) echo 30 a third >&3; exec ` +
		`sleep 600;; esac`
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- m.Run(ctx, []string{"worker", "--address", d.URL, "--namespace", "jobs", "--job", "echo", "--job",
			"break", "--job", "slow",
			"--concurrency", "3", "--worker-id", "w", "--kill-grace", "1s", "--stop-grace", "0s", "--exec", command})
	}()
	t.Cleanup(func() { cancel(); ended <- <-ended })
	enqueue("e", "echo", map[string]any{"to": "ada"})
	enqueue("b", "break", nil)
	for _, id := range []string{"s-1", "s-2"} {
		enqueue(id, "slow", nil)
		clitest.Eventually(t, "progress of "+id, func() error {
			if p := job(id, 0).GetProgress(); p.GetPercent() != 30 || p.GetSummary() != "a third" {
				return errors.New(p.String())
			}
			return nil
		})
	}
	if j := job("e", clitest.DaemonWait); j.GetResult().GetStructValue().GetFields()["to"].GetStringValue() != "ada" ||
		j.GetWorkerId() != "w" {
		t.Errorf("%v", j)
	}
	if f := job("b", clitest.DaemonWait).GetFailures(); len(f) != 1 || f[0].GetReason() != "exit_9" ||
		f[0].GetMessage() != "no" {
		t.Errorf("%v", f)
	}
	if _, err := c.Job.CancelJob(t.Context(),
		&progressorv1.CancelJobRequest{Namespace: "jobs", JobId: "s-1", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if j := job("s-1", clitest.DaemonWait); j.GetState() != progressorv1.JobState_JOB_STATE_CANCELLED {
		t.Errorf("%v", j)
	}
	signals <- syscall.SIGTERM
	select {
	case code := <-ended:
		ended <- code
		if code != cli.ExitOK {
			t.Errorf("code %d", code)
		}
	case <-time.After(clitest.DaemonWait):
		t.Fatal("the program did not stop")
	}
	// A poll that the worker had sent before it stopped may have leased the job again for a moment.
	clitest.Eventually(t, "the job is available again", func() error {
		if j := job("s-2", 0); j.GetState() != progressorv1.JobState_JOB_STATE_AVAILABLE || len(j.GetFailures()) != 0 {
			return fmt.Errorf("%v", j)
		}
		return nil
	})
	clitest.WantLines(t, stdout.String(), "TIME OUTCOME ATTEMPT TOOK JOB", "jobs/e echo", "done",
		"jobs/b break exit_9: no", "cancelled", "released", "jobs/s-2 slow")
}

func TestWorkerRunRefuses(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
	}{
		{"--exec true", "--namespace"},
		{"--namespace n", "--exec"},
		{"--namespace n --exec true --concurrency 0", "--concurrency: must be 1 to 1000"},
		{"--namespace n --exec true --max-output 2MiB", "--max-output: must be 1 to 1MiB"},
		{"--namespace n --exec true --max-memory 5X", "must be a size"},
		{"--namespace n --exec true --max-memory 5K", "--max-memory: must be at least 1MiB"},
	} {
		if r := (clitest.Program{Commands: newCommands}).Run(t,
			append([]string{"worker", "run"}, strings.Fields(tt.args)...)...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, tt.want) {
			t.Errorf("%s: %+v", tt.args, r)
		}
	}
}
