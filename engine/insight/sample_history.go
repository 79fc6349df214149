package insight

import (
	"context"
	"sort"
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
	// mergedSamples is the number of samples that are merged into one for the last day. maxMerged
	// is the number of merged samples of a day.
	mergedSamples = 30
	maxMerged     = 288
)

// sampleHistory keeps samples of the overview, so that a client that opens the overview sees the
// recent past. Sampling costs two small statements every ten seconds, regardless of the number of
// clients.
type sampleHistory struct {
	mu      sync.Mutex
	samples []*progressorv1.OverviewSample
	merged  []*progressorv1.OverviewSample // one per five minutes
	next    []*progressorv1.OverviewSample // samples that the next merged sample will contain
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
	t.samples = appended(t.samples, sample, maxSamples)
	if t.next = append(t.next, sample); len(t.next) == mergedSamples {
		t.merged, t.next = appended(t.merged, merge(t.next), maxMerged), nil
	}
}

// appended returns samples with sample added, and without the oldest one if there are too many.
func appended(
	samples []*progressorv1.OverviewSample, sample *progressorv1.OverviewSample, most int,
) []*progressorv1.OverviewSample {
	if len(samples) == most {
		// copy, because slices that were returned must not change
		samples = append(samples[:0:0], samples[1:]...)
	}
	return append(samples, sample)
}

// merge returns one sample for several. It has the time of the last one, the mean of the rates, and
// the maximum of each other value.
func merge(samples []*progressorv1.OverviewSample) *progressorv1.OverviewSample {
	m := &progressorv1.OverviewSample{Time: samples[len(samples)-1].GetTime()}
	for _, s := range samples {
		m.TasksPerSecond += s.GetTasksPerSecond() / float64(len(samples))
		m.Runnable = max(m.GetRunnable(), s.GetRunnable())
		m.OldestRunnableAge = longer(m.GetOldestRunnableAge(), s.GetOldestRunnableAge())
		m.TimerLatenessP99 = longer(m.GetTimerLatenessP99(), s.GetTimerLatenessP99())
		m.ProcessingP50 = longer(m.GetProcessingP50(), s.GetProcessingP50())
		m.ProcessingP99 = longer(m.GetProcessingP99(), s.GetProcessingP99())
	}
	return m
}

// longer returns the longer of two durations. nil is shorter than any other.
func longer(a, b *durationpb.Duration) *durationpb.Duration {
	if b.AsDuration() > a.AsDuration() || a == nil {
		return b
	}
	return a
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

// since returns the samples that are not older than age, oldest first. 0 means an hour. If age is
// more than an hour, it returns merged samples. The last one may merge fewer samples than the
// others. Callers must not modify the samples.
func (t *sampleHistory) since(now time.Time, age time.Duration) []*progressorv1.OverviewSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	samples := t.samples
	if age > maxSamples*sampleEvery {
		samples = t.merged
		if len(t.next) > 0 {
			samples = append(samples[:len(samples):len(samples)], merge(t.next))
		}
	}
	first := 0
	if age > 0 {
		first = sort.Search(len(samples), func(n int) bool { return now.Sub(samples[n].GetTime().AsTime()) <= age })
	}
	return samples[first:len(samples):len(samples)]
}
