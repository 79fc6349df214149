package bulk

import (
	"context"
	"encoding/json"
	"time"

	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// FailSoon makes failures final soon.
func (b *Bulks) FailSoon() { b.limits.pause, b.limits.tries = 10*time.Millisecond, 3 }

// KeepFailures sets the maximum number of recorded failures.
func (b *Bulks) KeepFailures(n int64) { b.limits.events = n }

// Page runs a page of a bulk without storing its result, like a node that dies.
func (b *Bulks) Page(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	w := b.newWork(&actor.Task{Ctx: ctx, Request: r, Result: processor.Result(), Now: time.Now(), Key: process.Key{
		Namespace: r.GetProcess().GetNamespace(), ProcessID: r.GetProcess().GetProcessId(),
	}})
	if err := w.read(); err != nil {
		return nil, err
	}
	if err := w.page(); err != nil {
		return nil, err
	}
	return w.Result.Done()
}

// StopCounting makes counting end after its first page.
func (b *Bulks) StopCounting() { b.limits.expectTime, b.limits.dryRunTime = 0, 0 }

// FailureEvent returns the stored event of a failure.
func FailureEvent(id, text string) ([]byte, error) { return json.Marshal(failureOf(id, text)) }

// EndEarly makes a page handle one process at a time and end after a millisecond.
func (b *Bulks) EndEarly() { b.limits.concurrent, b.limits.pageTime = 1, time.Millisecond }

// PollTwice makes a bulk wait for a repair for only two polls.
func (b *Bulks) PollTwice() { b.limits.pause, b.limits.polls = 10*time.Millisecond, 3 }

// NeverRetry makes a bulk wait for an hour before it retries.
func (b *Bulks) NeverRetry() { b.limits.pause = time.Hour }
