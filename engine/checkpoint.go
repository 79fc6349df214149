package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// mayCheckpoint reports whether the attempts at a claim can store checkpoints: the processor is a
// part of the program and not of the engine, and the task can neither be rejected nor fail at once.
func mayCheckpoint(ns *namespace, c *storage.Claim) bool {
	return c.Kind == "" && ns.processor != nil && !ns.pushed && processor.AllowsCheckpoints(wire.TaskType(c.TaskType))
}

// checkpoints is the processor.Checkpointer of one attempt.
type checkpoints struct {
	engine *Engine
	mu     sync.Mutex
	claim  storage.Claim   // with the state after the last checkpoint
	events []storage.Event // stored by all checkpoints
	gaps   bool            // the times of some events are unknown, so they are missing
	ended  bool
	// unknown is why it is unknown whether the last checkpoint is stored, or nil.
	unknown error
}

// callProcessor calls the processor with an attempt that may store checkpoints. Afterwards, c and
// history contain what the checkpoints have stored. If it is unknown whether one was stored, the
// task is released, because the numbers of the next events are unknown, too.
func (e *Engine) callProcessor(
	ctx context.Context, ns *namespace, c *storage.Claim, request *progressorv1.ProcessRequest, history *knownHistory,
) (response *progressorv1.ProcessResponse, err error) {
	if !mayCheckpoint(ns, c) {
		return ns.process(ctx, request)
	}
	p := &checkpoints{engine: e, claim: *c}
	defer func() {
		if unknown := p.end(c, history); unknown != nil {
			response, err = nil, fmt.Errorf("%w: %w", errReleased, unknown)
		}
	}()
	return ns.process(processor.WithCheckpointer(ctx, p), request)
}

// Checkpoint implements processor.Checkpointer.
func (p *checkpoints) Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error) {
	if err := processor.CheckCheckpoint(r); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return false, process.ErrFenced
	case p.unknown != nil:
		return false, p.unknown
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	done := storage.Completion{TaskAttempt: taskAttempt(&p.claim)}
	if err := wire.Apply(&done, wire.CleanResult(r)); err != nil {
		return false, &processor.BadResponseError{Err: err}
	}
	saved, err := p.engine.store.SaveCheckpoint(&done)
	if err != nil {
		err = fmt.Errorf("checkpoint of %s: %w", done.Key, err)
		if errors.Is(err, process.ErrUnavailable) {
			p.unknown = err
		}
		return false, err
	}
	p.record(&done, saved)
	return saved.Yield || p.engine.draining.Load(), nil
}

// record adds a checkpoint to the state of the attempt, and notifies watchers.
func (p *checkpoints) record(done *storage.Completion, saved storage.Checkpointed) {
	if saved.Now.IsZero() {
		p.gaps = true
		p.engine.watchers.recheck(done.Key)
	} else {
		p.events = append(p.events, storedEvents(done, saved.Now)...)
		p.engine.watchers.stored(done, saved.Now)
	}
	p.claim.LastEventID += int64(len(done.Events))
	if done.AuxState != nil {
		p.claim.AuxState = done.AuxState
	}
	if done.Metadata != nil {
		p.claim.Metadata = done.Metadata
	}
}

// end is called when the attempt has ended. It adds the checkpoints to c and history.
func (p *checkpoints) end(c *storage.Claim, history *knownHistory) (unknown error) {
	p.mu.Lock() // waits for a checkpoint of a goroutine that the processor has left behind
	defer p.mu.Unlock()
	p.ended = true
	c.LastEventID, c.AuxState, c.Metadata = p.claim.LastEventID, p.claim.AuxState, p.claim.Metadata
	if history.whole = history.whole && !p.gaps; history.whole {
		history.add(p.events)
	}
	return p.unknown
}
