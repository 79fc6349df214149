package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// jobChangeFlags are the options of a job that can change while it is not at its end.
type jobChangeFlags struct {
	Priority          *int32          `placeholder:"N" help:"Smaller first. Default: 0."`
	MaxRetry          *int32          `placeholder:"N" help:"Retries after the first attempt. Default: 0."`
	Backoff           *time.Duration  `xor:"initial" placeholder:"DURATION" help:"Wait before the first retry. Default: 1s."`
	BackoffFactor     *float64        `xor:"factor" placeholder:"X" help:"Each wait is so many times the one before. Default: 2."`
	BackoffMax        *time.Duration  `xor:"longest" placeholder:"DURATION" help:"The longest wait. Default: 1h."`
	BackoffJitter     *float64        `placeholder:"0..1" help:"Part of a wait that is random. Default: 0.1."`
	BackoffSteps      []time.Duration `xor:"initial,factor,longest" placeholder:"DURATION" help:"Instead of --backoff, --backoff-factor and --backoff-max: one wait for each retry; the last repeats."`
	Timeout           *time.Duration  `placeholder:"DURATION" help:"Of one attempt. Default: 30s."`
	KeepResult        *bool           `negatable:"" help:"Keep the result until it is fetched."`
	ResultTTL         *time.Duration  `name:"result-ttl" placeholder:"DURATION" help:"How long it is kept at most. Default: 1h."`
	RunTime           string          `placeholder:"TIME|DURATION" help:"Not before this time, or so long from now."`
	Tag               []string        `sep:"none" placeholder:"TAG" help:"A tag, by which lists find it; give it once for each."`
	Metadata          string          `placeholder:"JSON|@FILE" help:"Searchable attributes, a JSON object."`
	CancelGrace       *time.Duration  `placeholder:"DURATION" help:"How long its worker may take to stop when it is cancelled. Default: 30s."`
	LeaseDuration     *time.Duration  `placeholder:"DURATION" help:"A worker that is silent for so long loses it. Default: the worker's, else the namespace's, 30s."`
	HeartbeatInterval *time.Duration  `placeholder:"DURATION" help:"How often its worker is to beat, at most half of the lease. Default: a third."`
	Workers           *int32          `placeholder:"N" help:"So many workers run it side by side, each once, and have to succeed."`
	WorkerID          []string        `sep:"none" placeholder:"ID" help:"A worker that may run it; give it once for each. Without: any."`
	MaxFailures       *int32          `placeholder:"N" help:"How many workers may fail before the job does. Default: 0."`
}

// put writes the flags that were given into options, and tells which fields those are.
func (f *jobChangeFlags) put(a *app, o *progressorv1.JobOptions) (paths []string, err error) {
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
		if o.RunTime, err = timeFrom("--run-time", f.RunTime); err != nil {
			return nil, err
		}
		set("run_time")
	}
	if len(f.Tag) > 0 {
		o.Tags = f.Tag
		set("tags")
	}
	if f.Metadata != "" {
		if o.Metadata, err = a.metadata(f.Metadata); err != nil {
			return nil, err
		}
		set("metadata")
	}
	return paths, nil
}

func (f *jobChangeFlags) backoff() *progressorv1.Backoff {
	if f.Backoff == nil && f.BackoffFactor == nil && f.BackoffMax == nil && f.BackoffJitter == nil && len(f.BackoffSteps) == 0 {
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

// jobOnceFlags are the options that are said when a job is enqueued, and not changed.
type jobOnceFlags struct {
	Unique       bool           `help:"At most one job of this name and these args that is not at its end."`
	UniqueKey    string         `placeholder:"KEY" help:"At most one job with this key that is not at its end."`
	UniqueTTL    *time.Duration `name:"unique-ttl" placeholder:"DURATION" help:"And for so long after its end. Implies --unique where there is no --unique-key."`
	UniqueScope  string         `placeholder:"SCOPE" help:"active: until its end; waiting: until it runs. Implies --unique where there is no --unique-key. Default: active."`
	MaxTakeovers *int32         `placeholder:"N" help:"How often it goes to another worker when one is lost, without using up a retry. Default: 3."`
}

func (f *jobOnceFlags) put(o *progressorv1.JobOptions) error {
	o.MaxTakeovers = f.MaxTakeovers
	if !f.Unique && f.UniqueKey == "" && f.UniqueTTL == nil && f.UniqueScope == "" {
		return nil
	}
	if o.Unique = (&progressorv1.Unique{Key: f.UniqueKey}); f.UniqueTTL != nil {
		o.Unique.Ttl = durationpb.New(*f.UniqueTTL)
	}
	return setEnum("--unique-scope", f.UniqueScope, func(s progressorv1.UniqueScope) { o.Unique.Scope = s })
}

// jobFlags are the flags whose names do not follow from those of the fields.
var jobFlags = map[string]string{
	"job_id": "--id", "namespace": "NS", "name": "NAME", "args": "--args", "idempotency_key": "--idempotency-key",
	"options.tags": "--tag", "options.workers.count": "--workers", "options.workers.worker_ids": "--worker-id", "options.workers.max_failures": "--max-failures",
	"options.backoff.initial": "--backoff",
}

// jobFlagOf names the flag in the place of the field that it sets, in what the engine has refused of a job; any other error stays as it is.
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
	return &advised{error: err, named: true, message: flag + ": " + strings.ReplaceAll(message, "worker_ids", "--worker-id")}
}

// jsonValue reads the JSON that a flag stands for; nil for "".
func (a *app) jsonValue(flag, value string) (*structpb.Value, error) {
	if value == "" {
		return nil, nil //nolint:nilnil // absent
	}
	text, err := a.textOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	if err := atMost(flag, len(text), process.MaxMessageBytes); err != nil {
		return nil, err
	}
	v := &structpb.Value{}
	if err := protojson.Unmarshal(text, v); err != nil {
		return nil, usageError(fmt.Errorf("%s: want JSON, such as '{\"to\": \"ann\"}' or '\"text\"': %w", flag, noJSON(err)))
	}
	return v, exactDigits(flag, text, v)
}

type jobUpdateCmd struct {
	jobArgs
	clientFlags
	jobChangeFlags
	Clear []string `placeholder:"OPTION,…" help:"Options that go back to their defaults, such as tags or backoff."`
}

func (jobUpdateCmd) Help() string {
	return `Update changes options of a job that is not at its end. Priority, --run-time, tags and metadata of a job that waits change at
once, the lease and its heartbeats with the next beat, everything else with the next attempt.

    progressor job update echo mail-2 --priority -5 --run-time 2h
    progressor job update echo mail-2 --max-retry 10 --backoff-steps 1s,10s,1m
    progressor job update echo mail-2 --clear tags`
}

func (c *jobUpdateCmd) Run(a *app) error {
	req := &progressorv1.UpdateJobRequest{Namespace: c.NS, JobId: c.ID, Options: &progressorv1.JobOptions{}}
	paths, err := c.put(a, req.GetOptions())
	if err != nil {
		return err
	}
	for _, path := range c.Clear {
		path = strings.ReplaceAll(path, "-", "_")
		if slices.Contains(paths, path) {
			return usageError(fmt.Errorf("--clear: %s is given a value too", path))
		}
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		return usageError(fmt.Errorf("want something to change, as in: progressor job update %s %s --priority 5", shellWord(c.NS), shellWord(c.ID)))
	}
	req.UpdateMask = fieldMask(paths)
	return ofJob(c.jobArgs, ask(a, c.outputFlag, c.client().Job.UpdateJob, req, func(resp *progressorv1.UpdateJobResponse) error {
		return printJob(a, resp.GetJob())
	}))
}
