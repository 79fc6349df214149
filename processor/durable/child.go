package durable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ChildOption configures Child.
type ChildOption interface{ setChild(*childOptions) }

type childOptions struct{ namespace string }

// InOption is the namespace of a child, a job, a run or a question.
type InOption struct{ namespace string }

// In sets the namespace of a child, a job, a run or a question. The processor of this namespace
// runs the child, and its workers run the job. The default is the namespace of the function, whose
// processor is the function.
func In(namespace string) InOption { return InOption{namespace} }

func (in InOption) setChild(o *childOptions) { o.namespace = in.namespace }

// Future is a child process that Child has started, a job that Job has enqueued, a run of a flow
// that Flow has started, or a question of Ask. Its end can be a source of First.
type Future[Out any] struct {
	branch     *branch
	name       string
	child      childKey
	isQuestion bool
}

// childKey is the value of an entry for a child, a job or a run.
type childKey struct {
	Namespace string `json:"namespace"`
	ProcessID string `json:"process_id"` // for a run: ~flow/ and the ID of the run
	IsJob     bool   `json:"job,omitempty"`
	Run       string `json:"run,omitempty"` // runFlow or runQuestion; "" if an older version recorded the run
}

// The kinds of runs.
const (
	runFlow     = "flow"
	runQuestion = "question"
)

func (c childKey) key() process.Key {
	return process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
}

// The kinds of targets that a function starts, as they appear in messages.
const (
	targetChild = "child"
	targetJob   = "job"
	targetRun   = "run"
)

// kind returns what was started, for messages.
func (c childKey) kind() string {
	switch {
	case c.IsJob:
		return targetJob
	case strings.HasPrefix(c.ProcessID, process.FlowPrefix):
		return targetRun
	}
	return targetChild
}

// fullKind is like kind, but distinguishes questions from runs of flows, if this was recorded.
func (c childKey) fullKind() string {
	switch c.Run {
	case runFlow:
		return "run of a flow"
	case runQuestion:
		return "question"
	}
	return c.kind()
}

// Child starts a process with the args as JSON and does not wait for it. The child may be a durable
// function or any other process, in any language. The transaction that stores this operation starts
// the child, exactly once. Its ID is that of this process, the name with its scope, and the number
// of the task that began the history, as in "A-7/parcel[1]/label~1041". The ID is therefore new,
// even if this process was removed and created again, or has restarted.
//
// The namespace must exist. If it differs from the namespace of the function, the setting
// command_namespaces must allow it.
//
// If the function returns an error or is cancelled, its children that still run are cancelled. If
// it returns a value, they continue.
func Child[Out any](ctx Ctx, name string, args any, opts ...ChildOption) *Future[Out] {
	b := ctx.branch
	full := b.name(kindChild, name)
	var o childOptions
	for _, opt := range opts {
		opt.setChild(&o)
	}
	if e, ok := b.owner.journal.find(kindChild, full); ok {
		return &Future[Out]{branch: b, name: full, child: b.recordedChild(e, childKey{Namespace: o.namespace})}
	}
	text, err := encode(args)
	if err != nil {
		b.owner.misuse("the args of child %s: the value %s", full, err)
	}
	child := b.owner.newChild(o.namespace, full)
	b.begin(full, child, &progressorv1.Command{
		Command: &progressorv1.Command_Start{Start: &progressorv1.StartCommand{
			Namespace: b.owner.targetOf(child), ProcessId: child.ProcessID, Args: text,
			NotifyParentArgs: reported(full),
		}},
	})
	return &Future[Out]{branch: b, name: full, child: child}
}

// newChild returns the key of a child with a full name. namespace is "" for that of the function.
func (r *run) newChild(namespace, full string) childKey {
	parent := r.request.GetProcess()
	return childKey{
		Namespace: cmp.Or(namespace, parent.GetNamespace()),
		ProcessID: fmt.Sprintf("%s/%s~%d", parent.GetProcessId(), full, r.journal.origin),
	}
}

// reported returns the args with which the end of a child is reported: its full name.
func reported(full string) []byte {
	text, _ := json.Marshal(full) // strings can be encoded
	return text
}

// begin records a child and sends the command that starts it.
func (b *branch) begin(full string, child childKey, command *progressorv1.Command) {
	started, _ := json.Marshal(child) // strings can be encoded
	b.send(child.kind(), entry{Kind: kindChild, Name: full, Value: started}, command)
}

// Process returns the namespace and the process ID of the child, the job or the run. The process ID
// of a run is ~flow/ followed by the ID of the run.
func (f *Future[Out]) Process() process.Key { return f.child.key() }

// Get waits until the child has ended for the first time, and returns its response, decoded from
// JSON, or the zero value if the response is empty. It returns a *StepError if the child was
// rejected, is in ERROR, or was cancelled or removed. If the child is a durable function that
// returned a rejection, the error has its reason, and Rejected is true. The response of a job or a
// run is its result. If a job has no attempts left, it is in ERROR. The error of a run that has
// failed has the reason of its failure. If an answer to a question cannot be decoded, the error has
// ReasonBadValue.
func (f *Future[Out]) Get() (Out, error) {
	b := f.branch
	b.enter()
	b.await(&wait{until: []entryKey{{kindEnded, f.name}},
		ready: func() bool { return b.owner.journal.has(kindEnded, f.name) }})
	e, _ := b.owner.journal.find(kindEnded, f.name)
	if e.Error != nil {
		var zero Out
		failed := *e.Error
		failed.Message = fmt.Sprintf("%s %s: %s", f.child.kind(), f.name, failed.Message)
		return zero, &failed
	}
	if err := f.checkAnswer(e.Value); err != nil {
		var zero Out
		return zero, err
	}
	return decode[Out](b, "the response of "+f.child.kind()+" "+f.name, e.Value), nil
}

// checkAnswer returns an error if the answer of a person cannot be decoded. A deploy check reports
// such an answer, because its type may have changed.
func (f *Future[Out]) checkAnswer(text json.RawMessage) error {
	if !f.isQuestion || len(text) == 0 {
		return nil
	}
	c := f.branch.owner.check
	if c != nil && bytes.Equal(text, assumedValue) {
		return nil
	}
	err := json.Unmarshal(text, new(Out))
	if err == nil {
		return nil
	}
	reason := "cannot be decoded: " + strings.TrimPrefix(err.Error(), "json: ")
	if c != nil {
		c.differs(kindChild, f.name, "the answer %s", reason)
	}
	return &StepError{Reason: ReasonBadValue, Message: cut(fmt.Sprintf("the answer of %s %s %s",
		f.child.kind(), f.name, reason))}
}

// Cancel asks the child to end, as CancelProcess or CancelRun does, and does not wait. Nothing
// happens if the child has ended or was already asked.
func (f *Future[Out]) Cancel(reason string) {
	b := f.branch
	b.enter()
	if j := b.owner.journal; !j.has(kindEnded, f.name) && !j.has(kindCancel, f.name) {
		b.send(f.child.kind(), entry{Kind: kindCancel, Name: f.name}, b.owner.cancelOf(f.child, reason))
	}
}

func (f *Future[Out]) source() source {
	until := entryKey{kindEnded, f.name}
	return source{branch: f.branch, id: "child " + f.name, until: until, position: func() (int, bool) {
		return f.branch.owner.journal.position(kindEnded, f.name)
	}}
}

// childOf returns the child that an entry has started.
func childOf(e *entry) (child childKey) {
	_ = json.Unmarshal(e.Value, &child) // this package has written it
	return child
}

// recordedChild returns the child in an entry. A check compares it with want, the child that the
// function would start.
func (b *branch) recordedChild(e *entry, want childKey) childKey {
	child := childOf(e)
	if b.owner.check == nil {
		return child
	}
	namespace := cmp.Or(want.Namespace, b.owner.request.GetProcess().GetNamespace())
	switch {
	case child.kind() != want.kind(), child.Run != "" && child.Run != want.Run:
		b.owner.check.differs(kindChild, e.Name, "was started as a %s, but is now a %s", child.fullKind(),
			want.fullKind())
	case child.Namespace != namespace:
		b.owner.check.differs(kindChild, e.Name, "was started in the namespace %s, not in %s", child.Namespace,
			namespace)
	}
	return child
}

// targetOf returns the namespace of a command. It is empty for the namespace of the function.
func (r *run) targetOf(c childKey) string {
	if c.Namespace == r.request.GetProcess().GetNamespace() {
		return ""
	}
	return c.Namespace
}

func (r *run) cancelOf(c childKey, reason string) *progressorv1.Command {
	return &progressorv1.Command{Command: &progressorv1.Command_Cancel{Cancel: &progressorv1.CancelCommand{
		Namespace: r.targetOf(c), ProcessId: c.ProcessID, Reason: reason,
	}}}
}

// send adds an entry to the journal and a command to the result that stores it. A function that has
// failed or is cancelled does not continue here.
func (b *branch) send(kind string, e entry, command *progressorv1.Command) {
	r := b.owner
	response, err := processor.Result().Command(command).Done()
	if err == nil {
		err = processor.Check(progressorv1.TaskType_TASK_TYPE_TIMEOUT, response)
	}
	if bad, ok := errors.AsType[*process.InvalidError](err); ok {
		err = bad
	}
	if err != nil {
		r.misuse("%s %s: %s", kind, e.Name, err)
	}
	b.await(&wait{flush: true, ready: func() bool {
		return r.request.GetType() != progressorv1.TaskType_TASK_TYPE_CANCEL && r.journal.ended() == nil &&
			len(r.effects.commands) < process.MaxCommands && !r.journal.isFull()
	}})
	b.record(e)
	r.journal.bytes += proto.Size(command)
	r.effects.commands = append(r.effects.commands, command)
}

// childEnded records the end of a child.
func (t *task) childEnded() (*progressorv1.ProcessResponse, error) {
	end := t.request.GetChild()
	var name string
	_ = json.Unmarshal(t.request.GetArgs(), &name) // args of others are not the name of a child
	e, ok := t.journal.find(kindChild, name)
	ended := process.Key{Namespace: end.GetNamespace(), ProcessID: end.GetProcessId()}
	if !ok || childOf(e).key() != ended || t.journal.has(kindEnded, name) {
		return nil, processor.Reject(processor.ReasonNotHandled, "the function does not wait for the process %s/%s",
			end.GetNamespace(), end.GetProcessId())
	}
	value, failed := outcomeOf(end, childOf(e).kind() != targetChild)
	t.journal.add(entry{Kind: kindEnded, Name: name, Value: value, Error: failed})
	return t.advanceAndFinish(nil)
}

// outcomeOf returns the response of a child, or its error. Only the response of a process may be a
// rejection, because the result of a job or a run can be any value.
func outcomeOf(end *progressorv1.ChildEnd, isResult bool) (json.RawMessage, *StepError) {
	switch end.GetStatus() {
	case progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED:
		return valueOf(end.GetResponse(), isResult)
	case progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED:
		return nil, &StepError{Reason: ReasonChildCancelled, Message: "the process was cancelled"}
	case progressorv1.ProcessStatus_PROCESS_STATUS_ERROR:
		return nil, &StepError{
			Reason: cut(cmp.Or(end.GetReason(), ReasonChildFailed)), Message: cut(end.GetDetail()),
		}
	}
	if text, ok := strings.CutPrefix(end.GetDetail(), "rejected: "); ok {
		reason, message, _ := strings.Cut(text, ": ")
		return nil, &StepError{Reason: cut(reason), Message: cut(cmp.Or(message, reason)), Rejected: true}
	}
	if strings.HasPrefix(end.GetDetail(), "not started: ") {
		return nil, &StepError{Reason: ReasonChildFailed, Message: cut(end.GetDetail())}
	}
	if len(end.GetResponse()) > 0 { // from the result that removed the process
		return valueOf(end.GetResponse(), isResult)
	}
	return nil, &StepError{Reason: ReasonChildRemoved, Message: "the process was removed"}
}

// valueOf returns the value or the rejection in a response.
func valueOf(response []byte, isResult bool) (json.RawMessage, *StepError) {
	if !isResult && bytes.HasPrefix(response, []byte(`{"k":"fail",`)) {
		if e, err := parseEntry(response); err == nil && e.Error != nil && e.Error.Rejected {
			return nil, &StepError{Reason: cut(e.Error.Reason), Message: cut(e.Error.Message), Rejected: true}
		}
	}
	switch {
	case len(response) == 0:
		return nil, nil
	case len(response) > maxValueBytes:
		return nil, &StepError{Reason: ReasonBadValue,
			Message: fmt.Sprintf("the response has %d bytes, at most %d are allowed", len(response), maxValueBytes)}
	case !json.Valid(response):
		return nil, &StepError{Reason: ReasonBadValue, Message: "the response is not JSON"}
	}
	return response, nil
}

// cancelChildren asks the running children to end, but not more than the number of commands that
// the result can contain. It reports whether it asked any.
func (t *task) cancelChildren(reason string) bool {
	asked := false
	for _, e := range t.journal.entries {
		if e.Kind != kindChild || t.journal.has(kindEnded, e.Name) || t.journal.has(kindCancel, e.Name) ||
			len(t.effects.commands) == process.MaxCommands {
			continue
		}
		t.journal.add(entry{Kind: kindCancel, Name: e.Name})
		t.effects.commands = append(t.effects.commands, t.cancelOf(childOf(&e), reason))
		asked = true
	}
	return asked
}
