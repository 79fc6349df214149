package client

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A worker holds the maximum number of leases, each with a summary of maximum length. The engine
// accepts every heartbeat, and a few heartbeats carry all summaries.
func TestHeartbeatsHaveRoomForSummaries(t *testing.T) {
	t.Parallel()
	s := &workerRun{Worker: &Worker{options: workerOptions{id: "w"}}, held: map[string]*heldLease{}}
	for n := range maxConcurrency {
		token := fmt.Sprintf("%0100d", n)
		s.held[token] = &heldLease{lease: &progressorv1.Lease{LeaseToken: token}, interval: time.Second,
			progress: &progressorv1.Progress{Percent: 1, Summary: strings.Repeat("x", maxSummaryBytes)}}
	}
	reported := map[string]bool{}
	for beats := 0; len(reported) < maxConcurrency; beats++ {
		if beats > maxConcurrency*maxSummaryBytes/maxProgress {
			t.Fatalf("%d heartbeats sent %d of %d summaries", beats, len(reported), maxConcurrency)
		}
		req, beating, _ := s.heartbeatRequest()
		if size := proto.Size(req); size > process.MaxMessageBytes || len(req.GetBeats()) != maxConcurrency {
			t.Fatalf("a heartbeat of %d leases has %d bytes", len(req.GetBeats()), size)
		}
		for n, h := range beating {
			if progress := req.GetBeats()[n].GetProgress(); progress != nil {
				reported[h.lease.GetLeaseToken()] = true
			}
			h.applyDirective(&progressorv1.LeaseDirective{}, req.GetBeats()[n].GetProgress(), time.Now())
		}
	}
}
