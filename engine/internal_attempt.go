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
	effects  []storage.Effect
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

// ChildEnds are the ends of children that a NOTIFY holds; nil: it is none, or says a single one by itself.
func (a *Attempt) ChildEnds() ([]storage.ChildEnd, error) { return storage.ChildEnds(a.claim) }

// Send says something to other processes as a command of the result does, and to the engine's own (~…), too: a start makes one of the
// kind that its id names.
func (a *Attempt) Send(m ...storage.Message) { a.messages = append(a.messages, m...) }

// AddEffects has something written with the result.
func (a *Attempt) AddEffects(r ...storage.Effect) { a.effects = append(a.effects, r...) }

// Stored has something done once the result is stored, such as counting it. It must not wait.
func (a *Attempt) Stored(then func()) { a.stored = append(a.stored, then) }

// internalAttempt is the attempt of a claim whose kind has a processor of its own; nil: it has none.
func (e *Engine) internalAttempt(c *storage.Claim) *Attempt {
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
	if a == nil || !d.completion.StoresChanges() {
		return
	}
	d.completion.Messages = append(d.completion.Messages, a.messages...)
	d.completion.Effects = append(d.completion.Effects, a.effects...)
	d.completion.LowPriority = a.claim.Kind == cronKind // what crons decide goes before what they start
	d.stored = a.stored
}
