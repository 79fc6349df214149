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

// MaxSteps is how many tasks one method of Process runs at most: timers that are due at once, for ever, end there.
const MaxSteps = 10_000

// ErrEndless says that a process went on for MaxSteps tasks without the clock being moved.
var ErrEndless = errors.New("the process does not come to rest: it sets timers that are due at once, again and again")

// Process is a process in memory that hands its tasks to a processor and applies the answers as the engine does: events
// are numbered, state and metadata replaced, timers set, failures retried by the policy, limits checked. Its clock stands
// still until Advance moves it; every method returns when nothing is left to do at its time.
//
//	p := processortest.New(orders)
//	response, err := p.Start(ctx, []byte(`{"order":"A-7"}`))
//	err = p.Advance(ctx, 15*time.Minute)
//	p.Status() // process.StatusCompleted
//
// What it does not do: wait, priorities, and the delivery of commands; Commands says what was sent. A processor that
// answers with an error about the way to it (processor.UnreachableError) has failed with the reason "unavailable".
type Process struct {
	processor processor.Processor
	retry     process.RetryPolicy
	mode      process.HistoryMode

	mu        sync.Mutex
	now       time.Time
	exists    bool
	state     *progressorv1.Process // without history and timers
	history   []*progressorv1.Event
	status    process.Status
	previous  process.Status
	tasks     []*progressorv1.Task // that have run, in the order of their ends
	waiting   []*task              // NOTIFY tasks
	timers    []*task
	broken    []*task // timers that an error has cancelled; the culprit first, if it was one
	lastTask  int64
	fencing   int64
	commands  []*progressorv1.Command
	answers   map[string]answer
	cancelled string    // the reason of a cancel
	ending    *task     // the CANCEL task; nothing else runs while there is one
	graceEnd  time.Time // when a cancel that is under way is over
}

// answer is what a request with an idempotency key was answered.
type answer struct {
	fingerprint string
	response    []byte
	err         error
}

// Option changes how New makes a process.
type Option func(*Process)

// WithKey sets the namespace and the process id. Default: "test" and "process".
func WithKey(namespace, processID string) Option {
	return func(p *Process) { p.state.Namespace, p.state.ProcessId = namespace, processID }
}

// WithTime sets where the clock stands. Default: 2026-01-01T00:00:00Z.
func WithTime(now time.Time) Option { return func(p *Process) { p.now = now } }

// WithRetryPolicy sets how failed timers and NOTIFY tasks are tried again; its jitter is not used. Default:
// process.DefaultRetryPolicy.
func WithRetryPolicy(policy process.RetryPolicy) Option { return func(p *Process) { p.retry = policy } }

// WithHistory sets what tasks are shown of the history. Default: process.HistoryFull.
func WithHistory(mode process.HistoryMode) Option { return func(p *Process) { p.mode = mode } }

// New makes a process that does not exist yet: Start is its first request.
func New(p processor.Processor, opts ...Option) *Process {
	made := &Process{
		processor: processor.Guard(p, nil),
		retry:     process.DefaultRetryPolicy(),
		mode:      process.HistoryFull,
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		state:     &progressorv1.Process{Namespace: "test", ProcessId: "process", FirstEventId: 1},
		answers:   map[string]answer{},
	}
	for _, opt := range opts {
		opt(made)
	}
	return made
}

// RequestOption adds to a request.
type RequestOption func(*request)

type request struct {
	context        []byte
	idempotencyKey string
	metadata       *structpb.Struct
	historyRange   *progressorv1.HistoryRange
}

// Context is handed to the processor with the task and with the timers that it sets.
func Context(text []byte) RequestOption { return func(r *request) { r.context = text } }

// IdempotencyKey makes a repeated request get the first one's answer.
func IdempotencyKey(key string) RequestOption { return func(r *request) { r.idempotencyKey = key } }

// Metadata are the attributes that Start gives the process.
func Metadata(metadata *structpb.Struct) RequestOption {
	return func(r *request) { r.metadata = metadata }
}

// Range is what the task is shown of the history.
func Range(historyRange *progressorv1.HistoryRange) RequestOption {
	return func(r *request) { r.historyRange = historyRange }
}

// Start creates the process and runs its INIT task. The error is a *processor.RejectionError (the process is gone) or a
// *processor.FailureError (it is in ERROR); process.ErrProcessExists where it exists.
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

// Call runs a CALL task and answers with the processor's response. The error is a *processor.RejectionError, a
// *processor.FailureError (the process is in ERROR then) or a *process.WrongStatusError.
func (p *Process) Call(ctx context.Context, args []byte, opts ...RequestOption) ([]byte, error) {
	return p.request(ctx, "Call", args, opts, func(r request) (*task, error) {
		if err := p.allow(process.StatusRunning); err != nil {
			return nil, err
		}
		if p.ending != nil {
			return nil, &process.WrongStatusError{Key: p.key(), Status: p.status, Reason: "it is being cancelled, and the call with it"}
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

// RepairSimple takes the process out of ERROR without asking the processor: the timer that broke it, if it was one, runs
// again.
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

// Notify adds a NOTIFY task: a call nobody waits for. What becomes of it is in Trace, Status and Detail.
func (p *Process) Notify(ctx context.Context, args []byte, opts ...RequestOption) error {
	return p.notify(ctx, args, nil, opts)
}

// ChildEnded adds the NOTIFY task that tells a parent of its child's end.
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

// Cancel asks the process to end: in RUNNING the processor gets a CANCEL task, whose result is stored; then, whatever it
// said, the process is CANCELLED (removed, if it said so). A CANCEL that fails is tried again by the policy, and nothing else
// runs until then; out of attempts, or when process.DefaultCancelGrace is over, the process is CANCELLED all the same.
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
		p.ending, p.graceEnd = p.newTask(progressorv1.TaskType_TASK_TYPE_CANCEL, nil, request{}), p.now.Add(process.DefaultCancelGrace)
	}
	return p.drive(ctx)
}

// Suspend holds the process: calls are refused and timers wait until Resume.
func (p *Process) Suspend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusRunning, process.StatusSuspended); err != nil {
		return err
	}
	p.settleStatus(process.StatusSuspended)
	return nil
}

// Resume lets a suspended process go on: what came due meanwhile runs.
func (p *Process) Resume(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allow(process.StatusSuspended, process.StatusRunning); err != nil {
		return err
	}
	p.settleStatus(process.StatusRunning)
	return p.drive(ctx)
}

// Advance moves the clock by d and runs every timer and retry that comes due on the way, each at its own time.
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

// request runs one task that somebody waits for, and then what is due.
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
		return slices.Clone(first.response), first.err
	}
	admitted, err := admit(r)
	if err != nil {
		return nil, err
	}
	response, err := p.run(ctx, admitted)
	if r.idempotencyKey != "" && p.exists { // a key leaves with its process
		p.answers[r.idempotencyKey] = answer{fingerprint: fingerprint, response: response, err: err}
	}
	if err != nil {
		return nil, err
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

// allow refuses what the status does not allow.
func (p *Process) allow(statuses ...process.Status) error {
	if !p.exists {
		return fmt.Errorf("%s: %w", p.key(), process.ErrProcessNotFound)
	}
	if !slices.Contains(statuses, p.status) {
		return &process.WrongStatusError{Key: p.key(), Status: p.status, Reason: fmt.Sprintf("this needs one of %v", statuses)}
	}
	return nil
}

func (p *Process) key() process.Key {
	return process.Key{Namespace: p.state.GetNamespace(), ProcessID: p.state.GetProcessId()}
}
