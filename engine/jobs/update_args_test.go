package jobs_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Concurrent updates of different options all take effect.
func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	want := &progressorv1.JobOptions{
		Priority: 3, MaxRetry: 4, Timeout: durationpb.New(time.Minute), KeepResult: true,
		ResultTtl: durationpb.New(time.Minute),
		Tags:      []string{"x"}, CancelGrace: durationpb.New(time.Second), LeaseDuration: durationpb.New(time.Minute),
		HeartbeatInterval: durationpb.New(time.Second),
	}
	paths := []string{
		"priority", "max_retry", "timeout", "keep_result", "result_ttl", "tags", "cancel_grace", "lease_duration",
		"heartbeat_interval",
	}
	var all sync.WaitGroup
	for _, path := range paths {
		all.Go(func() {
			if err := n.update(t, "j", want, path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	all.Wait()
	if got := n.job(t, "pull", "j", available).GetOptions(); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
