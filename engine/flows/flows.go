package flows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// Flows provides the operations on the runs of flows on one node and executes their tasks.
type Flows struct {
	engine    *engine.Engine
	store     *storage.Store
	jobs      Jobs
	templates templates
	starting  starting
	targets   targets
	lists     lists
	metrics   *metrics
}

// Jobs creates the jobs of steps.
type Jobs interface {
	// Convert converts the request to enqueue a job to its stored form without keys. It is pure.
	// path is the prefix of field names in errors.
	Convert(path string, r *progressorv1.EnqueueRequest) (*jobs.NewJob, error)
	// AddKeys adds the keys that the configuration of the job's namespace requires.
	AddKeys(j *jobs.NewJob)
}

// New returns the flows of an engine and its store. The caller must add their Kind to the engine.
// Without a registerer, there are no metrics.
func New(e *engine.Engine, store *storage.Store, j Jobs, registerer ...prometheus.Registerer) *Flows {
	return &Flows{engine: e, store: store, jobs: j, metrics: newMetrics(e, registerer)}
}

// Kind returns the process kind of runs for the engine.
func (f *Flows) Kind() engine.Kind {
	return engine.Kind{Name: flows.Kind, Processor: &actor.Actor[*task]{
		Noun: "a run", New: f.newTask, Read: (*task).read, Init: (*task).create, Call: (*task).execute,
		Timer: (*task).tick, Notify: (*task).notified, Cancel: (*task).abort, Done: (*task).done,
	}, Starts: engine.StartHooks{Message: message, ReadEnd: f.readEnd}}
}

func keyOf(namespace, runID string) process.Key {
	return process.Key{Namespace: namespace, ProcessID: process.FlowPrefix + runID}
}

// command is a command to a run from a client, a cron, a process or another run. It is encoded in
// the args of a task.
type command struct {
	Method string `json:"method"` // a method of the API, TakeTurn or AskTurn
	Actor  string `json:"actor,omitempty"`
	Source string `json:"source,omitempty"`
	// RequestID is the ID of the request, for the audit. It is not set for StartRun, which is not
	// audited.
	RequestID string `json:"request_id,omitempty"`
	startFields
	Reason string `json:"reason,omitempty"`
	Force  bool   `json:"force,omitempty"`  // only for CancelRun
	Newest bool   `json:"newest,omitempty"` // only for RetryRun
	// Inputs are new inputs for steps. It is set only for RetryRun.
	Inputs []stepInput `json:"inputs,omitempty"`
	stepFields
}

// by returns who sent the command.
func (o *command) by() process.Actor {
	return process.Actor{Name: o.Actor, Source: o.Source, RequestID: o.RequestID}
}

// startFields are the fields of StartRun.
type startFields struct {
	Type     string          `json:"type,omitempty"`
	Version  int32           `json:"version,omitempty"` // 0 means the newest version
	Scope    string          `json:"scope,omitempty"`
	ScopeID  string          `json:"scope_id,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	RunTime  time.Time       `json:"run_time,omitzero"`
	CronID   string          `json:"cron_id,omitempty"`
	FireTime time.Time       `json:"fire_time,omitzero"`
	Parent   string          `json:"parent,omitempty"`
	RepeatOf string          `json:"repeat_of,omitempty"`
	Invalid  string          `json:"invalid,omitempty"` // why a cron could not compute the payload
	// Unchecked is set for a run that a command of a process starts. Its template and its payload
	// were not checked before.
	Unchecked bool `json:"unchecked,omitempty"`
	// Wait is the WaitAction of a run without a template.
	Wait json.RawMessage `json:"wait,omitempty"`
	// Request is a random number that identifies the answer to this request. It is set if the
	// request has an idempotency key.
	Request uint64 `json:"request,omitempty"`
}

// stepFields are the fields of SkipStep, CompleteStep and ReportStep.
type stepFields struct {
	StepID string `json:"step_id,omitempty"`
	Index  int    `json:"index,omitempty"`
	Token  string `json:"token,omitempty"`
	Worker string `json:"worker,omitempty"`
	// Names are names of the client if it must be an assignee (see Flows.sentNames). It is set only
	// for CompleteStep and ReportStep.
	Names   []string `json:"names,omitempty"`
	Outcome string   `json:"outcome,omitempty"` // only for CompleteStep: succeeded, failed or cancelled
	// Result and Failure are JSON.
	Result   json.RawMessage `json:"result,omitempty"`
	Failure  json.RawMessage `json:"failure,omitempty"`
	Progress json.RawMessage `json:"progress,omitempty"`
	Due      time.Duration   `json:"due,omitempty"`    // only for ReportStep; 0 means unchanged
	Claims   bool            `json:"claims,omitempty"` // only for ReportStep: Worker is who works on the wait
}

// The methods.
const (
	methodStart    = "StartRun"
	methodCancel   = "CancelRun"
	methodRetry    = "RetryRun"
	methodComplete = "CompleteStep"
	methodReport   = "ReportStep"
	methodSkip     = "SkipStep"
	methodTurn     = "TakeTurn" // the run that held the dedupe key has ended
	methodAskTurn  = "AskTurn"  // the run that held the dedupe key was removed
)

// reply is the response of a run to a command.
type reply struct {
	// Outcome is set only for StartRun: started, exists, done, invalid, not_found or disabled.
	Outcome string    `json:"outcome,omitempty"`
	Holder  string    `json:"holder,omitempty"` // the existing run
	Message string    `json:"message,omitempty"`
	Fresh   *freshRun `json:"fresh,omitempty"` // only for StartRun; nil if the run has to be read
	// Request is set only for StartRun. It is the number of the request that started the run.
	Request   uint64 `json:"request,omitempty"`
	Refused   string `json:"refused,omitempty"`   // why RetryRun did nothing
	Field     string `json:"field,omitempty"`     // the invalid field of RetryRun, or ""
	Directive int32  `json:"directive,omitempty"` // only for ReportStep
	Reason    string `json:"reason,omitempty"`

	// The following fields report the end of a run to the run, cron or process that started it. The
	// last task of the run sets them.
	Status  string          `json:"status,omitempty"` // succeeded, failed, cancelled or expired
	Result  json.RawMessage `json:"result,omitempty"`
	Failure json.RawMessage `json:"failure,omitempty"`
	// InRow is set if Result and Failure are too large for a message and must be read from the row
	// of the run. Message is the beginning of the failure's message.
	InRow bool `json:"in_row,omitempty"`
}

// encode returns v as JSON. It does not escape HTML, because escaping makes markup up to six times
// as long.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'}), err
}

// freshRun describes a run that a StartRun created. It is set only if all open steps are jobs that
// no worker has taken.
type freshRun struct {
	Time      time.Time `json:"time"`
	Version   int32     `json:"version,omitempty"`
	Attempt   int32     `json:"attempt,omitempty"`
	BlockedOn string    `json:"blocked_on,omitempty"`
	Begun     []int     `json:"begun,omitempty"` // indexes of steps
}

// The outcomes of a StartRun.
const (
	outcomeStarted  = "started"
	outcomeExists   = "exists" // another run has the dedupe key
	outcomeDone     = "done"   // a run has succeeded, and the template is not repeatable
	outcomeInvalid  = "invalid"
	outcomeNotFound = "not_found"
	outcomeDisabled = "disabled"
)

// Reasons of rejections. The details of an invalid command contain the name of the field.
const (
	rejectedInvalid = "invalid"
	rejectedStatus  = "status"
	rejectedClient  = "client"
	rejectedCancel  = "not_cancellable"
	rejectedStep    = "step_not_found"
)

// notRetryable is the format of the message that a run cannot be retried because of its status.
const notRetryable = "a run that is %s cannot be retried: it must be failed, cancelled or expired"

// StatusError reports that the status of a run or a step does not allow a command.
type StatusError struct {
	Run     string
	Message string
	Cancel  bool // the run cannot be cancelled
}

func (e *StatusError) Error() string { return "run " + e.Run + ": " + e.Message }

// ScopeError reports that another run holds the dedupe key.
type ScopeError struct {
	Namespace, RunID string // the existing run
}

func (e *ScopeError) Error() string {
	return fmt.Sprintf("run %s/%s of the same scope has not ended", e.Namespace, e.RunID)
}

// TemplateError reports that the template does not allow a command.
type TemplateError struct{ Message string }

func (e *TemplateError) Error() string { return e.Message }

// runCommand sends a command to a run, and returns the result when it is stored.
func (f *Flows) runCommand(
	ctx context.Context, namespace, runID string, o *command, by process.Actor,
) (reply, error) {
	o.Actor, o.Source, o.RequestID = by.Name, by.Source, by.RequestID
	args, err := encode(o)
	if err != nil {
		return reply{}, err
	}
	a, err := actor.Call[reply](ctx, f.engine, keyOf(namespace, runID), args)
	switch {
	case err != nil || a.Refused == "":
	case a.Field != "":
		err = &process.InvalidError{Field: a.Field, Message: a.Refused}
	default:
		err = &StatusError{Run: runID, Message: a.Refused}
	}
	return a, refused(runID, err)
}

// refused converts an error of the process to an error of the run.
func refused(runID string, err error) error {
	var status *process.WrongStatusError
	if errors.As(err, &status) {
		return &StatusError{Run: runID, Message: "it has ended"}
	}
	if errors.Is(err, process.ErrProcessNotFound) {
		return fmt.Errorf("%w: %w", process.ErrRunNotFound, err)
	}
	var task *engine.TaskError
	if !errors.As(err, &task) {
		return err
	}
	if task.Cancelled {
		return &StatusError{Run: runID, Message: "it ended before it accepted the command"}
	}
	if task.Rejection == nil {
		return err
	}
	switch no := task.Rejection; no.GetReason() {
	case rejectedInvalid:
		return &process.InvalidError{Field: string(no.GetDetails()), Message: no.GetMessage()}
	case rejectedClient:
		return &process.DeniedError{
			Field: string(no.GetDetails()), Namespace: task.Key.Namespace, Message: no.GetMessage(),
		}
	case rejectedStatus, rejectedCancel:
		return &StatusError{Run: runID, Message: no.GetMessage(), Cancel: no.GetReason() == rejectedCancel}
	case rejectedStep:
		return fmt.Errorf("%s: %w", no.GetMessage(), process.ErrStepNotFound)
	}
	return err
}

// maxRunID limits the length of run IDs. The IDs of the steps' processes contain the run ID, and
// the ID of a process has at most 256 bytes.
const maxRunID = 160

// Skip skips a step on behalf of an operator.
func (f *Flows) Skip(
	ctx context.Context, r *progressorv1.SkipStepRequest, by process.Actor,
) (*progressorv1.Run, error) {
	o := &command{
		Method: methodSkip, Reason: r.GetReason(),
		stepFields: stepFields{StepID: r.GetStepId(), Index: indexOf(r.Index)},
	}
	var err error
	if o.Result, err = resultJSON("result", r.GetResult()); err != nil {
		return nil, err
	}
	return f.changed(ctx, r.GetNamespace(), r.GetRunId(), o, by)
}

// Retry restarts a run that has ended and did not succeed.
func (f *Flows) Retry(
	ctx context.Context, r *progressorv1.RetryRunRequest, by process.Actor,
) (*progressorv1.Run, error) {
	row, err := flows.Get(ctx, f.store, r.GetNamespace(), r.GetRunId())
	if err != nil {
		return nil, f.missing(ctx, r.GetNamespace(), r.GetRunId(), err)
	}
	in, err := inputsOf(r.GetInputs())
	if err != nil {
		return nil, err
	}
	if reopened, err := flows.Reopen(ctx, f.store, r.GetNamespace(), r.GetRunId()); err != nil {
		return nil, err
	} else if !reopened {
		return nil, &StatusError{
			Run:     r.GetRunId(),
			Message: fmt.Sprintf(notRetryable, statusName(row.Status)),
		}
	}
	f.engine.WakePollers()
	return f.changed(ctx, r.GetNamespace(), r.GetRunId(), &command{
		Method: methodRetry, Newest: r.GetNewestVersion(), Inputs: in,
	}, by)
}

// Repeat starts a new run with the payload of an old run, or with another payload.
func (f *Flows) Repeat(
	ctx context.Context, r *progressorv1.RepeatRunRequest, by process.Actor,
) (*progressorv1.Run, error) {
	old, err := f.Get(ctx, r.GetNamespace(), r.GetRunId(), 0)
	if err != nil {
		return nil, err
	}
	if old.GetTemplateType() == waitType {
		return nil, &TemplateError{"the run has no template: only its process can start it again"}
	}
	t, err := f.template(ctx, r.GetNamespace(), old.GetTemplateType(), 0)
	if err != nil {
		return nil, err
	}
	if !t.Repeatable() {
		return nil, &TemplateError{
			fmt.Sprintf("template %s is not repeatable: set its field repeatable to true", old.GetTemplateType()),
		}
	}
	payload := old.GetPayload()
	if r.GetPayload() != nil {
		payload = r.GetPayload()
	}
	resp, err := f.start(ctx, &progressorv1.StartRunRequest{
		Namespace: r.GetNamespace(), Type: old.GetTemplateType(), Scope: old.GetScope(), ScopeId: old.GetScopeId(),
		Payload:        payload,
		IdempotencyKey: r.GetIdempotencyKey(), Metadata: old.GetMetadata(),
	}, r.GetRunId(), by)
	return resp.GetRun(), err
}

// changed executes a command, and returns the changed run.
func (f *Flows) changed(
	ctx context.Context, namespace, runID string, o *command, by process.Actor,
) (*progressorv1.Run, error) {
	if _, err := f.runCommand(ctx, namespace, runID, o, by); err != nil {
		return nil, err
	}
	return f.Get(ctx, namespace, runID, 0)
}

// indexOf returns the index of an item, or noIndex for the step itself.
func indexOf(index *int32) int {
	if index == nil {
		return noIndex
	}
	return int(*index)
}
