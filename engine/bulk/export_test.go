package bulk

import (
	"context"
	"encoding/json"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Impatient has failures told soon.
func (b *Bulks) Impatient() { b.limits.pause, b.limits.tries = 10*time.Millisecond, 3 }

// KeepFailures bounds the failures that are events.
func (b *Bulks) KeepFailures(n int64) { b.limits.events = n }

// Page runs a task of a bulk without storing what follows from it, as a node does that dies then.
func (b *Bulks) Page(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return b.process(ctx, r)
}

// Hurry makes counting end with its first page.
func (b *Bulks) Hurry() { b.limits.expectTime, b.limits.dryRunTime = 0, 0 }

// FailureEvent is what is stored of a failure.
func FailureEvent(id, text string) ([]byte, error) { return json.Marshal(failureOf(id, text)) }

// EndEarly has pages of up to ten processes, one at a time, end before they are through.
func (b *Bulks) EndEarly() { b.limits.side, b.limits.pageTime = 1, time.Millisecond }
