package changes

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Pace determines when a reader that has read everything reads again.
type Pace struct {
	// Min limits the first wait. The limit doubles with each further wait, up to Max.
	Min, Max time.Duration
	// Gap is the minimum time between two reads, so that a busy namespace is read in batches.
	Gap time.Duration
}

// UsualPace is the pace of sinks and streams.
var UsualPace = Pace{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond, Gap: 10 * time.Millisecond}

// Pacer lets a reader wait for changes of a namespace. Commits of this node and notices of other
// nodes end the wait. It is not safe for concurrent use.
type Pacer struct {
	pace  Pace
	wait  time.Duration
	read  time.Time // when the last read began
	woken chan struct{}
	stop  func()
}

// NewPacer returns a pacer. It must be closed.
func NewPacer(s *storage.Store, namespace string, pace Pace) *Pacer {
	p := &Pacer{pace: pace, wait: pace.Min, woken: make(chan struct{}, 1)}
	p.stop = s.OnChanges(namespace, func() {
		select {
		case p.woken <- struct{}{}:
		default:
		}
	})
	return p
}

// Close releases the pacer.
func (p *Pacer) Close() { p.stop() }

// Begin is called when a read begins.
func (p *Pacer) Begin() { p.read = time.Now() }

// Found is called when a read has found changes. It makes the next wait short.
func (p *Pacer) Found() { p.wait = p.pace.Min }

// Wait waits until changes may have been recorded, or for as long as the pace allows. It reports
// whether a commit or a notice ended the wait. It returns early when ctx is cancelled or ended is
// closed.
func (p *Pacer) Wait(ctx context.Context, ended <-chan struct{}) (woken bool) {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	p.wait = min(2*p.wait, p.pace.Max)
	select {
	case <-p.woken:
	case <-timer.C:
		return false
	case <-ended:
		return false
	case <-ctx.Done():
		return false
	}
	timer.Reset(p.pace.Gap - time.Since(p.read))
	select {
	case <-timer.C:
	case <-ended:
	case <-ctx.Done():
	}
	return true
}
