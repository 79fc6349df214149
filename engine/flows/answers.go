package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// Complete answers a wait. If a client repeats its answer, Complete returns the run, even after the
// end of the run.
func (f *Flows) Complete(
	ctx context.Context, r *progressorv1.CompleteStepRequest, by process.Actor,
) (*progressorv1.Run, error) {
	names, err := f.sentNames(ctx, r.GetNamespace(), r.GetRunId(), r.GetStepId(), r.Index)
	if err != nil {
		return nil, err
	}
	o := &command{Method: methodComplete, stepFields: stepFields{
		StepID: r.GetStepId(), Index: indexOf(r.Index), Token: r.GetToken(), Names: names,
		Worker: cmp.Or(r.GetWorkerId(), by.Name),
	}}
	switch outcome := r.GetOutcome().(type) {
	case *progressorv1.CompleteStepRequest_Result:
		o.Outcome = stepSucceeded
		o.Result, err = resultJSON("result", outcome.Result)
	case *progressorv1.CompleteStepRequest_Failure:
		o.Outcome = stepFailed
		o.Failure, err = failureJSON(outcome.Failure)
	case *progressorv1.CompleteStepRequest_Cancelled:
		o.Outcome = stepCancelled
	default:
		err = &process.InvalidError{Field: "result", Message: "is required: set one of result, failure and cancelled"}
	}
	if err != nil {
		return nil, err
	}
	run, err := f.changed(ctx, r.GetNamespace(), r.GetRunId(), o, by)
	if status, ok := errors.AsType[*StatusError](err); ok {
		return f.answeredBefore(ctx, r, o, status)
	}
	return run, err
}

// answeredBefore returns the run if the wait has already ended with the outcome in the rejected
// answer o. In this case the client repeats an answer that was stored.
func (f *Flows) answeredBefore(
	ctx context.Context, r *progressorv1.CompleteStepRequest, o *command, rejected *StatusError,
) (*progressorv1.Run, error) {
	row, found, err := flows.GetWait(ctx, f.store, r.GetNamespace(), r.GetRunId(), o.StepID, int32(o.Index))
	switch {
	case err != nil:
		return nil, err
	case !found || row.Status == flows.StepPending || row.Status == flows.StepRunning || row.Wait == nil:
		return nil, rejected
	}
	same, err := sameOutcome(&row, o)
	if err != nil {
		return nil, err
	}
	if !same {
		rejected.Message = fmt.Sprintf("step %s is %s: it has already ended with another outcome", o.StepID, row.Status)
		return nil, rejected
	}
	return f.Get(ctx, r.GetNamespace(), r.GetRunId(), 0)
}

// sameOutcome reports whether a wait that has ended has the outcome that an answer names.
func sameOutcome(row *flows.Wait, o *command) (bool, error) {
	switch {
	case string(row.Status) != o.Outcome:
		return false, nil
	case row.Status == flows.StepSucceeded:
		stored, err := wire.Value(row.Result)
		if err != nil {
			return false, err
		}
		answer, err := wire.Value(o.Result)
		return proto.Equal(orNull(stored), orNull(answer)), err
	case row.Status == flows.StepFailed:
		stored, err := wire.Failure(row.Failure)
		if err != nil {
			return false, err
		}
		answer, err := wire.Failure(o.Failure)
		return proto.Equal(stored, answer), err
	}
	return true, nil
}

// Report stores the progress of a wait, and who works on it.
func (f *Flows) Report(
	ctx context.Context, r *progressorv1.ReportStepRequest, by process.Actor,
) (*progressorv1.LeaseDirective, error) {
	names, err := f.sentNames(ctx, r.GetNamespace(), r.GetRunId(), r.GetStepId(), r.Index)
	if err != nil {
		return nil, err
	}
	o := &command{Method: methodReport, stepFields: stepFields{
		StepID: r.GetStepId(), Index: indexOf(r.Index), Token: r.GetToken(), Due: r.GetDue().AsDuration(),
		Names: names, Claims: r.WorkerId != nil, Worker: r.GetWorkerId(),
	}}
	if o.Progress, err = progressJSON(r.GetProgress()); err != nil {
		return nil, err
	}
	a, err := f.runCommand(ctx, r.GetNamespace(), r.GetRunId(), o, by)
	return &progressorv1.LeaseDirective{
		LeaseToken: r.GetToken(), Directive: progressorv1.LeaseDirective_Directive(a.Directive), CancelReason: a.Reason,
	}, err
}

// failureJSON returns the failure of a wait in its stored form. It has the same limit as the
// failure of a worker.
func failureJSON(failure *progressorv1.Failure) ([]byte, error) {
	if size := proto.Size(failure); size > process.MaxPayloadBytes {
		return nil, &process.InvalidError{
			Field: "failure", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes (got %d)", process.MaxPayloadBytes, size),
		}
	}
	return wire.FailureJSON(failure)
}

// progressJSON returns the progress of a wait in its stored form. It has the same limit as the
// progress in a heartbeat.
func progressJSON(progress *progressorv1.Progress) ([]byte, error) {
	text, err := wire.ProgressJSON(progress)
	if err != nil {
		return nil, &process.InvalidError{Field: "progress", Message: err.Error()}
	}
	if len(text) > process.MaxProgressBytes {
		return nil, &process.InvalidError{
			Field: "progress", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxProgressBytes, len(text)),
		}
	}
	return text, nil
}
