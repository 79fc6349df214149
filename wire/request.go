package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// Request returns the request that a processor receives for a claim.
func Request(
	c *storage.Claim, history []storage.Event, rng *progressorv1.HistoryRange, deadline time.Time,
) (*progressorv1.ProcessRequest, error) {
	metadata, err := Struct(c.Metadata)
	if err != nil {
		return nil, err
	}
	child, err := childEnd(c.Child)
	if err != nil {
		return nil, err
	}
	request := &progressorv1.ProcessRequest{
		Type: TaskType(c.TaskType), Args: c.Args, TaskId: c.TaskID, Attempt: c.Attempt, FencingToken: c.FencingToken,
		IdempotencyKey: c.IdempotencyKey, Context: c.Context, Deadline: timestamppb.New(deadline),
		TimerName:     c.TimerName,
		ScheduledTime: timestamppb.New(c.ScheduledTime), Child: child,
		Process: &progressorv1.Process{
			Namespace: c.Namespace, ProcessId: c.ProcessID, Status: Status(c.Status),
			PreviousStatus: Status(process.Status(c.PreviousStatus)),
			Detail:         c.Detail, CorruptedBy: c.CorruptedBy, AuxState: c.AuxState, Metadata: metadata,
			LastEventId: c.LastEventID, Kind: c.Kind,
			FirstEventId: c.FirstEventID,
			CreatedTime:  timestamppb.New(c.CreatedTime), StatusChangedTime: timestamppb.New(c.StatusChangedTime),
			History: Events(history), Range: rng,
		},
	}
	if job, ok := jobs.JobOf(c); ok {
		if request.JobArgs, err = Value(c.Args); err != nil {
			return nil, err
		}
		request.JobName = job.Name
	}
	if c.TaskType == process.TaskCancel { // the args are the reason
		request.Args, request.CancelReason = nil, string(c.Args)
		request.Process.CancelReason = request.CancelReason
	}
	return request, nil
}

// Process returns a process as clients see it.
func Process(
	p *storage.Process, history []storage.Event, timers []storage.Timer, rng *progressorv1.HistoryRange,
) (*progressorv1.Process, error) {
	metadata, err := Struct(p.Metadata)
	if err != nil {
		return nil, err
	}
	m := &progressorv1.Process{
		Namespace: p.Namespace, ProcessId: p.ProcessID, Status: Status(p.Status), Detail: deref(p.Detail),
		CorruptedBy: deref(p.CorruptedBy),
		AuxState:    p.AuxState, Metadata: metadata, History: Events(history), Range: rng, LastEventId: p.LastEventID,
		Kind:        p.Kind,
		CreatedTime: timestamppb.New(p.CreatedTime), StatusChangedTime: timestamppb.New(p.StatusChangedTime),
		FirstEventId: p.FirstEventID, HistoryRestartedTime: timestampOf(p.HistoryRestartedTime),
	}
	if p.PreviousStatus != nil {
		m.PreviousStatus = Status(*p.PreviousStatus)
	}
	if p.CancelRequestedTime != nil {
		m.CancelRequestedTime, m.CancelReason = timestamppb.New(*p.CancelRequestedTime), deref(p.CancelReason)
	}
	for _, t := range timers {
		status := process.TaskStatusWaiting
		if t.Blocked {
			status = process.TaskStatusBlocked
		}
		m.Timers = append(m.Timers, &progressorv1.Timer{
			Name: deref(t.TimerName), FireTime: timestamppb.New(t.ScheduledTime),
			Remove: t.TaskType == process.TaskRemove, Status: TaskStatus(status),
		})
	}
	return m, nil
}

// Task returns a task as clients see it.
func Task(t *storage.Task, events []storage.Event) (*progressorv1.Task, error) {
	m := &progressorv1.Task{
		TaskId: t.TaskID, Namespace: t.Namespace, ProcessId: t.ProcessID, Type: TaskType(t.TaskType),
		Status:        TaskStatus(t.Status),
		ScheduledTime: timestamppb.New(t.ScheduledTime), Args: t.Args, Context: t.Context,
		IdempotencyKey: deref(t.IdempotencyKey),
		Attempt:        t.Attempt, RetryInterval: durationOf(t.RetryInterval), Response: t.Response,
		TimerName: deref(t.TimerName), Priority: t.Priority,
		RunningTime: timestampOf(t.RunningTime), Events: Events(events),
	}
	if t.Status.Ended() {
		m.FinishedTime = timestamppb.New(t.FinishedTime)
	}
	var err error
	if m.Failure, err = Failure(t.Failure); err != nil {
		return nil, err
	}
	m.Rejection, err = Rejection(t.Rejection)
	return m, err
}

// FailedAttempts adds the recorded failed attempts of a task to m, oldest first. It also sets the
// time at which the task was first due.
func FailedAttempts(m *progressorv1.Task, attempts []storage.FailedAttempt) {
	for n := range attempts {
		a := &attempts[n]
		m.FirstScheduledTime = timestamppb.New(a.FirstScheduledTime)
		m.Failures = append(m.Failures, &progressorv1.Failure{
			Reason: a.Reason, Message: a.Message, Attempt: a.Attempt, NodeId: strconv.FormatInt(a.NodeID, 10),
			FailedTime: timestamppb.New(a.FailedTime),
		})
	}
}

// Node returns a node as operators see it.
func Node(n *storage.Node) *progressorv1.Node {
	return &progressorv1.Node{
		NodeId: strconv.FormatInt(n.NodeID, 10), Address: n.Address, Version: n.Version,
		StartedTime: timestamppb.New(n.StartedTime),
		BeatTime:    timestamppb.New(n.BeatTime), Running: n.Running, Draining: n.Draining,
		RequestsOnly: n.RequestsOnly,
	}
}

// AuditEntry returns an entry of the audit log as operators see it.
func AuditEntry(a *storage.AuditEntry) (*progressorv1.AuditEntry, error) {
	details, err := Struct(a.Details)
	return &progressorv1.AuditEntry{
		AuditId: a.AuditID, Time: timestamppb.New(a.Time), Actor: a.Actor, Source: a.Source, Method: a.Method,
		Namespace: a.Namespace, Subject: a.Subject, Details: details,
	}, err
}

// Events returns events as clients and processors see them.
func Events(rows []storage.Event) []*progressorv1.Event {
	if len(rows) == 0 {
		return nil
	}
	events := make([]*progressorv1.Event, len(rows))
	for n := range rows {
		r := &rows[n]
		metadata, err := Struct(r.Metadata)
		if err != nil {
			metadata = nil // cannot happen: the column is jsonb written from a Struct
		}
		events[n] = &progressorv1.Event{EventId: r.EventID, TaskId: r.TaskID, Timestamp: timestamppb.New(r.Timestamp),
			Metadata: metadata, Payload: r.Payload}
	}
	return events
}

// JSON returns s as a JSON object without spaces, or nil if s is nil.
func JSON(s *structpb.Struct) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	if text := appendFields(make([]byte, 0, 128), s.GetFields()); text != nil {
		return text, nil
	}
	return s.MarshalJSON()
}

// Failure reads the column failure. It returns nil if text is empty.
func Failure(text json.RawMessage) (*progressorv1.Failure, error) {
	return read[progressorv1.Failure]("failure", text)
}

// Rejection reads the column rejection. It returns nil if text is empty.
func Rejection(text json.RawMessage) (*progressorv1.Rejection, error) {
	return read[progressorv1.Rejection]("rejection", text)
}

// read decodes a message from stored JSON. It returns nil if text is empty. what is the prefix of
// errors.
func read[M any, P interface {
	*M
	proto.Message
}](what string, text []byte) (P, error) {
	if len(text) == 0 {
		return nil, nil
	}
	m := P(new(M))
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return m, nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
