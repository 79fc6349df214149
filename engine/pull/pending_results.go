package pull

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/pull"
)

const (
	// resultChannel is the NOTIFY channel of the SQL function complete.
	resultChannel = "progressor_results"
	// idlePass is the time between two passes while no result is left to other nodes, in multiples
	// of the scan interval. Notices announce the results. A portable database sends none, so there
	// a node makes a pass in each scan interval.
	idlePass = 10
	// resultGap is the minimum time between two reads of pending results. One read covers all
	// notices before it.
	resultGap = 10 * time.Millisecond
	// maxPending is the maximum number of pending results that a node stores at the same time.
	maxPending = 256
	// maxLeft is the maximum number of results that reads omit because they were left to other
	// nodes. If reads did not omit them and a node fell behind, the other nodes would read only the
	// results of that node, and not their own.
	maxLeft = 16 * maxPending
)

// pendingResults ends the attempts whose results workers have stored with the SQL function
// complete. One live node is responsible for each result. If it does not end the attempt between
// two passes of another node, that node also tries. Only one of them succeeds, because the result
// is stored under the fencing token of the lease.
type pendingResults struct {
	server *Server
	woken  chan struct{}
	waited map[int64]struct{} // fencing tokens that the last pass left to other nodes; used only by Run
	left   map[int64]struct{} // all that were left to other nodes since then; used only by Run

	mu     sync.Mutex
	ending map[int64]struct{} // fencing tokens of the attempts that this node ends now
	full   bool               // the last read may have omitted results
	failed bool               // an end has failed since the last pass
}

func newPendingResults(s *Server) *pendingResults {
	return &pendingResults{
		server: s, woken: make(chan struct{}, 1), left: map[int64]struct{}{}, ending: map[int64]struct{}{},
	}
}

// wake makes Run read the pending results soon. It does not block.
func (p *pendingResults) wake(string) {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// Run ends attempts until ctx is cancelled. It does not wait for the results that are being stored,
// because the drain of the node does.
func (p *pendingResults) Run(ctx context.Context) error {
	passes := time.NewTicker(p.server.scan)
	defer passes.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	for skipped := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-gap.C:
		}
		pass := false
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-passes.C:
			if skipped++; skipped < idlePass && !p.takeReason() {
				gap.Reset(0)
				continue
			}
			pass, skipped = true, 0
		}
		if err := p.endAll(ctx, pass); err != nil && ctx.Err() == nil {
			p.server.log.Warn("cannot read the pending results of workers", "error", err)
		}
		gap.Reset(resultGap)
	}
}

// takeReason reports whether the node should make a pass now, because notices do not announce all
// results that it should end. It resets failed.
func (p *pendingResults) takeReason() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := p.failed
	p.failed = false
	return failed || len(p.left) > 0 || !p.server.store.HasNotices()
}

// endAll begins to end the attempts for which this node is responsible. A pass also ends those that
// the pass before left to other nodes. Between two passes, reads omit what was left to other nodes.
func (p *pendingResults) endAll(ctx context.Context, pass bool) error {
	known := p.known()
	room := maxPending - len(known)
	if pass {
		p.left = map[int64]struct{}{}
	}
	if room == 0 {
		return nil // the ends wake Run, because the last read was full
	}
	limit, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	results, err := pull.PendingResults(limit, p.server.store, slices.AppendSeq(known, maps.Keys(p.left)), room)
	if err != nil {
		return err
	}
	full, before := len(results) == room, len(p.left)
	p.setFull(full)
	for _, r := range results {
		token := r.Token.FencingToken
		_, waited := p.waited[token]
		late := pass && waited
		if !late && !p.server.engine.IsResponsibleFor("result "+strconv.FormatInt(token, 10)) {
			if len(p.left) < maxLeft {
				p.left[token] = struct{}{}
			}
			continue
		}
		p.begin(token)
		p.server.runners.Go(func() { p.end(ctx, r) })
	}
	if pass {
		p.waited = maps.Clone(p.left)
	}
	if full && len(p.left) > before {
		p.wake("") // the next page may contain results of this node
	}
	return nil
}

// end ends one attempt. If this fails, a later pass tries again.
func (p *pendingResults) end(ctx context.Context, r pull.PendingResult) {
	s := p.server
	l, err := pull.ReadLease(ctx, s.store, r.Token)
	if err == nil {
		l.WorkerToken = r.WorkerToken
		err = s.engine.EndPending(ctx, &l, r.Result)
	}
	if err != nil && !errors.Is(err, process.ErrFenced) && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot store the pending result of a worker", "namespace", r.Token.Key.Namespace,
			"process_id", r.Token.Key.ProcessID, "error", err)
	}
	p.mu.Lock()
	delete(p.ending, r.Token.FencingToken)
	more := p.full && err == nil
	p.failed = p.failed || err != nil
	p.mu.Unlock()
	if more {
		p.wake("")
	}
}

func (p *pendingResults) begin(token int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending[token] = struct{}{}
}

// known returns the fencing tokens of the attempts that this node ends now.
func (p *pendingResults) known() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.ending))
}

func (p *pendingResults) setFull(full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = full
}
