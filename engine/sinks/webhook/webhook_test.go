package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	"github.com/progressor-engine/progressor/engine/sinks/webhook"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_b3RoZXIgc2VjcmV0IGtleSBmb3IgdGVzdHM="
)

// site is a receiver that records requests.
type site struct {
	mu       sync.Mutex
	requests []string // process/change
	status   func(id string) int
	running  int
	most     int            // maximum number of requests at the same time
	inside   map[string]int // requests of a process at the same time
	overlap  bool           // two requests of a process at the same time
	gate     chan struct{}  // requests wait for it; nil means that they do not wait
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c := &progressorv1.Change{}
	if err := proto.Unmarshal(body, c); err != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	id := fmt.Sprint(c.GetProcessId(), c.GetChangeId())
	s.mu.Lock()
	s.requests = append(s.requests, id)
	s.running++
	s.most = max(s.most, s.running)
	if s.inside == nil {
		s.inside = map[string]int{}
	}
	s.inside[c.GetProcessId()]++
	s.overlap = s.overlap || s.inside[c.GetProcessId()] > 1
	status := http.StatusNoContent
	if s.status != nil {
		status = s.status(id)
	}
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.mu.Lock()
	s.running--
	s.inside[c.GetProcessId()]--
	s.mu.Unlock()
	if status == http.StatusFound {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	if status == http.StatusOK {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // the deliverer need not read it
	}
}

func (s *site) open(t *testing.T) sinks.Deliverer {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return openURL(t, server.URL)
}

func openURL(t *testing.T, url string) sinks.Deliverer {
	t.Helper()
	d, err := webhook.New(&progressorv1.Sink{Target: &progressorv1.Sink_Webhook{Webhook: &progressorv1.WebhookTarget{
		Url: url, Secrets: []string{secret}, MaxConcurrent: 3, Timeout: durationpb.New(30 * time.Second),
	}}}, format.Protobuf, &remote.Egress{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func change(process string, id int64) *progressorv1.Change {
	return &progressorv1.Change{
		ChangeId: id, ProcessId: process, Namespace: "ns", Type: "stored",
		Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Time: timestamppb.New(time.Unix(1, 0)),
	}
}

// The changes of a process are sent one after the other, and those of different processes
// concurrently, up to the limit.
func TestConcurrency(t *testing.T) {
	s := &site{gate: make(chan struct{})}
	d := s.open(t)
	var batch []*progressorv1.Change
	for range 5 {
		for _, process := range []string{"a", "b", "c", "d"} {
			batch = append(batch, change(process, int64(len(batch))+1))
		}
	}
	done := make(chan error, 1)
	go func() { done <- d.Deliver(context.Background(), batch) }()
	enginetest.Eventually(t, time.Minute, "three requests at the same time", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.running == 3
	})
	for range batch {
		s.gate <- struct{}{}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, process := range []string{"a", "b", "c", "d"} {
		var ids []string
		for _, id := range s.requests {
			if strings.HasPrefix(id, process) {
				ids = append(ids, id)
			}
		}
		var wanted []string
		for _, c := range batch {
			if c.GetProcessId() == process {
				wanted = append(wanted, fmt.Sprint(process, c.GetChangeId()))
			}
		}
		if !slices.Equal(ids, wanted) {
			t.Errorf("process %s: %v", process, ids)
		}
	}
	if s.overlap || s.most != 3 {
		t.Errorf("%d requests at the same time, two of the same process: %t", s.most, s.overlap)
	}
}

// After a failure, which may be permanent, the later changes of the process are not sent. A
// repetition sends only what was not accepted.
func TestRepetition(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusUnprocessableEntity} {
		s := &site{status: func(id string) int {
			if id == "a2" {
				return status
			}
			return http.StatusOK
		}}
		d := s.open(t)
		batch := []*progressorv1.Change{change("a", 1), change("a", 2), change("a", 3)}
		err := d.Deliver(t.Context(), batch)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))) {
			t.Errorf("%v", err)
		}
		s.status = nil
		if err := d.Deliver(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.requests, " "); got != "a1 a2 a2 a3" {
			t.Errorf("%d: %s", status, got)
		}
		if err := d.Deliver(t.Context(), batch[:1]); err != nil { // after a rewind
			t.Fatal(err)
		}
		if got := strings.Join(s.requests, " "); got != "a1 a2 a2 a3 a1" {
			t.Errorf("%d: %s", status, got)
		}
	}
}

// The status determines whether a delivery succeeds, is retried, fails permanently, or ends with
// ErrGone.
func TestStatuses(t *testing.T) {
	s := &site{}
	d := s.open(t)
	deliver := func(status int) error {
		s.status = func(string) int { return status }
		return d.Deliver(t.Context(), []*progressorv1.Change{change("a", int64(status))})
	}
	for _, status := range []int{200, 202, 204, 299} {
		if err := deliver(status); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, status := range []int{302, 400, 401, 404, 408, 429, 500, 503, 599} {
		err := deliver(status)
		if _, permanent := errors.AsType[*sinks.PermanentError](err); err == nil || permanent ||
			errors.Is(err, sinks.ErrGone) {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, status := range []int{413, 422} {
		if _, permanent := errors.AsType[*sinks.PermanentError](deliver(status)); !permanent {
			t.Errorf("%d is not permanent", status)
		}
	}
	if err := deliver(410); !errors.Is(err, sinks.ErrGone) {
		t.Errorf("410: %v", err)
	}
}

// The error of a delivery, which users of the namespace see, contains no address and no data that a
// server has sent instead of HTTP.
func TestFailuresShowNothingInternal(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	banner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "SSH-2.0-secret\r\n\r\n")
		_ = conn.Close()
	}))
	defer banner.Close()
	for url, want := range map[string]string{
		"http://" + closed.Addr().String(): "connection refused",
		banner.URL:                         "the server does not respond with HTTP",
	} {
		if err := openURL(t, url).Deliver(t.Context(), []*progressorv1.Change{change("a", 1)}); err == nil ||
			err.Error() != want {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}
