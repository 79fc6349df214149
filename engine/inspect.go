package engine

import (
	"context"
	"maps"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// The methods in this file let the subpackages read from an engine.

// Config returns the configuration of this node, with its defaults.
func (e *Engine) Config() Config { return e.cfg }

// Enter admits a request for one namespace, or for all namespaces that the request may see if
// namespace is "". It returns the names of these namespaces. It returns an error if the namespace
// does not exist, or if the node cannot admit the request. The caller must call leave at the end of
// the request.
func (e *Engine) Enter(ctx context.Context, namespace string) (names []string, leave func(), err error) {
	if namespace == "" {
		if err := e.admit(nil); err != nil {
			return nil, nil, err
		}
		return e.VisibleNames(ctx), func() { e.leave(nil) }, nil
	}
	share, err := e.enter(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	return []string{namespace}, func() { e.leave(share) }, nil
}

// EnterStream is like Enter, but for a stream of one namespace.
func (e *Engine) EnterStream(ctx context.Context, namespace string) (leave func(), err error) {
	share, err := e.enterWaiting(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return func() { e.leave(share) }, nil
}

// NamespaceState is the state of a namespace on this node.
type NamespaceState struct {
	Paused      bool
	Lease       time.Duration // duration of a lease if workers take the tasks; otherwise 0
	StepTimeout time.Duration
	MaxRunning  int
	MaxBacklog  int
	MaxAttempts int32
	Zombie      process.ZombiePolicy
	Processor   processor.Processor // nil if this node has none
	Unservable  error               // why there is no processor; nil if workers take the tasks
	Away        bool                // the last call did not reach the processor
}

// NamespaceState returns the state of a namespace. If this node does not know the namespace yet,
// NamespaceState reads it from the database.
func (e *Engine) NamespaceState(ctx context.Context, name string) (NamespaceState, error) {
	ns, err := e.namespace(ctx, name)
	if err != nil {
		return NamespaceState{}, err
	}
	return NamespaceState{
		Paused: ns.paused, Lease: ns.lease, StepTimeout: ns.stepTimeout, MaxRunning: ns.slots.size(),
		MaxBacklog:  ns.maxBacklog,
		MaxAttempts: ns.retry.MaxAttempts, Zombie: ns.zombie, Processor: ns.processor, Unservable: ns.unservable,
		Away: ns.unreachable.Load(),
	}, nil
}

// NodeState is the state of this node, and its view of the other nodes.
type NodeState struct {
	TasksRun bool // this node or another live one runs tasks
	Others   int  // other live nodes that run tasks
	// The median and the 99th percentile of the processing times of this node in the last minute,
	// or -1 if there were no tasks.
	ProcessingP50, ProcessingP99 time.Duration
}

// NodeState returns the state of this node.
func (e *Engine) NodeState() NodeState {
	s := NodeState{Others: e.peers.others()}
	s.TasksRun = !e.cfg.RequestsOnly && e.takesTasks() || s.Others > 0
	s.ProcessingP50, s.ProcessingP99 = e.minuteStats.processing(time.Now())
	return s
}

// Drained returns a channel that is closed when the drain of this node begins.
func (e *Engine) Drained() <-chan struct{} { return e.drained }

// FailedTries returns how many times an attempt on this node has failed to reach its processor, and
// why it failed last.
func (e *Engine) FailedTries(task storage.TaskRef) (times int32, cause string) {
	return e.attempts.failedTriesOf(task)
}

// RegisteredKinds returns the registered kinds by name. The caller may modify the map.
func (e *Engine) RegisteredKinds() map[string]Kind { return maps.Clone(e.kinds) }

// RecordWorkers stores the workers that this node has seen, so that lists include them.
func (e *Engine) RecordWorkers(ctx context.Context) error { return e.workers.Record(ctx) }
