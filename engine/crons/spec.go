package crons

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// Limits of a cron. Its definition and its state share 1 MiB. 3,000 running, 3,000 queued and 3,000
// replaced runs take about 440 KiB. Unsent messages to runs take 250 KiB.
const (
	maxDefinitionBytes = 256 << 10
	maxRuns            = 3000
)

// specOf converts a spec. created is when the cron was created.
func specOf(s *progressorv1.CronSpec, created time.Time) cron.Spec {
	spec := cron.Spec{
		Expressions: s.GetExpressions(), Timezone: s.GetTimezone(), Start: timeOf(s.GetStartTime()),
		End: timeOf(s.GetEndTime()), Created: created,
		Jitter: s.GetJitter().AsDuration(), Exclude: s.GetExcludeExpressions(), MaxFires: s.GetMaxFires(),
	}
	spec.Daylight.Gap = cron.Gap(s.GetDaylightSaving().GetGap())
	spec.Daylight.Overlap = cron.Overlap(s.GetDaylightSaving().GetOverlap())
	return spec
}

// policyOf converts a policy. PARALLEL without a limit gets the limit of maxRuns.
func policyOf(p *progressorv1.CronPolicy) cron.Policy {
	b := p.GetRetryBackoff()
	policy := cron.Policy{
		Overlap: cron.OverlapAction(p.GetOverlapAction()), Failure: cron.FailureAction(p.GetFailureAction()),
		Concurrency: cron.ConcurrencyPolicy(p.GetConcurrencyPolicy()), MaxConcurrency: p.GetMaxConcurrency(),
		QueueLimit: p.GetQueueLimit(),
		Misfire:    cron.MisfirePolicy(p.GetMisfirePolicy()), CatchUpLimit: p.GetCatchupLimit(),
		CatchUpWindow: p.GetCatchupWindow().AsDuration(),
		RetryBackoff: cron.Backoff{
			Initial: b.GetInitial().AsDuration(), Factor: b.GetFactor(), Max: b.GetMax().AsDuration(),
			Jitter: b.GetJitter(),
		},
		MaxAttempts: p.GetMaxAttempts(), PauseAfterFailures: p.GetPauseAfterFailures(),
		MisfireThreshold: p.GetMisfireThreshold().AsDuration(),
		MaxOverlap:       p.GetMaxOverlap(),
	}
	for _, step := range b.GetSteps() {
		policy.RetryBackoff.Steps = append(policy.RetryBackoff.Steps, step.AsDuration())
	}
	policy.MaxOverlap = cmp.Or(policy.MaxOverlap, maxRuns)
	return policy
}

// Compile compiles a definition. created is when the cron was created, or zero if it is not stored.
func Compile(c *progressorv1.Cron, created time.Time) (cron.Cron, error) {
	return compile(c, created, "cron.")
}

// compile compiles a definition. Its errors are *process.InvalidError. Their path is prefix and the
// path of the field in the cron.
func compile(c *progressorv1.Cron, created time.Time, prefix string) (cron.Cron, error) {
	schedule, err := cron.Compile(specOf(c.GetSpec(), created))
	policy := policyOf(c.GetPolicy())
	if err == nil {
		err = policy.Validate()
	}
	return cron.Cron{
		Key: c.GetNamespace() + "/" + c.GetCronId(), Schedule: schedule, Policy: policy,
		Refusable: c.GetTarget().GetStartRun() != nil,
	}, invalidOf(err, prefix)
}

// invalidOf converts an error of package cron to an InvalidError.
func invalidOf(err error, prefix string) error {
	var wrong *cron.SpecError
	if errors.As(err, &wrong) {
		return &process.InvalidError{Field: prefix + wrong.Field, Message: wrong.Err.Error()}
	}
	return err
}

// Check rejects a definition that cannot be stored or cannot run. Its errors are
// *process.InvalidError with the path of the field, such as cron.spec.timezone. It does not check
// anything that requires the database.
func Check(c *progressorv1.Cron, created time.Time) error {
	if process.Own(c.GetCronId()) {
		return invalid("cron.cron_id", `must not begin with "~": such IDs are reserved for the engine`)
	}
	if _, err := compile(c, created, "cron."); err != nil {
		return err
	}
	for _, n := range []struct {
		field string
		value int32
	}{
		{"max_concurrency", c.GetPolicy().GetMaxConcurrency()}, {"queue_limit", c.GetPolicy().GetQueueLimit()},
		{"max_overlap", c.GetPolicy().GetMaxOverlap()},
	} {
		if n.value > maxRuns {
			return invalid("cron.policy."+n.field, "must be at most %d (got %d)", maxRuns, n.value)
		}
	}
	if err := checkTarget(c.GetTarget()); err != nil {
		return err
	}
	if c.GetTarget().GetStartRun() != nil && len(c.GetCronId()) > maxFlowCronID {
		return invalid("cron.cron_id",
			"must have at most %d bytes (got %d) if the target is start_run, because the IDs of its runs contain it",
			maxFlowCronID, len(c.GetCronId()))
	}
	metadata, err := wire.JSON(c.GetMetadata())
	if err != nil {
		return invalid("cron.metadata", "%s", err)
	}
	if len(metadata) > process.MaxMetadataBytes {
		return &process.InvalidError{
			Field:    "cron.metadata",
			Message:  fmt.Sprintf("must have at most %d bytes (got %d)", process.MaxMetadataBytes, len(metadata)),
			TooLarge: true,
		}
	}
	return checkSize(c)
}

// checkSize rejects a definition that is too large. Encrypted headers are a third larger.
func checkSize(c *progressorv1.Cron) error {
	if size := proto.Size(definition(c)); size > maxDefinitionBytes {
		return &process.InvalidError{
			Field: "cron.target",
			Message: fmt.Sprintf("the cron must have at most %d bytes with its target's args and encrypted headers "+
				"(got %d)", maxDefinitionBytes, size), TooLarge: true,
		}
	}
	return nil
}

// maxRunMetadata leaves room for the fields of the fire in the metadata of a run.
const maxRunMetadata = process.MaxMetadataBytes - 1024

func checkTarget(t *progressorv1.CronTarget) error {
	switch target := t.GetTarget().(type) {
	case *progressorv1.CronTarget_StartProcess:
		metadata, err := wire.JSON(target.StartProcess.GetMetadata())
		if err != nil {
			return invalid("cron.target.start_process.metadata", "%s", err)
		}
		if len(metadata) > maxRunMetadata {
			return &process.InvalidError{
				Field:    "cron.target.start_process.metadata",
				Message:  fmt.Sprintf("must have at most %d bytes (got %d)", maxRunMetadata, len(metadata)),
				TooLarge: true,
			}
		}
		return nil
	case *progressorv1.CronTarget_EnqueueJob:
		return checkJob(target.EnqueueJob.GetOptions())
	case *progressorv1.CronTarget_StartRun:
		return checkStartRun(target.StartRun)
	case *progressorv1.CronTarget_NotifyProcess:
		if process.Own(target.NotifyProcess.GetProcessId()) {
			return invalid("cron.target.notify_process.process_id",
				`must not begin with "~": such IDs are reserved for the engine`)
		}
		return nil
	case *progressorv1.CronTarget_Http:
		return checkHTTP(target.Http)
	}
	return invalid("cron.target", "is required: set what to start, such as start_process")
}

// maxFlowRunID is the maximum length of the ID of a flow run.
const maxFlowRunID = 160

// maxFlowCronID leaves room for a fire time in the ID of a run.
const maxFlowCronID = maxFlowRunID - len("/2006-01-02T15:04:05.999999Z")

// checkStartRun rejects a target that could not start a run of any template.
func checkStartRun(t *progressorv1.StartRunTarget) error {
	const field = "cron.target.start_run."
	if _, problems := flow.CompileTarget(t); len(problems) > 0 {
		more := ""
		for _, p := range problems[1:] {
			more += "; " + p.String()
		}
		return invalid(field+problems[0].Path, "%s%s", problems[0].Message, more)
	}
	metadata, err := wire.JSON(t.GetMetadata())
	if err != nil {
		return invalid(field+"metadata", "%s", err)
	}
	if len(metadata) > maxRunMetadata {
		return &process.InvalidError{
			Field:   field + "metadata",
			Message: fmt.Sprintf("must have at most %d bytes (got %d)", maxRunMetadata, len(metadata)), TooLarge: true,
		}
	}
	return nil
}

// checkJob rejects options that a run cannot have. The other options are checked as for any job.
func checkJob(o *progressorv1.JobOptions) error {
	const field = "cron.target.enqueue_job.options."
	metadata, err := wire.JSON(o.GetMetadata())
	switch {
	case err != nil:
		return invalid(field+"metadata", "%s", err)
	case len(metadata) > maxRunMetadata:
		return &process.InvalidError{
			Field:   field + "metadata",
			Message: fmt.Sprintf("must have at most %d bytes (got %d)", maxRunMetadata, len(metadata)), TooLarge: true,
		}
	case o.GetRunTime() != nil:
		return invalid(field+"run_time", "must not be set: the cron decides when its jobs run")
	case o.GetUnique().GetReplace():
		return invalid(field+"unique.replace", "must not be set: each fire has its own run")
	}
	return processor.CheckJobTimes(field, o)
}

// namespaceOf returns the namespace of a target and the field that names it. The namespace is ""
// for the namespace of the cron.
func namespaceOf(t *progressorv1.CronTarget) (namespace, field string) {
	switch target := t.GetTarget().(type) {
	case *progressorv1.CronTarget_StartProcess:
		return target.StartProcess.GetNamespace(), "cron.target.start_process.namespace"
	case *progressorv1.CronTarget_EnqueueJob:
		return target.EnqueueJob.GetNamespace(), "cron.target.enqueue_job.namespace"
	case *progressorv1.CronTarget_NotifyProcess:
		return target.NotifyProcess.GetNamespace(), "cron.target.notify_process.namespace"
	}
	return "", ""
}

// definition returns a copy of a cron with only the fields that clients set, not those that the
// engine derives.
func definition(c *progressorv1.Cron) *progressorv1.Cron {
	return &progressorv1.Cron{
		Namespace: c.GetNamespace(), CronId: c.GetCronId(), Spec: c.GetSpec(), Policy: c.GetPolicy(),
		Target: c.GetTarget(), Metadata: c.GetMetadata(),
	}
}

func invalid(field, format string, args ...any) error {
	return &process.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
