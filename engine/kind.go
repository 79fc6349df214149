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
)

// Kind is what processes of one kind, as the column kind names it, have in common. The packages above this one bring kinds, and the
// program adds them: the engine knows none.
type Kind struct {
	Name string
	// Processor runs the tasks of these processes on every node, whatever the processor of their namespace is; nil: that one does.
	// Because it is a part of the engine, its tasks are tried again for as long as a fault may last, whatever the
	// namespace's retry and zombie policies are. See internalRetry and commandRetry. It gets no history.
	// AttemptOf gives it what it has beyond a user's processor.
	Processor processor.Processor
	// Timeout is how long an attempt of a timer may take, if that is longer than the step timeout of its namespace. nil: never.
	Timeout func(*storage.Claim) time.Duration
	// Decide changes what is stored of the end of an attempt, after what holds for every process. It is pure. nil: nothing.
	Decide func(End, *storage.Completion)
	// Forget drops what is past its retention in the tables of the kind, a batch; more: there is more of it. nil: it has none.
	Forget func(ctx context.Context) (more bool, err error)
	// Run works for the kind beside its processes, on every node, until ctx ends. nil: there is nothing to do.
	Run func(ctx context.Context) error
	// Admit tells whether what was claimed may run; if not, it is given back. nil: everything. A kind with it has each of its tasks claimed:
	// none is handed on to the next attempt of its process.
	Admit func(*storage.Claim) bool
	// Stored is told when the end of an attempt is stored, and when that was by the database's clock (zero: not known). Of a zombie the claim is
	// that of End. It must not wait. nil: nobody.
	Stored func(*storage.Claim, *storage.Completion, time.Time)
	// Explain adds what is to be said of a process of the kind that stands still. nil: nothing.
	Explain func(context.Context, *progressorv1.Process, *explain.State) error
	// Noted is told when something came to a process of the kind that it looks at by itself: the end of a member, a time that has come. It must not
	// wait, and may be told in vain. nil: nobody.
	Noted func()
	// Standing is told once a second how all namespaces stand. It must not wait. nil: nobody.
	Standing func([]storage.Standing)
}

// admits tells whether a claim may run.
func (e *Engine) admits(c *storage.Claim) bool {
	admit := e.kinds[c.Kind].Admit
	return admit == nil || admit(c)
}

// End is the end of an attempt as a kind decides about it.
type End struct {
	Claim        *storage.Claim                // of a zombie only key, task, attempt, token, kind and job
	WorkerID     string                        // who held it as a lease; "": a node ran it
	Response     *progressorv1.ProcessResponse // nil: there is none
	Failure      *progressorv1.Failure         // why it failed; nil: it did not
	Lost         bool                          // its worker, or its node, was lost
	Zombie       process.ZombiePolicy          // likewise: what the namespace says of such a task
	NeverBeat    bool                          // likewise, and the lease may never have reached the worker
	GivenBack    bool                          // it was not made
	Acknowledged bool                          // the worker stopped because it was told to
	Random       float64                       // in [0, 1): the jitter of a wait
}

// noted tells the kinds that there may be something to look at.
func (e *Engine) noted() {
	for _, k := range e.kinds {
		if k.Noted != nil {
			k.Noted()
		}
	}
}

// cronKind is the kind whose timers are claimed before others: those that SearchCronTimers finds.
const cronKind = "cron"

// Add makes kinds known to the node. It must not be called once Run is.
func (e *Engine) Add(kinds ...Kind) {
	for _, k := range kinds {
		if k.Processor != nil {
			k.Processor = processor.Guard(k.Processor, e.log)
		}
		e.kinds[k.Name] = k
	}
}

// internalRetry is how the tasks of kinds are tried again that have a processor of their own: a failure of theirs is one of the database or
// of this program. With these waits a task fails for good after a day.
var internalRetry = process.RetryPolicy{Initial: time.Second, Coefficient: 2, Max: time.Minute, MaxAttempts: 1440, JitterPortion: 0.1}

// commandRetry is the policy of INIT, CALL and REPAIR tasks of these processes: about a quarter of an hour. See
// failCommand.
var commandRetry = process.RetryPolicy{
	Initial: time.Second, Coefficient: 2, Max: time.Minute, MaxAttempts: 20, JitterPortion: 0.1,
	NonRetryable: []string{process.ReasonPanic, process.ReasonBadResponse},
}

// A task waits before the next node takes it, where this one does not know the kind: it runs an older version than the node that made
// the process. The wait doubles: ten thousand such processes that wait a second each are ten thousand claims a second for nothing, which
// are 330 with the longest wait. That one is also the most that a task is late once all nodes know its kind.
const (
	unknownKindPause    = time.Second
	maxUnknownKindPause = 30 * time.Second
)

var errUnknownKind = fmt.Errorf("%w: the kind of the process is not known to this node", errGivenBack)

// effectiveConfig is the configuration that holds for a process of a kind.
func (e *Engine) effectiveConfig(ns *namespace, kind string) *namespace {
	if kind == "" {
		return ns
	}
	k, known := e.kinds[kind]
	if known && k.Processor == nil {
		return ns
	}
	own := *ns
	own.processor, own.retry, own.zombie, own.history = k.Processor, internalRetry, process.ZombieRetry, process.HistoryNone
	own.away = nil // it is here
	if !known {
		own.processor = processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, errUnknownKind
		})
	}
	return &own
}

// pauseOf is how long a task waits that was given back, where it has waited for so long before.
func pauseOf(err error, waited time.Duration) time.Duration {
	if errors.Is(err, errUnknownKind) {
		return min(max(2*waited, unknownKindPause), maxUnknownKindPause)
	}
	return 0
}
