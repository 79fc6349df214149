package rpc

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Large requests wait for the memory that other requests of their client use, and are rejected
// after a while. Small requests, requests of other clients, and requests after memory was released
// do not wait.
func TestLargeRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, refused atomic.Int32
		m := &memory{requests: budget.New(requestBudget), refused: func(bound string) {
			if bound == boundOfMemory {
				refused.Add(1)
			}
		}}
		release := make(chan struct{})
		var codes sync.Map
		send := func(name, address, encoding string, size int, decoded any) {
			h := m.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				codes.Store(name, connect.CodeOf(err))
				if err != nil {
					return
				}
				keepDecoded(r.Context(), decoded)
				begun.Add(1)
				<-release
			}))
			r := httptest.NewRequest(http.MethodPost, callPath, strings.NewReader(strings.Repeat(" ", size)))
			r.Header.Set("Content-Encoding", encoding)
			r.RemoteAddr = address
			go h.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
		}
		const attacker, other = "192.0.2.1:1", "192.0.2.2:1"
		small := &progressorv1.CallRequest{ProcessId: "p"}
		for range 10 {
			send("decoded", attacker, "", process.MaxMessageBytes, small)
		}
		send("plain", attacker, "identity", process.MaxMessageBytes, nil)
		if n := begun.Load(); n != 11 {
			t.Errorf("%d of 11 requests began", n)
		}
		send("late", attacker, "", 10<<20, nil)
		send("compressed", attacker, "gzip", 20<<10, nil)
		send("small", attacker, "", budget.Free, nil)
		send("small and compressed", attacker, "gzip", 60, nil)
		send("of another client", other, "", process.MaxMessageBytes, nil)
		if n := begun.Load(); n != 14 {
			t.Errorf("%d of 14 requests began", n)
		}
		time.Sleep(memoryWait)
		synctest.Wait()
		for _, name := range []string{"late", "compressed"} {
			if code, _ := codes.Load(name); code != connect.CodeResourceExhausted || refused.Load() != 2 {
				t.Errorf("%s: %v, %d refused", name, code, refused.Load())
			}
		}
		close(release)
		synctest.Wait()
		send("after them", attacker, "", process.MaxMessageBytes, nil)
		if n := begun.Load(); n != 15 {
			t.Error("the memory of requests that have ended is not free")
		}
	})
}

// A few kilobytes that expand to gigabytes are not decompressed completely, and the request is
// counted.
func TestExpandingBody(t *testing.T) {
	t.Parallel()
	failed := 0
	g := &limitedGzip{failed: func() { failed++ }}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 64 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Close()
	if err := g.Reset(&packed); err != nil {
		t.Fatal(err)
	}
	read, err := io.Copy(io.Discard, g)
	if err != nil || read != process.MaxMessageBytes+1 || failed != 1 {
		t.Errorf("%d bytes, %v, counted %d times", read, err, failed)
	}
}

// A client cannot turn the budget off with a Content-Length that overflows.
func TestHugeContentLength(t *testing.T) {
	t.Parallel()
	m := &memory{requests: budget.New(requestBudget), refused: func(string) {}}
	held := false
	h := m.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, budget.Free+1)
		held = budget.From(r.Context()).Has()
	}))
	r := httptest.NewRequest(http.MethodPost, callPath, strings.NewReader(strings.Repeat(" ", budget.Free+1)))
	r.Header.Set("Grpc-Encoding", "gzip")
	r.ContentLength = math.MaxUint64/maxExpansion + 1 // times maxExpansion, this overflows to 776
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !held {
		t.Error("the request has no share of the budget")
	}
}

// A health check, which needs no token, is rejected with a short error if the name of the service
// is long.
func TestHealthOfALongName(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	message, err := proto.Marshal(wrapperspb.String(strings.Repeat("\x01", 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(message)
	_ = w.Close()
	for encoding, body := range map[string][]byte{"gzip": packed.Bytes(), "identity": message[:8<<10]} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/grpc.health.v1.Health/Check",
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/proto")
		r.Header.Set("Content-Encoding", encoding)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests || len(text) > 1<<10 {
			t.Errorf("%s: %s, %d bytes: %.100s", encoding, response.Status, len(text), text)
		}
	}
}
