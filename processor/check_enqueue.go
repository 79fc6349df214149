package processor

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	maxJobTimeout = 365 * 24 * time.Hour
	maxTags       = 100
	maxListed     = 1000 // workers of a job, and steps of a backoff
	maxNameBytes  = 256
)

// checkEnqueue accepts the same jobs as the method Enqueue, except those with a unique key: if
// another job had the key, the parent would wait for the end of a job that does not exist.
func checkEnqueue(field string, c *progressorv1.EnqueueCommand) *process.InvalidError {
	if err := checkTarget(field, "job_id", c.GetNamespace(), c.GetJobId()); err != nil {
		return err
	}
	if err := checkName(field+".name", c.GetName()); err != nil {
		return err
	}
	if c.GetArgs() != nil {
		if err := checkJSON(field+".args", c.GetArgs(), 0); err != nil {
			return err
		}
	}
	if err := checkJobOptions(field+".options", c.GetOptions()); err != nil {
		return err
	}
	return checkBytes(field+".notify_parent_args", c.GetNotifyParentArgs())
}

func checkName(field, name string) *process.InvalidError {
	switch {
	case name == "":
		return invalid(field, "must not be empty")
	case len(name) > maxNameBytes:
		return tooLarge(field, len(name), maxNameBytes)
	case !storable(name):
		return invalid(field, "must be valid UTF-8 without NUL")
	}
	return nil
}

func checkNames(field string, names []string, limit int) *process.InvalidError {
	if len(names) > limit {
		return invalid(field, "must have at most %d items (got %d)", limit, len(names))
	}
	for i, name := range names {
		if err := checkName(fmt.Sprintf("%s[%d]", field, i), name); err != nil {
			return err
		}
	}
	return nil
}

func checkJobOptions(field string, o *progressorv1.JobOptions) *process.InvalidError {
	switch workers := o.GetWorkers(); {
	case o.GetUnique() != nil:
		return invalid(field+".unique", "is not supported in commands: the job_id is unique")
	case o.GetMaxRetry() < 0:
		return invalid(field+".max_retry", "must be at least 0 (got %d)", o.GetMaxRetry())
	case o.GetMaxTakeovers() < 0:
		return invalid(field+".max_takeovers", "must be at least 0 (got %d)", o.GetMaxTakeovers())
	case workers.GetCount() < 0 || workers.GetCount() > maxListed:
		return invalid(field+".workers.count", "must be 0 to %d (got %d)", maxListed, workers.GetCount())
	case workers.GetMaxFailures() < 0:
		return invalid(field+".workers.max_failures", "must be at least 0 (got %d)", workers.GetMaxFailures())
	}
	for _, d := range []struct {
		name  string
		value *durationpb.Duration
		most  time.Duration
	}{
		{"timeout", o.GetTimeout(), maxJobTimeout},
		{"result_ttl", o.GetResultTtl(), process.MaxDuration},
		{"cancel_grace", o.GetCancelGrace(), process.MaxDuration},
		{"lease_duration", o.GetLeaseDuration(), process.MaxDuration},
		{"heartbeat_interval", o.GetHeartbeatInterval(), process.MaxDuration},
		{"start_deadline", o.GetStartDeadline(), process.MaxDuration},
	} {
		if err := checkDuration(field+"."+d.name, d.value, d.most); err != nil {
			return err
		}
	}
	if o.GetTimeout() != nil && o.GetTimeout().AsDuration() <= 0 {
		return invalid(field+".timeout", "%s", durations.Positive)
	}
	for _, err := range []error{
		CheckJobTimes(field+".", o), CheckWorkerGroup(field+".workers", o.GetWorkers()),
	} {
		if wrong, ok := errors.AsType[*process.InvalidError](err); ok {
			return wrong
		}
	}
	if err := checkBackoff(field+".backoff", o.GetBackoff()); err != nil {
		return err
	}
	if err := checkNames(field+".tags", o.GetTags(), maxTags); err != nil {
		return err
	}
	if err := checkNames(field+".workers.worker_ids", o.GetWorkers().GetWorkerIds(), maxListed); err != nil {
		return err
	}
	if err := checkTime(field+".run_time", o.GetRunTime()); err != nil {
		return err
	}
	return checkMetadata(field+".metadata", o.GetMetadata())
}

func checkBackoff(field string, b *progressorv1.Backoff) *process.InvalidError {
	if b == nil {
		return nil
	}
	if f := b.Factor; f != nil && !(*f >= 1 && !math.IsInf(*f, 1)) {
		return invalid(field+".factor", "must be finite and at least 1 (got %g)", *f)
	}
	if j := b.Jitter; j != nil && !(*j >= 0 && *j <= 1) {
		return invalid(field+".jitter", "must be 0 to 1 (got %g)", *j)
	}
	if err := checkDuration(field+".initial", b.GetInitial(), process.MaxDuration); err != nil {
		return err
	}
	if err := checkDuration(field+".max", b.GetMax(), process.MaxDuration); err != nil {
		return err
	}
	if n := len(b.GetSteps()); n > maxListed {
		return invalid(field+".steps", "must have at most %d items (got %d)", maxListed, n)
	}
	for i, step := range b.GetSteps() {
		if err := checkDuration(fmt.Sprintf("%s.steps[%d]", field, i), step, process.MaxDuration); err != nil {
			return err
		}
	}
	return nil
}

func checkDuration(field string, d *durationpb.Duration, most time.Duration) *process.InvalidError {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		return invalid(field, "%v", err)
	}
	if t := d.AsDuration(); t < 0 || t > most {
		return invalid(field, "must be 0 to %v (got %v)", most, t)
	}
	return nil
}
