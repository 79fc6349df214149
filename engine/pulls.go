package engine

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// pullRest is the time between two looks for what other nodes have left to workers: while some wait here it is one query for all of them.
const pullRest = 200 * time.Millisecond

// pulls are the polls of workers that wait for tasks on this node. They are woken by what this node stores, and by a look every pullRest.
type pulls struct {
	engine *Engine
	woken  chan struct{}

	mu      sync.Mutex
	waiting map[*pull]struct{}
}

// pull is one poll that waits.
type pull struct {
	workerID string
	lines    []storage.Line
	woken    chan struct{} // closed once
	began    time.Time
}

func newPulls(e *Engine) *pulls {
	return &pulls{engine: e, woken: make(chan struct{}, 1), waiting: map[*pull]struct{}{}}
}

// join enters a poll, before it looks: what comes between its look and its wait wakes it.
func (p *pulls) join(workerID string, lines []storage.Line) *pull {
	w := &pull{workerID: workerID, lines: lines, woken: make(chan struct{}), began: time.Now()}
	p.mu.Lock()
	p.waiting[w] = struct{}{}
	p.mu.Unlock()
	return w
}

func (p *pulls) leave(w *pull) {
	p.mu.Lock()
	delete(p.waiting, w)
	p.mu.Unlock()
}

// wake has the lines looked at.
func (p *pulls) wake() {
	p.mu.Lock()
	waits := len(p.waiting) > 0
	p.mu.Unlock()
	if waits {
		signal(p.woken)
	}
}

// wakeWorker has the polls of a worker look at what it was told.
func (p *pulls) wakeWorker(workerID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if w.workerID == workerID {
			delete(p.waiting, w)
			close(w.woken)
		}
	}
}

// offer wakes polls for n tasks of a line, those that have waited longest first.
func (p *pulls) offer(namespace, jobName string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0; n-- {
		var longest *pull
		for w := range p.waiting {
			if w.wants(namespace, jobName) && (longest == nil || w.began.Before(longest.began)) {
				longest = w
			}
		}
		if longest == nil {
			return
		}
		delete(p.waiting, longest)
		close(longest.woken)
	}
}

func (w *pull) wants(namespace, jobName string) bool {
	for _, l := range w.lines {
		if l.Namespace == namespace && (l.JobName == "" || l.JobName == jobName) {
			return true
		}
	}
	return false
}

// line is where a poll looks, as the key of a map.
type line struct {
	namespace, jobName string
	jobsOnly           bool
}

// lines are the lines that somebody waits at.
func (p *pulls) lines() []storage.Line {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[line]struct{}{}
	var lines []storage.Line
	for w := range p.waiting {
		for _, l := range w.lines {
			key := line{l.Namespace, l.JobName, l.JobsOnly}
			if _, twice := seen[key]; !twice {
				seen[key] = struct{}{}
				lines = append(lines, l)
			}
		}
	}
	return lines
}

// Run looks until ctx ends.
func (p *pulls) Run(ctx context.Context) error {
	rest := min(p.engine.cfg.ScanInterval, pullRest)
	sleep := time.NewTimer(rest)
	defer sleep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.woken:
		case <-sleep.C:
		}
		p.runOnce(ctx)
		sleep.Reset(rest)
	}
}

// countedPulls is up to how many tasks of a line are counted for the polls that wait there.
const countedPulls = 256

func (p *pulls) runOnce(ctx context.Context) {
	lines := p.lines()
	if len(lines) == 0 {
		return
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	counts, err := p.engine.store.CountPollable(limit, lines, countedPulls)
	if err != nil {
		p.engine.scanFailed(ctx, "pulls", err)
		return
	}
	for n, l := range lines {
		p.offerLine(l, counts[n])
	}
}

// offerLine wakes n of the polls that wait at a line.
func (p *pulls) offerLine(l storage.Line, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		if n <= 0 {
			return
		}
		for _, own := range w.lines {
			if own.Namespace == l.Namespace && own.JobName == l.JobName && own.JobsOnly == l.JobsOnly {
				delete(p.waiting, w)
				close(w.woken)
				n--
				break
			}
		}
	}
}
