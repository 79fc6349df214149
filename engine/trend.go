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
	trendEvery   = 10 * time.Second
	trendSamples = 360 // an hour
)

// trend remembers what overviews showed, so that whoever opens one sees where its figures come from. It costs two small statements
// every ten seconds, however many look.
type trend struct {
	engine *Engine

	mu      sync.Mutex
	samples []*progressorv1.OverviewSample
}

func newTrend(e *Engine) *trend { return &trend{engine: e} }

// Run takes samples until ctx ends.
func (t *trend) Run(ctx context.Context) error {
	ticker := time.NewTicker(trendEvery)
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

// runOnce takes a sample. While the database is away there is none: a gap is better than a wrong figure.
func (t *trend) runOnce(ctx context.Context) {
	sample, err := t.take(ctx)
	if err != nil {
		t.engine.log.Debug("no sample for the overview", "error", err)
		return
	}
	t.keep(sample)
}

func (t *trend) keep(sample *progressorv1.OverviewSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.samples) == trendSamples {
		t.samples = append(t.samples[:0:0], t.samples[1:]...) // what was handed out stays as it is
	}
	t.samples = append(t.samples, sample)
}

func (t *trend) take(ctx context.Context) (*progressorv1.OverviewSample, error) {
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
	p50, p99 := e.minute.processing(now)
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

// all gives the samples, oldest first. Nobody changes them.
func (t *trend) all() []*progressorv1.OverviewSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.samples[:len(t.samples):len(t.samples)]
}
