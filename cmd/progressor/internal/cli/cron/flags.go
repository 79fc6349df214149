package cron

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// specFlags define the schedule of a cron.
type specFlags struct {
	Timezone        *string        `placeholder:"ZONE" help:"IANA time zone of the expressions, such as Europe/Berlin. Default: UTC."`
	StartTime       string         `placeholder:"TIME|DURATION" help:"The cron does not fire before this time; @every counts from it."`
	EndTime         string         `placeholder:"TIME|DURATION" help:"The cron does not fire after this time."`
	Jitter          *time.Duration `placeholder:"DURATION" help:"Delays each fire by up to this duration; the delay of a fire time is constant."`
	Exclude         []string       `sep:"none" placeholder:"EXPRESSION" help:"Local times at which the cron does not fire, such as '* * 24-26 12 *'; can be repeated."`
	DaylightGap     string         `placeholder:"shift|skip" help:"What happens to a local time that the clock skips: fire at the end of the gap, or skip it. Default: shift."`
	DaylightOverlap string         `placeholder:"first|last|both" help:"Which occurrence of a repeated local time fires. Default: first."`
	MaxFires        *int64         `placeholder:"N" help:"Ends the cron after this number of runs; 0 means no limit."`
}

// apply sets the values of the flags in a spec.
func (f *specFlags) apply(s *progressorv1.CronSpec) (err error) {
	if f.StartTime != "" {
		if s.StartTime, err = cli.TimeFrom("--start-time", f.StartTime); err != nil {
			return err
		}
	}
	if f.EndTime != "" {
		if s.EndTime, err = cli.TimeFrom("--end-time", f.EndTime); err != nil {
			return err
		}
	}
	if f.DaylightGap+f.DaylightOverlap != "" && s.GetDaylightSaving() == nil {
		s.DaylightSaving = &progressorv1.DaylightSaving{}
	}
	if len(f.Exclude) > 0 {
		s.ExcludeExpressions = f.Exclude
	}
	cli.Set(&s.Timezone, f.Timezone)
	cli.Set(&s.MaxFires, f.MaxFires)
	cli.SetDuration(&s.Jitter, f.Jitter)
	return cmp.Or(
		cli.SetEnum("--daylight-gap", f.DaylightGap,
			func(v progressorv1.DaylightSaving_Gap) { s.DaylightSaving.Gap = v }),
		cli.SetEnum("--daylight-overlap", f.DaylightOverlap,
			func(v progressorv1.DaylightSaving_Overlap) { s.DaylightSaving.Overlap = v }),
	)
}

// policyFlags define the policy of a cron.
type policyFlags struct {
	Overlap            string         `placeholder:"ACTION" complete:"OverlapAction" help:"If the previous run is still running: allow (the concurrency policy decides), skip, cancel_prev, parallel or buffer_one. Default: allow."`
	Failure            string         `placeholder:"ACTION" complete:"FailureAction" help:"If the previous run has failed: run_new, skip, retry, backoff or half_open. Default: run_new."`
	Concurrency        string         `placeholder:"skip|queue" help:"What happens to a fire at --max-concurrency. Default: skip."`
	MaxConcurrency     *int32         `placeholder:"N" help:"Maximum number of concurrent runs. Default: 1."`
	QueueLimit         *int32         `placeholder:"N" help:"Maximum number of queued fires with --concurrency queue; more are dropped. Default: 1000."`
	Misfire            string         `placeholder:"POLICY" complete:"MisfirePolicy" help:"If several fire times have passed: fire_now (the newest that can start or queue now), skip (only the newest, unless it is late) or catch_up_limited. Default: fire_now."`
	CatchupLimit       *int32         `placeholder:"N" help:"Number of fire times to catch up on, with --misfire catch_up_limited."`
	CatchupWindow      *time.Duration `placeholder:"DURATION" help:"Older fire times are missed; 0 means no limit."`
	MisfireThreshold   *time.Duration `placeholder:"DURATION" help:"Maximum lateness of a fire with --misfire skip. Default: 5s."`
	Timeout            *time.Duration `placeholder:"DURATION" help:"Timeout of a run, after which the run ends with TIMEOUT. Default: 10s for --http, otherwise none."`
	MaxAttempts        *int32         `placeholder:"N" help:"Maximum number of attempts with --failure retry and backoff; 0 means no limit."`
	RetryBackoff       *time.Duration `placeholder:"DURATION" help:"How long fires are skipped after a failure with --failure backoff and half_open. Default: 1s."`
	RetryBackoffMax    *time.Duration `placeholder:"DURATION" help:"Maximum of --retry-backoff. Default: 1h."`
	RetryBackoffFactor *float64       `placeholder:"FACTOR" help:"Factor by which the backoff grows with each failure. Default: 2."`
	PauseAfterFailures *int32         `placeholder:"N" help:"Consecutive failed runs that pause the cron or, with --failure half_open, open its circuit; 0 means never."`
	MaxOverlap         *int32         `placeholder:"N" help:"Maximum number of concurrent runs with --overlap parallel; 0 means no limit."`
}

// apply sets the values of the flags in the policy of a cron, which it creates if needed.
func (f *policyFlags) apply(c *progressorv1.Cron) error {
	if *f == (policyFlags{}) {
		return nil
	}
	if c.GetPolicy() == nil {
		c.Policy = &progressorv1.CronPolicy{}
	}
	p := c.GetPolicy()
	cli.Set(&p.MaxConcurrency, f.MaxConcurrency)
	cli.Set(&p.QueueLimit, f.QueueLimit)
	cli.Set(&p.CatchupLimit, f.CatchupLimit)
	cli.Set(&p.MaxAttempts, f.MaxAttempts)
	cli.Set(&p.PauseAfterFailures, f.PauseAfterFailures)
	cli.Set(&p.MaxOverlap, f.MaxOverlap)
	cli.SetDuration(&p.CatchupWindow, f.CatchupWindow)
	cli.SetDuration(&p.MisfireThreshold, f.MisfireThreshold)
	cli.SetDuration(&p.Timeout, f.Timeout)
	if f.RetryBackoff != nil || f.RetryBackoffMax != nil || f.RetryBackoffFactor != nil {
		if p.GetRetryBackoff() == nil {
			p.RetryBackoff = &progressorv1.Backoff{}
		}
		cli.SetDuration(&p.RetryBackoff.Initial, f.RetryBackoff)
		cli.SetDuration(&p.RetryBackoff.Max, f.RetryBackoffMax)
		if f.RetryBackoffFactor != nil {
			p.RetryBackoff.Factor = f.RetryBackoffFactor
		}
	}
	return cmp.Or(
		cli.SetEnum("--overlap", f.Overlap, func(v progressorv1.OverlapAction) { p.OverlapAction = v }),
		cli.SetEnum("--failure", f.Failure, func(v progressorv1.FailureAction) { p.FailureAction = v }),
		cli.SetEnum("--concurrency", f.Concurrency, func(v progressorv1.ConcurrencyPolicy) { p.ConcurrencyPolicy = v }),
		cli.SetEnum("--misfire", f.Misfire, func(v progressorv1.MisfirePolicy) { p.MisfirePolicy = v }),
	)
}

// targetFlags define the target of a cron.
type targetFlags struct {
	StartProcess    bool              `xor:"target" help:"Each run is a new process; COMPLETED is a success."`
	Notify          string            `xor:"target" placeholder:"PROCESS" complete:"process" help:"Each run is a notification to this process; the run ends when its NOTIFY task ends."`
	HTTP            string            `name:"http" xor:"target" placeholder:"URL" help:"Each run is an HTTP request to this URL."`
	TargetNamespace *string           `placeholder:"NS" complete:"namespace" help:"Namespace of the process or job with --start-process, --job and --notify. Default: the cron's namespace."`
	ProcessMetadata string            `placeholder:"JSON|@FILE" help:"Searchable attributes of the process with --start-process, in addition to those that identify the fire."`
	RunEnd          string            `placeholder:"process|init" help:"When the run ends with --start-process: with the process, or with its INIT task. Default: process."`
	Method          *string           `placeholder:"METHOD" help:"Method with --http. Default: POST."`
	Header          map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"Header with --http; can be repeated."`
	SigningSecret   []string          `placeholder:"NAME" help:"Sign the requests of --http with the key in this secret. Set two secrets while a key is replaced."`
	HTTPCAFile      string            `name:"http-ca-file" placeholder:"FILE" help:"CA certificates that verify --http, PEM. Default: those of the system."`
	HTTPCertificate string            `name:"http-certificate" placeholder:"NAME" help:"Secret with the client certificate for --http and its private key, PEM."`
	SuccessCode     []int32           `placeholder:"CODE" help:"Status codes of a success with --http. Default: 200 to 299."`
	startRunFlags
	jobTargetFlags
	cli.PayloadFlags
}

// apply sets the values of the flags in a target. A flag that selects the kind of target replaces
// the existing target.
func (f *targetFlags) apply(a *cli.App, t *progressorv1.CronTarget) error {
	switch {
	case f.StartProcess:
		t.Target = &progressorv1.CronTarget_StartProcess{StartProcess: &progressorv1.StartProcessTarget{}}
	case f.Notify != "":
		t.Target = &progressorv1.CronTarget_NotifyProcess{
			NotifyProcess: &progressorv1.NotifyProcessTarget{ProcessId: f.Notify}}
	case f.HTTP != "":
		t.Target = &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{Url: f.HTTP}}
	case f.StartRun != "":
		t.Target = &progressorv1.CronTarget_StartRun{StartRun: &progressorv1.StartRunTarget{Type: f.StartRun}}
	case f.Job != "":
		t.Target = &progressorv1.CronTarget_EnqueueJob{EnqueueJob: &progressorv1.EnqueueJobTarget{Name: f.Job}}
	}
	start, notify, http, job := t.GetStartProcess(), t.GetNotifyProcess(), t.GetHttp(), t.GetEnqueueJob()
	if err := cmp.Or(f.startRunFlags.apply(a, t.GetStartRun()),
		f.jobTargetFlags.apply(a, job, f.PayloadFlags)); err != nil {
		return err
	}
	switch {
	case http == nil && len(f.httpFlags()) > 0:
		return cli.Requires("--http", f.httpFlags())
	case start == nil && f.RunEnd != "":
		return cli.UsageError(errors.New("--run-end requires --start-process"))
	case start == nil && f.ProcessMetadata != "":
		return cli.UsageError(errors.New("--process-metadata requires --start-process"))
	case start == nil && notify == nil && job == nil && f.TargetNamespace != nil:
		return cli.UsageError(errors.New("--target-namespace requires --start-process, --job or --notify"))
	case start == nil && notify == nil && http == nil && job == nil && f.hasArgs():
		return cli.UsageError(
			fmt.Errorf("%s requires --start-process, --job, --notify or --http; use --payload with --start-run",
				f.ArgsFlag()))
	}
	if job != nil {
		cli.Set(&job.Namespace, f.TargetNamespace)
		return nil
	}
	args, err := f.ReadArgs(a)
	if err != nil {
		return err
	}
	switch {
	case start != nil:
		return f.applyStart(a, start, args)
	case notify != nil:
		cli.Set(&notify.Namespace, f.TargetNamespace)
		f.setArgs(&notify.Args, args)
	case http != nil:
		return f.applyHTTP(a, http, args)
	}
	return nil
}

// httpFlags returns the names of the flags that are set and describe an HTTP request.
func (f *targetFlags) httpFlags() []string {
	return cli.SetFlags(
		cli.Given{Flag: "--method", Set: f.Method != nil},
		cli.Given{Flag: "--header", Set: len(f.Header) > 0},
		cli.Given{Flag: "--signing-secret", Set: len(f.SigningSecret) > 0},
		cli.Given{Flag: "--http-ca-file", Set: f.HTTPCAFile != ""},
		cli.Given{Flag: "--http-certificate", Set: f.HTTPCertificate != ""},
		cli.Given{Flag: "--success-code", Set: len(f.SuccessCode) > 0})
}

func (f *targetFlags) applyHTTP(a *cli.App, t *progressorv1.HttpTarget, args []byte) error {
	if f.Method != nil {
		t.Method = strings.ToUpper(*f.Method)
	}
	f.setArgs(&t.Body, args)
	if len(f.Header) > 0 {
		t.Headers = f.Header
	}
	if len(f.SigningSecret) > 0 {
		t.SigningSecrets = f.SigningSecret
	}
	if len(f.SuccessCode) > 0 {
		t.SuccessCodes = f.SuccessCode
	}
	security, err := a.TargetTLS("--http-ca-file", f.HTTPCAFile, f.HTTPCertificate)
	if security != nil {
		t.Tls = security
	}
	return err
}

func (f *targetFlags) applyStart(a *cli.App, t *progressorv1.StartProcessTarget, args []byte) error {
	cli.Set(&t.Namespace, f.TargetNamespace)
	f.setArgs(&t.Args, args)
	if f.ProcessMetadata != "" {
		attributes, err := a.Attributes("--process-metadata", f.ProcessMetadata)
		if err != nil {
			return err
		}
		t.Metadata = attributes
	}
	return cli.SetEnum("--run-end", f.RunEnd, func(v progressorv1.StartProcessTarget_RunEnd) { t.RunEnd = v })
}

func (f *targetFlags) hasArgs() bool { return f.Args != nil || f.ArgsBase64 != nil }

func (f *targetFlags) setArgs(into *[]byte, args []byte) {
	if f.hasArgs() {
		*into = args
	}
}
