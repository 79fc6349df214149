package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// Kind describes processes of one kind, as stored in the column kind, or background work that has
// no processes. The subpackages define kinds, and the program adds them.
type Kind struct {
	Name string
	// Processor runs the tasks of these processes on every node. If it is nil, the processor of the
	// namespace runs them. Because Processor is a part of the engine, the policies internalRetry
	// and commandRetry apply to these tasks, and not the retry and zombie policies of the
	// namespace. The tasks have no history. AttemptOf gives Processor access to additional
	// features.
	Processor processor.Processor
	// Timeout returns how long an attempt of a timer may take, if that is longer than the step
	// timeout of its namespace. It may be nil.
	Timeout func(*storage.Claim) time.Duration
	// Describe returns the name and the timeout of the process in a claim. ok is false if the
	// process has neither. Describe may be nil.
	Describe func(*storage.Claim) (name string, timeout time.Duration, ok bool)
	// CancelsAttempts is set if the cancel of a process cancels the attempt that runs. Processes of
	// other kinds get a CANCEL task.
	CancelsAttempts bool
	// Decide changes what is stored for the end of an attempt, after the rules for all processes
	// were applied. It is pure. It may be nil.
	Decide func(End, *storage.Completion)
	// Forget deletes one batch of rows whose retention is over from the tables of the kind. more is
	// true if more rows may be left. It may be nil.
	Forget func(ctx context.Context) (more bool, err error)
	// Expire deletes one batch of rows of the kind that are older than the longest retention of
	// their namespace. longest contains the retentions by namespace. more is true if more rows may
	// be left. It may be nil.
	Expire func(ctx context.Context, longest map[string]time.Duration) (more bool, err error)
	// Run does background work for the kind on every node until ctx is cancelled. It may be nil.
	Run func(ctx context.Context) error
	// Admit reports whether a claim may run. If it may not, the task is released. If Admit is nil,
	// every claim may run. Each task of a kind with Admit is claimed separately, so no attempt
	// continues with the next task.
	Admit func(*storage.Claim) bool
	// Pause is called when a claim certainly did not reach the processor. It returns how the task
	// waits for the next try. Its slot is released, and no attempt is used up. ok is false if the
	// attempt has failed. If Pause is nil, the attempt waits in its slot.
	Pause func(
		ctx context.Context, c *storage.Claim, retry process.RetryPolicy, cause string,
	) (pause Pause, ok bool, err error)
	// Stored is called after the end of an attempt is stored, with its database time (zero if
	// unknown). For a zombie, the claim is End.Claim. It must not block. It may be nil.
	Stored func(*storage.Claim, *storage.Completion, time.Time)
	// Explain adds facts of the kind to the explanation of a process. It may be nil.
	Explain func(context.Context, *progressorv1.Process, *explain.State) error
	// CheckNamespace validates the settings of a namespace that belong to the kind. It may be nil.
	CheckNamespace func(*progressorv1.Namespace) error
	Starts         StartHooks
	// Wake is called when the kind has something to check, such as the end of a member or a due
	// time. It must not block. Spurious calls are allowed. It may be nil.
	Wake func()
	// Hears contains functions that receive the payloads of NOTIFYs, by channel. They are called
	// with "" when notices may have been lost. They must not block.
	Hears map[string]func(payload string)
	// Urgent is set if the tasks of the kind do not wait for slots. It may be nil.
	Urgent *Urgent
	// ObserveNamespaces is called once a second with the state of all namespaces. It must not
	// block. It may be nil.
	ObserveNamespaces func([]storage.NamespaceState)

	nameKey string // attribute for the name in spans
}

// StartHooks are functions of a kind for messages that start and cancel processes, and for the ends
// of these processes.
type StartHooks struct {
	// Before is called before messages for a process are delivered, if its namespace has a fairness
	// key. It may be nil.
	Before func(context.Context, process.Key) error
	// Message returns the message of a command to a process of the kind. It must not block. It may
	// be nil.
	Message wire.KindMessage
	// ReadEnd converts the end of a process of the kind to the form that its parent, a user
	// process, receives. It leaves the ends of other processes unchanged. It may be nil.
	ReadEnd func(context.Context, *progressorv1.ChildEnd) error
}

// Pause is the wait of a task whose processor was not reached.
type Pause struct {
	For    time.Duration
	Effect storage.Effect // stored with the release of the task
}

// Admits reports whether a claim may run.
func (e *Engine) Admits(c *storage.Claim) bool {
	admit := e.kinds[c.Kind].Admit
	return admit == nil || admit(c)
}

// End is the end of an attempt as input of Kind.Decide.
type End struct {
	Claim     *storage.Claim                // for a zombie: see storage.ZombieClaim
	WorkerID  string                        // worker that held the lease; "" if a node ran the attempt
	Response  *progressorv1.ProcessResponse // nil if there is none
	Failure   *progressorv1.Failure         // why the attempt failed; nil if it did not
	Lost      bool                          // the worker or the node was lost
	Zombie    process.ZombiePolicy          // if Lost: the zombie policy of the namespace
	NeverBeat bool                          // if Lost: the lease may never have reached the worker
	Released  bool                          // the task is released: its attempt was not made or was interrupted
	// if Released: why the processor was not reached; "" for other reasons
	Unreached    string
	Acknowledged bool    // the worker stopped because of a cancel directive
	Random       float64 // in [0, 1): the jitter of a wait
}

// checkByKinds validates the settings of a namespace that belong to kinds.
func (e *Engine) checkByKinds(m *progressorv1.Namespace) error {
	for _, k := range e.kinds {
		if k.CheckNamespace == nil {
			continue
		}
		if err := k.CheckNamespace(m); err != nil {
			return err
		}
	}
	return nil
}

// kindMessage returns the message of a command to a process of a kind. See wire.KindMessage.
func (e *Engine) kindMessage(sender process.Key, c *progressorv1.Command) (m storage.Message, ok bool, err error) {
	for _, k := range e.kinds {
		if k.Starts.Message == nil {
			continue
		}
		if m, ok, err = k.Starts.Message(sender, c); ok {
			return m, true, err
		}
	}
	return storage.Message{}, false, nil
}

// request returns the request that a processor receives for a claim. If the end of a child cannot
// be read, it returns errReleased.
func (e *Engine) request(
	c *storage.Claim, history []storage.Event, asked *progressorv1.HistoryRange, deadline time.Time,
) (*progressorv1.ProcessRequest, error) {
	request, err := wire.Request(c, history, asked, deadline)
	if err != nil {
		return nil, fmt.Errorf("request of %s/%s: %w", c.Namespace, c.ProcessID, err)
	}
	if request.GetChild() == nil || process.Own(c.ProcessID) {
		return request, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for _, k := range e.kinds {
		if k.Starts.ReadEnd == nil {
			continue
		}
		if err := k.Starts.ReadEnd(ctx, request.GetChild()); err != nil {
			e.log.Warn("cannot read the end of a child, will retry", "namespace", c.Namespace, "process_id",
				c.ProcessID, "error", err)
			return nil, fmt.Errorf("%w: %w", errReleased, err)
		}
	}
	return request, nil
}

// beforeStarts calls StartHooks.Before of all kinds if the namespace of a process has a fairness
// key.
func (e *Engine) beforeStarts(target process.Key) error {
	if ns := e.registry.all()[target.Namespace]; ns == nil || ns.fairnessKey == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for _, k := range e.kinds {
		if k.Starts.Before == nil {
			continue
		}
		if err := k.Starts.Before(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// wakeKinds calls Wake of all kinds.
func (e *Engine) wakeKinds() {
	for _, k := range e.kinds {
		if k.Wake != nil {
			k.Wake()
		}
	}
}

// Add registers kinds. It must be called before Run.
func (e *Engine) Add(kinds ...Kind) {
	for _, k := range kinds {
		if k.Processor != nil {
			k.Processor = processor.Guard(k.Processor, e.log)
		}
		k.nameKey = "progressor." + k.Name + "_name"
		e.kinds[k.Name] = k
		if k.Urgent != nil {
			e.metrics.scanErrors.WithLabelValues(urgentTimers(k))
			e.metrics.scanErrors.WithLabelValues(urgentCalls(k))
		}
	}
}

// internalRetry is the retry policy of tasks of kinds that have a Processor. Such a task fails
// because of the database or a defect of the engine. It fails permanently after a day.
var internalRetry = process.RetryPolicy{
	Initial: time.Second, Coefficient: 2, Max: time.Minute, MaxAttempts: 1440, JitterPortion: 0.1,
}

// commandRetry is the retry policy of INIT, CALL and REPAIR tasks of these kinds. It lasts about 15
// minutes. See failCommand.
var commandRetry = process.RetryPolicy{
	Initial: time.Second, Coefficient: 2, Max: time.Minute, MaxAttempts: 20, JitterPortion: 0.1,
	NonRetryable: []string{process.ReasonPanic, process.ReasonBadResponse},
}

// If a node does not know the kind of a task, because a node with a newer version created the
// process, the task waits before another node claims it. The wait doubles each time. With a
// constant wait of a second, 10,000 such processes would cause 10,000 useless claims per second.
// With the longest wait, they cause 330. The longest wait is also the maximum delay of a task after
// all nodes know its kind.
const (
	unknownKindPause    = time.Second
	maxUnknownKindPause = 30 * time.Second
)

var errUnknownKind = fmt.Errorf("%w: this node does not know the kind of the process", errReleased)

// effectiveConfig returns the configuration for processes of a kind.
func (e *Engine) effectiveConfig(ns *namespace, kind string) *namespace {
	if kind == "" {
		return ns
	}
	k, known := e.kinds[kind]
	if known && k.Processor == nil {
		return ns
	}
	own := *ns
	own.processor, own.retry, own.zombie, own.history = k.Processor, internalRetry, process.ZombieRetry,
		process.HistoryNone
	own.unreachable, own.commandsTo = nil, nil // the processor is part of this program
	if !known {
		own.processor = processor.Func(func(
			context.Context, *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			return nil, errUnknownKind
		})
	}
	return &own
}

// pauseOf returns how long a released task waits. waited is its previous wait.
func pauseOf(err error, waited time.Duration) time.Duration {
	if errors.Is(err, errUnknownKind) {
		return min(max(2*waited, unknownKindPause), maxUnknownKindPause)
	}
	return 0
}
