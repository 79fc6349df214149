package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobChangeFlags are the options of a job that can be changed until the job ends.
type jobChangeFlags struct {
	Priority          *int32          `placeholder:"N" help:"A smaller number runs first. Default: 0."`
	MaxRetry          *int32          `placeholder:"N" help:"Maximum number of retries after the first attempt. Default: 0."`
	Backoff           *time.Duration  `xor:"initial" placeholder:"DURATION" help:"Wait before the first retry. Default: 1s."`
	BackoffFactor     *float64        `xor:"factor" placeholder:"X" help:"Factor by which the wait grows with each retry. Default: 2."`
	BackoffMax        *time.Duration  `xor:"longest" placeholder:"DURATION" help:"Maximum wait. Default: 1h."`
	BackoffJitter     *float64        `placeholder:"0..1" help:"Random part of a wait. Default: 0.1."`
	BackoffSteps      []time.Duration `xor:"initial,factor,longest" placeholder:"DURATION" help:"The wait before each retry, instead of --backoff, --backoff-factor and --backoff-max; the last one repeats."`
	Timeout           *time.Duration  `placeholder:"DURATION" help:"Timeout of an attempt. Default: 30s."`
	StartDeadline     *time.Duration  `placeholder:"DURATION" help:"Maximum time from the run time of the job to its first attempt. Default: no limit."`
	KeepResult        *bool           `negatable:"" help:"Keep the result until it is fetched."`
	ResultTTL         *time.Duration  `name:"result-ttl" placeholder:"DURATION" help:"How long the result is kept. Default: 1h."`
	RunTime           string          `placeholder:"TIME|DURATION" help:"Earliest start: a time, or a duration from now."`
	Tag               []string        `sep:"none" placeholder:"TAG" help:"Tag, for filters; can be repeated."`
	Metadata          string          `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	CancelGrace       *time.Duration  `placeholder:"DURATION" help:"How long the worker may take to stop after a cancel. Default: 30s."`
	LeaseDuration     *time.Duration  `placeholder:"DURATION" help:"A worker without a heartbeat for this long loses the job. Default: the worker's lease duration, or the namespace's (30s)."`
	HeartbeatInterval *time.Duration  `placeholder:"DURATION" help:"Interval of the worker's heartbeats, at most half of the lease. Default: a third."`
	Workers           *int32          `placeholder:"N" help:"Number of workers that run the job in parallel and must succeed. Default: one worker runs it."`
	WorkerID          []string        `sep:"none" placeholder:"ID" complete:"worker" help:"Worker that may run the job; can be repeated. Default: any."`
	MaxFailures       *int32          `placeholder:"N" help:"How many of the workers may fail. Default: 0."`
}

// put sets the options whose flags were set, and returns the names of their fields.
func (f *jobChangeFlags) put(a *cli.App, o *progressorv1.JobOptions) (paths []string, err error) {
	set := func(path string) { paths = append(paths, path) }
	duration := func(path string, d *time.Duration, into **durationpb.Duration) {
		if d != nil {
			*into = durationpb.New(*d)
			set(path)
		}
	}
	if f.Priority != nil {
		o.Priority = *f.Priority
		set("priority")
	}
	if f.MaxRetry != nil {
		o.MaxRetry = *f.MaxRetry
		set("max_retry")
	}
	if f.KeepResult != nil {
		o.KeepResult = *f.KeepResult
		set("keep_result")
	}
	duration("timeout", f.Timeout, &o.Timeout)
	duration("start_deadline", f.StartDeadline, &o.StartDeadline)
	duration("result_ttl", f.ResultTTL, &o.ResultTtl)
	duration("cancel_grace", f.CancelGrace, &o.CancelGrace)
	duration("lease_duration", f.LeaseDuration, &o.LeaseDuration)
	duration("heartbeat_interval", f.HeartbeatInterval, &o.HeartbeatInterval)
	if b := f.backoff(); b != nil {
		o.Backoff = b
		set("backoff")
	}
	if f.Workers != nil || len(f.WorkerID) > 0 || f.MaxFailures != nil {
		o.Workers = &progressorv1.WorkerGroup{WorkerIds: f.WorkerID}
		if f.Workers != nil {
			o.Workers.Count = *f.Workers
		}
		if f.MaxFailures != nil {
			o.Workers.MaxFailures = *f.MaxFailures
		}
		set("workers")
	}
	if f.RunTime != "" {
		if o.RunTime, err = cli.TimeFrom("--run-time", f.RunTime); err != nil {
			return nil, err
		}
		set("run_time")
	}
	if len(f.Tag) > 0 {
		o.Tags = f.Tag
		set("tags")
	}
	if f.Metadata != "" {
		if o.Metadata, err = a.Metadata(f.Metadata); err != nil {
			return nil, err
		}
		set("metadata")
	}
	return paths, nil
}

func (f *jobChangeFlags) backoff() *progressorv1.Backoff {
	if f.Backoff == nil && f.BackoffFactor == nil && f.BackoffMax == nil && f.BackoffJitter == nil &&
		len(f.BackoffSteps) == 0 {
		return nil
	}
	b := &progressorv1.Backoff{Factor: f.BackoffFactor, Jitter: f.BackoffJitter}
	if f.Backoff != nil {
		b.Initial = durationpb.New(*f.Backoff)
	}
	if f.BackoffMax != nil {
		b.Max = durationpb.New(*f.BackoffMax)
	}
	for _, step := range f.BackoffSteps {
		b.Steps = append(b.Steps, durationpb.New(step))
	}
	return b
}

// jobOnceFlags are the options that cannot be changed after the job was enqueued.
type jobOnceFlags struct {
	Unique        bool           `help:"Allow only one open job with this name and these args."`
	UniqueKey     string         `placeholder:"KEY" help:"Allow only one open job with this key."`
	UniqueTTL     *time.Duration `name:"unique-ttl" placeholder:"DURATION" help:"Keep the job unique for this long after its end. Implies --unique without --unique-key."`
	UniqueScope   string         `placeholder:"SCOPE" complete:"UniqueScope" help:"active: unique until its end; waiting: until it runs. Implies --unique without --unique-key. Default: active."`
	UniqueReplace bool           `help:"If another job with this --unique-key waits, give it these args and this time instead."`
	MaxTakeovers  *int32         `placeholder:"N" help:"How often the job moves to another worker without counting as a retry. Default: 3."`
}

func (f *jobOnceFlags) put(o *progressorv1.JobOptions) error {
	o.MaxTakeovers = f.MaxTakeovers
	if !f.Unique && f.UniqueKey == "" && f.UniqueTTL == nil && f.UniqueScope == "" && !f.UniqueReplace {
		return nil
	}
	if o.Unique = (&progressorv1.Unique{Key: f.UniqueKey, Replace: f.UniqueReplace}); f.UniqueTTL != nil {
		o.Unique.Ttl = durationpb.New(*f.UniqueTTL)
	}
	return cli.SetEnum("--unique-scope", f.UniqueScope, func(s progressorv1.UniqueScope) { o.Unique.Scope = s })
}

// jobFlags maps fields to flags, for the flags whose names cannot be derived from the field.
var jobFlags = map[string]string{
	"job_id": "--id", "delay": "--delay", "namespace": "NS", "name": "NAME", "args": "--args",
	"idempotency_key": "--idempotency-key",
	"options.tags":    "--tag", "options.workers.count": "--workers", "options.workers.worker_ids": "--worker-id",
	"options.workers.max_failures": "--max-failures",
	"options.backoff.initial":      "--backoff",
}

// jobFlagOf replaces the field name in an error of the engine about a job with the flag that sets
// it. It returns other errors unchanged.
func jobFlagOf(err error) error {
	d := client.Detail(err)
	connected, ok := errors.AsType[*connect.Error](err)
	if d.GetField() == "" || !ok {
		return err
	}
	field, index, indexed := strings.Cut(d.GetField(), "[")
	option, isOption := strings.CutPrefix(field, "options.")
	flag, known := jobFlags[field]
	switch {
	case known:
	case isOption:
		flag = "--" + strings.NewReplacer("_", "-", ".", "-").Replace(option)
	default:
		return err
	}
	if indexed {
		flag += "[" + index
	}
	message := strings.TrimPrefix(connected.Message(), d.GetField()+": ")
	return &cli.Advised{Err: err, Named: true,
		Message: flag + ": " +
			strings.NewReplacer("worker_ids", "--worker-id", "options.workers", "--workers").Replace(message)}
}

type jobUpdateCmd struct {
	jobArgs
	cli.ClientFlags
	jobChangeFlags
	Args  string   `placeholder:"JSON|@FILE|@-" help:"New args, while the job waits: JSON, @FILE, or @- for standard input."`
	Clear []string `placeholder:"OPTION" help:"Reset options to their defaults, such as tags or backoff."`
}

func (jobUpdateCmd) Help() string {
	return `Update changes options of a job that has not ended. Priority, --args, --run-time, tags and metadata
of a waiting job change at once, the lease and its heartbeats with the next heartbeat, and all
others with the next attempt. --args and --run-time are refused while the job runs.

    progressor job update echo mail-2 --priority -5 --run-time 2h
    progressor job update echo mail-2 --max-retry 10 --backoff-steps 1s,10s,1m
    progressor job update echo mail-2 --args '{"to":"bob"}'
    progressor job update echo mail-2 --clear tags`
}

func (c *jobUpdateCmd) Run(a *cli.App) error {
	req := &progressorv1.UpdateJobRequest{Namespace: c.NS, JobId: c.ID, Options: &progressorv1.JobOptions{}}
	paths, err := c.put(a, req.GetOptions())
	if err != nil {
		return err
	}
	if req.Args, err = a.JSONValue("--args", c.Args); err != nil {
		return err
	}
	if req.GetArgs() != nil {
		paths = append(paths, "args")
	}
	for _, path := range c.Clear {
		path = strings.ReplaceAll(path, "-", "_")
		if slices.Contains(paths, path) {
			return cli.UsageError(fmt.Errorf("--clear: %s is also set by a flag", path))
		}
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		return cli.UsageError(
			fmt.Errorf("nothing to change: set an option, for example: progressor job update %s %s --priority 5",
				output.ShellWord(c.NS), output.ShellWord(c.ID)))
	}
	req.UpdateMask = fieldMask(paths)
	return ofJob(c.jobArgs, cli.Show(a, c, c.Client().Job.UpdateJob, req, showJob))
}
