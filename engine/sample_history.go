package engine

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	sampleEvery = 10 * time.Second
	maxSamples  = 360 // one hour
)

// sampleHistory keeps samples of the overview, so that a client that opens it sees the recent past.
// Sampling costs two small statements every ten seconds, however many clients there are.
type sampleHistory struct {
	engine *Engine

	mu      sync.Mutex
	samples []*progressorv1.OverviewSample
}

func newSampleHistory(e *Engine) *sampleHistory { return &sampleHistory{engine: e} }

// Run takes samples until ctx is cancelled.
func (t *sampleHistory) Run(ctx context.Context) error {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			t.runOnce(ctx)
		}
	}
}

// runOnce takes a sample. While the database is unavailable it takes none, because a gap is better
// than a wrong value.
func (t *sampleHistory) runOnce(ctx context.Context) {
	sample, err := t.take(ctx)
	if err != nil {
		t.engine.log.Debug("cannot take a sample for the overview", "error", err)
		return
	}
	t.keep(sample)
}

func (t *sampleHistory) keep(sample *progressorv1.OverviewSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.samples) == maxSamples {
		// copy, because slices that were returned must not change
		t.samples = append(t.samples[:0:0], t.samples[1:]...)
	}
	t.samples = append(t.samples, sample)
}

func (t *sampleHistory) take(ctx context.Context) (*progressorv1.OverviewSample, error) {
	e := t.engine
	limited, cancel := context.WithTimeout(ctx, depthTimeout)
	defer cancel()
	load, err := e.store.NodesLoad(limited, e.cfg.ZombieAfter)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, ns := range e.registry.all() {
		if !ns.paused {
			names = append(names, name)
		}
	}
	depths, err := e.store.QueueDepths(limited, names, depthLimit)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p50, p99 := e.minuteStats.processing(now)
	sample := &progressorv1.OverviewSample{
		Time: timestamppb.New(now), TasksPerSecond: load.TasksPerSecond, TimerLatenessP99: known(load.TimerLatenessP99),
		ProcessingP50: known(p50), ProcessingP99: known(p99),
	}
	oldest := time.Duration(0)
	for _, d := range depths {
		sample.Runnable += d.Waiting
		oldest = max(oldest, d.Oldest)
	}
	sample.OldestRunnableAge = durationpb.New(oldest)
	return sample, nil
}

// all returns the samples, oldest first. Callers must not modify them.
func (t *sampleHistory) all() []*progressorv1.OverviewSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.samples[:len(t.samples):len(t.samples)]
}
