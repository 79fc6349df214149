package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// attempts are what this node runs now, by fencing token.
type attempts struct {
	mu      sync.Mutex
	byToken map[int64]*running
	byKey   map[process.Key]int
}

// running is one claim that this node runs.
type running struct {
	claim  *storage.Claim
	began  time.Time
	cancel context.CancelCauseFunc
	vain   int32  // how often its processor was not reached
	cause  string // why not
}

func newAttempts() *attempts {
	return &attempts{byToken: map[int64]*running{}, byKey: map[process.Key]int{}}
}

// begin registers a claim; false: it runs already (it was adopted and handed out both).
func (a *attempts) begin(c *storage.Claim, cancel context.CancelCauseFunc) bool {
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.byToken[c.FencingToken]; ok {
		return false
	}
	a.byToken[c.FencingToken] = &running{claim: c, began: time.Now(), cancel: cancel}
	a.byKey[key]++
	return true
}

func (a *attempts) end(c *storage.Claim) {
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byToken, c.FencingToken)
	if a.byKey[key]--; a.byKey[key] <= 0 {
		delete(a.byKey, key)
	}
}

// runs tells whether this node runs a task of the process.
func (a *attempts) runs(key process.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byKey[key] > 0
}

// beganOf tells since when this node runs a task.
func (a *attempts) beganOf(taskID int64) (at time.Time, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byToken {
		if r.claim.TaskID == taskID {
			return r.began, true
		}
	}
	return time.Time{}, false
}

// unreached notes that an attempt has not reached its processor so often.
func (a *attempts) unreached(c *storage.Claim, times int32, err error) {
	cause := err.Error()
	if unreachable, ok := errors.AsType[*processor.UnreachableError](err); ok {
		cause = unreachable.Err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.byToken[c.FencingToken]; ok {
		r.vain, r.cause = times, cut(cause)
	}
}

// vainOf tells how often a task that this node runs has not reached its processor, and why.
func (a *attempts) vainOf(taskID int64) (times int32, cause string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byToken {
		if r.claim.TaskID == taskID {
			return r.vain, r.cause
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
	for t := range a.byToken {
		tokens = append(tokens, t)
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

// cancelOf ends the contexts of the attempts of a process.
func (a *attempts) cancelOf(key process.Key, cause error) {
	for _, r := range a.of(key) {
		r.cancel(cause)
	}
}

// of are the attempts of a process that this node runs now.
func (a *attempts) of(key process.Key) []*running {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[key] == 0 {
		return nil
	}
	var found []*running
	for _, r := range a.byToken {
		if r.claim.Namespace == key.Namespace && r.claim.ProcessID == key.ProcessID {
			found = append(found, r)
		}
	}
	return found
}

// cancelAll ends the contexts of all attempts.
func (a *attempts) cancelAll(cause error) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byToken {
		r.cancel(cause)
	}
	return len(a.byToken)
}

func (a *attempts) known(token int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.byToken[token]
	return ok
}
