package pull

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// heldLease returns the lease of a token. If this node handed it out, no read is needed.
func (s *Server) heldLease(ctx context.Context, t pull.LeaseToken) (*storage.Lease, error) {
	if l := s.leased.get(t); l != nil {
		return l, nil
	}
	l, err := pull.ReadLease(ctx, s.store, t)
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// leased caches the leases that this node has handed out, without the parts that only workers need.
// It keeps only the part of the context that contains the trace.
type leased struct {
	mu      sync.Mutex
	byToken map[storage.AttemptRef]*heldLease
}

// heldLease is a lease that this node has handed out.
type heldLease struct {
	storage.Lease
	since    time.Time // by the clock of this node
	advanced bool      // the attempt has stored checkpoints here, so Claim.LastEventID is out of date
}

func newLeased() leased { return leased{byToken: map[storage.AttemptRef]*heldLease{}} }

// maxLeased is the size of the cache. Other leases are read from the database.
const maxLeased = 20_000

func (l *leased) put(held *storage.Lease, context []byte) {
	slim := heldLease{Lease: *held, since: time.Now()}
	slim.Claim.Args, slim.Claim.Context, slim.Claim.AuxState, slim.Claim.Metadata = nil, context, nil, nil
	slim.Progress = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byToken) >= maxLeased {
		// Drop any entry. Most of them are leases that another node has completed or that were
		// never answered, while the new lease is still open.
		for token := range l.byToken {
			delete(l.byToken, token)
			break
		}
	}
	l.byToken[storage.AttemptRef{
		Key:          process.Key{Namespace: held.Claim.Namespace, ProcessID: held.Claim.ProcessID},
		FencingToken: held.Claim.FencingToken,
	}] = &slim
}

func (l *leased) get(t pull.LeaseToken) *storage.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.find(t); held != nil {
		return &held.Lease
	}
	return nil
}

// current is like get. It returns nil if the attempt has stored checkpoints on this node, so that
// the last event of the process has changed.
func (l *leased) current(t pull.LeaseToken) *storage.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.find(t); held != nil && !held.advanced {
		return &held.Lease
	}
	return nil
}

// advance records that the attempt of a lease stores a checkpoint.
func (l *leased) advance(t pull.LeaseToken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.find(t); held != nil {
		held.advanced = true
	}
}

// find returns the lease of a token, or nil. The caller holds the lock.
func (l *leased) find(t pull.LeaseToken) *heldLease {
	held := l.byToken[storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken}]
	if held == nil || string(held.Salt) != string(t.Salt) {
		return nil
	}
	return held
}

// since returns when this node handed out the lease of an attempt, if it did.
func (l *leased) since(ref storage.AttemptRef) (at time.Time, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.byToken[ref]; ok {
		return held.since, true
	}
	return time.Time{}, false
}

func (l *leased) drop(t pull.LeaseToken) {
	l.mu.Lock()
	delete(l.byToken, storage.AttemptRef{Key: t.Key, FencingToken: t.FencingToken})
	l.mu.Unlock()
}

// clear drops all leases. They are read from the database again when they are needed.
func (l *leased) clear() {
	l.mu.Lock()
	clear(l.byToken)
	l.mu.Unlock()
}

// prune drops leases whose attempt must have ended by now.
func (l *leased) prune() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, held := range l.byToken {
		if time.Since(held.since) > held.Timeout+time.Minute {
			delete(l.byToken, token)
		}
	}
}
