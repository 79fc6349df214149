package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type workerRunCmd struct {
	clientFlags
	Namespace   []string      `required:"" placeholder:"NS" help:"Where the jobs are: a namespace whose processor is pull. Can be repeated."`
	Job         []string      `placeholder:"NAME" help:"Only jobs of this name. Can be repeated. Default: every job."`
	Exec        string        `required:"" placeholder:"COMMAND" help:"What runs a job: a command line for /bin/sh."`
	Concurrency int           `default:"1" placeholder:"N" help:"How many jobs run at a time. Default: ${default}."`
	WorkerID    string        `placeholder:"ID" help:"The name of this worker, unlike that of any other. Default: host, process and a random part."`
	MaxOutput   byteSize      `default:"1MiB" placeholder:"SIZE" help:"A job that writes more to standard output has failed. Default and most: ${default}."`
	MaxMemory   byteSize      `placeholder:"SIZE" help:"Address space of each process of a command (ulimit -v; Linux). Default: no limit."`
	KillGrace   time.Duration `default:"5s" placeholder:"DURATION" help:"Between SIGTERM and SIGKILL, where a job is to end. Default: ${default}."`
	StopGrace   time.Duration `default:"30s" placeholder:"DURATION" help:"How long what runs may go on when the worker stops; the rest is given back. Default: ${default}."`
	Lease       time.Duration `placeholder:"DURATION" help:"How long the worker may be silent before its jobs go to another one. Default: the namespace's."`
	Log         logFlags      `embed:"" prefix:"log."`
}

func (workerRunCmd) Help() string {
	return `Run takes jobs of a namespace whose processor is pull, and runs each by a command: the args come as JSON on standard input, the result
is what it writes to standard output (JSON, else text). Exit code 0 is success; any other is a failure with the reason exit_N and the last
lines of standard error, and is tried again as the job's options say.

Lines on file descriptor 3 tell the progress: "40 half of the pages", or {"percent": 40, "summary": "half of the pages"}. The environment
has PROGRESSOR_NAMESPACE, PROGRESSOR_JOB_ID, PROGRESSOR_JOB_NAME, PROGRESSOR_ATTEMPT, PROGRESSOR_TASK_ID, PROGRESSOR_FENCING_TOKEN,
PROGRESSOR_DEADLINE and PROGRESSOR_WORKER_ID. A job that is cancelled, has passed its timeout, or is somebody else's by now gets SIGTERM,
and past the grace SIGKILL, with all processes of its group; so does what a command leaves behind at its end.

SIGTERM and SIGINT: it takes nothing new, lets end what runs, and gives the rest back, which costs no attempt.

    progressor namespace put mail --pull
    progressor worker run --namespace mail --job send --exec './send.sh'
    progressor worker run --namespace media --job thumbnail --concurrency 4 --max-memory 512MiB --exec 'convert - -resize 200x png:- | base64'
    progressor worker run --namespace mail --namespace media --exec 'exec "./jobs/$PROGRESSOR_JOB_NAME"' -o json`
}

func (c *workerRunCmd) check() error {
	switch {
	case strings.TrimSpace(c.Exec) == "":
		return errors.New("--exec: want a command, such as './send.sh'")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return errors.New("--concurrency: want 1 to 1000")
	case c.MaxOutput < 1 || c.MaxOutput > defaultMaxOutput:
		return errors.New("--max-output: want 1 to 1MiB: a larger result is not stored")
	case c.MaxMemory != 0 && c.MaxMemory < 1<<20:
		return errors.New("--max-memory: want at least 1MiB")
	case c.MaxMemory != 0 && runtime.GOOS != "linux":
		return errors.New("--max-memory is for Linux")
	case c.KillGrace < 0 || c.StopGrace < 0 || c.Lease < 0:
		return errors.New("--kill-grace, --stop-grace and --lease: want no negative duration")
	}
	return nil
}

// look refuses namespaces that are not there or not for workers. Where the engine is away, the worker waits for it.
func (c *workerRunCmd) look(a *app) error {
	ctx, cancel := a.request()
	defer cancel()
	for _, name := range c.Namespace {
		resp, err := c.client().Namespace.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: name})
		switch connect.CodeOf(err) {
		case connect.CodeNotFound, connect.CodeInvalidArgument:
			connected, _ := errors.AsType[*connect.Error](err)
			to := &advised{error: err, named: true, message: "--namespace: " + strings.TrimPrefix(connected.Message(), "namespace: ")}
			if connect.CodeOf(err) == connect.CodeNotFound {
				to.next = "progressor namespace put " + shellWord(name) + " --pull"
			}
			return to
		default:
		}
		if p := resp.GetNamespace().GetProcessor(); err == nil && p.GetPull() == nil {
			return usageError(fmt.Errorf("--namespace: the tasks of %s go to its processor (%s): workers take those of namespaces whose processor is pull", name, showProcessor(p)))
		}
	}
	return nil
}

func (c *workerRunCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return usageError(err)
	}
	if err := c.look(a); err != nil {
		return err
	}
	log := c.Log.logger(a)
	e := &executor{command: c.Exec, maxOutput: int(c.MaxOutput), maxMemory: int64(c.MaxMemory), grace: c.KillGrace, groups: map[int]struct{}{}}
	if a.Environ != nil {
		e.environ = a.Environ()
	}
	out := &attemptLines{app: a, json: c.json()}
	opts := []client.WorkerOption{
		client.WithConcurrency(c.Concurrency), client.WithStopGrace(c.StopGrace), client.WithWorkerLogger(log), client.WithAttemptEnded(out.print),
	}
	if c.WorkerID != "" {
		opts = append(opts, client.WithWorkerID(c.WorkerID))
	}
	if c.Lease > 0 {
		opts = append(opts, client.WithLeaseDuration(c.Lease))
	}
	w := client.NewWorker(c.client(), c.Namespace, opts...)
	e.workerID = w.ID()
	for _, name := range c.Job {
		w.HandleJob(name, processor.Func(e.Process))
	}
	if len(c.Job) == 0 {
		w.HandleJobs(processor.Func(e.Process))
	}
	defer e.killAll() // the second signal does not wait for them, and they are not in the group of the terminal
	return a.untilSignal(log, func(ctx context.Context) error { return w.Run(ctx) })
}

// attemptLines prints a line for each attempt that is over.
type attemptLines struct {
	app  *app
	json bool

	mu     sync.Mutex
	headed bool
}

const attemptFormat = "%-24s  %-9s  %-7s  %8s  %s\n"

func (l *attemptLines) print(at client.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := at.Lease.GetRequest()
	job := oneLine(at.Lease.GetNamespace() + "/" + req.GetProcess().GetProcessId())
	now := time.Now().UTC()
	if l.json {
		lines := json.NewEncoder(l.app.Stdout)
		lines.SetEscapeHTML(false)
		_ = lines.Encode(attemptLine{
			Time: now, Outcome: string(at.Outcome), Namespace: at.Lease.GetNamespace(), JobID: req.GetProcess().GetProcessId(), Name: req.GetJobName(),
			Attempt: req.GetAttempt(), Seconds: at.Duration.Seconds(), Reason: at.Failure.GetReason(), Message: at.Failure.GetMessage(),
		})
		return
	}
	if !l.headed {
		l.headed = true
		_, _ = fmt.Fprintf(l.app.Stdout, attemptFormat, "TIME", "OUTCOME", "ATTEMPT", "TOOK", "JOB")
	}
	what := job + " " + oneLine(req.GetJobName())
	if at.Failure != nil {
		what += "  " + oneLine(at.Failure.GetReason()+": "+lastLine(at.Failure.GetMessage()))
	}
	_, _ = fmt.Fprintf(l.app.Stdout, attemptFormat, now.Format("2006-01-02T15:04:05.000Z"), at.Outcome, strconv.Itoa(int(req.GetAttempt())),
		durations.Rounded(at.Duration), what)
}

// attemptLine is an attempt for programs.
type attemptLine struct {
	Time      time.Time `json:"time"`
	Outcome   string    `json:"outcome"`
	Namespace string    `json:"namespace"`
	JobID     string    `json:"jobId"`
	Name      string    `json:"name"`
	Attempt   int32     `json:"attempt"`
	Seconds   float64   `json:"seconds"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// byteSize is a number of bytes as people write it: 1048576, 1MiB, 512K.
type byteSize int64

// UnmarshalText reads it.
func (b *byteSize) UnmarshalText(text []byte) error {
	number := strings.TrimRight(string(text), "KMGTiB")
	unit := string(text)[len(number):]
	n, err := strconv.ParseInt(number, 10, 64)
	shift, known := map[string]uint{"": 0, "B": 0, "K": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30}[unit]
	if err != nil || !known || n < 0 || n > 1<<62>>shift {
		return fmt.Errorf("%q: want a size, such as 65536, 512KiB, 64M or 2GiB", text)
	}
	*b = byteSize(n << shift)
	return nil
}
