//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The sink whose target rejects some changes, and the processes that it selects. A sink keeps at
// most 1,000 dead letters, so only a few changes may become dead letters.
const (
	refusedSink      = "refused"
	refusedProcesses = "^p[0-9]*3$"
	refusedOneIn     = 16
)

// rejectingTarget is a target that rejects some changes with 422 when they arrive for the first
// time. They become dead letters. It accepts them when they are delivered again.
type rejectingTarget struct {
	url      string
	mutex    sync.Mutex
	accepted map[string]map[int64]bool // changes by process
	refused  map[int64]bool            // changes that were refused
	retried  int                       // number of refused changes that were accepted later
}

func newRejectingTarget(t testing.TB) *rejectingTarget {
	r := &rejectingTarget{accepted: map[string]map[int64]bool{}, refused: map[int64]bool{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *rejectingTarget) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the engine was killed
	}
	c := &progressorv1.Change{}
	if err := proto.Unmarshal(body, c); err != nil || !r.take(c) {
		http.Error(w, "refused", http.StatusUnprocessableEntity)
	}
}

// take reports whether a change is accepted.
func (r *rejectingTarget) take(c *progressorv1.Change) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	id, process := c.GetChangeId(), c.GetProcessId()
	if id%refusedOneIn == 0 && !r.refused[id] {
		r.refused[id] = true
		return false
	}
	if r.accepted[process] == nil {
		r.accepted[process] = map[int64]bool{}
	}
	if r.refused[id] && !r.accepted[process][id] {
		r.retried++
	}
	r.accepted[process][id] = true
	return true
}

// delivered returns how many dead letters were accepted.
func (r *rejectingTarget) delivered() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.retried
}

// defects compares the accepted changes, in any order, with the recorded ones.
func (r *rejectingTarget) defects(recorded map[string][]int64, lossy bool) (wrong []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for process, ids := range recorded {
		var missing []int64
		for _, id := range ids {
			if !r.accepted[process][id] {
				missing = append(missing, id)
			}
		}
		if len(missing) > 0 {
			wrong = append(wrong, fmt.Sprintf("sink %s lacks %d of the %d changes of %s: %v", refusedSink, len(missing),
				len(ids), process, missing[:min(3, len(missing))]))
		}
	}
	for process, got := range r.accepted {
		for id := range got {
			if !slices.Contains(recorded[process], id) && (!lossy || id >= firstNewNumber) {
				wrong = append(wrong, fmt.Sprintf("sink %s has received change %d of %s, which was not recorded",
					refusedSink, id, process))
			}
		}
	}
	return wrong
}

// retryDeadLetters lets the sink deliver all its dead letters again.
func (w *sinkWatch) retryDeadLetters() {
	w.t.Helper()
	w.ask("retry the dead letters", 0, func(ctx context.Context, c *client.Client) error {
		_, err := c.Change.RetrySinkDeadLetters(ctx, &progressorv1.RetrySinkDeadLettersRequest{
			Namespace: namespace, SinkId: refusedSink, All: true,
		})
		return err
	})
}

// The check reports changes that were rejected and not delivered again, and changes that were not
// recorded.
func TestPlantedDeadLetters(t *testing.T) {
	t.Parallel()
	recorded := map[string][]int64{"p": {15, 16, 17}}
	for name, test := range map[string]struct {
		deliveries []int64
		lossy      bool
		wrong      bool
	}{
		"refused, then accepted":    {deliveries: []int64{15, 16, 17, 16}},
		"twice":                     {deliveries: []int64{15, 16, 17, 16, 16, 15}},
		"refused only":              {deliveries: []int64{15, 16, 17}, wrong: true},
		"a gap":                     {deliveries: []int64{15, 16, 16}, wrong: true},
		"one that was not recorded": {deliveries: []int64{15, 16, 17, 16, 18}, wrong: true},
		"one that was lost":         {deliveries: []int64{15, 16, 17, 16, 18}, lossy: true},
		"a new one": {
			deliveries: []int64{15, 16, 17, 16, firstNewNumber + 1}, lossy: true, wrong: true,
		},
	} {
		r := newRejectingTarget(t)
		for _, id := range test.deliveries {
			r.take(&progressorv1.Change{ProcessId: "p", ChangeId: id})
		}
		if wrong := r.defects(recorded, test.lossy); (len(wrong) > 0) != test.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}
