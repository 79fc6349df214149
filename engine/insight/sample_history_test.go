package insight

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Returned samples do not change, and the oldest samples are dropped.
func TestTrendKeepsAnHour(t *testing.T) {
	t.Parallel()
	tr := &sampleHistory{}
	var before []*progressorv1.OverviewSample
	for n := range maxSamples + 2 {
		tr.keep(&progressorv1.OverviewSample{Time: &timestamppb.Timestamp{Seconds: int64(n)}})
		if n == maxSamples-1 {
			before = tr.all()
		}
	}
	if len(before) != maxSamples || before[0].GetTime().GetSeconds() != 0 {
		t.Errorf("the returned slice has %d samples from %s on", len(before), before[0].GetTime().AsTime())
	}
	all := tr.all()
	if len(all) != maxSamples || all[0].GetTime().GetSeconds() != 2 ||
		all[maxSamples-1].GetTime().GetSeconds() != maxSamples+1 {
		t.Errorf("%d samples from %s on", len(all), all[0].GetTime().AsTime())
	}
}
