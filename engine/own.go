package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Attempt is what the processor of a kind has beyond a user's one. It is of one attempt and of one goroutine.
type Attempt struct {
	claim    *storage.Claim
	began    time.Time
	messages []storage.Message
	riders   []storage.Rider
	stored   []func()
}

type attemptKey struct{}

// AttemptOf gives the attempt that the processor of a kind makes; nil outside of one.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Now is the time by the clock of the database, as far as this attempt knows it: never before the time of the task, and late by no more
// than the answer of its claim took.
func (a *Attempt) Now() time.Time { return a.claim.RunningTime.Add(time.Since(a.began)) }

// Ends are the ends of children that a NOTIFY holds; nil: it is none, or says a single one by itself.
func (a *Attempt) Ends() ([]storage.ChildEnd, error) { return storage.ChildEnds(a.claim) }

// Send says something to other processes as a command of the result does, and to the engine's own (~…), too: a start makes one of the
// kind that its id names.
func (a *Attempt) Send(m ...storage.Message) { a.messages = append(a.messages, m...) }

// Ride has something written with the result.
func (a *Attempt) Ride(r ...storage.Rider) { a.riders = append(a.riders, r...) }

// Stored has something done once the result is stored, such as counting it. It must not wait.
func (a *Attempt) Stored(then func()) { a.stored = append(a.stored, then) }

// ownAttempt is the attempt of a claim whose kind has a processor of its own; nil: it has none.
func (e *Engine) ownAttempt(c *storage.Claim) *Attempt {
	if e.kinds[c.Kind].Processor == nil {
		return nil
	}
	return &Attempt{claim: c, began: time.Now()}
}

func (a *Attempt) in(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, a)
}

// goWith puts what was gathered into the completion, if that stores anything.
func (a *Attempt) goWith(d *decision) {
	if a == nil || !d.completion.Speaks() {
		return
	}
	d.completion.Messages = append(d.completion.Messages, a.messages...)
	d.completion.Riders = append(d.completion.Riders, a.riders...)
	d.completion.Patient = a.claim.Kind == cronKind // what crons decide goes before what they start
	d.stored = a.stored
}
