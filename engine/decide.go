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

// attemptEnd is the input of decide: the claim, its outcome and the policies. The caller provides
// the random number in random.
type attemptEnd struct {
	claim    *storage.Claim
	response *progressorv1.ProcessResponse
	err      error
	retry    process.RetryPolicy
	random   float64
	kind     Kind
	workerID string // worker that held the lease; "" if a node ran the attempt
	// acknowledged is true if the worker stopped because of a cancel directive.
	acknowledged bool
	messages     wire.KindMessage // for commands to processes of kinds
}

// decision is a Completion with additional data for the caller.
type decision struct {
	completion storage.Completion
	failure    *progressorv1.Failure
	rejection  *progressorv1.Rejection
	workerID   string         // worker that held the lease; "" if a node ran the attempt
	claim      *storage.Claim // claim of a zombie, whose kind decides what happens
	stored     []func()       // called after the decision is stored
	park       *toPark        // nil unless the processor may keep a value
}

// decide turns the end of an attempt into a Completion. It is pure: it reads no clock, no database
// and no status of the process.
func decide(end attemptEnd) *decision {
	d := decideAny(&end)
	if end.kind.Decide != nil {
		end.kind.Decide(End{
			Claim: end.claim, WorkerID: end.workerID, Response: end.response, Failure: d.failure,
			Acknowledged: end.acknowledged, Random: end.random,
		}, &d.completion)
	}
	return d
}

// decideAny applies the rules for processes of all kinds.
func decideAny(end *attemptEnd) *decision {
	c := end.claim
	d := &decision{completion: storage.Completion{TaskAttempt: taskAttempt(c)}}
	if c.TaskType == process.TaskRemove {
		d.completion.Remove()
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

func taskAttempt(c *storage.Claim) storage.TaskAttempt {
	return storage.TaskAttempt{
		Key: process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, TaskID: c.TaskID, TaskType: c.TaskType,
		Attempt:      c.Attempt,
		FencingToken: c.FencingToken, LastEventID: c.LastEventID, IdempotencyKey: c.IdempotencyKey,
		Fired: c.TaskType == process.TaskTimeout && c.TimerName == "",
	}
}

func (d *decision) finish(end *attemptEnd, result *progressorv1.Result) {
	c := &d.completion
	if err := wire.Apply(c, wire.CleanResult(result), end.messages); err != nil {
		d.fail(end, &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: err.Error()})
		return
	}
	if c.TaskType == process.TaskCancel && c.Outcome != storage.Removed {
		c.Cancel() // replaces the status and timers of the result
	}
	if c.Rejection != nil { // a reply rejects the call
		d.rejection, _ = wire.Rejection(c.Rejection) // Apply has encoded it
	}
}

func (d *decision) reject(end *attemptEnd, rejection *progressorv1.Rejection) {
	rejection = wire.CleanRejection(rejection) // the client gets the same text as a later repeat of its request
	text, err := wire.RejectionJSON(rejection)
	if err != nil {
		d.fail(end, &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: "rejection: " + err.Error()})
		return
	}
	d.rejection = rejection
	d.completion.Reject(text)
}

// fail decides between another attempt and the end of the task with an error.
func (d *decision) fail(end *attemptEnd, failure *progressorv1.Failure) {
	failure = wire.CleanFailure(failure) // the client gets the same text as a later repeat of its request
	text, err := wire.FailureJSON(failure)
	if err != nil {
		failure = &progressorv1.Failure{Reason: process.ReasonBadResponse, Message: "failure: " + err.Error()}
		text, _ = wire.FailureJSON(failure) // only plain strings: this cannot fail
	}
	if end.kind.Processor != nil && !d.completion.TaskType.RetriedOnFailure() {
		d.failCommand(end, failure, text)
		return
	}
	d.failure = failure
	if d.completion.TaskType.RetriedOnFailure() {
		wait, again := end.retry.Next(end.claim.Attempt, failure.GetReason(), failure.GetNonRetryable(), end.random)
		if again {
			d.completion.Retry(text, wire.RetryAfter(failure, wait))
			return
		}
	}
	d.completion.Fail(text, detailOf(failure))
}

// failCommand handles the failure of an INIT, CALL or REPAIR task of a process that the engine runs
// itself. The cause is the database or a defect of the engine, so the process must not go to ERROR.
// The task is retried, then rejected.
func (d *decision) failCommand(end *attemptEnd, failure *progressorv1.Failure, text []byte) {
	wait, again := commandRetry.Next(end.claim.Attempt, failure.GetReason(), failure.GetNonRetryable(), end.random)
	if again {
		d.failure = failure
		d.completion.Retry(text, wait)
		return
	}
	d.reject(end, &progressorv1.Rejection{Reason: failure.GetReason(), Message: failure.GetMessage()})
}

// detailOf returns the detail of a process in ERROR: the message of the failure, or its reason if
// it has no message.
func detailOf(f *progressorv1.Failure) string {
	if f.GetMessage() != "" {
		return cut(f.GetMessage())
	}
	return cut(f.GetReason())
}

// maxDetail is the maximum length of a detail in bytes. Details are shown in lists.
const maxDetail = 4096

func cut(s string) string {
	return wire.Plain(s[:min(len(s), maxDetail)])
}

// releaseCompletion returns the Completion that releases the task of an attempt. The task waits
// until a node claims it again.
func releaseCompletion(end End, kind Kind) storage.Completion {
	completion := storage.Completion{TaskAttempt: taskAttempt(end.Claim)}
	completion.Release(0)
	if kind.Decide != nil {
		end.Released = true
		kind.Decide(end, &completion)
	}
	return completion
}

var (
	errReleased    = errors.New("released")
	errNotAdmitted = fmt.Errorf("%w: the kind of the process does not allow it", errReleased)
)

// decideZombie ends an attempt that exceeded its deadline or whose node died, by the zombie policy
// of the namespace.
func decideZombie(z storage.Zombie, policy process.ZombiePolicy, retry process.RetryPolicy, kind Kind) *decision {
	failure := &progressorv1.Failure{Reason: process.ReasonZombie, Message: process.ZombieDetail}
	text, _ := wire.FailureJSON(failure) // only plain strings: this cannot fail
	d := &decision{failure: failure, completion: storage.Completion{TaskAttempt: storage.TaskAttempt{
		Key: process.Key{Namespace: z.Namespace, ProcessID: z.ProcessID}, TaskID: z.TaskID, TaskType: z.TaskType,
		Attempt:      z.Attempt,
		FencingToken: z.FencingToken,
	}}}
	d.completion.Fail(text, process.ZombieDetail)
	if policy == process.ZombieRetry {
		if _, again := retry.Next(z.Attempt, process.ReasonZombie, false, 0); again {
			d.completion.Retry(text, 0)
		}
	}
	if kind.Decide != nil {
		c := storage.ZombieClaim(&z)
		d.claim = c
		end := End{Claim: c, WorkerID: z.WorkerID, Failure: failure, Lost: true, Zombie: policy, NeverBeat: z.NeverBeat}
		if z.TimedOut {
			end.Failure, end.Lost, end.NeverBeat = failureOf(context.DeadlineExceeded), false, false
		}
		kind.Decide(end, &d.completion)
	}
	return d
}

// failureOf converts an error of the call to the processor, or of its context, to a failure.
func failureOf(err error) *progressorv1.Failure {
	var large *historyTooLargeError
	if errors.As(err, &large) {
		return &progressorv1.Failure{
			Reason: process.ReasonHistoryTooLarge, Message: large.Error(),
			Details: structpb.NewNumberValue(float64(large.events)),
		}
	}
	if errors.Is(err, errGraceOver) {
		return &progressorv1.Failure{
			Reason: process.ReasonGraceExpired, Message: process.GraceExpiredMessage, NonRetryable: true,
		}
	}
	// If the connection could not be opened in time, the attempt did not time out.
	if errors.Is(err, context.DeadlineExceeded) && !processor.Unreachable(err) {
		return &progressorv1.Failure{Reason: process.ReasonTimeout, Message: "the attempt exceeded the step timeout"}
	}
	return processor.FailureOf(err)
}
