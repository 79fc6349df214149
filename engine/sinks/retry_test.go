package sinks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// retry calls RetrySinkDeadLetters for sink s, and returns the dead letters that the request
// selects.
func (n *node) retry(t testing.TB, change func(*progressorv1.RetrySinkDeadLettersRequest)) string {
	t.Helper()
	r := &progressorv1.RetrySinkDeadLettersRequest{Namespace: "ns", SinkId: "s"}
	change(r)
	resp, err := n.Retry(t.Context(), r, kim)
	if err != nil {
		t.Fatal(err)
	}
	return lettersText(resp.GetDeadLetters())
}

// lettersText returns the dead letters in a list as text: process ID, type of the change and number
// of attempts. "waits" follows if a dead letter waits for a retry, and "deleted" if its change was
// deleted.
func lettersText(list []*progressorv1.SinkDeadLetter) string {
	var texts []string
	for _, d := range list {
		text := fmt.Sprintf("%s %s %d", d.GetProcessId(), d.GetType(), d.GetAttempts())
		if d.GetRetryTime() != nil {
			text += " waits"
		}
		if d.GetChangeDeleted() {
			text += " deleted"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func retryAll(r *progressorv1.RetrySinkDeadLettersRequest) { r.All = true }

// retried waits until no dead letter of sink s waits to be delivered again, and returns those that
// are left, newest first.
func (n *node) retried(t testing.TB) string {
	t.Helper()
	eventually(t, "no dead letter waits", func() bool { return n.status(t).GetRetries() == 0 })
	return lettersText(n.status(t).GetRecentDeadLetters())
}

// rejecting starts a node with sink s and the given processes. The target of the sink has rejected
// the first change of each process, which is therefore a dead letter.
func rejecting(t *testing.T, processes ...string) (*site, *node, *receiver) {
	t.Helper()
	s, n, r := newSink(t)
	r.reacts(func(c *progressorv1.Change) reaction {
		switch {
		case c.GetType() != "created":
			return accept
		case c.GetProcessId() == "large":
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusUnprocessableEntity
	})
	for _, id := range processes {
		n.begin(t, id)
	}
	n.drains(t)
	return s, n, r
}

// Selected dead letters are delivered again, after newer changes of their processes. A dead letter
// that fails remains, with its new error, and does not stop the sink.
func TestRetryDeadLetters(t *testing.T) {
	t.Parallel()
	s, n, r := rejecting(t, "a", "large", "b")
	rejected := n.status(t).GetRecentDeadLetters()
	want(t, "dead letters", lettersText(rejected), "b created 1, large created 1, a created 1")
	for wanted, change := range map[string]func(*progressorv1.RetrySinkDeadLettersRequest){
		"a created 1, large created 1, b created 1": retryAll,
		"large created 1": func(r *progressorv1.RetrySinkDeadLettersRequest) {
			r.Error = "http 413"
		},
		"a created 1": func(r *progressorv1.RetrySinkDeadLettersRequest) { r.OfProcessId = "a" },
		"a created 1, b created 1": func(r *progressorv1.RetrySinkDeadLettersRequest) {
			r.ChangeIds = []int64{rejected[0].GetChangeId(), rejected[2].GetChangeId(), 1 << 40}
		},
		"b created 1": func(r *progressorv1.RetrySinkDeadLettersRequest) { r.SinceTime = rejected[0].GetTime() },
		"": func(r *progressorv1.RetrySinkDeadLettersRequest) {
			r.OfProcessId, r.UntilTime = "b", rejected[0].GetTime()
		},
	} {
		got := n.retry(t, func(r *progressorv1.RetrySinkDeadLettersRequest) {
			r.DryRun = true
			change(r)
		})
		want(t, "selected", got, wanted)
	}
	if got := n.status(t).GetRetries(); got != 0 {
		t.Errorf("after dry runs, %d dead letters wait", got)
	}
	r.reacts(nil)
	got := n.retry(t, func(r *progressorv1.RetrySinkDeadLettersRequest) { r.OfProcessId = "a" })
	want(t, "selected for the retry", got, "a created 1 waits")
	want(t, "the remaining dead letters", n.retried(t), "b created 1, large created 1")
	r.reacts(func(c *progressorv1.Change) reaction {
		if c.GetProcessId() == "large" {
			return http.StatusServiceUnavailable
		}
		return accept
	})
	n.retry(t, retryAll)
	n.begin(t, "c")
	want(t, "the dead letter that failed again", n.retried(t), "large created 2")
	n.drains(t)
	want(t, "delivered in order", r.text(), "a stored 1, b stored 1, c created, c stored 1, large stored 1")
	m := n.status(t)
	left := m.GetRecentDeadLetters()[0]
	if !strings.Contains(left.GetError(), "HTTP 503") ||
		!left.GetTime().AsTime().After(rejected[1].GetTime().AsTime()) {
		t.Errorf("%v", left)
	}
	if _, again, _ := r.counts(); again != 2 || m.GetDeliveredChanges() != 5+2 || m.GetState() != active ||
		m.GetDeadLetters() != 3 || m.GetStoredDeadLetters() != 1 || m.GetFailures() != 0 ||
		m.GetLastError() != left.GetError() {
		t.Errorf("%d changes were received after newer ones; %v", again, m)
	}
	audited := enginetest.Count(t, s.db,
		"SELECT count(*) FROM audit WHERE actor = 'kim' AND method = 'RetrySinkDeadLetters' AND subject = 's'")
	if audited != 2 {
		t.Errorf("%d commands are audited", audited)
	}
}

// A request is rejected if it has no filter or contradicts itself, or if its sink does not exist.
func TestRetryRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	now := timestamppb.Now()
	for wanted, r := range map[string]*progressorv1.RetrySinkDeadLettersRequest{
		"all: must be true to retry all dead letters; to retry some, set change_ids": {},
		"all: must be false if change_ids":                                           {All: true, Error: "x"},
		"until_time: must be after since_time":                                       {SinceTime: now, UntilTime: now},
		process.ErrSinkNotFound.Error():                                              {All: true},
	} {
		for _, dry := range []bool{false, true} {
			r.Namespace, r.SinkId, r.DryRun = "ns", "s", dry
			if _, err := n.Retry(t.Context(), r); err == nil || !strings.Contains(err.Error(), wanted) {
				t.Errorf("got %v\nwant %s", err, wanted)
			}
		}
	}
}

// While a sink is paused, its dead letters wait. Dead letters whose change was deleted are not
// delivered. A dead letter that an older engine has stored has no lane, and its change is found by
// its number.
func TestRetryWaits(t *testing.T) {
	t.Parallel()
	s, n, r := rejecting(t, "old", "gone", "going")
	n.pause(t)
	s.exec("UPDATE sink_dead_letters SET lane = NULL, seq = NULL WHERE process_id = 'old'")
	s.exec(`UPDATE sink_dead_letters SET lane = 4711, seq = 1 WHERE process_id = 'gone'`)
	s.exec(`INSERT INTO change_drops (namespace, lane, seq, "time") VALUES ('ns', 4711, 1, now())`)
	r.reacts(nil)
	want(t, "selected", n.retry(t, retryAll), "old created 1 waits, gone created 1 deleted, going created 1 waits")
	s.exec("UPDATE sink_dead_letters SET change_time = change_time - interval '1 day' WHERE process_id = 'going'")
	eventually(t, "no node delivers", func() bool { return n.status(t).GetNodeId() == 0 })
	if got := n.status(t).GetRetries(); got != 2 {
		t.Errorf("while it is paused, %d dead letters wait", got)
	}
	n.resume(t)
	want(t, "the remaining dead letters", n.retried(t), "going created 2, gone created 1 deleted")
	if got := n.status(t).GetRecentDeadLetters()[0].GetError(); got != "the change was deleted after its retention" {
		t.Error(got)
	}
	if _, again, _ := r.counts(); again != 1 {
		t.Errorf("%d changes were delivered again", again)
	}
}

// While a sink is FAILING, its dead letters wait. If the target responds to a dead letter with 410,
// the sink is disabled, and the dead letter remains.
func TestRetryWhileFailing(t *testing.T) {
	t.Parallel()
	_, n, r := rejecting(t, "a")
	var letters atomic.Int32 // number of requests with the dead letter
	answer := func(first reaction) {
		r.reacts(func(c *progressorv1.Change) reaction {
			if c.GetProcessId() != "a" {
				return first
			}
			letters.Add(1)
			return http.StatusGone
		})
	}
	answer(http.StatusInternalServerError)
	n.begin(t, "b")
	n.becomes(t, failing)
	n.retry(t, retryAll)
	before := n.status(t).GetFailures()
	eventually(t, "more failures", func() bool { return n.status(t).GetFailures() > before+5 })
	if got := letters.Load(); got != 0 {
		t.Errorf("while the sink fails, the dead letter was sent %d times", got)
	}
	answer(accept)
	n.becomes(t, disabled)
	want(t, "the dead letter", n.retried(t), "a created 2")
	if got := letters.Load(); got != 1 {
		t.Errorf("the dead letter was sent %d times", got)
	}
	r.reacts(nil)
	n.resume(t)
	n.retry(t, retryAll)
	want(t, "dead letters", n.retried(t), "")
}

// If a node is killed while it delivers a dead letter, another node delivers the dead letter again.
func TestRetryOnTwoNodes(t *testing.T) {
	t.Parallel()
	s, first, r := rejecting(t, "a")
	second := s.start()
	requests, begun := 0, make(chan struct{})
	r.reacts(func(*progressorv1.Change) reaction { // holds the lock of r
		requests++
		if requests > 1 {
			return accept
		}
		close(begun)
		return hang
	})
	second.retry(t, retryAll)
	<-begun
	first.Store.Close() // as if the node were killed: its lease expires
	want(t, "dead letters", second.retried(t), "")
	r.mu.Lock()
	defer r.mu.Unlock()
	if requests != 2 || r.again != 1 {
		t.Errorf("%d requests, %d accepted", requests, r.again)
	}
}

// A sink delivers new changes between its dead letters.
func TestRetryDelaysNoChange(t *testing.T) {
	t.Parallel()
	var processes []string
	for i := range 20 {
		processes = append(processes, fmt.Sprintf("p%d", i))
	}
	_, n, r := rejecting(t, processes...)
	var order []string
	begun, release := make(chan struct{}), make(chan struct{})
	r.reacts(func(c *progressorv1.Change) reaction { // holds the lock of r
		order = append(order, c.GetProcessId())
		if len(order) == 1 {
			close(begun)
			<-release
		}
		return accept
	})
	n.retry(t, retryAll)
	<-begun
	n.begin(t, "new")
	close(release)
	want(t, "dead letters", n.retried(t), "")
	n.drains(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := strings.Index(strings.Join(order, " "), "p0 new new p1 "); at != 0 || len(order) != 22 {
		t.Errorf("%q", order)
	}
}
