package crons_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (n *node) trigger(t testing.TB, id string) *progressorv1.Fire {
	t.Helper()
	f, err := n.Trigger(context.Background(), &progressorv1.TriggerCronRequest{Namespace: "ns", CronId: id}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The end of a process determines the end of its run. If the process was removed or could not be
// started, the run has failed.
func TestEndsOfRuns(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for args, want := range map[string]string{
		"complete": "FIRED SUCCESS 1", "fail": "FIRED FAILED 1", "timeout": "FIRED TIMEOUT 1",
	} {
		n.create(t, starts(args, never, args))
		n.trigger(t, args)
		f := n.awaits(t, args, want)[0]
		if (f.GetDetail() == "") != (args == "complete") {
			t.Errorf("%s: %v", args, f)
		}
	}
	n.create(t, starts("gone", never, "wait"))
	run := n.trigger(t, "gone").GetProcessId()
	eventually(t, "the process runs", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status = 'RUNNING'", run) == 1
	})
	if err := n.RemoveProcess(t.Context(), key(run), kim); err != nil {
		t.Fatal(err)
	}
	if f := n.awaits(t, "gone", "FIRED FAILED 1")[0]; f.GetDetail() != "the process was removed" {
		t.Errorf("removed: %v", f)
	}
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	c := starts("taken", "@yearly", "complete")
	n.create(t, c)
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("taken/2020-01-01T00:00:00Z")}); err != nil {
		t.Fatal(err)
	}
	if k, err := n.Backfill(t.Context(), &progressorv1.BackfillCronRequest{
		Namespace: "ns", CronId: "taken", FromTime: stamp(from), ToTime: stamp(from.Add(time.Second)),
	}, kim); err != nil || k != 1 {
		t.Fatalf("%d, %v", k, err)
	}
	if f := n.awaits(t, "taken", "FIRED FAILED 1")[0]; !strings.Contains(f.GetDetail(), "already exists") ||
		!f.GetManual() {
		t.Errorf("taken: %v", f)
	}
}

// A run that passes the timeout of its cron becomes TIMEOUT immediately, and is cancelled. Its own
// end then changes nothing. The next run is the next attempt.
func TestTimeoutAndRetry(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "wait")
	c.Policy.Timeout, c.Policy.FailureAction = durationpb.New(200*time.Millisecond),
		progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, c)
	run := n.trigger(t, "c").GetProcessId()
	f := n.awaits(t, "c", "FIRED TIMEOUT 1")[0]
	// The timeout counts from the decision, which is stored a few milliseconds later.
	if took := f.GetEndedTime().AsTime().Sub(f.GetFireTime().AsTime()); took < 200*time.Millisecond {
		t.Errorf("it timed out after %s", took)
	}
	eventually(t, "its process is cancelled", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status = 'CANCELLED'", run) == 1
	})
	if f := n.trigger(t, "c"); f.GetAttempt() != 2 {
		t.Errorf("the next: %v", f)
	}
	n.awaits(t, "c", "FIRED TIMEOUT 1, FIRED TIMEOUT 2")
	for name, want := range map[string]float64{
		"progressor_cron_runs_total": 2, "progressor_cron_task_timeout_total": 2,
		"progressor_cron_task_failure_retry_total": 1, "progressor_cron_fires_total": 2,
	} {
		eventually(t, fmt.Sprintf("%s is %v", name, want), func() bool { return n.metric(t, name) == want })
	}
}

// metric sums a counter over its labels. A stored event is counted shortly after it is stored.
func (n *node) metric(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := n.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A fire without a free slot is queued, in order. If the queue is full, the fire is dropped.
func TestQueue(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "wait")
	c.Policy.ConcurrencyPolicy, c.Policy.QueueLimit = progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE, 1
	n.create(t, c)
	for range 3 {
		n.trigger(t, "c")
	}
	fires := n.awaits(t, "c", "FIRED RUNNING 1, QUEUED SCHEDULED, DROPPED SKIPPED")
	n.call(t, fires[0].GetProcessId(), "complete")
	fires = n.awaits(t, "c", "FIRED SUCCESS 1, QUEUED RUNNING 1, DROPPED SKIPPED")
	eventually(t, "the queued run starts", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status = 'RUNNING'",
			fires[1].GetProcessId()) == 1
	})
	n.call(t, fires[1].GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, QUEUED SUCCESS 1, DROPPED SKIPPED")
}

// A backfill decides each fire time without a row once. It includes times before the cron was
// created, and can decide 1,500 of them.
func TestBackfill(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * *", "complete")
	n.create(t, c)
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ask := func(minutes int) int32 {
		t.Helper()
		k, err := n.Backfill(t.Context(), &progressorv1.BackfillCronRequest{
			Namespace: "ns", CronId: "c", FromTime: stamp(from),
			ToTime:        stamp(from.Add(time.Duration(minutes) * time.Minute)),
			OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_PARALLEL,
		}, kim)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	decided := func(want int) func() bool {
		return func() bool {
			return n.Count(t, `SELECT count(*) FROM cron_fires WHERE fire_time < '2026-06-01' AND manual
				AND status = 'SUCCESS'`) == want
		}
	}
	if k := ask(10); k != 10 {
		t.Errorf("%d times", k)
	}
	eventually(t, "ten runs are done", decided(10))
	if k := ask(10); k != 0 {
		t.Errorf("%d times again", k)
	}
	if k := ask(1500); k != 1490 {
		t.Errorf("%d further times", k)
	}
	eventually(t, "all runs are done", decided(1500))
	if k := n.Count(t, "SELECT count(*) FROM processes WHERE kind = '' AND status = 'COMPLETED'"); k < 1500 {
		t.Errorf("%d runs", k)
	}
}

// asked is one request that the HTTP target has received.
type asked struct {
	method, path, body string
	header             http.Header
}

// target returns a cron with an HTTP target.
func target(id, url string) *progressorv1.Cron {
	c := starts(id, never, "")
	c.Target = &progressorv1.CronTarget{Target: &progressorv1.CronTarget_Http{Http: &progressorv1.HttpTarget{
		Url: url, Headers: map[string]string{"Authorization": "Bearer x"}, Body: []byte("hello"),
	}}}
	return c
}

// An HTTP target gets one request per run, with the time of the fire. The response determines how
// the run ends.
func TestHTTP(t *testing.T) {
	t.Parallel()
	requests := make(chan asked, 100)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- asked{r.Method, r.URL.Path, string(body), r.Header}
		switch r.URL.Path {
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/hangs":
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}
	}))
	defer server.Close()
	defer close(release)
	n := start(t, storagetest.DSN(t))
	for path, want := range map[string]string{
		"good": "FIRED SUCCESS 1", "broken": "FIRED FAILED 1", "moved": "FIRED FAILED 1",
	} {
		n.create(t, target(path, server.URL+"/"+path))
		f := n.trigger(t, path)
		row := n.awaits(t, path, want)[0]
		r := <-requests
		if r.method != "POST" || r.path != "/"+path || r.body != "hello" ||
			r.header.Get("Authorization") != "Bearer x" ||
			r.header.Get("Progressor-Cron-Id") != path ||
			r.header.Get("Progressor-Fire-Time") != f.GetFireTime().AsTime().Format(time.RFC3339Nano) ||
			r.header.Get("Progressor-Attempt") != "1" {
			t.Errorf("%s was asked %v", path, r)
		}
		if !strings.HasPrefix(row.GetDetail(), "HTTP ") || row.GetProcessId() != "~run/"+row.GetFireId() {
			t.Errorf("%s: %v", path, row)
		}
	}
	codes := target("codes", server.URL+"/broken")
	codes.Target.GetHttp().SuccessCodes, codes.Target.GetHttp().Method = []int32{500}, "PUT"
	n.create(t, codes)
	n.trigger(t, "codes")
	n.awaits(t, "codes", "FIRED SUCCESS 1")
	if r := <-requests; r.method != "PUT" {
		t.Errorf("%v", r)
	}
	slow := target("slow", server.URL+"/hangs")
	slow.Policy.Timeout = durationpb.New(300 * time.Millisecond)
	n.create(t, slow)
	n.trigger(t, "slow")
	n.awaits(t, "slow", "FIRED TIMEOUT 1")
	<-requests
	n.create(t, target("prev", server.URL+"/hangs"))
	n.trigger(t, "prev")
	<-requests
	_, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{
		Namespace: "ns", CronId: "prev", OverlapAction: progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV,
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	row := n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED RUNNING 1")[0]
	if took := row.GetEndedTime().AsTime().Sub(row.GetStartedTime().AsTime()); took > 8*time.Second {
		t.Errorf("the request was cancelled only after %s, so it was not aborted", took)
	}
}

// A cron cannot call a link-local address or a metadata address of a cloud, in any notation.
// Invalid targets are rejected before they are stored.
func TestHTTPAddresses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for url, field := range map[string]string{
		"http://169.254.169.254/latest/meta-data": "url", "http://[fe80::1]/": "url", "http://[::ffff:169.254.169.254]/": "url", "https://user:secret@example.com/": "url", "http:///path": "url",
	} {
		_, err := n.Create(t.Context(), &progressorv1.CreateCronRequest{Cron: target("c", url)}, kim)
		var wrong *process.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != "cron.target.http."+field ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	c := target("c", "http://localhost:1/")
	c.Target.GetHttp().Headers["Progressor-Attempt"] = "7"
	if _, err := n.Create(t.Context(), &progressorv1.CreateCronRequest{Cron: c}, kim); err == nil {
		t.Error("a header that the engine sets was accepted")
	}
	n.create(t, target("closed", "http://127.0.0.1:1/"))
	n.trigger(t, "closed")
	if f := n.awaits(t, "closed", "FIRED FAILED 1")[0]; !strings.Contains(f.GetDetail(), "refused") {
		t.Errorf("no server listens: %v", f)
	}
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer mute.Close()
	n.create(t, target("mute", mute.URL))
	n.trigger(t, "mute")
	if f := n.awaits(t, "mute", "FIRED FAILED 1")[0]; f.GetDetail() != "the server closed the connection without an "+
		"answer" && !strings.Contains(f.GetReason(), "the server closed the connection without an answer") {
		t.Errorf("no answer: %v", f)
	}
}

// If the response of a server is not HTTP, the ledger does not show its content.
func TestBannerIsNotStored(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_secret\r\n\r\n")
			_ = conn.Close()
		}
	}()
	n.create(t, target("ssh", "http://"+ln.Addr().String()))
	n.trigger(t, "ssh")
	f := n.awaits(t, "ssh", "FIRED FAILED 1")[0]
	if text := f.String(); strings.Contains(text, "secret") || strings.Contains(f.GetDetail(), "127.0.0.1") {
		t.Errorf("the fire shows the banner or the address: %s", text)
	}
}

// A request may take as long as the policy allows, by default 10 s, regardless of the step timeout
// of the namespace.
func TestRequestsOutlastTheStepTimeout(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * time.Second): // longer than a step
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	n := start(t, storagetest.DSN(t))
	ns, err := n.GetNamespace(t.Context(), "ns")
	if err != nil {
		t.Fatal(err)
	}
	ns.StepTimeout = durationpb.New(500 * time.Millisecond)
	if _, err := n.PutNamespace(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	n.create(t, target("default", server.URL))
	timed := target("timed", server.URL)
	timed.Policy = &progressorv1.CronPolicy{Timeout: durationpb.New(20 * time.Second)}
	n.create(t, timed)
	n.trigger(t, "default")
	n.trigger(t, "timed")
	eventually(t, "both deadlines are later than the step timeout", func() bool {
		return n.Count(t, `SELECT count(*) FROM running WHERE process_id LIKE '~run/%'
			AND deadline - running_time > interval '10 seconds'`) == 2
	})
	n.awaits(t, "default", "FIRED SUCCESS 1")
	n.awaits(t, "timed", "FIRED SUCCESS 1")
	k := n.Count(t, `SELECT count(*) FROM tasks WHERE process_id LIKE '~run/%' AND task_type = 'TIMEOUT'
		AND attempt > 1`)
	if k != 0 {
		t.Errorf("%d requests were repeated", k)
	}
}

// The end of a run shows whether the response stalled or was cut off after its status. A response
// without a success status makes the run FAILED with that status.
func TestCutResponses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	closing := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		if r.URL.Path == "/error" {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/stall" {
			select {
			case <-r.Context().Done():
			case <-closing:
			}
		}
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	defer close(closing)
	for path, want := range map[string][2]string{
		"cut": {"FIRED FAILED 1",
			"HTTP 200 OK, but the response was truncated after 10 bytes: the server closed the connection"},
		"error": {"FIRED FAILED 1", "HTTP 502 Bad Gateway"},
		"stall": {"FIRED TIMEOUT 1", "HTTP 200 OK, but the response did not end within 10s: 10 bytes were read"},
	} {
		n.create(t, target(path, server.URL+"/"+path))
		n.trigger(t, path)
		if f := n.awaits(t, path, want[0])[0]; f.GetDetail() != want[1] {
			t.Errorf("%s: %q, want %q", path, f.GetDetail(), want[1])
		}
	}
}

// A notification is sent once, and the run ends with the task of the notification.
func TestNotify(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	notifies := func(id, processID, args string) {
		c := starts(id, never, "")
		c.Target = &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_NotifyProcess{
				NotifyProcess: &progressorv1.NotifyProcessTarget{ProcessId: processID, Args: []byte(args)},
			},
		}
		n.create(t, c)
		n.trigger(t, id)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	notifies("good", "p", "hello")
	n.awaits(t, "good", "FIRED SUCCESS 1")
	k := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = 'p' AND task_type = 'NOTIFY' AND args = 'hello'")
	if k != 1 {
		t.Errorf("%d notifications", k)
	}
	notifies("missing", "nobody", "hello")
	n.awaits(t, "missing", "FIRED FAILED 1")
}
