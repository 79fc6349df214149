package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// peer runs a program of examples/ until the test ends, and returns its first line. If its language
// is not installed, the test is skipped.
func peer(t *testing.T, language, dir string, args ...string) (first string, cmd *exec.Cmd) {
	t.Helper()
	if _, err := exec.LookPath(language); err != nil {
		t.Skipf("%s is not installed", language)
	}
	cmd = exec.Command(language, args...)
	cmd.Dir = filepath.Join("../../examples", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr clitest.LockedBuffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", stderr.String())
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("%s %q printed nothing", language, args)
	}
	first = lines.Text()
	go io.Copy(io.Discard, out)
	return first, cmd
}

// queue enqueues jobs and waits until they have ended.
type queue struct {
	t *testing.T
	c *client.Client
}

func (q *queue) enqueue(id, name string, args any) {
	q.t.Helper()
	v, err := structpb.NewValue(args)
	if err != nil {
		q.t.Fatal(err)
	}
	_, err = q.c.Job.Enqueue(q.t.Context(),
		&progressorv1.EnqueueRequest{Namespace: "jobs", JobId: id, Name: name, Args: v,
			Options: &progressorv1.JobOptions{
				KeepResult: true, MaxRetry: 1, Timeout: durationpb.New(time.Hour),
				HeartbeatInterval: durationpb.New(50 * time.Millisecond),
			}})
	if err != nil {
		q.t.Fatal(err)
	}
}

func (q *queue) job(id string, wait time.Duration) *progressorv1.Job {
	q.t.Helper()
	resp, err := q.c.Job.GetJob(q.t.Context(),
		&progressorv1.GetJobRequest{Namespace: "jobs", JobId: id, AwaitEnd: durationpb.New(wait)})
	if err != nil {
		q.t.Fatal(err)
	}
	return resp.GetJob()
}

// counts checks that a job with the name count succeeds with valid args and fails with invalid
// ones.
func (q *queue) counts(suffix string) {
	q.t.Helper()
	q.enqueue("good"+suffix, "count", map[string]any{"text": "three little words"})
	q.enqueue("bad"+suffix, "count", map[string]any{"text": 3})
	if j := q.job("good"+suffix,
		clitest.DaemonWait); j.GetResult().GetStructValue().GetFields()["words"].GetNumberValue() != 3 {
		q.t.Errorf("good%s: %v", suffix, j)
	}
	if j := q.job("bad"+suffix, clitest.DaemonWait); len(j.GetFailures()) != 1 ||
		j.GetFailures()[0].GetReason() != "bad_args" || j.GetState() != progressorv1.JobState_JOB_STATE_FAILED {
		q.t.Errorf("bad%s: %v", suffix, j)
	}
}

// The workers of examples/ run jobs and report progress. They end a job that is cancelled. On
// SIGTERM, they end their polls and exit without an error.
func TestExampleWorkers(t *testing.T) {
	for _, tt := range []struct{ language, dir, file string }{{"python3", "python", "worker.py"},
		{"node", "node", "worker.js"}} {
		t.Run(tt.language, func(t *testing.T) {
			t.Parallel()
			d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
			d.Client.OK(t, "namespace", "put", "jobs", "--pull")
			q := &queue{t, client.New(d.URL)}
			first, cmd := peer(t, tt.language, tt.dir, tt.file, d.URL, "jobs", "2")
			if !strings.Contains(first, "takes jobs named count, crawl") {
				t.Fatal(first)
			}
			q.counts("")
			q.enqueue("crawl", "crawl", map[string]any{"pages": 100_000})
			clitest.Eventually(t, "progress", func() error {
				if p := q.job("crawl", 0).GetProgress(); !strings.HasPrefix(p.GetSummary(), "page ") {
					return errors.New(p.String())
				}
				return nil
			})
			if _, err := q.c.Job.CancelJob(t.Context(),
				&progressorv1.CancelJobRequest{Namespace: "jobs", JobId: "crawl", Reason: "enough"}); err != nil {
				t.Fatal(err)
			}
			if j := q.job("crawl", clitest.DaemonWait); j.GetState() != progressorv1.JobState_JOB_STATE_CANCELLED {
				t.Errorf("%v", j)
			}
			q.enqueue("short", "crawl", map[string]any{"pages": 3})
			if j := q.job("short", clitest.DaemonWait); j.GetResult().GetNumberValue() != 3 {
				t.Errorf("%v", j)
			}
			began := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
			if d := time.Since(began); d > 8*time.Second { // the grace period for jobs is 10 s, a poll takes 20 s
				t.Errorf("it ended only %s after SIGTERM although it ran no job, so it did not end its polls", d)
			}
		})
	}
}

// examples/python/processor.py gets jobs in both encodings.
func TestExampleProcessor(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	first, _ := peer(t, "python3", "python", "processor.py", "0")
	q := &queue{t, client.New(d.URL)}
	for _, encoding := range []string{"json", "msgpack"} {
		d.Client.OK(t, "namespace", "put", "jobs", "--connect-url", clitest.URLInLine.FindString(first), "--encoding",
			encoding)
		q.counts("-" + encoding)
		q.enqueue("other-"+encoding, "other", nil)
		if f := q.job("other-"+encoding, clitest.DaemonWait).GetFailures(); len(f) != 1 ||
			f[0].GetReason() != "not_handled" {
			t.Errorf("%v", f)
		}
	}
}

// The programs in the quick starts are the same as in examples/.
func TestQuickstartsAreExamples(t *testing.T) {
	contains := func(page, name, file string) {
		if code := "cat > .progressor/" + name + " <<'EOF'\n" + readPage(t, file) +
			"EOF\n"; !strings.Contains(readPage(t, page), code) {
			t.Errorf("%s does not contain the unchanged %s", page, file)
		}
	}
	for _, language := range []struct{ page, file string }{{"go", "go/%s/main.go"}, {"node", "node/%s.mjs"},
		{"python", "python/%s.py"}} {
		for _, name := range []string{"cart", "add", "remind"} {
			file := fmt.Sprintf("examples/"+language.file, name)
			contains("docs/quickstart/"+language.page+".md", name+filepath.Ext(file), file)
		}
	}
	for name, file := range map[string]string{"signup.go": "go/signup/main.go",
		"signup_test.go": "go/signup/signup_test.go", "signup.mjs": "node/signup.mjs"} {
		contains("docs/quickstart/functions.md", name, "examples/"+file)
	}
}
