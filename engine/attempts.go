package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// attempts holds the attempts that this node runs. A fencing token alone does not identify an
// attempt, because a database that was restored from a backup may issue it again.
type attempts struct {
	mu      sync.Mutex
	byToken map[storage.AttemptRef]*running
	byKey   map[process.Key]int
	kinds   map[string]Kind
}

// running is one claim that this node runs.
type running struct {
	claim       *storage.Claim
	began       time.Time
	cancel      context.CancelCauseFunc
	failedTries int32  // number of tries that did not reach the processor
	cause       string // error of the last such try
	cancelled   bool   // already cancelled by cancelRefs or cancelAll
}

func newAttempts(kinds map[string]Kind) *attempts {
	return &attempts{byToken: map[storage.AttemptRef]*running{}, byKey: map[process.Key]int{}, kinds: kinds}
}

func attemptOf(c *storage.Claim) storage.AttemptRef {
	return storage.AttemptRef{
		Key: process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, FencingToken: c.FencingToken,
	}
}

// begin registers a claim. It returns false if the claim is already registered, which happens if it
// was both adopted and returned by a scan.
func (a *attempts) begin(c *storage.Claim, cancel context.CancelCauseFunc) bool {
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.byToken[attemptOf(c)]; ok {
		return false
	}
	a.byToken[attemptOf(c)] = &running{claim: c, began: time.Now(), cancel: cancel}
	a.byKey[key]++
	return true
}

func (a *attempts) end(c *storage.Claim) {
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byToken, attemptOf(c))
	if a.byKey[key]--; a.byKey[key] <= 0 {
		delete(a.byKey, key)
	}
}

// runs reports whether this node runs a task of the process.
func (a *attempts) runs(key process.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byKey[key] > 0
}

// beganOf returns the time at which this node began to run a task.
func (a *attempts) beganOf(task storage.TaskRef) (at time.Time, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ref, r := range a.byToken {
		if ref.Key == task.Key && r.claim.TaskID == task.TaskID {
			return r.began, true
		}
	}
	return time.Time{}, false
}

// unreached records how many times an attempt failed to reach its processor, and the reason.
func (a *attempts) unreached(c *storage.Claim, times int32, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.byToken[attemptOf(c)]; ok {
		r.failedTries, r.cause = times, causeOf(err)
	}
}

// causeOf returns the reason why a processor was not reached.
func causeOf(err error) string {
	if unreachable, ok := errors.AsType[*processor.UnreachableError](err); ok {
		return cut(unreachable.Err.Error())
	}
	return cut(err.Error())
}

// failedTriesOf returns how often a running task failed to reach its processor, and the reason.
func (a *attempts) failedTriesOf(task storage.TaskRef) (times int32, cause string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ref, r := range a.byToken {
		if ref.Key == task.Key && r.claim.TaskID == task.TaskID {
			return r.failedTries, r.cause
		}
	}
	return 0, ""
}

func (a *attempts) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byToken)
}

func (a *attempts) tokens() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	tokens := make([]int64, 0, len(a.byToken))
	for ref := range a.byToken {
		tokens = append(tokens, ref.FencingToken)
	}
	return tokens
}

func (a *attempts) claims() []*storage.Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	claims := make([]*storage.Claim, 0, len(a.byToken))
	for _, r := range a.byToken {
		claims = append(claims, r.claim)
	}
	return claims
}

// cancelOf cancels the attempts of a process.
func (a *attempts) cancelOf(key process.Key, cause error) {
	for _, r := range a.of(key) {
		r.cancel(cause)
	}
}

// cancelRequested cancels the attempts of a process whose cancel was requested, if CancelsAttempts
// is set for its kind.
func (a *attempts) cancelRequested(key process.Key) {
	for _, r := range a.of(key) {
		if a.kinds[r.claim.Kind].CancelsAttempts {
			r.cancel(errCancelRequested)
		}
	}
}

// cancelAttempt cancels an attempt if this node runs it.
func (a *attempts) cancelAttempt(ref storage.AttemptRef, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.byToken[ref]; ok {
		r.cancel(cause)
	}
}

// cancelNamespace cancels the attempts of a namespace.
func (a *attempts) cancelNamespace(name string, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ref, r := range a.byToken {
		if ref.Key.Namespace == name {
			r.cancel(cause)
		}
	}
}

// cancellable reports whether this node runs a process of a kind with CancelsAttempts.
func (a *attempts) cancellable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byToken {
		if a.kinds[r.claim.Kind].CancelsAttempts {
			return true
		}
	}
	return false
}

// of returns the attempts of a process that this node runs.
func (a *attempts) of(key process.Key) []*running {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[key] == 0 {
		return nil
	}
	var found []*running
	for ref, r := range a.byToken {
		if ref.Key == key {
			found = append(found, r)
		}
	}
	return found
}

// cancelRefs cancels the attempts in refs that still run, and returns how many it cancelled.
func (a *attempts) cancelRefs(refs []storage.AttemptRef, cause error) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ref := range refs {
		if r, ok := a.byToken[ref]; ok && !r.cancelled {
			r.cancelled = true
			r.cancel(cause)
			n++
		}
	}
	return n
}

// refs returns the references of all attempts.
func (a *attempts) refs() []storage.AttemptRef {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.byToken))
}

// cancelAll cancels all attempts and returns how many were not already cancelled.
func (a *attempts) cancelAll(cause error) (cancelled int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byToken {
		if !r.cancelled {
			r.cancelled = true
			r.cancel(cause)
			cancelled++
		}
	}
	return cancelled
}

// begunAt returns the time at which an attempt began, if this node runs it.
func (a *attempts) begunAt(ref storage.AttemptRef) (at time.Time, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.byToken[ref]; ok {
		return r.began, true
	}
	return time.Time{}, false
}

// claimOf returns the claim of an attempt, or nil if this node does not run it. The claim does not
// include checkpoints, and must not be modified.
func (a *attempts) claimOf(ref storage.AttemptRef) *storage.Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.byToken[ref]; ok {
		return r.claim
	}
	return nil
}

func (a *attempts) known(ref storage.AttemptRef) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.byToken[ref]
	return ok
}
