package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// Apply writes a result to c: what to store, and whether the process continues, ends or is removed.
// A nil result is an empty one. If Apply returns an error, c is incomplete.
func Apply(c *storage.Completion, r *progressorv1.Result, ofKind KindMessage) error {
	if r == nil {
		r = &progressorv1.Result{}
	}
	c.Finish()
	c.AuxState = r.GetAuxState()
	if r.AuxState != nil && c.AuxState == nil {
		c.AuxState = []byte{} // present and empty: clear the state
	}
	c.Response = r.GetResponse()
	var err error
	if c.Metadata, err = JSON(r.GetMetadata()); err != nil {
		return err
	}
	if c.Events, err = newEvents(r.GetEvents()); err != nil {
		return err
	}
	switch action := r.GetAction().(type) {
	case *progressorv1.Result_SetTimer:
		t := timer(action.SetTimer)
		c.Timer = &t
	case *progressorv1.Result_UnsetTimer:
		c.UnsetTimers = true
	case *progressorv1.Result_Remove:
		c.Remove()
	case *progressorv1.Result_Complete:
		c.Complete()
	}
	for _, t := range r.GetNamedTimers() {
		c.NamedTimers = append(c.NamedTimers, timer(t))
	}
	c.UnsetNames = r.GetUnsetNamedTimers()
	c.RestartHistory = r.GetRestartHistory()
	if err := applyReplies(c, r); err != nil {
		return err
	}
	c.Messages, err = messages(c.Key, r.GetCommands(), ofKind)
	return err
}

// applyReplies writes the replies of a result to c. A reply to the task of c is its response or its
// rejection.
func applyReplies(c *storage.Completion, r *progressorv1.Result) error {
	c.DeferResponse = r.GetDeferResponse()
	for _, reply := range r.GetReplies() {
		to := storage.Reply{TaskID: reply.GetTaskId(), Response: reply.GetResponse()}
		if reply.GetRejection() != nil {
			var err error
			if to.Rejection, err = RejectionJSON(reply.GetRejection()); err != nil {
				return err
			}
		}
		if to.TaskID == c.TaskID {
			if c.TaskType != process.TaskCall && c.TaskType != process.TaskNotify {
				return &process.InvalidError{Field: "result.replies", Message: fmt.Sprintf(
					"%d is this task, a %s, which takes no reply", to.TaskID, c.TaskType)}
			}
			c.DeferResponse, c.Response, c.Rejection = false, to.Response, to.Rejection
			continue
		}
		c.Replies = append(c.Replies, to)
	}
	return nil
}

func newEvents[E interface {
	GetPayload() []byte
	GetMetadata() *structpb.Struct
	GetTimestamp() *timestamppb.Timestamp
}](events []E) ([]storage.NewEvent, error) {
	var list []storage.NewEvent
	for _, e := range events {
		event := storage.NewEvent{Payload: e.GetPayload()}
		var err error
		if event.Metadata, err = JSON(e.GetMetadata()); err != nil {
			return nil, err
		}
		if e.GetTimestamp() != nil {
			event.Timestamp = e.GetTimestamp().AsTime()
		}
		list = append(list, event)
	}
	return list, nil
}

func timer(t *progressorv1.SetTimer) storage.SetTimer {
	set := storage.SetTimer{Name: t.GetName(), Remove: t.GetRemove()}
	switch when := t.GetWhen().(type) {
	case *progressorv1.SetTimer_At:
		set.At = when.At.AsTime()
	case *progressorv1.SetTimer_After:
		set.After = max(when.After.AsDuration(), 0)
	}
	return set
}

// CleanFailure returns a copy of f as it is stored and returned to clients. NUL, which PostgreSQL
// does not accept, becomes U+FFFD. Fields that only the engine sets are cleared. A nil failure
// becomes an empty one.
func CleanFailure(f *progressorv1.Failure) *progressorv1.Failure {
	if f == nil {
		return &progressorv1.Failure{}
	}
	clean := proto.CloneOf(f)
	clean.Reason, clean.Message = Plain(f.GetReason()), Plain(f.GetMessage())
	cleanValue(clean.GetDetails())
	clean.Attempt, clean.WorkerId, clean.NodeId, clean.FailedTime, clean.Takeover = 0, "", "", nil, false
	return clean
}

// RetryAfter returns the delay of the next attempt after f. It is the retry_after of f, at most
// process.MaxRetryAfter. If f has none, it is wait.
func RetryAfter(f *progressorv1.Failure, wait time.Duration) time.Duration {
	if d := f.GetRetryAfter().AsDuration(); d > 0 {
		return min(d, process.MaxRetryAfter)
	}
	return wait
}

// FailureJSON returns a failure for the column failure.
func FailureJSON(f *progressorv1.Failure) ([]byte, error) { return protojson.Marshal(CleanFailure(f)) }

// CleanRejection returns a copy of r as it is stored and returned to clients. A nil rejection
// becomes an empty one.
func CleanRejection(r *progressorv1.Rejection) *progressorv1.Rejection {
	if r == nil {
		return &progressorv1.Rejection{}
	}
	clean := proto.CloneOf(r)
	clean.Reason, clean.Message = Plain(r.GetReason()), Plain(r.GetMessage())
	return clean
}

// RejectionJSON returns a rejection for the column rejection.
func RejectionJSON(r *progressorv1.Rejection) ([]byte, error) {
	return protojson.Marshal(CleanRejection(r))
}

// StoredResult returns the response with a result that is stored as JSON. If the JSON is not valid,
// it returns a permanent failure.
func StoredResult(text []byte) *progressorv1.ProcessResponse {
	var result progressorv1.Result
	if err := protojson.Unmarshal(text, &result); err != nil {
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{
				Reason: process.ReasonBadResponse, Message: "stored result: " + err.Error(), NonRetryable: true,
			},
		}}
	}
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &result}}
}

// Plain returns s as PostgreSQL accepts it: valid UTF-8 without NUL.
func Plain(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// CleanResult replaces NUL, which PostgreSQL rejects, in the metadata and the waits of r. It does
// not modify r: if r has metadata or waits, it returns a copy.
func CleanResult(r *progressorv1.Result) *progressorv1.Result {
	unclean := r.GetMetadata() != nil
	for _, e := range r.GetEvents() {
		unclean = unclean || e.GetMetadata() != nil
	}
	for _, c := range r.GetCommands() {
		unclean = unclean || c.GetStart().GetMetadata() != nil || c.GetEnqueue().GetOptions().GetMetadata() != nil ||
			c.GetStartRun().GetMetadata() != nil || c.GetStartRun().GetWait() != nil
	}
	if !unclean {
		return r
	}
	r = proto.CloneOf(r)
	cleanStruct(r.GetMetadata())
	for _, e := range r.GetEvents() {
		cleanStruct(e.GetMetadata())
	}
	for _, c := range r.GetCommands() {
		cleanStruct(c.GetStart().GetMetadata())
		cleanStruct(c.GetEnqueue().GetOptions().GetMetadata())
		cleanStruct(c.GetStartRun().GetMetadata())
		cleanWait(c.GetStartRun().GetWait())
	}
	return r
}

func cleanWait(w *progressorv1.WaitAction) {
	if w == nil {
		return
	}
	w.Title = Plain(w.GetTitle())
	for i, name := range w.GetAssignees() {
		w.Assignees[i] = Plain(name)
	}
	cleanStruct(w.GetResultSchema())
	cleanValue(w.GetDueResult())
}

func cleanStruct(s *structpb.Struct) {
	var unclean []string
	for name, v := range s.GetFields() {
		cleanValue(v)
		if Plain(name) != name {
			unclean = append(unclean, name)
		}
	}
	slices.Sort(unclean) // deterministic if two names become the same
	for _, name := range unclean {
		if _, taken := s.Fields[Plain(name)]; !taken {
			s.Fields[Plain(name)] = s.Fields[name]
		}
		delete(s.Fields, name)
	}
}

func cleanValue(v *structpb.Value) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		kind.StringValue = Plain(kind.StringValue)
	case *structpb.Value_StructValue:
		cleanStruct(kind.StructValue)
	case *structpb.Value_ListValue:
		for _, item := range kind.ListValue.GetValues() {
			cleanValue(item)
		}
	}
}

// Import converts a PutProcess request for storage.
func Import(r *progressorv1.PutProcessRequest) (storage.Import, error) {
	in := storage.Import{Status: StatusOf(r.GetStatus()), Detail: r.GetDetail(), AuxState: r.GetAuxState(),
		Context: r.GetContext()}
	in.Key.Namespace, in.Key.ProcessID = r.GetNamespace(), r.GetProcessId()
	var err error
	if in.Metadata, err = JSON(r.GetMetadata()); err != nil {
		return in, err
	}
	if in.Events, err = newEvents(r.GetHistory()); err != nil {
		return in, err
	}
	for _, t := range r.GetTimers() {
		at := time.Unix(0, 0)
		if t.GetFireTime() != nil {
			at = t.GetFireTime().AsTime()
		}
		in.Timers = append(in.Timers, storage.SetTimer{Name: t.GetName(), At: at, Remove: t.GetRemove()})
	}
	return in, nil
}
