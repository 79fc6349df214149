package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/flows"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// flowService serves FlowService.
type flowService struct {
	flows *flows.Flows
}

// PutTemplate stores the next version of a template.
func (s *flowService) PutTemplate(
	ctx context.Context, r *progressorv1.PutTemplateRequest,
) (*progressorv1.PutTemplateResponse, error) {
	return s.flows.PutTemplate(ctx, r, actorOf(ctx))
}

// GetTemplate returns a version of a template.
func (s *flowService) GetTemplate(
	ctx context.Context, r *progressorv1.GetTemplateRequest,
) (*progressorv1.GetTemplateResponse, error) {
	return s.flows.GetTemplate(ctx, r)
}

// ListTemplates returns a page of templates.
func (s *flowService) ListTemplates(
	ctx context.Context, r *progressorv1.ListTemplatesRequest,
) (*progressorv1.ListTemplatesResponse, error) {
	list, next, err := s.flows.ListTemplates(ctx, r)
	return &progressorv1.ListTemplatesResponse{Templates: list, NextPageToken: next}, err
}

// EnableTemplate enables new runs.
func (s *flowService) EnableTemplate(
	ctx context.Context, r *progressorv1.EnableTemplateRequest,
) (*progressorv1.EnableTemplateResponse, error) {
	t, err := s.flows.EnableTemplate(ctx, r.GetNamespace(), r.GetType(), true, actorOf(ctx))
	return &progressorv1.EnableTemplateResponse{Template: t}, err
}

// DisableTemplate disables new runs.
func (s *flowService) DisableTemplate(
	ctx context.Context, r *progressorv1.DisableTemplateRequest,
) (*progressorv1.DisableTemplateResponse, error) {
	t, err := s.flows.EnableTemplate(ctx, r.GetNamespace(), r.GetType(), false, actorOf(ctx))
	return &progressorv1.DisableTemplateResponse{Template: t}, err
}

// DeleteTemplate deletes a template with all its versions.
func (s *flowService) DeleteTemplate(
	ctx context.Context, r *progressorv1.DeleteTemplateRequest,
) (*progressorv1.DeleteTemplateResponse, error) {
	return &progressorv1.DeleteTemplateResponse{},
		s.flows.DeleteTemplate(ctx, r.GetNamespace(), r.GetType(), actorOf(ctx))
}

// StartRun starts a run, or returns the existing one.
func (s *flowService) StartRun(
	ctx context.Context, r *progressorv1.StartRunRequest,
) (*progressorv1.StartRunResponse, error) {
	if err := refuseOwn("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	return s.flows.Start(ctx, r, actorOf(ctx))
}

// GetRun returns a run with its steps.
func (s *flowService) GetRun(ctx context.Context, r *progressorv1.GetRunRequest) (*progressorv1.GetRunResponse, error) {
	run, err := s.flows.Get(ctx, r.GetNamespace(), r.GetRunId(), r.GetAwaitEnd().AsDuration())
	return &progressorv1.GetRunResponse{Run: run}, err
}

// ListRuns returns a page of runs.
func (s *flowService) ListRuns(
	ctx context.Context, r *progressorv1.ListRunsRequest,
) (*progressorv1.ListRunsResponse, error) {
	list, next, err := s.flows.ListRuns(ctx, r)
	return &progressorv1.ListRunsResponse{Runs: list, NextPageToken: next}, err
}

// ListSteps returns a page of the steps of a run and their items.
func (s *flowService) ListSteps(
	ctx context.Context, r *progressorv1.ListStepsRequest,
) (*progressorv1.ListStepsResponse, error) {
	steps, next, err := s.flows.ListSteps(ctx, r)
	return &progressorv1.ListStepsResponse{Steps: steps, NextPageToken: next}, err
}

// ReportStep stores the progress of a wait, and who works on it.
func (s *flowService) ReportStep(
	ctx context.Context, r *progressorv1.ReportStepRequest,
) (*progressorv1.ReportStepResponse, error) {
	d, err := s.flows.Report(asAssignee(ctx, r.GetNamespace()), r, actorOf(ctx))
	return &progressorv1.ReportStepResponse{Directive: d}, err
}

// CancelRun cancels a run.
func (s *flowService) CancelRun(
	ctx context.Context, r *progressorv1.CancelRunRequest,
) (*progressorv1.CancelRunResponse, error) {
	run, err := s.flows.Cancel(ctx, r, actorOf(ctx))
	return &progressorv1.CancelRunResponse{Run: run}, err
}

// RetryRun continues a run that has ended without success.
func (s *flowService) RetryRun(
	ctx context.Context, r *progressorv1.RetryRunRequest,
) (*progressorv1.RetryRunResponse, error) {
	run, err := s.flows.Retry(ctx, r, actorOf(ctx))
	return &progressorv1.RetryRunResponse{Run: run}, err
}

// RepeatRun starts a new run with the payload of an old one.
func (s *flowService) RepeatRun(
	ctx context.Context, r *progressorv1.RepeatRunRequest,
) (*progressorv1.RepeatRunResponse, error) {
	run, err := s.flows.Repeat(ctx, r, actorOf(ctx))
	return &progressorv1.RepeatRunResponse{Run: run}, err
}

// RemoveRun removes a run that has ended.
func (s *flowService) RemoveRun(
	ctx context.Context, r *progressorv1.RemoveRunRequest,
) (*progressorv1.RemoveRunResponse, error) {
	return &progressorv1.RemoveRunResponse{}, s.flows.Remove(ctx, r.GetNamespace(), r.GetRunId(), actorOf(ctx))
}

// CompleteStep answers a wait.
func (s *flowService) CompleteStep(
	ctx context.Context, r *progressorv1.CompleteStepRequest,
) (*progressorv1.CompleteStepResponse, error) {
	run, err := s.flows.Complete(asAssignee(ctx, r.GetNamespace()), r, actorOf(ctx))
	return &progressorv1.CompleteStepResponse{Run: run}, err
}

// asAssignee returns a context in which the principal of a request may answer a HUMAN wait with
// assignees only if the principal is one of them. A principal that may operate the namespace may
// answer every wait.
func asAssignee(ctx context.Context, namespace string) context.Context {
	p := principalOf(ctx)
	if p == nil || p.Can(progressorv1.Permission_PERMISSION_PROCESS_OPERATE, namespace) {
		return ctx
	}
	return flows.WithNames(ctx, append([]string{p.Name}, p.Groups()...))
}

// SkipStep skips a step.
func (s *flowService) SkipStep(
	ctx context.Context, r *progressorv1.SkipStepRequest,
) (*progressorv1.SkipStepResponse, error) {
	run, err := s.flows.Skip(ctx, r, actorOf(ctx))
	return &progressorv1.SkipStepResponse{Run: run}, err
}

// flowErrorOf maps the errors of runs.
func flowErrorOf(err error) (a clientError, known bool) {
	if scope, ok := errors.AsType[*flows.ScopeError](err); ok {
		return clientError{code: connect.CodeAlreadyExists, detail: &progressorv1.ErrorDetail{
			Reason: progressorv1.ErrorDetail_REASON_SAME_SCOPE, Namespace: scope.Namespace, ProcessId: scope.RunID,
		}, text: scope.Error()}, true
	}
	if template, ok := errors.AsType[*flows.TemplateError](err); ok {
		return clientError{code: connect.CodeFailedPrecondition,
			detail: &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_TEMPLATE_DISABLED},
			text:   template.Error()}, true
	}
	if status, ok := errors.AsType[*flows.StatusError](err); ok {
		reason := progressorv1.ErrorDetail_REASON_PROCESS_STATUS
		if status.Cancel {
			reason = progressorv1.ErrorDetail_REASON_NOT_CANCELLABLE
		}
		return clientError{code: connect.CodeFailedPrecondition, detail: &progressorv1.ErrorDetail{Reason: reason},
			text: status.Error()}, true
	}
	return clientError{}, false
}
