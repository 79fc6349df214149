package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/requestid"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// processes serves ProcessService.
type processes struct {
	engine *engine.Engine
}

// Start creates a process and runs its INIT task.
func (s *processes) Start(ctx context.Context, r *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	metadata, err := metadataJSON("metadata", r.GetMetadata())
	if err != nil {
		return nil, err
	}
	p := engine.StartParams{
		Key:            key,
		Args:           r.GetArgs(),
		Context:        r.GetContext(),
		Metadata:       metadata,
		IdempotencyKey: r.GetIdempotencyKey(),
		Range:          r.GetRange(),
		Accepted:       accepted(r.GetWait()),
		Timeout:        r.GetTimeout().AsDuration(),
		Priority:       r.GetPriority(),
	}
	if t := r.GetStartTime(); t != nil {
		p.StartTime = t.AsTime()
	}
	a, err := s.engine.Start(ctx, p)
	return &progressorv1.StartResponse{ProcessId: a.ProcessID, TaskId: a.TaskID, Response: a.Response}, err
}

// Call runs a CALL task, or with WAIT_ACCEPTED a NOTIFY task.
func (s *processes) Call(ctx context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	p, err := callParams(r)
	if err != nil {
		return nil, err
	}
	a, err := s.engine.Call(ctx, *p)
	return &progressorv1.CallResponse{TaskId: a.TaskID, Response: a.Response}, err
}

// callParams is not inlined into Call, to keep the stacks of waiting requests small (see
// Engine.callRequest).
//
//go:noinline
func callParams(r *progressorv1.CallRequest) (*engine.CallParams, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	return &engine.CallParams{
		Key:            key,
		Args:           r.GetArgs(),
		Context:        r.GetContext(),
		IdempotencyKey: r.GetIdempotencyKey(),
		Range:          r.GetRange(),
		Accepted:       accepted(r.GetWait()),
		Timeout:        r.GetTimeout().AsDuration(),
		Priority:       r.GetPriority(),
	}, nil
}

// Repair takes a process out of ERROR, with or without its processor.
func (s *processes) Repair(ctx context.Context, r *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	p := engine.RepairParams{
		Key:            key,
		Simple:         r.GetProcessor() == nil,
		Args:           r.GetProcessor().GetArgs(),
		Context:        r.GetContext(),
		IdempotencyKey: r.GetIdempotencyKey(),
		Range:          r.GetProcessor().GetRange(),
		Accepted:       accepted(r.GetWait()),
		Timeout:        r.GetTimeout().AsDuration(),
		Actor:          actorOf(ctx),
	}
	a, err := s.engine.Repair(ctx, p)
	return &progressorv1.RepairResponse{TaskId: a.TaskID, Response: a.Response}, err
}

// AwaitTask waits for a task.
func (s *processes) AwaitTask(
	ctx context.Context, r *progressorv1.AwaitTaskRequest,
) (*progressorv1.AwaitTaskResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	task, err := s.engine.AwaitTask(ctx, engine.AwaitParams{
		Key:            key,
		TaskID:         r.GetTaskId(),
		IdempotencyKey: r.GetIdempotencyKey(),
		Timeout:        r.GetTimeout().AsDuration(),
	})
	if err != nil {
		return nil, err
	}
	return &progressorv1.AwaitTaskResponse{Task: task}, nil
}

// GetProcess returns a process with a part of its history.
func (s *processes) GetProcess(
	ctx context.Context, r *progressorv1.GetProcessRequest,
) (*progressorv1.GetProcessResponse, error) {
	p, err := s.engine.GetProcess(ctx, keyOf(r), r.GetRange(), r.GetAwaitInit().AsDuration())
	return &progressorv1.GetProcessResponse{Process: p}, err
}

// ListProcesses returns a page of the processes of a namespace.
func (s *processes) ListProcesses(
	ctx context.Context, r *progressorv1.ListProcessesRequest,
) (*progressorv1.ListProcessesResponse, error) {
	list, next, err := s.engine.ListProcesses(ctx, r)
	return &progressorv1.ListProcessesResponse{Processes: list, NextPageToken: next}, err
}

// TraceProcess returns a page of the tasks of a process, each with its events.
func (s *processes) TraceProcess(
	ctx context.Context, r *progressorv1.TraceProcessRequest,
) (*progressorv1.TraceProcessResponse, error) {
	return s.engine.TraceProcess(ctx, keyOf(r), int(r.GetPageSize()), r.GetPageToken())
}

// PutProcess imports a process with its history.
func (s *processes) PutProcess(
	ctx context.Context, r *progressorv1.PutProcessRequest,
) (*progressorv1.PutProcessResponse, error) {
	if _, err := ownKey(r); err != nil {
		return nil, err
	}
	if err := checkPut(r); err != nil {
		return nil, err
	}
	p, err := s.engine.PutProcess(ctx, r, actorOf(ctx))
	return &progressorv1.PutProcessResponse{Process: p}, err
}

// RemoveProcess deletes a process and all of its data.
func (s *processes) RemoveProcess(
	ctx context.Context, r *progressorv1.RemoveProcessRequest,
) (*progressorv1.RemoveProcessResponse, error) {
	key, err := ownKey(r)
	if err != nil {
		return nil, err
	}
	return &progressorv1.RemoveProcessResponse{}, s.engine.RemoveProcess(ctx, key, actorOf(ctx))
}

// erasedID matches the hashes of erased IDs. Erasing such a hash would hide the ID to which an
// audit entry belongs.
var erasedID = regexp.MustCompile("^erased:[0-9a-f]{64}$")

// EraseProcess removes a process and all references to it in other tables.
func (s *processes) EraseProcess(
	ctx context.Context, r *progressorv1.EraseProcessRequest,
) (*progressorv1.EraseProcessResponse, error) {
	if id := r.GetProcessId(); process.Own(id) && !strings.HasPrefix(id, process.FlowPrefix) &&
		!strings.HasPrefix(id, process.StepPrefix) && !strings.HasPrefix(id, process.CronRunPrefix) {
		return nil, &process.InvalidError{Field: "process_id",
			Message: "must be the ID of a process or job, or ~flow/ and the ID of a run"}
	}
	if erasedID.MatchString(r.GetProcessId()) {
		return nil, &process.InvalidError{Field: "process_id", Message: "must be an ID, not the hash of an erased ID"}
	}
	return s.engine.EraseProcess(ctx, r, actorOf(ctx))
}

// keyed is a request that names a process.
type keyed interface {
	GetNamespace() string
	GetProcessId() string
}

func keyOf(r keyed) process.Key {
	return process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetProcessId()}
}

// ownKey returns the key of a request that changes a process or waits for it. It rejects processes
// of the engine itself, such as crons.
func ownKey(r keyed) (process.Key, error) {
	return keyOf(r), refuseOwn("process_id", r.GetProcessId())
}

// refuseOwn rejects the ID of a process that belongs to the engine itself.
func refuseOwn(field, id string) error {
	if process.Own(id) {
		return &process.InvalidError{Field: field,
			Message: `must not begin with "~": processes of the engine can only be read`}
	}
	return nil
}

// checkPut checks what the rules in the proto files cannot express about an import.
func checkPut(r *progressorv1.PutProcessRequest) error {
	if _, err := metadataJSON("metadata", r.GetMetadata()); err != nil {
		return err
	}
	for i, e := range r.GetHistory() {
		path := "history[" + strconv.Itoa(i) + "]"
		if e.GetEventId() != int64(i)+1 {
			return &process.InvalidError{Field: path + ".event_id",
				Message: fmt.Sprintf("must be %d: events are numbered 1, 2, 3, … in order", i+1)}
		}
		if _, err := metadataJSON(path+".metadata", e.GetMetadata()); err != nil {
			return err
		}
	}
	names := make(map[string]bool, len(r.GetTimers()))
	for i, t := range r.GetTimers() {
		if names[t.GetName()] {
			return &process.InvalidError{Field: "timers[" + strconv.Itoa(i) + "].name",
				Message: fmt.Sprintf("must be unique: %q is also the name of an earlier timer", t.GetName())}
		}
		names[t.GetName()] = true
	}
	return nil
}

// metadataJSON returns metadata as it is stored, or nil. field is the path for errors.
func metadataJSON(field string, m *structpb.Struct) ([]byte, error) {
	if m == nil {
		return nil, nil
	}
	spaced, err := wire.JSON(m)
	if err != nil {
		return nil, &process.InvalidError{Field: field, Message: "must be a JSON object"}
	}
	var compact bytes.Buffer // without spaces, so that the limit does not depend on the library
	if err := json.Compact(&compact, spaced); err != nil {
		return nil, fmt.Errorf("%s as JSON: %w", field, err)
	}
	data := compact.Bytes()
	if len(data) > process.MaxMetadataBytes {
		return nil, &process.InvalidError{
			Field: field, TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxMetadataBytes, len(data)),
		}
	}
	return data, nil
}

func accepted(w progressorv1.Wait) bool { return w == progressorv1.Wait_WAIT_ACCEPTED }

// actorOf returns the origin of a request: its principal, if it is authenticated, and its address.
func actorOf(ctx context.Context) process.Actor {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return process.Actor{}
	}
	by := process.Actor{Source: call.Peer().Addr, RequestID: requestid.Of(ctx)}
	if p := principalOf(ctx); p != nil {
		by.Name = p.Name
	}
	return by
}
