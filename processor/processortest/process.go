package processortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// MaxSteps is the maximum number of tasks that one method of Process runs. It stops processes that
// keep setting timers that are due at once.
const MaxSteps = 10_000

// ErrEndless is returned if a process still has due tasks after MaxSteps tasks.
var ErrEndless = errors.New("process does not become idle: it keeps setting timers that are due at once")

// Process is a process in memory that passes its tasks to a processor and applies the answers as
// the engine does: it numbers events, replaces state and metadata, sets timers, retries failures
// and checks limits. Its clock only moves with Advance. Every method returns when nothing more is
// due. Process is safe for concurrent use.
//
//	p := processortest.New(orders)
//	response, err := p.Start(ctx, []byte(`{"order":"A-7"}`))
//	err = p.Advance(ctx, 15*time.Minute)
//	p.Status() // process.StatusCompleted
//
// Process does not wait, has no priorities and does not deliver commands; Commands returns them. A
// processor that returns an error about the transport (processor.UnreachableError) fails with the
// reason "unavailable".
type Process struct {
	processor processor.Processor
	settings  settings

	mu       sync.Mutex
	now      time.Time
	exists   bool
	state    *progressorv1.Process // without history and timers
	history  []*progressorv1.Event
	status   process.Status
	previous process.Status
	tasks    []*progressorv1.Task // ended tasks, in the order of their ends
	queues
	lastTask  int64
	fencing   int64
	commands  []*progressorv1.Command
	answers   map[string]answer
	cancelled string    // reason of the cancel
	ending    *task     // the CANCEL task; no other task runs until it has ended
	graceEnd  time.Time // when the grace period of the cancel ends
}

// queues contains the tasks that have not ended.
type queues struct {
	waiting []*task // NOTIFY tasks
	open    []*task // tasks whose response is deferred
	timers  []*task
	broken  []*task // timers cancelled by an error; the one that failed comes first
}

// settings are the rules of the namespace.
type settings struct {
	retry  process.RetryPolicy
	mode   process.HistoryMode
	pushed bool // no checkpoints
}

// answer is the answer to a request with an idempotency key.
type answer struct {
	fingerprint string
	deferred    int64 // the task whose response was deferred, or 0
	response    []byte
	err         error
}

// Option configures a Process.
type Option func(*Process)

// WithKey sets the namespace and the process ID; the default is "test" and "process".
func WithKey(namespace, processID string) Option {
	return func(p *Process) { p.state.Namespace, p.state.ProcessId = namespace, processID }
}

// WithTime sets the initial time of the clock; the default is 2026-01-01T00:00:00Z.
func WithTime(now time.Time) Option { return func(p *Process) { p.now = now } }

// WithRetryPolicy sets the retry policy of timers, NOTIFY and CANCEL tasks, without jitter; the
// default is process.DefaultRetryPolicy.
func WithRetryPolicy(policy process.RetryPolicy) Option {
	return func(p *Process) { p.settings.retry = policy }
}

// WithHistory sets which part of the history tasks receive; the default is process.HistoryFull.
func WithHistory(mode process.HistoryMode) Option { return func(p *Process) { p.settings.mode = mode } }

// WithoutCheckpoints prevents checkpoints, as for a processor to which the engine pushes tasks. See
// processor.Checkpoint.
func WithoutCheckpoints() Option { return func(p *Process) { p.settings.pushed = true } }

// New returns a process that does not exist yet. Start creates it.
func New(p processor.Processor, opts ...Option) *Process {
	made := &Process{
		processor: processor.Guard(p, nil),
		settings:  settings{retry: process.DefaultRetryPolicy(), mode: process.HistoryFull},
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		state:     &progressorv1.Process{Namespace: "test", ProcessId: "process", FirstEventId: 1},
		answers:   map[string]answer{},
	}
	for _, opt := range opts {
		opt(made)
	}
	return made
}

// RequestOption configures a request.
type RequestOption func(*request)

type request struct {
	context        []byte
	idempotencyKey string
	metadata       *structpb.Struct
	historyRange   *progressorv1.HistoryRange
}

// Context sets the context that the processor receives with the task and with the timers that the
// task sets.
func Context(text []byte) RequestOption { return func(r *request) { r.context = text } }

// IdempotencyKey sets the idempotency key. A repeated request returns the first answer.
func IdempotencyKey(key string) RequestOption { return func(r *request) { r.idempotencyKey = key } }

// Metadata sets the attributes of the process that Start creates.
func Metadata(metadata *structpb.Struct) RequestOption {
	return func(r *request) { r.metadata = metadata }
}

// Range sets which part of the history the task receives.
func Range(historyRange *progressorv1.HistoryRange) RequestOption {
	return func(r *request) { r.historyRange = historyRange }
}

// Start creates the process and runs its INIT task. The error is a *processor.RejectionError (the
// process is removed), a *processor.FailureError (the process is in ERROR), or
// process.ErrProcessExists.
func (p *Process) Start(ctx context.Context, args []byte, opts ...RequestOption) ([]byte, error) {
	return p.request(ctx, "Start", args, opts, func(r request) (*task, error) {
		if p.exists {
			return nil, fmt.Errorf("start %s: %w", p.key(), process.ErrProcessExists)
		}
		p.exists, p.status = true, process.StatusInit
		p.state.Metadata = proto.CloneOf(r.metadata)
		p.state.CreatedTime = timestamppb.New(p.now)
		return p.newTask(progressorv1.TaskType_TASK_TYPE_INIT, args, r), nil
	})
}

// Call runs a CALL task and returns the processor's response. The error is a
// *processor.RejectionError, a *processor.FailureError (the process is in ERROR), a
// *process.WrongStatusError, process.ErrProcessNotFound, process.ErrIdempotencyMismatch,
// ErrDeferred or ErrCancelled.
func (p *Process) Call(ctx context.Context, args []byte, opts ...RequestOption) ([]byte, error) {
	return p.request(ctx, "Call", args, opts, func(r request) (*task, error) {
		if err := p.allow(process.StatusRunning); err != nil {
			return nil, err
		}
		if p.ending != nil {
			return nil, &process.WrongStatusError{Key: p.key(), Status: p.status, Reason: "it is being cancelled"}
		}
		return p.newTask(progressorv1.TaskType_TASK_TYPE_CALL, args, r), nil
	})
}

// Repair runs a REPAIR task on a process in ERROR.
func (p *Process) Repair(ctx context.Context, args []byte, opts ...RequestOption) ([]byte, error) {
	return p.request(ctx, "Repair", args, opts, func(r request) (*task, error) {
		if err := p.allow(process.StatusError); err != nil {
			return nil, err
		}
		return p.newTask(progressorv1.TaskType_TASK_TYPE_REPAIR, args, r), nil
	})
}

// RepairSimple takes the process out of ERROR without calling the processor. If a timer failed, it
// runs again.
func (p *Process) RepairSimple(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusError); err != nil {
		return err
	}
	p.restore(&progressorv1.Result{})
	p.settleStatus(process.StatusRunning)
	return p.drive(ctx)
}

// Notify adds a NOTIFY task and runs it. Trace, Status and Detail show its outcome.
func (p *Process) Notify(ctx context.Context, args []byte, opts ...RequestOption) error {
	return p.notify(ctx, args, nil, opts)
}

// ChildEnded adds the NOTIFY task that a parent receives when its child ends.
func (p *Process) ChildEnded(ctx context.Context, child *progressorv1.ChildEnd, args []byte) error {
	return p.notify(ctx, args, child, nil)
}

func (p *Process) notify(ctx context.Context, args []byte, child *progressorv1.ChildEnd, opts []RequestOption) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusRunning); err != nil {
		return err
	}
	notify := p.newTask(progressorv1.TaskType_TASK_TYPE_NOTIFY, args, requested(opts))
	notify.child = child
	p.waiting = append(p.waiting, notify)
	return p.drive(ctx)
}

// Cancel cancels the process. In RUNNING the processor receives a CANCEL task, whose result is
// stored; then the process is CANCELLED, or removed if the result requests it. A CANCEL that fails
// is retried, and no other task runs until it has ended. Without attempts left, or after
// process.DefaultCancelGrace, the process is CANCELLED anyway.
func (p *Process) Cancel(ctx context.Context, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusRunning, process.StatusError, process.StatusSuspended); err != nil {
		return err
	}
	if p.ending == nil {
		p.cancelled = reason
		p.state.CancelReason, p.state.CancelRequestedTime = reason, timestamppb.New(p.now)
	}
	if p.status != process.StatusRunning {
		p.endWith(process.StatusCancelled)
		return nil
	}
	if p.ending == nil {
		p.ending, p.graceEnd = p.newTask(progressorv1.TaskType_TASK_TYPE_CANCEL, nil, request{}),
			p.now.Add(process.DefaultCancelGrace)
	}
	return p.drive(ctx)
}

// Suspend suspends the process: calls are rejected and timers wait until Resume.
func (p *Process) Suspend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusRunning, process.StatusSuspended); err != nil {
		return err
	}
	p.settleStatus(process.StatusSuspended)
	return nil
}

// Resume resumes a suspended process and runs what came due in the meantime.
func (p *Process) Resume(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusSuspended, process.StatusRunning); err != nil {
		return err
	}
	p.settleStatus(process.StatusRunning)
	return p.drive(ctx)
}

// Advance moves the clock by d. Every timer and retry that comes due on the way runs at its own
// time.
func (p *Process) Advance(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := p.now.Add(d)
	for {
		due, ok := p.nextDue()
		if !ok || due.After(until) {
			p.now = until
			return nil
		}
		if due.After(p.now) {
			p.now = due
		}
		if err := p.drive(ctx); err != nil {
			return err
		}
	}
}

// request runs one task of a caller, then everything that is due.
func (p *Process) request(
	ctx context.Context, method string, args []byte, opts []RequestOption, admit func(request) (*task, error),
) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := requested(opts)
	fingerprint := string(process.Fingerprint(method, args))
	if first, ok := p.answers[r.idempotencyKey]; ok && r.idempotencyKey != "" {
		if first.fingerprint != fingerprint {
			return nil, fmt.Errorf("%s %s: %w", method, p.key(), process.ErrIdempotencyMismatch)
		}
		if first.deferred > 0 {
			return p.outcome(first.deferred)
		}
		return slices.Clone(first.response), first.err
	}
	admitted, err := admit(r)
	if err != nil {
		return nil, err
	}
	response, err := p.run(ctx, admitted)
	given := answer{fingerprint: fingerprint, response: response, err: err}
	if slices.Contains(p.open, admitted) {
		given.deferred = admitted.id
	}
	if r.idempotencyKey != "" && p.exists { // keys are removed with their process
		p.answers[r.idempotencyKey] = given
	}
	switch {
	case err != nil:
		_ = p.drive(ctx) // a task that rejects itself can set timers
		return nil, err
	case given.deferred > 0:
		return p.deferred(ctx, admitted.id)
	}
	return slices.Clone(response), p.drive(ctx)
}

func requested(opts []RequestOption) request {
	var r request
	for _, opt := range opts {
		opt(&r)
	}
	return r
}

// allow returns an error unless the process has one of these statuses.
func (p *Process) allow(statuses ...process.Status) error {
	if !p.exists {
		return fmt.Errorf("%s: %w", p.key(), process.ErrProcessNotFound)
	}
	if !slices.Contains(statuses, p.status) {
		return &process.WrongStatusError{Key: p.key(), Status: p.status,
			Reason: fmt.Sprintf("must be one of %v", statuses)}
	}
	return nil
}

func (p *Process) key() process.Key {
	return process.Key{Namespace: p.state.GetNamespace(), ProcessID: p.state.GetProcessId()}
}
