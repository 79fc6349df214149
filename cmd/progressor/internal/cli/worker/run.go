package worker

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
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type workerRunCmd struct {
	cli.ClientFlags
	Namespace     []string      `required:"" placeholder:"NS" complete:"namespace" help:"Namespace of the jobs, with the processor pull; can be repeated."`
	Job           []string      `placeholder:"NAME" help:"Only jobs of this name; can be repeated. Default: all jobs."`
	Exec          string        `required:"" placeholder:"COMMAND" help:"Command that runs a job, for /bin/sh."`
	Concurrency   int           `default:"1" placeholder:"N" help:"Number of concurrent jobs. Default: ${default}."`
	WorkerID      string        `placeholder:"ID" help:"Unique id of this worker. Default: host, process id and a random part."`
	MaxOutput     byteSize      `default:"1MiB" placeholder:"SIZE" help:"A job that writes more to standard output fails. Default and maximum: ${default}."`
	MaxMemory     byteSize      `placeholder:"SIZE" help:"Address space of each process of a command (ulimit -v; Linux). Default: no limit."`
	KillGrace     time.Duration `default:"5s" placeholder:"DURATION" help:"Time between SIGTERM and SIGKILL. Default: ${default}."`
	StopGrace     time.Duration `default:"30s" placeholder:"DURATION" help:"How long running jobs may continue when the worker stops; the rest are released. Default: ${default}."`
	LeaseDuration time.Duration `placeholder:"DURATION" help:"After this time without a heartbeat, its jobs go to another worker. Default: the namespace's."`
	Log           cli.LogFlags  `embed:"" prefix:"log."`
}

func (workerRunCmd) Help() string {
	return `Run runs a command for each job of a namespace with the processor pull. The command reads the args
as JSON from standard input; its standard output is the result (JSON, or text). Exit code 0 is a
success. Another exit code is a failure with the reason exit_N and the last lines of standard error,
and is retried according to the options of the job.

Lines on file descriptor 3 report the progress: "40 half of the pages", or {"percent": 40,
"summary": "half of the pages", "details": {"page": 8}}. PROGRESSOR_PROGRESS contains the last
progress of earlier attempts as JSON, if there is one. The line "retry_after 5m" says when the next
attempt may begin if this one fails, instead of the backoff of the job.

The environment also contains PROGRESSOR_NAMESPACE, PROGRESSOR_JOB_ID, PROGRESSOR_JOB_NAME,
PROGRESSOR_ATTEMPT, PROGRESSOR_TASK_ID, PROGRESSOR_FENCING_TOKEN, PROGRESSOR_DEADLINE and
PROGRESSOR_WORKER_ID. If a job is cancelled, times out or loses its lease, its process group gets
SIGTERM, and after the grace period SIGKILL. Background processes get SIGKILL when the command ends.

On SIGTERM or SIGINT, the worker accepts no new jobs, finishes running ones and releases the rest,
which does not use up an attempt.

    progressor namespace put mail --pull
    progressor worker run --namespace mail --job send --exec './send.sh'
    progressor worker run --namespace media --job thumbnail --concurrency 4 --max-memory 512MiB \
        --exec 'convert - -resize 200x png:- | base64'
    progressor worker run --namespace mail --namespace media --exec 'exec "./jobs/$PROGRESSOR_JOB_NAME"' -o json`
}

func (c *workerRunCmd) check() error {
	switch {
	case strings.TrimSpace(c.Exec) == "":
		return errors.New("--exec: must be a command, such as './send.sh'")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return errors.New("--concurrency: must be 1 to 1000")
	case c.MaxOutput < 1 || c.MaxOutput > defaultMaxOutput:
		return errors.New("--max-output: must be 1 to 1MiB: larger results cannot be stored")
	case c.MaxMemory != 0 && c.MaxMemory < 1<<20:
		return errors.New("--max-memory: must be at least 1MiB")
	case c.MaxMemory != 0 && runtime.GOOS != "linux":
		return errors.New("--max-memory is supported on Linux only")
	case c.KillGrace < 0 || c.StopGrace < 0 || c.LeaseDuration < 0:
		return errors.New("--kill-grace, --stop-grace and --lease-duration: must not be negative")
	}
	return nil
}

// checkNamespaces returns an error if a namespace does not exist or is not for workers. It ignores
// an engine that cannot be reached, because the worker waits for it.
func (c *workerRunCmd) checkNamespaces(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	for _, name := range c.Namespace {
		resp, err := c.Client().Namespace.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: name})
		switch connect.CodeOf(err) {
		case connect.CodeNotFound, connect.CodeInvalidArgument:
			connected, _ := errors.AsType[*connect.Error](err)
			to := &cli.Advised{Err: err, Named: true,
				Message: "--namespace: " + strings.TrimPrefix(connected.Message(), "namespace: ")}
			if connect.CodeOf(err) == connect.CodeNotFound {
				to.Next = "progressor namespace put " + output.ShellWord(name) + " --pull"
			}
			return to
		default:
		}
		if p := resp.GetNamespace().GetProcessor(); err == nil && p.GetPull() == nil {
			return cli.UsageError(
				fmt.Errorf("--namespace: must have the processor pull: tasks of %s go to %s", name,
					output.ShowProcessor(p)))
		}
	}
	return nil
}

func (c *workerRunCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return cli.UsageError(err)
	}
	if err := c.checkNamespaces(a); err != nil {
		return err
	}
	log := c.Log.Logger(a)
	e := &executor{command: c.Exec, maxOutput: int(c.MaxOutput), maxMemory: int64(c.MaxMemory), grace: c.KillGrace,
		groups: map[int]struct{}{}}
	if a.Environ != nil {
		e.environ = a.Environ()
	}
	out := &attemptLines{app: a, json: c.JSON()}
	opts := []client.WorkerOption{
		client.WithConcurrency(c.Concurrency), client.WithStopGrace(c.StopGrace), client.WithWorkerLogger(log),
		client.WithAttemptEnded(out.print),
	}
	if c.WorkerID != "" {
		opts = append(opts, client.WithWorkerID(c.WorkerID))
	}
	if c.LeaseDuration > 0 {
		opts = append(opts, client.WithLeaseDuration(c.LeaseDuration))
	}
	w := client.NewWorker(c.Client(), c.Namespace, opts...)
	e.workerID = w.ID()
	for _, name := range c.Job {
		w.HandleJob(name, processor.Func(e.Process))
	}
	if len(c.Job) == 0 {
		w.HandleJobs(processor.Func(e.Process))
	}
	defer e.killAll() // otherwise, the commands would survive a second signal
	return a.UntilSignal(log, func(ctx context.Context) error { return w.Run(ctx) })
}

// attemptLines prints a line for each ended attempt.
type attemptLines struct {
	app  *cli.App
	json bool

	mu     sync.Mutex
	headed bool
}

const attemptFormat = "%-24s  %-9s  %-7s  %8s  %s\n"

func (l *attemptLines) print(at client.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := at.Lease.GetRequest()
	job := output.OneLine(at.Lease.GetNamespace() + "/" + req.GetProcess().GetProcessId())
	now := time.Now().UTC()
	if l.json {
		lines := json.NewEncoder(l.app.Stdout)
		lines.SetEscapeHTML(false)
		_ = lines.Encode(attemptLine{
			Time: now, Outcome: string(at.Outcome), Namespace: at.Lease.GetNamespace(),
			JobID: req.GetProcess().GetProcessId(), Name: req.GetJobName(),
			Attempt: req.GetAttempt(), Seconds: at.Duration.Seconds(), Reason: at.Failure.GetReason(),
			Message: at.Failure.GetMessage(),
		})
		return
	}
	if !l.headed {
		l.headed = true
		_, _ = fmt.Fprintf(l.app.Stdout, attemptFormat, "TIME", "OUTCOME", "ATTEMPT", "TOOK", "JOB")
	}
	what := job + " " + output.OneLine(req.GetJobName())
	if at.Failure != nil {
		what += "  " + output.OneLine(at.Failure.GetReason()+": "+lastLine(at.Failure.GetMessage()))
	}
	_, _ = fmt.Fprintf(l.app.Stdout, attemptFormat, now.Format("2006-01-02T15:04:05.000Z"), at.Outcome,
		strconv.Itoa(int(req.GetAttempt())),
		durations.Rounded(at.Duration), what)
}

// attemptLine is an attempt in the JSON output.
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

// byteSize is a number of bytes such as 1048576, 1MiB or 512K.
type byteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	number := strings.TrimRight(string(text), "KMGTiB")
	unit := string(text)[len(number):]
	n, err := strconv.ParseInt(number, 10, 64)
	shift, known := map[string]uint{"": 0, "B": 0, "K": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30}[unit]
	if err != nil || !known || n < 0 || n > 1<<62>>shift {
		return fmt.Errorf("must be a size, such as 65536, 512KiB, 64M or 2GiB (got %q)", text)
	}
	*b = byteSize(n << shift)
	return nil
}
