package rpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// counting is a slow read that counts its calls.
type counting struct{ reads atomic.Int64 }

func (c *counting) read(ctx context.Context) (connect.AnyResponse, error) {
	c.reads.Add(1)
	select {
	case <-time.After(100 * time.Millisecond):
		return connect.NewResponse(&progressorv1.ListNodesResponse{}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Fifty clients that accept a response with an age of up to 5 s cause at most 3 reads in 10 s.
func TestViewersShareTheirReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newShared(), &counting{}
		gone, leave := context.WithCancel(t.Context())
		var viewers sync.WaitGroup
		for n := range 50 {
			viewers.Go(func() {
				ctx := t.Context()
				if n == 0 {
					ctx = gone // the first client disconnects, but the others still get their answer
				}
				for range 10 {
					a, err := s.respond(ctx, 5*time.Second, true, "ListNodes", &progressorv1.ListNodesRequest{}, c.read)
					if ctx.Err() == nil && (err != nil || a == nil) {
						t.Errorf("%v, %v", a, err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		synctest.Wait()
		leave()
		viewers.Wait()
		if n := c.reads.Load(); n < 2 || n > 3 {
			t.Errorf("in ten seconds, 50 viewers caused %d reads", n)
		}
		if _, err := s.respond(t.Context(), time.Second, true, "ListNodes", &progressorv1.ListNodesRequest{},
			c.read); err != nil || c.reads.Load() > 4 {
			t.Errorf("%v after %d reads", err, c.reads.Load())
		}
	})
}

// After an initial burst, different views cost sharedRate statements per second in total. Reads
// that do not get a turn in time are rejected.
func TestDifferentViewsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newShared(), &counting{}
		ask := func(limit int) error {
			_, err := s.respond(t.Context(), 5*time.Second, true, "ListProcesses",
				&progressorv1.ListProcessesRequest{PageSize: int32(limit)}, c.read)
			return err
		}
		began := time.Now()
		var viewers sync.WaitGroup
		var refused, answered atomic.Int64
		for n := range sharedBurst + 15*sharedRate {
			viewers.Go(func() {
				switch err := ask(n); {
				case err == nil:
					answered.Store(int64(n))
				case errors.Is(err, process.ErrOverloaded):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		viewers.Wait()
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("took %s", took)
		}
		if n := refused.Load(); n < 4*sharedRate || n > 6*sharedRate {
			t.Errorf("%d of %d reads beyond the limit were rejected", n, 15*sharedRate)
		}
		// While the rate is used up, a repeated read that accepts a stale response gets the cached
		// one. A read that does not accept a stale response runs at once.
		read := c.reads.Load()
		time.Sleep(6 * time.Second)
		s.pace.AllowN(time.Now(), 6*sharedRate)
		if err := ask(int(answered.Load())); err != nil || c.reads.Load() != read {
			t.Errorf("%v: the database was read %d times more", err, c.reads.Load()-read)
		}
		if _, err := s.respond(t.Context(), time.Second, false, "ListProcesses", &progressorv1.ListProcessesRequest{},
			c.read); err != nil || c.reads.Load() != read+1 {
			t.Errorf("%v: a first read was not answered immediately", err)
		}
		time.Sleep(2 * time.Minute)
		before := c.reads.Load()
		if err := ask(1); err != nil || c.reads.Load() != before+1 {
			t.Errorf("%v: an old response was returned, or no new one was read", err)
		}
	})
}

// Requests that share an answer write the answer and its headers concurrently. The headers must be
// created before that. (Otherwise, the race detector reports an error.)
func TestSharedAnswersAreWrittenSideBySide(t *testing.T) {
	t.Parallel()
	s, c := newShared(), &counting{}
	var viewers sync.WaitGroup
	for range 8 {
		viewers.Go(func() {
			a, err := s.respond(t.Context(), time.Minute, false, "ListNodes", &progressorv1.ListNodesRequest{}, c.read)
			if err != nil || len(a.Header()) != 0 || len(a.Trailer()) != 0 {
				t.Errorf("%v, %v", a, err)
			}
		})
	}
	viewers.Wait()
}

// A panic of a shared read is an error for all clients. The log contains the stack.
func TestPanicsOfSharedReads(t *testing.T) {
	t.Parallel()
	_, err := newShared().respond(t.Context(), time.Minute, false, "ListNodes", &progressorv1.ListNodesRequest{},
		func(context.Context) (connect.AnyResponse, error) {
			panic("odd row")
		})
	if err == nil || !strings.Contains(err.Error(), "odd row") ||
		!strings.Contains(err.Error(), "TestPanicsOfSharedReads") {
		t.Errorf("%v", err)
	}
	if answered, internal := toConnect(err, &progressorv1.ListNodesRequest{}); !internal ||
		answered.Message() != internalText {
		t.Errorf("a client gets %q", answered.Message())
	}
}

// A failed read is repeated by the next client.
func TestFailuresAreNotShared(t *testing.T) {
	t.Parallel()
	s, failed := newShared(), errors.New("no")
	for range 2 {
		reads := 0
		_, err := s.respond(t.Context(), time.Minute, false, "ListNodes", &progressorv1.ListNodesRequest{},
			func(context.Context) (connect.AnyResponse, error) {
				reads++
				return nil, failed
			})
		if !errors.Is(err, failed) || reads != 1 {
			t.Errorf("%v after %d reads", err, reads)
		}
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 0, "no-cache": 0, "max-age=0": 0, "max-age=5": 5 * time.Second,
		"no-transform, max-age=10": 10 * time.Second, "max-age=3600": time.Minute, "max-age=-1": 0, "max-age=x": 0,
	} {
		if got := maxAge(header); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

// The cache keeps no large requests. A read counts in the share of its client until it ends, even
// if the client has disconnected.
func TestSharedReadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newShared(), &counting{}
		large := &progressorv1.ListProcessesRequest{Filter: strings.Repeat("x", maxSharedRequest)}
		for range 2 {
			if _, err := s.respond(t.Context(), time.Minute, false, "ListProcesses", large, c.read); err != nil {
				t.Error(err)
			}
		}
		if c.reads.Load() != 2 || len(s.responses) != 0 {
			t.Errorf("%d reads, %d responses are kept", c.reads.Load(), len(s.responses))
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		_, _ = s.respond(ctx, time.Minute, false, "ListNodes", &progressorv1.ListNodesRequest{},
			func(ctx context.Context) (connect.AnyResponse, error) {
				cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			})
		if took := time.Since(began); took != sharedTimeout {
			t.Errorf("a client left its share after %s", took)
		}
	})
}
