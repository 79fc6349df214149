package insight

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
)

const (
	sampleEvery = 10 * time.Second
	maxSamples  = 360 // one hour
)

// sampleHistory keeps samples of the overview, so that a client that opens the overview sees the
// recent past. Sampling costs two small statements every ten seconds, regardless of the number of
// clients.
type sampleHistory struct {
	mu      sync.Mutex
	samples []*progressorv1.OverviewSample
}

// Sample takes samples for the overview until ctx is cancelled.
func (i *Insight) Sample(ctx context.Context) error {
	return engine.Every(ctx, sampleEvery, func() { i.sampleOnce(ctx) })
}

// sampleOnce takes a sample. While the database is unavailable it takes none, because a gap is
// better than a wrong value.
func (i *Insight) sampleOnce(ctx context.Context) {
	sample, err := i.takeSample(ctx)
	if err != nil {
		i.log.Debug("cannot take a sample for the overview", "error", err)
		return
	}
	i.samples.keep(sample)
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

func (i *Insight) takeSample(ctx context.Context) (*progressorv1.OverviewSample, error) {
	limited, cancel := context.WithTimeout(ctx, depthTimeout)
	defer cancel()
	load, err := i.store.NodesLoad(limited, i.engine.Config().ZombieAfter)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range i.engine.NamespaceNames() {
		if !i.engine.IsPaused(name) {
			names = append(names, name)
		}
	}
	depths, err := insight.QueueDepths(limited, i.store, names, depthLimit)
	if err != nil {
		return nil, err
	}
	node := i.engine.NodeState()
	sample := &progressorv1.OverviewSample{
		Time: timestamppb.Now(), TasksPerSecond: load.TasksPerSecond, TimerLatenessP99: known(load.TimerLatenessP99),
		ProcessingP50: known(node.ProcessingP50), ProcessingP99: known(node.ProcessingP99),
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
