package processortest

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// attempt calls the processor. The processor may store checkpoints, except in a push namespace or
// if tasks of this type allow none.
func (p *Process) attempt(ctx context.Context, t *task) (*progressorv1.ProcessResponse, error) {
	request := p.processRequest(t)
	if p.settings.pushed || !processor.AllowsCheckpoints(t.kind) {
		return p.processor.Process(ctx, request)
	}
	c := &checkpointer{process: p, task: t}
	defer c.end()
	return p.processor.Process(processor.WithCheckpointer(ctx, c), request)
}

// checkpointer is the processor.Checkpointer of one attempt. It changes the process without locking
// it, because the goroutine that waits for the attempt holds the lock.
type checkpointer struct {
	process *Process
	task    *task

	mu    sync.Mutex
	ended bool
}

// Checkpoint implements processor.Checkpointer.
func (c *checkpointer) Checkpoint(ctx context.Context, r *progressorv1.Result) (yield bool, err error) {
	if err := processor.CheckCheckpoint(r); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return false, process.ErrFenced
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	p := c.process
	c.task.stored = append(c.task.stored, p.appendState(c.task, proto.CloneOf(r))...)
	due := func(t *task) bool { return !t.at().After(p.now) }
	return slices.ContainsFunc(slices.Concat(p.waiting, p.timers), due), nil
}

func (c *checkpointer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}
