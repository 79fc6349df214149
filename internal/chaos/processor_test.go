//go:build linux

package chaos

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// badProcessor starts a server that is not a processor, and returns its URL.
func badProcessor(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// refusedURL returns a URL at which no server listens.
func refusedURL(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// breakOff closes the connection of a request, after a part of the response if part is not empty.
func breakOff(t testing.TB, part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, part)
		conn.Close()
	}
}

// If a processor is down or slow, sends garbage or breaks the connection, the call fails with a
// matching reason. The engine stays ready, and the process can be repaired.
func TestBadProcessors(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	c := newChain(t)
	a := startNode(t, "a", dsn)
	point := func(url string) {
		t.Helper()
		putChain(t, a, c, func(ns *progressorv1.Namespace) {
			ns.Processor.GetConnect().Url = url
			ns.StepTimeout = durationpb.New(500 * time.Millisecond)
			ns.RetryPolicy.MaxAttempts = 3
		})
	}
	written := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := []struct{ name, url, reason string }{
		{"down", refusedURL(t), "unavailable"},
		{"slow", badProcessor(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server detect the end of its client
			<-r.Context().Done()
		}), "timeout"},
		{"garbage", badProcessor(t, written(http.StatusOK, "application/proto", "\xff\xff\xffgarbage")),
			"bad_response"},
		{"no processor", badProcessor(t, written(http.StatusOK, "text/html", "<html>It works!</html>")),
			"bad_response"},
		{"empty response", badProcessor(t, written(http.StatusOK, "application/proto", "")), "bad_response"},
		{"breaks off at once", badProcessor(t, breakOff(t, "")), "unavailable"},
		{"breaks off in the middle",
			badProcessor(t, breakOff(t,
				"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Length: 100\r\n\r\nhalf")),
			"unavailable"},
	}
	point(c.url)
	putHealthy(t, a)
	p := one(a)
	var entries []*entry
	for i, tt := range tests {
		process := processID(i)
		req := &progressorv1.StartRequest{Namespace: namespace, ProcessId: process, Args: []byte("init")}
		if _, err := p.Start(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		point(tt.url)
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		began := time.Now()
		_, err := p.Call(ctx, &progressorv1.CallRequest{
			// The timeout of the call is longer than that of the step.
			Namespace: namespace, ProcessId: process, Args: []byte("op"), Timeout: durationpb.New(5 * time.Second),
		})
		cancel()
		took := time.Since(began)
		failure := client.Detail(err).GetFailure()
		t.Logf("%s: %s: %s (%s)", tt.name, failure.GetReason(), failure.GetMessage(), took.Round(time.Millisecond))
		if connect.CodeOf(err) != connect.CodeAborted || failure.GetReason() != tt.reason {
			t.Errorf("%s: %v with reason %q, want %q", tt.name, err, failure.GetReason(), tt.reason)
		}
		if took > 5*time.Second {
			t.Errorf("%s: the call took %s", tt.name, took)
		}
		if !a.isReady() {
			t.Errorf("%s: the engine is not ready", tt.name)
		}
		if _, err := p.Call(t.Context(),
			&progressorv1.CallRequest{Namespace: "healthy", ProcessId: "h", Args: []byte(tt.name)}); err != nil {
			t.Errorf("%s: another namespace: %v", tt.name, err)
		}
		point(c.url)
		simple := &progressorv1.RepairRequest_Simple{Simple: &progressorv1.RepairRequest_SimpleRepair{}}
		if _, err := p.Repair(t.Context(),
			&progressorv1.RepairRequest{Namespace: namespace, ProcessId: process, How: simple}); err != nil {
			t.Errorf("%s: repair: %v", tt.name, err)
		}
		end := <-callConcurrently(t, a, process, "after "+tt.name)
		if end.err != nil || end.entry.outcome != acked {
			t.Errorf("%s: after the repair: outcome %d, %v", tt.name, end.entry.outcome, end.err)
		}
		entries = append(entries, end.entry)
	}
	settle(t, dsn)
	verify(t, dsn, entries)
}

// putHealthy creates a namespace with a process that is independent of the chain.
func putHealthy(t testing.TB, n *node) {
	t.Helper()
	echo := &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "echo"}}
	_, err := one(n).Namespace.PutNamespace(t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
			Namespace: "healthy", Processor: &progressorv1.ProcessorConfig{Transport: echo},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one(n).Start(t.Context(),
		&progressorv1.StartRequest{Namespace: "healthy", ProcessId: "h"}); err != nil {
		t.Fatal(err)
	}
}

// An engine sets timers and dies immediately. Another engine fires all of them, and none of them
// early according to the clock of the database.
func TestTimersOfADeadEngine(t *testing.T) {
	t.Parallel()
	const timers = 200
	dsn := storagetest.DSN(t)
	conn := observe(t, dsn)
	c := newChain(t)
	a, b := startNode(t, "a", dsn), startNode(t, "b", dsn)
	putChain(t, a, c, nil)
	f := newFleet(t, a)
	f.start(timers)
	load := make(chan error, timers)
	for i := range timers {
		go func() {
			_, err := f.at(0).Call(t.Context(), &progressorv1.CallRequest{
				Namespace: namespace, ProcessId: processID(i), Args: []byte("set" + askTimer + "2s"),
			})
			load <- err
		}()
	}
	for range timers {
		if err := <-load; err != nil {
			t.Fatal(err)
		}
	}
	a.kill()
	if n := count(t, conn, `SELECT count(*) FROM schedule WHERE waits_for = 'time' AND scheduled_time > `+
		`statement_timestamp()`); n != timers {
		t.Fatalf("%d of %d timers are stored after the death of their engine", n, timers)
	}
	await(t, testTimeout, "all timers have fired", func() bool {
		return count(t, conn,
			`SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND status = 'FINISHED'`) == timers
	})
	var earliest, median, latest float64
	err := conn.QueryRow(t.Context(),
		`SELECT min(late), percentile_cont(0.5) WITHIN GROUP (ORDER BY late), max(late) FROM (
		SELECT extract(epoch FROM running_time - scheduled_time)::float8 * 1000 AS late FROM tasks
		  WHERE task_type = 'TIMEOUT') t`).Scan(&earliest, &median, &latest)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("timers of the dead engine fired %.1f ms late at the earliest, %.1f ms at the median, %.1f ms at the latest",
		earliest, median, latest)
	if earliest < 0 {
		t.Error("a timer fired early")
	}
	// Every three seconds, an engine looks for timers that other engines have set. These timers
	// become due two seconds after they were set, so they fire at most one second late.
	if latest > 1250 {
		t.Error("a timer fired more than a second late")
	}
	if n := b.metric("progressor_timer_lateness_seconds_count"); n != timers {
		t.Errorf("the other engine has counted %v timers", n)
	}
	settle(t, dsn)
	verify(t, dsn, nil)
}
