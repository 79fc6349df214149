package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// MayCheckpoint reports whether a processor can store checkpoints of a claim. The process must not
// have a kind, so it is neither a job nor a process of the engine itself. The task must be of a
// type that cannot be rejected and is retried if it fails.
func MayCheckpoint(c *storage.Claim) bool {
	return c.Kind == "" && processor.AllowsCheckpoints(wire.TaskType(c.TaskType))
}

// newCheckpoint returns the stored form of a checkpoint of an attempt. Its events follow
// c.LastEventID.
func newCheckpoint(c *storage.Claim, r *progressorv1.Result) (*storage.Completion, error) {
	if err := processor.CheckCheckpoint(r); err != nil {
		return nil, err
	}
	made := &storage.Completion{TaskAttempt: taskAttempt(c)}
	if err := wire.Apply(made, wire.CleanResult(r), nil); err != nil {
		return nil, &processor.BadResponseError{Err: err}
	}
	return made, nil
}

// checkpoints is the processor.Checkpointer of one attempt.
type checkpoints struct {
	engine *Engine
	mu     sync.Mutex
	claim  storage.Claim   // with the state after the last checkpoint
	events []storage.Event // stored by all checkpoints
	gaps   bool            // events are missing, because the times of some are unknown
	ended  bool
	// unknown is the reason why it is unknown whether the last checkpoint is stored, or nil if that
	// is known.
	unknown error
}

// callProcessor calls the processor. If the type of the task allows it, the processor may store
// checkpoints during the call. Afterwards, c and history include the stored checkpoints. If it is
// unknown whether a checkpoint was stored, the numbers of the next events are also unknown, so the
// task is released.
func (e *Engine) callProcessor(
	ctx context.Context, ns *namespace, c *storage.Claim, request *progressorv1.ProcessRequest, history *knownHistory,
) (response *progressorv1.ProcessResponse, err error) {
	switch {
	case ns.connect != nil:
		return e.callPushed(ctx, ns, c, request, history)
	case !MayCheckpoint(c):
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
	made, err := newCheckpoint(&p.claim, r)
	if err != nil {
		return false, err
	}
	saved, err := p.engine.store.SaveCheckpoint(made)
	if err != nil {
		err = fmt.Errorf("checkpoint of %s: %w", made.Key, err)
		if errors.Is(err, process.ErrUnavailable) {
			p.unknown = err
		}
		return false, err
	}
	p.record(made, saved)
	return saved.Yield || p.engine.draining.Load(), nil
}

// record adds a checkpoint to the state of the attempt, and notifies watchers.
func (p *checkpoints) record(made *storage.Completion, saved storage.Checkpointed) {
	if saved.Now.IsZero() {
		p.gaps = true
		p.engine.watchers.recheck(made.Key)
	} else {
		p.events = append(p.events, storedEvents(made, saved.Now)...)
		p.engine.watchers.stored(made, saved.Now)
	}
	p.claim.LastEventID += int64(len(made.Events))
	if made.AuxState != nil {
		p.claim.AuxState = made.AuxState
	}
	if made.Metadata != nil {
		p.claim.Metadata = made.Metadata
	}
}

// end is called when the attempt has ended. It adds the checkpoints to c and history, and returns
// p.unknown.
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

// CheckpointAttempt stores a checkpoint of a leased or pushed attempt. Its events follow the event
// with the ID after, which must be the last one of the process. If the same checkpoint was stored
// before, the call has no effect. yield is true if the processor should end the attempt soon. The
// error is process.ErrFenced if the attempt has ended or the namespace is being deleted.
func (e *Engine) CheckpointAttempt(
	ctx context.Context, c *storage.Claim, after int64, r *progressorv1.Result,
) (yield bool, err error) {
	_, err = e.namespace(ctx, c.Namespace)
	if errors.Is(err, process.ErrNamespaceDeleting) || errors.Is(err, process.ErrNamespaceNotFound) {
		return false, process.ErrFenced // its tasks are being deleted
	}
	if err != nil {
		return false, err
	}
	if !MayCheckpoint(c) {
		return false, &process.InvalidError{Field: "lease_token",
			Message: "only TIMEOUT and CANCEL tasks of processes that are not jobs can store checkpoints"}
	}
	claim := *c
	claim.LastEventID = after
	made, err := newCheckpoint(&claim, r)
	if err != nil {
		return false, err
	}
	saved, err := e.store.SaveCheckpoint(made)
	if err != nil {
		return false, fmt.Errorf("checkpoint of %s: %w", made.Key, err)
	}
	if !saved.Now.IsZero() {
		e.watchers.stored(made, saved.Now)
		return saved.Yield, nil
	}
	e.watchers.recheck(made.Key)
	return saved.Yield, e.checkRepeated(made)
}

// checkRepeated returns an error unless the events after made.LastEventID are those of the
// checkpoint made. It ignores events that are no longer stored.
func (e *Engine) checkRepeated(made *storage.Completion) error {
	first, last := made.LastEventID+1, made.LastEventID+int64(len(made.Events))
	stored, err := e.store.ReadHistory(made.Key, storage.HistoryRange{Limit: -1}, first, last)
	if err != nil {
		return fmt.Errorf("read the checkpoint of %s: %w", made.Key, err)
	}
	for _, event := range stored {
		if event.EventID > last { // the first events are no longer stored
			break
		}
		own := made.Events[event.EventID-first]
		if event.TaskID != made.TaskID || !bytes.Equal(event.Payload, own.Payload) ||
			!equalJSON(metadataOf, event.Metadata, own.Metadata) {
			return &process.InvalidError{Field: "last_event_id", Message: fmt.Sprintf(
				"event %d is already stored, with other content", event.EventID)}
		}
	}
	return nil
}

// metadataOf is wire.Struct as a parameter of equalJSON.
func metadataOf(text json.RawMessage) (*structpb.Struct, error) { return wire.Struct(text) }
