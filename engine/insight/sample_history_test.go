package insight

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// keepSamples keeps n samples, one every ten seconds. It returns the time of the last one.
func keepSamples(t *sampleHistory, n int) time.Time {
	begin := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	var at time.Time
	for k := range n {
		at = begin.Add(time.Duration(k) * sampleEvery)
		t.keep(&progressorv1.OverviewSample{
			Time: timestamppb.New(at), Runnable: int64(k), TasksPerSecond: float64(k),
			ProcessingP99: durationpb.New(time.Duration(n-k) * time.Second),
		})
	}
	return at
}

// Returned samples do not change, and the oldest samples are dropped.
func TestSamplesOfAnHour(t *testing.T) {
	t.Parallel()
	h := &sampleHistory{}
	now := keepSamples(h, maxSamples)
	before := h.since(now, 0)
	h.keep(&progressorv1.OverviewSample{Time: timestamppb.New(now.Add(sampleEvery)), Runnable: maxSamples})
	if len(before) != maxSamples || before[0].GetRunnable() != 0 {
		t.Errorf("the returned slice has %d samples from %d on", len(before), before[0].GetRunnable())
	}
	all := h.since(now, time.Hour)
	if len(all) != maxSamples || all[0].GetRunnable() != 1 || all[maxSamples-1].GetRunnable() != maxSamples {
		t.Errorf("%d samples from %d on", len(all), all[0].GetRunnable())
	}
	some := h.since(now.Add(sampleEvery), 10*time.Minute)
	if len(some) != 61 || some[0].GetRunnable() != maxSamples-60 {
		t.Errorf("%d samples of ten minutes", len(some))
	}
}

// A day has one sample per five minutes. Each sample contains the mean of the rate and the maximum
// of every other value.
func TestSamplesOfADay(t *testing.T) {
	t.Parallel()
	h := &sampleHistory{}
	now := keepSamples(h, (maxMerged+1)*mergedSamples+5)
	all := h.since(now, 24*time.Hour)
	if len(all) != maxMerged+1 { // the last one has five samples
		t.Fatalf("%d samples", len(all))
	}
	first := all[0] // merges the samples 30 to 59
	if first.GetRunnable() != 59 || first.GetTasksPerSecond() < 44.4 || first.GetTasksPerSecond() > 44.6 ||
		first.GetProcessingP99().AsDuration() != time.Duration((maxMerged+1)*mergedSamples+5-30)*time.Second {
		t.Errorf("%v", first)
	}
	if some := h.since(now, 2*time.Hour); len(some) != 25 || !some[24].GetTime().AsTime().Equal(now) {
		t.Errorf("%d samples of two hours", len(some))
	}
}
