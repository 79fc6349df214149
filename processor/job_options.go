package processor

import (
	"cmp"
	"fmt"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CheckJobTimes rejects a lease, a heartbeat interval or a start deadline that a job cannot have.
// prefix is the prefix of field names in errors, such as "options.".
func CheckJobTimes(prefix string, o *progressorv1.JobOptions) error {
	if err := cmp.Or(checkLease(prefix, o), checkStartDeadline(prefix, o)); err != nil {
		return err
	}
	return nil
}

// CheckWorkerGroup rejects the option workers of a job if its worker_ids are fewer than its count,
// or contain a worker twice. field is its name in errors.
func CheckWorkerGroup(field string, g *progressorv1.WorkerGroup) error {
	if n := len(g.GetWorkerIds()); n > 0 && n < int(g.GetCount()) {
		return &process.InvalidError{
			Field: field + ".count", Message: fmt.Sprintf("%d is more than the %d worker_ids", g.GetCount(), n),
		}
	}
	seen := map[string]int{}
	for n, id := range g.GetWorkerIds() {
		if first, twice := seen[id]; twice {
			return &process.InvalidError{
				Field:   fmt.Sprintf("%s.worker_ids[%d]", field, n),
				Message: fmt.Sprintf("%q is also worker_ids[%d]", id, first),
			}
		}
		seen[id] = n
	}
	return nil
}

// checkStartDeadline rejects a start deadline that is not positive, and one of a job for several
// workers. field is the prefix of field names in errors.
func checkStartDeadline(field string, o *progressorv1.JobOptions) *process.InvalidError {
	switch {
	case o.GetStartDeadline() == nil:
		return nil
	case o.GetStartDeadline().AsDuration() <= 0:
		return &process.InvalidError{Field: field + "start_deadline",
			Message: durations.Positive}
	case o.GetWorkers() != nil:
		return &process.InvalidError{
			Field: field + "start_deadline",
			Message: "must not be set together with " + field +
				"workers: a job for several workers has no start deadline",
		}
	}
	return nil
}

// checkLease validates the lease and the heartbeat interval of a job: a worker must be able to send
// two heartbeats before its lease expires. field is the prefix of field names in errors.
func checkLease(field string, o *progressorv1.JobOptions) *process.InvalidError {
	lease, interval := o.GetLeaseDuration(), o.GetHeartbeatInterval()
	switch {
	case lease != nil && lease.AsDuration() <= 0:
		return &process.InvalidError{Field: field + "lease_duration",
			Message: durations.Positive}
	case interval != nil && interval.AsDuration() <= 0:
		return &process.InvalidError{Field: field + "heartbeat_interval",
			Message: durations.Positive}
	}
	most, of := process.MaxLease/2, "the longest lease, "+durations.Exact(process.MaxLease)
	if lease != nil && lease.AsDuration() < process.MaxLease {
		most, of = lease.AsDuration()/2, "lease_duration, "+durations.Exact(lease.AsDuration())
	}
	if got := interval.AsDuration(); got > most {
		return &process.InvalidError{
			Field:   field + "heartbeat_interval",
			Message: fmt.Sprintf("must be at most half of %s (got %s)", of, durations.Exact(got)),
		}
	}
	return nil
}
