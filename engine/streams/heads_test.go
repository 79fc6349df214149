package streams_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/engine/streams"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
)

// Streams that wait for changes of a namespace share the queries that look for them.
func TestStreamsShareQueries(t *testing.T) {
	t.Parallel()
	generation := uuid.New()
	cursor := func(lanes map[int64]int64) changes.Cursor {
		return changes.Cursor{Generation: generation, Lanes: lanes}
	}
	var heads streams.Heads
	head, leave := heads.Use("ns")
	defer leave()
	var queries atomic.Int64
	end, failure := cursor(map[int64]int64{1: 5}), error(nil)
	passed := func(at changes.Cursor, maxAge time.Duration) bool {
		return head.Passed(t.Context(), at, maxAge, func(context.Context) (changes.Cursor, error) {
			queries.Add(1)
			return end, failure
		})
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if passed(cursor(map[int64]int64{1: 5}), time.Hour) {
				t.Error("a stream at the end has to read")
			}
		})
	}
	group.Wait()
	if n := queries.Load(); n != 1 {
		t.Errorf("%d queries of 50 streams", n)
	}
	end = cursor(map[int64]int64{1: 5, 2: 1})
	if passed(cursor(map[int64]int64{1: 5}), time.Hour) {
		t.Error("a stream queried again within the maximum age")
	}
	for name, at := range map[string]changes.Cursor{
		"behind in a lane":   cursor(map[int64]int64{1: 4, 2: 1}),
		"without a new lane": cursor(map[int64]int64{1: 5}),
		"of a generation":    {Generation: uuid.New(), Lanes: map[int64]int64{1: 5, 2: 1}},
	} {
		if !passed(at, 0) {
			t.Errorf("a stream %s does not have to read", name)
		}
	}
	if passed(cursor(map[int64]int64{1: 6, 2: 1}), 0) {
		t.Error("a stream that has read more than the query has to read")
	}
	if failure = errors.New("no database"); !passed(end, 0) {
		t.Error("a stream does not notice that queries fail")
	}
	if same, leave := heads.Use("ns"); same != head {
		t.Error("two streams of a namespace use different heads")
	} else {
		leave()
	}
	if other, leave := heads.Use("other"); other == head {
		t.Error("two namespaces use the same head")
	} else {
		leave()
	}
	if n := heads.Len(); n != 1 {
		t.Errorf("%d heads remain, want only that of the open stream", n)
	}
}

// Streams that have waited find the changes of another node, which does not wake them.
func TestIdleStreamsFindChangesOfOtherNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n, other := s.start(), s.start()
	n.ReadAfter(time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	idle, seen := make(chan struct{}, 3), make(chan string, 3)
	enough := errors.New("enough")
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			err := n.Watch(ctx, &progressorv1.WatchChangesRequest{Namespace: "ns"},
				func(u *progressorv1.WatchChangesResponse) error {
					if len(u.GetChanges()) == 0 {
						idle <- struct{}{}
						return nil
					}
					seen <- text(u.GetChanges())
					return enough
				})
			if !errors.Is(err, enough) {
				t.Error(err)
			}
		})
	}
	for range 3 {
		<-idle
	}
	other.begin(t, "a")
	group.Wait()
	for range 3 {
		if got := <-seen; !strings.HasPrefix(got, "a created") {
			t.Errorf("a stream received %s", got)
		}
	}
}
