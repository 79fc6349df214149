package remote

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// counted is a server that counts its requests and answers them, or rejects them all while busy is
// set.
type counted struct {
	url      string
	requests atomic.Int64
	busy     atomic.Bool
}

func count(t *testing.T) *counted {
	t.Helper()
	c := &counted{}
	handler := processor.Handler(processor.Echo())
	c.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.Add(1)
		if c.busy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	})).URL
	return c
}

func TestCallsAreSpread(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		a, b := count(t), count(t)
		way.MoreUrls = []string{b.url}
		p := dialed(t, way, a.url)
		for range 10 {
			if _, err := p.Process(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
		}
		if x, y := a.requests.Load(), b.requests.Load(); x != 5 || y != 5 {
			t.Errorf("%d and %d requests, want 5 each", x, y)
		}
	})
}

// Requests to a busy endpoint, or to one that does not exist, are not lost. The processor does not
// call these endpoints again at once.
func TestNextEndpointIsTried(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		busy, free := count(t), count(t)
		busy.busy.Store(true)
		way.MoreUrls = []string{"http://127.0.0.1:1", free.url}
		p := dialed(t, way, busy.url)
		for range 9 {
			if _, err := p.Process(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
		}
		if got := free.requests.Load(); got != 9 {
			t.Errorf("%d requests to the free endpoint, want 9", got)
		}
		if got := busy.requests.Load(); got != 1 {
			t.Errorf("%d requests to the busy endpoint, want 1", got)
		}
		free.busy.Store(true)
		if _, err := p.Process(t.Context(), request()); !processor.Unreachable(err) {
			t.Errorf("all endpoints are busy: %v", err)
		}
		busy.busy.Store(false)
		if _, err := p.Process(t.Context(), request()); err != nil {
			t.Errorf("an endpoint that rests is not tried when no other is left: %v", err)
		}
	})
}

// A request that may have been handled is not sent to another endpoint.
func TestLostRequestIsNotRepeated(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		other := count(t)
		var once sync.Once
		reached := make(chan struct{})
		lost := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			once.Do(func() { close(reached) })
			panic(http.ErrAbortHandler)
		}))
		way.MoreUrls = []string{other.url}
		p := dialed(t, way, lost.URL)
		if _, err := p.Process(t.Context(), request()); err == nil || processor.Unreachable(err) {
			t.Errorf("a connection that broke: %v", err)
		}
		<-reached
		if got := other.requests.Load(); got != 0 {
			t.Errorf("the other endpoint got %d requests", got)
		}
	})
}

// A call whose deadline has passed is not sent to the next endpoint.
func TestNoEndpointAfterTheDeadline(t *testing.T) {
	var calls atomic.Int64
	e := &endpoints{}
	silent := func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		calls.Add(1)
		<-ctx.Done()
		return nil, &processor.UnreachableError{Err: ctx.Err()}
	}
	for range 3 {
		e.all = append(e.all, &endpoint{call: silent})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := e.call(ctx, request()); err == nil || calls.Load() != 1 {
		t.Errorf("%d calls, error %v", calls.Load(), err)
	}
}
