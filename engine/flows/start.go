package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
)

// templateForStart reads the template of a StartRun, and returns an error if the template does not
// allow the start. If a run with the same idempotency key exists, the request is a repeat, which is
// allowed even if the template has changed.
func (f *Flows) templateForStart(ctx context.Context, r *progressorv1.StartRunRequest) (*template, error) {
	t, err := f.template(ctx, r.GetNamespace(), r.GetType(), r.GetVersion())
	if err != nil {
		if errors.Is(err, process.ErrTemplateNotFound) {
			if missing := f.engine.CheckNamespace(ctx, r.GetNamespace()); missing != nil {
				return nil, missing
			}
		}
		return nil, err
	}
	var no error
	if problems := t.CheckPayload(r.GetPayload()); !t.enabled {
		no = &TemplateError{fmt.Sprintf("template %s is disabled: enable it first", r.GetType())}
	} else if len(problems) > 0 {
		no = breaksSchema(problems)
	}
	if no == nil || r.GetIdempotencyKey() == "" || r.GetValidateOnly() {
		return t, no
	}
	runID, err := runIDOf(r)
	if err != nil {
		return nil, err
	}
	known, err := flows.IsRequest(ctx, f.store, keyOf(r.GetNamespace(), runID), r.GetIdempotencyKey())
	if err != nil {
		return nil, err
	} else if !known {
		return nil, no
	}
	return t, nil
}

// starting caches the templates that StartRun requests in progress on this node have read. The INIT
// task of such a run follows immediately and need not read the template again.
type starting struct {
	mu  sync.Mutex
	all map[process.Key]readTemplate
}

// readTemplate is a template with the time when it was read.
type readTemplate struct {
	*template
	at time.Time
}

// maxReadAge is the maximum age of a cached template. An INIT task that had to wait longer for a
// slot reads the template again, because it may have been deleted.
const maxReadAge = time.Second

// put caches the template that a request has read, until the returned function is called.
func (s *starting) put(key process.Key, t *template) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[process.Key]readTemplate{}
	}
	s.all[key] = readTemplate{t, time.Now()}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, key)
	}
}

// get returns the template for a start command, or nil if no request on this node has just read it.
func (s *starting) get(key process.Key, o *command) *template {
	s.mu.Lock()
	t, known := s.all[key]
	s.mu.Unlock()
	if !known || time.Since(t.at) > maxReadAge || t.Source.GetType() != o.Type || t.Source.GetVersion() != o.Version {
		return nil
	}
	return t.template
}

// Start stores a run, or returns the existing one.
func (f *Flows) Start(
	ctx context.Context, r *progressorv1.StartRunRequest, by process.Actor,
) (*progressorv1.StartRunResponse, error) {
	return f.start(ctx, r, "", by)
}

func (f *Flows) start(
	ctx context.Context, r *progressorv1.StartRunRequest, repeatOf string, by process.Actor,
) (*progressorv1.StartRunResponse, error) {
	t, err := f.templateForStart(ctx, r)
	if err != nil {
		return nil, err
	}
	o, err := startCommand(r, t, repeatOf, by)
	if err != nil {
		return nil, err
	}
	metadata, err := metadataJSON(r.GetMetadata())
	if err != nil {
		return nil, err
	}
	if len(r.GetRunId()) > maxRunID {
		return nil, &process.InvalidError{
			Field: "run_id", Message: fmt.Sprintf("must have at most %d bytes (got %d)", maxRunID, len(r.GetRunId())),
		}
	}
	if r.GetValidateOnly() {
		return f.dryRunResponse(ctx, r, t, o)
	}
	runID, err := runIDOf(r)
	if err != nil {
		return nil, err
	}
	args, err := encode(o)
	if err != nil {
		return nil, err
	}
	asked, err := o.requestIdentity(r)
	if err != nil {
		return nil, err
	}
	key := keyOf(r.GetNamespace(), runID)
	defer f.starting.put(key, t)()
	answer, err := f.engine.Start(ctx, engine.StartParams{
		Key: key, Kind: flows.Kind, Args: args, Metadata: metadata, IdempotencyKey: r.GetIdempotencyKey(),
		Priority: actor.Priority, Internal: true,
		Asked: asked,
	})
	if errors.Is(err, process.ErrProcessExists) {
		return nil, fmt.Errorf("run %s/%s: %w", r.GetNamespace(), runID, process.ErrRunExists)
	}
	if err != nil {
		return nil, refused(runID, err)
	}
	var a reply
	if err := json.Unmarshal(answer.Response, &a); err != nil {
		return nil, fmt.Errorf("answer of run %s: %w", runID, err)
	}
	isFresh := a.Outcome == outcomeStarted && a.Fresh != nil && a.Fresh.Version == o.Version
	if isFresh && a.Request == o.Request {
		return &progressorv1.StartRunResponse{Run: fresh(r, o, runID, t, &a), Started: true}, nil
	}
	said, err := f.startResponse(ctx, r.GetNamespace(), runID, t, &a)
	// If the run was started and already removed, return what the start reported.
	if isFresh && errors.Is(err, process.ErrRunNotFound) {
		return &progressorv1.StartRunResponse{Run: fresh(r, o, runID, t, &a), Started: true}, nil
	}
	return said, err
}

// startCommand returns the command that starts a run of template t.
func startCommand(
	r *progressorv1.StartRunRequest, t *template, repeatOf string, by process.Actor,
) (*command, error) {
	payload, err := resultJSON("payload", r.GetPayload())
	if err != nil {
		return nil, err
	}
	o := &command{Method: methodStart, Actor: by.Name, Source: by.Source, startFields: startFields{
		Type: r.GetType(), Version: t.Source.GetVersion(), Scope: r.GetScope(), ScopeID: r.GetScopeId(),
		Payload: payload, RepeatOf: repeatOf,
	}}
	if r.GetRunTime() != nil {
		o.RunTime = r.GetRunTime().AsTime()
	}
	if r.GetIdempotencyKey() != "" {
		o.Request = rand.Uint64()
	}
	return o, nil
}

// requestIdentity returns the part of a request that stays the same if the client repeats the
// request. In a repeat, the connection and the newest version may differ. It returns nil if the
// request has no idempotency key.
func (o *command) requestIdentity(r *progressorv1.StartRunRequest) ([]byte, error) {
	if r.GetIdempotencyKey() == "" {
		return nil, nil
	}
	same := *o
	same.Actor, same.Source, same.Version, same.Request = "", "", r.GetVersion(), 0
	return json.Marshal(&same)
}

// fresh builds a run that has just been stored, so that it need not be read. Its open steps, if
// any, are jobs that no worker has taken.
func fresh(r *progressorv1.StartRunRequest, o *command, runID string, t *template, a *reply) *progressorv1.Run {
	run := &progressorv1.Run{
		Namespace: r.GetNamespace(), RunId: runID, TemplateType: o.Type, TemplateVersion: o.Version, Scope: o.Scope,
		ScopeId: o.ScopeID, Payload: r.GetPayload(),
		Metadata: r.GetMetadata(), RepeatOfRunId: o.RepeatOf, MaxAttempts: t.MaxAttempts(), RunTime: r.GetRunTime(),
		BlockedOn: a.Fresh.BlockedOn,
		Status:    progressorv1.RunStatus_RUN_STATUS_QUEUED, CreatedTime: timestamppb.New(a.Fresh.Time),
		UpdatedTime: timestamppb.New(a.Fresh.Time),
		Phase:       t.Steps[0].ID, Progress: &progressorv1.Progress{},
	}
	if a.Fresh.Attempt == 0 {
		run.Status = progressorv1.RunStatus_RUN_STATUS_PENDING
	}
	for i := range t.Steps {
		run.Steps = append(run.Steps, &progressorv1.Step{
			StepId: t.Steps[i].ID, Name: t.Steps[i].Source.GetName(),
			Status: progressorv1.StepStatus_STEP_STATUS_PENDING,
		})
	}
	for _, step := range a.Fresh.Begun {
		s := run.GetSteps()[step]
		s.Reason, s.ProcessId = waitsForWorker, process.StepPrefix+runID+"/"+s.GetStepId()
	}
	return run
}

// startResponse returns the response to a StartRun.
func (f *Flows) startResponse(
	ctx context.Context, namespace, runID string, t *template, a *reply,
) (*progressorv1.StartRunResponse, error) {
	switch a.Outcome {
	case outcomeStarted:
	case outcomeExists:
		if t.Concurrency() == progressorv1.ScopePolicy_SCOPE_POLICY_REJECT_SAME_SCOPE {
			return nil, &ScopeError{namespace, a.Holder}
		}
		runID = a.Holder
	case outcomeDone:
		runID = a.Holder
	default:
		return nil, &TemplateError{a.Message}
	}
	run, err := f.Get(ctx, namespace, runID, 0)
	return &progressorv1.StartRunResponse{Run: run, Started: a.Outcome == outcomeStarted}, err
}

// dryRunResponse returns the response of a StartRun without storing anything.
func (f *Flows) dryRunResponse(
	ctx context.Context, r *progressorv1.StartRunRequest, t *template, o *command,
) (*progressorv1.StartRunResponse, error) {
	key := t.DedupeKey(r.GetScope(), r.GetScopeId(), r.GetPayload())
	holder, err := flows.Peek(ctx, f.store, t.scope(r.GetNamespace(), key, r.GetRunId()))
	if err != nil {
		return nil, err
	}
	switch {
	case holder.Done != "":
		return f.startResponse(ctx, r.GetNamespace(), "", t, &reply{Outcome: outcomeDone, Holder: holder.Done})
	case holder.RunID != "" && t.rejectsDuplicates():
		return f.startResponse(ctx, r.GetNamespace(), "", t, &reply{Outcome: outcomeExists, Holder: holder.RunID})
	}
	return &progressorv1.StartRunResponse{Run: &progressorv1.Run{
		Namespace: r.GetNamespace(), RunId: r.GetRunId(), TemplateType: t.Source.GetType(), TemplateVersion: o.Version,
		Scope: o.Scope, ScopeId: o.ScopeID,
		Status: progressorv1.RunStatus_RUN_STATUS_PENDING, Payload: r.GetPayload(), Metadata: r.GetMetadata(),
		MaxAttempts: t.MaxAttempts(), RunTime: r.GetRunTime(),
	}}, nil
}

func runIDOf(r *progressorv1.StartRunRequest) (string, error) {
	switch {
	case r.GetRunId() != "":
		return r.GetRunId(), nil
	case r.GetIdempotencyKey() != "":
		return process.DerivedUUID(process.RequestID(r.GetNamespace(), process.FlowPrefix+r.GetType(),
			r.GetIdempotencyKey())), nil
	}
	return engine.NewID()
}
