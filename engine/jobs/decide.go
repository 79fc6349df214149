package jobs

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// decide adds the consequences of the end of an attempt to c: the result of the job, another
// attempt, or the failure of the job. It is a pure function.
func decide(e engine.End, c *storage.Completion) {
	row, options, err := read(e.Claim)
	if err == nil && (len(keysOf(row)) > 0 || row.ConstraintsVersion != row.ConstraintsNow) {
		defer func() {
			switch c.Outcome {
			case storage.Removed: // removal also deletes the keys
			case storage.Retry:
				c.EffectsOnEnd = append(c.EffectsOnEnd, jobs.RequeueForKeys{})
			default:
				c.EffectsOnEnd = append(c.EffectsOnEnd, storage.FreeKeys{})
			}
		}()
	}
	record := &jobs.AttemptRecord{
		JobName: row.Name, Attempt: c.Attempt, Type: EventReleased, WorkerID: e.WorkerID,
	}
	c.Record = record
	if e.Unreached != "" {
		record.Message = process.ReasonUnavailable + ": " + e.Unreached
	}
	member := isMember(e.Claim)
	if e.Released {
		c.EffectsOnEnd = append(c.EffectsOnEnd, jobs.EndIfCancelled{})
		if member {
			c.EffectsOnEnd = append(c.EffectsOnEnd, jobs.ReassignMember{AnyWorker: true})
		}
		return
	}
	if err != nil { // the row of the job is not valid: this is a bug, so another attempt would not help
		failure := &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: err.Error()}
		recordFailure(e, c, failure)
		failed(c, failure)
		return
	}
	end := &jobs.End{Attempt: c.Attempt, WorkerID: e.WorkerID}
	switch c.Outcome {
	case storage.Removed:
		return // nothing is left to write
	case storage.Finished, storage.Completed, storage.Cancelled:
		succeed(e, c, end, options)
	default:
		fail(e, c, end, row, options)
		if member && c.Outcome == storage.Retry {
			c.EffectsOnEnd = append(c.EffectsOnEnd, jobs.ReassignMember{AnyWorker: end.Takeover})
		}
	}
	if end.HasChanges() {
		c.EffectsOnEnd = append(c.EffectsOnEnd, end)
	}
}

func read(c *storage.Claim) (jobs.Job, *progressorv1.JobOptions, error) {
	row, _ := jobs.JobOf(c)
	options, err := wire.JobOptions(row.Options)
	return row, options, err
}

// isMember reports whether a job is a member of a job for several workers.
func isMember(c *storage.Claim) bool { return strings.HasPrefix(c.ProcessID, process.MemberPrefix) }

// succeed completes a job. It ignores the action of the result. If keep_result is set, the result
// of a job is stored in table jobs, for its TTL. The result of a step is always stored, as the
// response of its task, and the run receives it together with the end of the step.
func succeed(e engine.End, c *storage.Completion, end *jobs.End, options *progressorv1.JobOptions) {
	isStep := strings.HasPrefix(e.Claim.ProcessID, process.StepPrefix) && !isMember(e.Claim)
	var text []byte
	if options.GetKeepResult() || isStep {
		var err error
		if text, err = valueJSON("job_result", e.Response.GetResult().GetJobResult(),
			process.MaxPayloadBytes); err != nil {
			row, _, _ := read(e.Claim) // cannot fail: decide has read the same row
			e.Failure = &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: err.Error()}
			fail(e, c, end, row, options)
			return
		}
	}
	c.Complete()
	c.Response, recordOf(c).Type = nil, EventSucceeded
	if !isStep { // the task stores the worker; only steps read it from the row of the job
		end.WorkerID = ""
	}
	switch {
	case isStep:
		c.Response, c.Run = text, runOf(c.Key)
	case options.GetKeepResult():
		if text == nil {
			text = []byte("null")
		}
		end.Kept, end.Result, end.TTL, c.Kept = true, text, resultTTL(options), text
	}
}

// runOf returns the run of a step from the ID of its job: ~job/RUN/STEP.
func runOf(job process.Key) process.Key {
	id := job.ProcessID[len(process.StepPrefix):]
	return process.Key{
		Namespace: job.Namespace, ProcessID: process.FlowPrefix + id[:max(strings.LastIndexByte(id, '/'), 0)],
	}
}

// resultTTL returns how long a result is kept.
func resultTTL(options *progressorv1.JobOptions) time.Duration {
	if ttl := options.GetResultTtl(); ttl != nil {
		return ttl.AsDuration()
	}
	return defaultResultTTL
}

// fail decides whether a failed job gets another attempt or ends. An attempt whose worker was lost
// uses a takeover if one is left, otherwise a retry.
func fail(e engine.End, c *storage.Completion, end *jobs.End, row jobs.Job, options *progressorv1.JobOptions) {
	failure := e.Failure
	if c.Rejection != nil {
		failure = rejected(e.Response.GetRejection())
	}
	if failure == nil {
		failure = &progressorv1.Failure{}
	}
	if e.Lost {
		failure = &progressorv1.Failure{Reason: process.ReasonLeaseLost, Message: lostMessage(e)}
	}
	recordFailure(e, c, failure)
	before, _ := wire.JobFailures(row.Failures) // unreadable failures are ignored
	used := int32(1)
	for _, f := range before {
		used += f.Omitted - f.OmittedTakeovers
		if !f.Takeover {
			used++
		}
	}
	// A member whose worker was lost has no retries, only takeovers, because a retry runs on the
	// same worker.
	spent := e.Lost && isMember(e.Claim)
	again := !failure.GetNonRetryable() && used <= options.GetMaxRetry() && !spent
	takeovers := int32(defaultMaxTakeovers)
	switch {
	case options.MaxTakeovers != nil:
		takeovers = options.GetMaxTakeovers()
	case e.Zombie == process.ZombieError:
		takeovers = 0
	}
	end.Takeover = e.Lost && row.Takeovers < takeovers
	if !end.Takeover && !again {
		end.Failure = failed(c, failure)
		return
	}
	wait := time.Duration(0)
	if !end.Takeover {
		wait = wire.RetryAfter(failure, wire.Backoff(options.GetBackoff(), used, e.Random))
	}
	text, _ := wire.FailureJSON(failure) // cannot fail: the failure was cleaned before, or contains only plain strings
	c.Retry(text, wait)
	c.Uncounted = end.Takeover && e.NeverBeat
	if !c.Uncounted {
		end.Failure = keptFailure(failure)
	}
	c.EffectsOnEnd = append(c.EffectsOnEnd, jobs.EndIfCancelled{})
}

// The event types of the end of an attempt.
const (
	EventSucceeded    = "succeeded"
	EventFailed       = "attempt_failed"
	EventTimeout      = "timeout"
	EventLeaseLost    = "lease_lost"
	EventReleased     = "released"
	EventAcknowledged = "cancel_acknowledged"
)

// recordFailure sets the event type and the message of a failed attempt.
func recordFailure(e engine.End, c *storage.Completion, failure *progressorv1.Failure) {
	record := recordOf(c)
	switch {
	case e.Lost:
		record.Type = EventLeaseLost
	case e.Acknowledged:
		record.Type = EventAcknowledged
	case failure.GetReason() == process.ReasonTimeout:
		record.Type = EventTimeout
	default:
		record.Type = EventFailed
	}
	record.Message = short(strings.TrimPrefix(failure.GetReason()+": "+failure.GetMessage(), ": "))
}

func recordOf(c *storage.Completion) *jobs.AttemptRecord { return c.Record.(*jobs.AttemptRecord) }

// failed ends a job permanently. It returns the failure that the job stores.
func failed(c *storage.Completion, failure *progressorv1.Failure) []byte {
	text, _ := wire.FailureJSON(failure) // see fail
	c.Fail(text, short(cmp.Or(failure.GetMessage(), failure.GetReason())))
	return keptFailure(failure)
}

// keptFailure returns the failure that a job stores. It shortens long texts and drops details that
// are too large.
func keptFailure(failure *progressorv1.Failure) []byte {
	if proto.Size(failure) > process.MaxFailureDetails {
		failure = proto.CloneOf(failure)
		failure.Reason, failure.Message = short(failure.GetReason()), short(failure.GetMessage())
		if proto.Size(failure.GetDetails()) > process.MaxFailureDetails {
			failure.Details = nil
		}
	}
	text, _ := wire.FailureJSON(failure) // see fail
	return text
}

// maxDetail bounds the text of a failure in lists, events and jobs, in bytes.
const maxDetail = 4096

func short(text string) string {
	if len(text) > maxDetail {
		return wire.Plain(text[:maxDetail])
	}
	return text
}

// rejected returns the failure for a rejection by the processor. A rejected job is not retried.
func rejected(r *progressorv1.Rejection) *progressorv1.Failure {
	return &progressorv1.Failure{Reason: r.GetReason(), Message: r.GetMessage(), NonRetryable: true}
}

func lostMessage(e engine.End) string {
	if e.WorkerID == "" {
		return "the node that ran the attempt was lost"
	}
	return "worker " + e.WorkerID + " sent no heartbeat for too long"
}
