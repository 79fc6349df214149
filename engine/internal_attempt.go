package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Attempt gives the processor of a kind access to features that user processors do not have. It is
// valid for one attempt and not safe for concurrent use.
type Attempt struct {
	claim    *storage.Claim
	began    time.Time
	urgent   bool // its messages wait until no urgent task is due
	messages []storage.Message
	effects  []storage.Effect
	stored   []func()
}

type attemptKey struct{}

// AttemptOf returns the attempt of a kind's processor, or nil if ctx does not belong to one.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// reset removes what an earlier try of the attempt has added.
func (a *Attempt) reset() {
	if a != nil {
		a.messages, a.effects, a.stored = nil, nil, nil
	}
}

// Now returns the database time, as far as this attempt knows it. It is never before the running
// time of the task. It lags behind by at most the time that the response of the claim took.
func (a *Attempt) Now() time.Time { return a.claim.RunningTime.Add(time.Since(a.began)) }

// ChildEnds returns the ends of children in a batched NOTIFY, or nil if the task is not one.
func (a *Attempt) ChildEnds() ([]storage.ChildEnd, error) { return storage.ChildEnds(a.claim) }

// Send adds messages to other processes, like commands of the result. Unlike commands, these
// messages may address the engine's own processes (~…). A start creates a process of the kind that
// its ID names.
func (a *Attempt) Send(m ...storage.Message) { a.messages = append(a.messages, m...) }

// AddEffects adds effects to the transaction that stores the result.
func (a *Attempt) AddEffects(r ...storage.Effect) { a.effects = append(a.effects, r...) }

// Stored registers a function to call after the result is stored. It must not block.
func (a *Attempt) Stored(then func()) { a.stored = append(a.stored, then) }

// internalAttempt returns the Attempt of a claim whose kind has a processor, or nil for other
// claims.
func (e *Engine) internalAttempt(c *storage.Claim) *Attempt {
	k := e.kinds[c.Kind]
	if k.Processor == nil {
		return nil
	}
	return &Attempt{claim: c, began: time.Now(), urgent: k.Urgent != nil}
}

func (a *Attempt) in(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, a)
}

// addTo adds the messages and effects to the completion if it stores changes.
func (a *Attempt) addTo(d *decision) {
	if a == nil || !d.completion.StoresChanges() {
		return
	}
	d.completion.Messages = append(d.completion.Messages, a.messages...)
	d.completion.Effects = append(d.completion.Effects, a.effects...)
	d.completion.LowPriority = a.urgent
	d.stored = a.stored
}
