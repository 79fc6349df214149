package flows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/wire"
)

// Get returns a run with its steps. It first waits for the end of the run, for at most wait.
func (f *Flows) Get(ctx context.Context, namespace, runID string, wait time.Duration) (*progressorv1.Run, error) {
	if wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err := f.engine.WatchProcess(limited, keyOf(namespace, runID), 0,
			func(*progressorv1.WatchProcessResponse) error { return nil })
		if err != nil && limited.Err() == nil && !errors.Is(err, process.ErrProcessNotFound) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	row, err := flows.Get(ctx, f.store, namespace, runID)
	if err != nil {
		return nil, f.missing(ctx, namespace, runID, err)
	}
	run, err := runOf(&row)
	if err != nil {
		return nil, err
	}
	k, err := keptOf(&row)
	if err != nil {
		return nil, err
	}
	t, err := f.templateOfRow(ctx, templateKey{row.Namespace, row.TemplateType, row.TemplateVersion, k.Stored})
	if err != nil {
		return nil, err
	}
	if t == nil {
		return run, f.setStoredSteps(ctx, run)
	}
	steps, err := f.steps(ctx, namespace, runID, t, k.Run.Each)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		run.Steps = append(run.Steps, steps[i].Step)
	}
	summarize(run, t, steps, k.Run.Each)
	return run, nil
}

// templateOfRow returns the version of a template that a run uses. It returns nil if the template
// was deleted, which is allowed after the end of the run. For a run without a template, the result
// has only the step of the run.
func (f *Flows) templateOfRow(ctx context.Context, key templateKey) (*template, error) {
	if key.templateType == waitType {
		return anyWait()
	}
	if t := f.templates.get(key); t != nil {
		return t, nil
	}
	t, err := f.template(ctx, key.namespace, key.templateType, key.version)
	if errors.Is(err, process.ErrTemplateNotFound) || err == nil && t.stored != key.stored {
		return nil, nil
	}
	return t, err
}

// setStoredSteps sets the steps of a run whose template was deleted. They are the steps that have
// rows.
func (f *Flows) setStoredSteps(ctx context.Context, run *progressorv1.Run) error {
	rows, _, err := flows.Steps(ctx, f.store, allSteps(run.GetNamespace(), run.GetRunId(), maxPage))
	if err != nil {
		return err
	}
	for n := range rows {
		m, err := stepOf(&rows[n])
		if err != nil {
			return err
		}
		run.Steps = append(run.Steps, m)
	}
	run.Progress = unknownProgress(run)
	return nil
}

// allSteps returns the query for all steps of a run, with values up to storage.ListBytes.
func allSteps(namespace, runID string, limit int) flows.StepsQuery {
	return flows.StepsQuery{
		Namespace: namespace, RunID: runID, OnlySteps: true, AfterOrd: -1, Limit: limit,
		MaxBytes: storage.ListBytes, WithoutValues: true,
	}
}

func (f *Flows) missing(ctx context.Context, namespace, runID string, err error) error {
	if missing := f.engine.CheckNamespace(ctx, namespace); missing != nil {
		return missing
	}
	return fmt.Errorf("run %s/%s: %w", namespace, runID, err)
}

var runStatuses = map[flows.Status]progressorv1.RunStatus{
	flows.Pending: progressorv1.RunStatus_RUN_STATUS_PENDING, flows.Active: progressorv1.RunStatus_RUN_STATUS_QUEUED,
	flows.CancelRequested: progressorv1.RunStatus_RUN_STATUS_CANCEL_REQUESTED,
	flows.Compensating:    progressorv1.RunStatus_RUN_STATUS_COMPENSATING,
	flows.Succeeded:       progressorv1.RunStatus_RUN_STATUS_SUCCEEDED,
	flows.Failed:          progressorv1.RunStatus_RUN_STATUS_FAILED,
	flows.Cancelled:       progressorv1.RunStatus_RUN_STATUS_CANCELLED,
	flows.Expired:         progressorv1.RunStatus_RUN_STATUS_EXPIRED,
}

var stepStatuses = map[flows.StepStatus]progressorv1.StepStatus{
	flows.StepPending:   progressorv1.StepStatus_STEP_STATUS_PENDING,
	flows.StepRunning:   progressorv1.StepStatus_STEP_STATUS_RUNNING,
	flows.StepSucceeded: progressorv1.StepStatus_STEP_STATUS_SUCCEEDED,
	flows.StepFailed:    progressorv1.StepStatus_STEP_STATUS_FAILED,
	flows.StepSkipped:   progressorv1.StepStatus_STEP_STATUS_SKIPPED,
	flows.StepCancelled: progressorv1.StepStatus_STEP_STATUS_CANCELLED,
}

func stamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// runOf converts a row to a run. The fields that depend on its steps are set by summarize.
func runOf(row *flows.Run) (m *progressorv1.Run, err error) {
	m = &progressorv1.Run{
		Namespace: row.Namespace, RunId: row.RunID, TemplateType: row.TemplateType,
		TemplateVersion: row.TemplateVersion, Scope: row.Scope, ScopeId: row.ScopeID,
		Status: runStatuses[row.Status], Attempt: row.Attempt, CancelReason: row.CancelReason, BlockedOn: row.BlockedOn,
		CronId: row.CronID, ParentRunId: row.ParentRunID,
		RepeatOfRunId: row.RepeatOfRunID, CreatedTime: timestamppb.New(row.CreatedTime),
		UpdatedTime: timestamppb.New(row.UpdatedTime), RunTime: stamp(row.RunTime),
		RunningTime: stamp(row.RunningTime), FinishedTime: stamp(row.FinishedTime),
		CancelRequestedTime: stamp(row.CancelRequestedTime), FireTime: stamp(row.FireTime),
	}
	if m.Payload, err = wire.Value(row.Payload); err != nil {
		return nil, err
	}
	if m.Result, err = wire.Value(row.Result); err != nil {
		return nil, err
	}
	if m.Failure, err = wire.Failure(row.Failure); err != nil {
		return nil, err
	}
	m.Metadata, err = wire.Struct(row.Metadata)
	return m, err
}

// step is a step with additional facts that the summary of the run needs.
type step struct {
	*progressorv1.Step
	action flow.Action
	queued bool // it has a job that waits for a worker
	tried  bool // an attempt of its job has ended
}

// steps reads the steps of a run, in the order of the template. Steps without a row have not begun.
func (f *Flows) steps(
	ctx context.Context, namespace, runID string, t *template, items map[int]*flow.Each,
) ([]step, error) {
	rows, _, err := flows.Steps(ctx, f.store, allSteps(namespace, runID, len(t.Steps)+1))
	if err != nil {
		return nil, err
	}
	all := newSteps(t)
	each := false
	for i := range t.Steps {
		each = each || t.Steps[i].ForEach()
	}
	for n := range rows {
		i, ok := t.Index(rows[n].StepID)
		if !ok {
			continue // a step of the version before RetryRun changed to the newest one
		}
		name := all[i].GetName()
		if all[i].Step, err = stepOf(&rows[n]); err != nil {
			return nil, err
		}
		all[i].Name, all[i].queued, all[i].tried = name, queued(&rows[n]), rows[n].Tried
	}
	if !each {
		return all, nil
	}
	counts, err := flows.Items(ctx, f.store, namespace, runID)
	for _, c := range counts {
		if i, ok := t.Index(c.StepID); ok {
			if all[i].ItemsByStatus == nil {
				all[i].ItemsByStatus = map[string]int64{}
			}
			all[i].ItemsByStatus[string(c.Status)] = c.N
		}
	}
	for i, e := range items {
		rest := int64(e.Count) // items that have not begun have no row
		for _, n := range all[i].GetItemsByStatus() {
			rest -= n
		}
		if rest > 0 && all[i].ItemsByStatus == nil {
			all[i].ItemsByStatus = map[string]int64{}
		}
		if rest > 0 {
			all[i].ItemsByStatus[string(flows.StepPending)] += rest
		}
	}
	return all, err
}

// stepOf converts a row to a step or an item.
func stepOf(row *flows.Step) (m *progressorv1.Step, err error) {
	m = &progressorv1.Step{
		StepId: row.StepID, Status: stepStatuses[row.Status], Attempt: row.Attempt, ProcessId: row.ProcessID,
		WorkerId: row.WorkerID, Reason: row.Reason,
		ValuesOmitted: row.ValuesOmitted, RunningTime: startOf(row.RunningTime, row.HeldTime, queued(row)),
		FinishedTime: stamp(row.FinishedTime),
	}
	if row.LeaseExpiresTime.Unix() > 0 {
		m.LeaseExpiresTime = timestamppb.New(row.LeaseExpiresTime)
	}
	if row.Index >= 0 {
		m.Index = &row.Index
	}
	if row.CompensationStatus != "" {
		status := stepStatuses[flows.StepStatus(row.CompensationStatus)]
		m.CompensationStatus = &status
	}
	if m.Input, err = wire.Value(row.Input); err != nil {
		return nil, err
	}
	if m.Result, err = wire.Value(row.Result); err != nil {
		return nil, err
	}
	if m.Failure, err = wire.Failure(row.Failure); err != nil {
		return nil, err
	}
	if m.Progress, err = progressOf(row.Progress); err != nil {
		return nil, err
	}
	if m.GetStatus() == progressorv1.StepStatus_STEP_STATUS_RUNNING && m.GetReason() == "" {
		m.Reason = waitsFor(row)
	}
	if queued(row) {
		m.Status = progressorv1.StepStatus_STEP_STATUS_PENDING
		if !row.Tried {
			m.Attempt--
		}
	}
	return m, nil
}

// startOf returns when a step began. For an open job, it returns when the current attempt began, or
// nil if the job waits for a worker. stored is the time in the row of the step. held is when the
// running attempt of the job began. It is the epoch or earlier if no attempt is running.
func startOf(stored *time.Time, held time.Time, queued bool) *timestamppb.Timestamp {
	switch {
	case queued:
		return nil
	case held.Unix() > 0:
		return timestamppb.New(held)
	}
	return stamp(stored)
}

const waitsForWorker = "waits for a worker"

// waitsFor describes what an open step waits for.
func waitsFor(row *flows.Step) string {
	switch {
	case row.Token != "" && row.DueTime != nil:
		return "waits for an answer until " + row.DueTime.UTC().Format(time.RFC3339)
	case row.Token != "":
		return "waits for an answer"
	case row.DueTime != nil:
		return "waits until " + row.DueTime.UTC().Format(time.RFC3339)
	case queued(row):
		return waitsForWorker
	}
	return ""
}

// queued reports whether a step has a job that waits for a worker.
func queued(row *flows.Step) bool {
	return row.Status == flows.StepRunning && !row.Held && strings.HasPrefix(row.ProcessID, process.StepPrefix)
}

// summarize sets the fields of a run that depend on its steps: the status of an active run, its
// phase and its progress. The view run_list and the filters of storage/search compute the same
// values from the rows.
func summarize(run *progressorv1.Run, t *template, steps []step, items map[int]*flow.Each) {
	run.MaxAttempts = t.MaxAttempts()
	var done, weight float64
	var newest *progressorv1.Step
	held, waits, others := false, false, false
	// In a run that ended without success, only steps that succeeded count as progress. If failed
	// steps, and the steps skipped because of them, also counted, the progress could be 100.
	lost := run.GetFinishedTime() != nil && run.GetStatus() != progressorv1.RunStatus_RUN_STATUS_SUCCEEDED
	pending := ""
	for i := range steps {
		s := &steps[i]
		share := float64(t.Steps[i].Weight)
		weight += share
		switch s.GetStatus() {
		case progressorv1.StepStatus_STEP_STATUS_PENDING:
			if pending == "" {
				pending = s.GetStepId()
			}
			others = others || s.queued
			continue
		case progressorv1.StepStatus_STEP_STATUS_RUNNING:
			if run.Phase == "" {
				run.Phase, run.WorkerId, run.LeaseExpiresTime = s.GetStepId(), s.GetWorkerId(), s.GetLeaseExpiresTime()
			}
			done += share * reported(s.Step, items[i])
			if s.action == flow.ActionWait {
				waits = true
			} else {
				held = true
			}
		case progressorv1.StepStatus_STEP_STATUS_CANCELLED: // no part of it was done
		default:
			if !lost || s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_SUCCEEDED {
				done += share
			}
		}
		// The summary of a step is shown for the run while the step runs, and after the run has
		// ended.
		shown := s.GetStatus() == progressorv1.StepStatus_STEP_STATUS_RUNNING || run.GetFinishedTime() != nil
		p := s.GetProgress()
		if shown && p.GetSummary() != "" &&
			(newest == nil || s.GetRunningTime().AsTime().After(newest.GetRunningTime().AsTime())) {
			newest = s.Step
		}
	}
	if run.Phase == "" && run.GetFinishedTime() == nil {
		run.Phase = pending
	}
	if run.GetStatus() == progressorv1.RunStatus_RUN_STATUS_QUEUED {
		switch {
		case held:
			run.Status = progressorv1.RunStatus_RUN_STATUS_RUNNING
		case waits && !others:
			run.Status = progressorv1.RunStatus_RUN_STATUS_WAITING_WORKER
		}
	}
	run.Progress = &progressorv1.Progress{
		Percent: math.Floor(100 * done / max(weight, 1)), Summary: newest.GetProgress().GetSummary(),
	}
	summarizeStart(run, steps)
}

// summarizeStart sets the start and the attempt of a run that has not ended and whose row has no
// start. The first attempt of a run counts once its first step has begun.
func summarizeStart(run *progressorv1.Run, steps []step) {
	if run.GetRunningTime() != nil || run.GetFinishedTime() != nil {
		return
	}
	begun := false
	for i := range steps {
		s := &steps[i]
		begun = begun || s.GetRunningTime() != nil || s.tried
		at := s.GetRunningTime()
		if at != nil && (run.RunningTime == nil || at.AsTime().Before(run.RunningTime.AsTime())) {
			run.RunningTime = at
		}
	}
	if run.GetAttempt() == 1 && !begun {
		run.Attempt = 0
	}
}

// reported returns the fraction of a running step that is done.
func reported(s *progressorv1.Step, items *flow.Each) float64 {
	if items != nil {
		return float64(items.Succeeded+items.Failed+items.Cancelled) / float64(max(items.Count, 1))
	}
	return s.GetProgress().GetPercent() / 100
}

// The number of steps on a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// ListSteps returns the steps of a run that have begun or ended, and their items, in order.
func (f *Flows) ListSteps(
	ctx context.Context, r *progressorv1.ListStepsRequest,
) (list []*progressorv1.Step, next string, err error) {
	q := flows.StepsQuery{
		Namespace: r.GetNamespace(), RunID: r.GetRunId(), StepID: r.GetStepId(), AfterOrd: -1, Limit: defaultPage,
		MaxBytes: storage.ListBytes,
	}
	if r.GetPageSize() > 0 {
		q.Limit = min(int(r.GetPageSize()), maxPage)
	}
	if token := r.GetPageToken(); token != "" {
		if _, err := fmt.Sscanf(token, "%d.%d", &q.AfterOrd, &q.After); err != nil {
			return nil, "", process.InvalidPageToken()
		}
	}
	row, err := flows.Get(ctx, f.store, q.Namespace, q.RunID)
	if err != nil {
		return nil, "", f.missing(ctx, q.Namespace, q.RunID, err)
	}
	rows, more, err := flows.Steps(ctx, f.store, q)
	if err == nil && len(rows) == 0 && q.StepID != "" {
		err = f.checkStep(ctx, &row, q.StepID)
	}
	for n := range rows {
		m, err := stepOf(&rows[n])
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	if more && len(rows) > 0 {
		last := &rows[len(rows)-1]
		next = fmt.Sprintf("%d.%d", last.Ord, last.Index)
	}
	return list, next, err
}

// checkStep returns an error if the template of a run does not have a step. It is used if the step
// has no row.
func (f *Flows) checkStep(ctx context.Context, row *flows.Run, stepID string) error {
	k, err := keptOf(row)
	if err != nil {
		return err
	}
	t, err := f.templateOfRow(ctx, templateKey{row.Namespace, row.TemplateType, row.TemplateVersion, k.Stored})
	if err != nil || t == nil {
		return err
	}
	if _, ok := t.Index(stepID); !ok {
		return fmt.Errorf("step %q of template %s, version %d: %w", stepID, row.TemplateType, row.TemplateVersion,
			process.ErrStepNotFound)
	}
	return nil
}
