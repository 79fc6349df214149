package engine

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Whoever was given samples keeps them as they were, and the oldest make room.
func TestTrendKeepsAnHour(t *testing.T) {
	t.Parallel()
	tr := newSampleHistory(bare())
	var before []*progressorv1.OverviewSample
	for n := range maxSamples + 2 {
		tr.keep(&progressorv1.OverviewSample{Time: &timestamppb.Timestamp{Seconds: int64(n)}})
		if n == maxSamples-1 {
			before = tr.all()
		}
	}
	if len(before) != maxSamples || before[0].GetTime().GetSeconds() != 0 {
		t.Errorf("what was handed out has %d samples from %s on", len(before), before[0].GetTime().AsTime())
	}
	all := tr.all()
	if len(all) != maxSamples || all[0].GetTime().GetSeconds() != 2 || all[maxSamples-1].GetTime().GetSeconds() != maxSamples+1 {
		t.Errorf("%d samples from %s on", len(all), all[0].GetTime().AsTime())
	}
}
