package engine

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// attemptEnd is all that decide looks at: what ran, what came of it, and the policy. Random is drawn by the caller.
type attemptEnd struct {
	claim    *storage.Claim
	response *progressorv1.ProcessResponse
	err      error
	retry    process.RetryPolicy
	random   float64
	kind     Kind
	workerID string // who held it as a lease; "": a node ran it
	// acknowledged: the worker stopped because it was told to.
	acknowledged bool
}

// decision is a Completion and, beside it, what the caller is told.
type decision struct {
	completion storage.Completion
	failure    *progressorv1.Failure
	rejection  *progressorv1.Rejection
	workerID   string         // who held the attempt as a lease; "": a node ran it
	claim      *storage.Claim // of a zombie whose kind decides
	stored     []func()       // run once it is stored
}

// decide turns the end of an attempt into what is stored. It is pure: no clock, no database, no status of the process.
func decide(end attemptEnd) *decision {
	d := decideAny(&end)
	if end.kind.Decide != nil {
		end.kind.Decide(End{
			Claim: end.claim, WorkerID: end.workerID, Response: end.response, Failure: d.failure, Acknowledged: end.acknowledged, Random: end.random,
		}, &d.completion)
	}
	return d
}

// decideAny is what holds whatever the kind of the process is.
func decideAny(end *attemptEnd) *decision {
	c := end.claim
	d := &decision{}
	d.begin(c)
	if c.TaskType == process.TaskRemove {
		d.completion.Outcome = storage.Removed
		return d
	}
	if end.err != nil {
		d.fail(end, failureOf(end.err))
		return d
	}
	check := processor.Check
	if end.kind.Processor != nil {
		check = processor.CheckOwn
	}
	if err := check(wire.TaskType(c.TaskType), end.response); err != nil {
		d.fail(end, processor.FailureOf(err))
		return d
	}
	switch outcome := end.response.GetOutcome().(type) {
	case *progressorv1.ProcessResponse_Result:
		d.finish(end, outcome.Result)
	case *progressorv1.ProcessResponse_Rejection:
		d.reject(end, outcome.Rejection)
	case *progressorv1.ProcessResponse_Failure:
		d.fail(end, outcome.Failure)
	}
	return d
}

// begin makes the Completion that leaves nothing yet.
func (d *decision) begin(c *storage.Claim) {
	d.completion = storage.Completion{
		Key: process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, TaskID: c.TaskID, TaskType: c.TaskType, Attempt: c.Attempt,
		FencingToken: c.FencingToken, LastEventID: c.LastEventID, IdempotencyKey: c.IdempotencyKey,
		Fired: c.TaskType == process.TaskTimeout && c.TimerName == "",
	}
}

func (d *decision) finish(end *attemptEnd, result *progressorv1.Result) {
	finished := &d.completion
	if err := wire.Apply(finished, wire.CleanResult(result)); err != nil {
		// Nothing of a result that cannot be written may stay: a failed attempt stores neither state nor response.
		d.begin(end.claim)
		d.fail(end, &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: err.Error()})
		return
	}
	if finished.TaskType == process.TaskCancel && finished.Outcome != storage.Removed {
		// Its process ends, whatever the result would have become of it and of its timers.
		finished.Outcome, finished.Timer, finished.UnsetTimers, finished.NamedTimers, finished.UnsetNames = storage.Cancelled, nil, false, nil, nil
	}
}

func (d *decision) reject(end *attemptEnd, rejection *progressorv1.Rejection) {
	rejection = wire.CleanRejection(rejection) // the caller is told what a replay will tell
	text, err := wire.RejectionJSON(rejection)
	if err != nil {
		d.fail(end, &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: "rejection: " + err.Error()})
		return
	}
	d.completion.Outcome, d.completion.Rejection, d.rejection = storage.Rejected, text, rejection
}

// fail decides between another attempt and the end of the task in error.
func (d *decision) fail(end *attemptEnd, failure *progressorv1.Failure) {
	failure = wire.CleanFailure(failure) // the caller is told what a replay will tell
	text, err := wire.FailureJSON(failure)
	if err != nil {
		failure = &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: "failure: " + err.Error()}
		text, _ = wire.FailureJSON(failure) // two plain strings: this cannot fail
	}
	d.completion.Failure, d.failure = text, failure
	if end.kind.Processor != nil && !d.completion.TaskType.RetriedOnFailure() {
		d.failCommand(end, failure)
		return
	}
	if d.completion.TaskType.RetriedOnFailure() {
		if wait, again := end.retry.Next(end.claim.Attempt, failure.GetReason(), failure.GetNonRetryable(), end.random); again {
			d.completion.Outcome, d.completion.RetryAfter = storage.Retry, wait
			return
		}
	}
	d.completion.Outcome, d.completion.Detail = storage.Failed, detailOf(failure)
}

// failCommand decides about an INIT, CALL or REPAIR task of a process that the engine runs itself. Such a task
// fails because of the database or of this program, and must not break the process: it is tried again, and then
// rejected.
func (d *decision) failCommand(end *attemptEnd, failure *progressorv1.Failure) {
	wait, again := commandRetry.Next(end.claim.Attempt, failure.GetReason(), failure.GetNonRetryable(), end.random)
	if again {
		d.completion.Outcome, d.completion.RetryAfter = storage.Retry, wait
		return
	}
	d.completion.Failure, d.failure = nil, nil
	d.reject(end, &progressorv1.Rejection{Reason: failure.GetReason(), Message: failure.GetMessage()})
}

// detailOf is what a process that broke shows: the failure's message, or where it has none its reason.
func detailOf(f *progressorv1.Failure) string {
	if f.GetMessage() != "" {
		return cut(f.GetMessage())
	}
	return cut(f.GetReason())
}

// maxDetail bounds the detail of a process: it is shown in lists.
const maxDetail = 4096

func cut(s string) string {
	return wire.Plain(s[:min(len(s), maxDetail)])
}

// releaseCompletion is the Completion of an attempt that ends without having been made: its task waits for another node.
func releaseCompletion(c *storage.Claim, kind Kind) storage.Completion {
	completion := decideAny(&attemptEnd{claim: c, err: errGivenBack}).completion
	completion.Outcome, completion.RetryAfter, completion.Uncounted = storage.Retry, 0, true
	completion.Failure, completion.Detail, completion.Events = nil, "", nil
	if kind.Decide != nil {
		kind.Decide(End{Claim: c, GivenBack: true}, &completion)
	}
	return completion
}

var (
	errGivenBack   = errors.New("given back")
	errNotAdmitted = fmt.Errorf("%w: its kind does not admit it", errGivenBack)
)

// decideZombie ends the attempt of a node that is dead or has held it for too long, by the namespace's zombie policy.
func decideZombie(z storage.Zombie, policy process.ZombiePolicy, retry process.RetryPolicy, kind Kind) *decision {
	failure := &progressorv1.Failure{Reason: process.ReasonZombie, Message: process.ZombieDetail}
	d := &decision{failure: failure, completion: storage.Completion{
		Key: process.Key{Namespace: z.Namespace, ProcessID: z.ProcessID}, TaskID: z.TaskID, TaskType: z.TaskType, Attempt: z.Attempt,
		FencingToken: z.FencingToken, Outcome: storage.Failed, Detail: process.ZombieDetail,
	}}
	d.completion.Failure, _ = wire.FailureJSON(failure) // two plain strings: this cannot fail
	if policy == process.ZombieRetry {
		if _, again := retry.Next(z.Attempt, process.ReasonZombie, false, 0); again {
			d.completion.Outcome = storage.Retry
		}
	}
	if kind.Decide != nil {
		c := &storage.Claim{
			Namespace: z.Namespace, ProcessID: z.ProcessID, TaskID: z.TaskID, TaskType: z.TaskType, Attempt: z.Attempt, FencingToken: z.FencingToken,
			Kind: z.Kind, Job: z.Job,
		}
		d.claim = c
		end := End{Claim: c, WorkerID: z.WorkerID, Failure: failure, Lost: true, Zombie: policy, NeverBeat: z.NeverBeat}
		if z.TimedOut {
			end.Failure, end.Lost, end.NeverBeat = failureOf(context.DeadlineExceeded), false, false
		}
		kind.Decide(end, &d.completion)
	}
	return d
}

// failureOf is the failure that an error on the way to the processor, or of its context, stands for.
func failureOf(err error) *progressorv1.Failure {
	var large *historyTooLargeError
	if errors.As(err, &large) {
		return &progressorv1.Failure{Reason: process.ReasonHistoryTooLarge, Message: large.Error(), Details: structpb.NewNumberValue(float64(large.events))}
	}
	if errors.Is(err, errGraceOver) {
		return &progressorv1.Failure{Reason: process.ReasonGraceExpired, Message: process.GraceExpiredMessage, NonRetryable: true}
	}
	if errors.Is(err, context.DeadlineExceeded) && !processor.Unreachable(err) { // a connection that was not made in time is no attempt that took too long
		return &progressorv1.Failure{Reason: process.ReasonTimeout, Message: "the attempt passed the step timeout"}
	}
	return processor.FailureOf(err)
}
