package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// refusing is a network processor that no request reaches. It accepts connections if reach is nil.
type refusing struct{ reach error }

func (refusing) Process(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return nil, &processor.UnreachableError{Err: errors.New("connection refused")}
}

func (r refusing) Reach(context.Context) error { return r.reach }

// dialsRefusing connects to processors that refuse connections, except in the namespace open. The
// error is longer than the detail of a problem may be.
func dialsRefusing(c *engine.Config) {
	c.Dial = func(
		namespace string, _ *progressorv1.ConnectProcessor, _ int,
		_ func(context.Context) (remote.Credentials, error),
	) (processor.Processor, error) {
		if namespace == "open" {
			return refusing{}, nil
		}
		return refusing{errors.New("connection refused: " + strings.Repeat("long ", 2000))}, nil
	}
}

const (
	healthOK       = progressorv1.HealthStatus_HEALTH_STATUS_OK
	healthDegraded = progressorv1.HealthStatus_HEALTH_STATUS_DEGRADED
	healthDown     = progressorv1.HealthStatus_HEALTH_STATUS_DOWN
)

// health returns the status of a namespace and its problems, as "KIND: detail".
func (n *node) health(t testing.TB, name string) (progressorv1.HealthStatus, string) {
	t.Helper()
	list, err := n.NamespaceHealth(t.Context(), name)
	if err != nil || len(list) != 1 || list[0].GetNamespace() != name {
		t.Fatalf("%s: %v, %v", name, list, err)
	}
	var problems []string
	for _, p := range list[0].GetProblems() {
		if p.GetDetail() == "" || p.GetNext() == "" {
			t.Errorf("%s: a problem has no reason or no next action: %v", name, p)
		}
		if len(p.GetDetail()) > 4096 {
			t.Errorf("%s: a detail of %d bytes", name, len(p.GetDetail()))
		}
		problems = append(problems, strings.TrimPrefix(p.GetKind().String(), "KIND_")+": "+p.GetDetail())
	}
	return list[0].GetStatus(), strings.Join(problems, "\n")
}

// isHealth checks the status of a namespace and that a problem begins with want.
func (n *node) isHealth(t testing.TB, name string, status progressorv1.HealthStatus, want string) {
	t.Helper()
	got, problems := n.health(t, name)
	if got != status || !strings.Contains("\n"+problems, "\n"+want) || want == "" && problems != "" {
		t.Errorf("%s: got %s, want %s and %q:\n%s", name, got, status, want, problems)
	}
}

func TestNamespaceHealth(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo(), brief, dialsRefusing)
	ctx, rows := t.Context(), openDB(t, dsn)
	connect := &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
		Connect: &progressorv1.ConnectProcessor{Url: "http://a"},
	}}
	pull := &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
		Pull: &progressorv1.PullProcessor{},
	}}
	for name, p := range map[string]*progressorv1.ProcessorConfig{
		"push": connect, "open": connect, "pull": pull, "paused": connect,
	} {
		n.put(t, &progressorv1.Namespace{Namespace: name, Processor: p})
	}
	if _, err := n.SetNamespacePaused(ctx, "paused", true); err != nil {
		t.Fatal(err)
	}
	if _, err := rows.Exec(ctx, `INSERT INTO namespaces (namespace, config)
		VALUES ('other', '{"processor": {"builtin": {"name": "x"}}}')`); err != nil {
		t.Fatal(err)
	}
	n.isHealth(t, "ns", healthOK, "")
	n.isHealth(t, "push", healthDown, "UNREACHABLE: connection refused")
	n.isHealth(t, "pull", healthDown, "NO_WORKERS: no worker has polled in the last 30s")
	n.isHealth(t, "paused", healthDown, "PAUSED: the namespace is paused")
	n.isHealth(t, "other", healthDown, "UNSERVABLE: ")
	if _, err := n.NamespaceHealth(ctx, "nowhere"); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Error(err)
	}
	all, err := n.NamespaceHealth(ctx, "")
	if err != nil || len(all) != 6 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, h := range all {
		if h.GetNamespace() == "push" && h.GetStatus() != healthOK {
			t.Errorf("the processor was called for all namespaces: %v", h)
		}
	}
	n.isHealth(t, "open", healthOK, "")
	unreached := engine.StartParams{Key: process.Key{Namespace: "open", ProcessID: "p"}, Accepted: true}
	if _, err := n.Start(ctx, unreached); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a task did not reach its processor", func() bool {
		all, err := n.NamespaceHealth(ctx, "")
		return err == nil && all[1].GetNamespace() == "open" && all[1].GetStatus() == healthDown
	})
	n.isHealth(t, "open", healthOK, "")
	start(t, dsn, processor.Echo(), brief, dialsRefusing)
	eventually(t, "another node may run the tasks", func() bool {
		status, _ := n.health(t, "other")
		return status == healthDegraded
	})
	n.isHealth(t, "push", healthDegraded, "UNREACHABLE: ")
}

// A namespace whose tasks wait or fail is DEGRADED.
func TestNamespaceHealthUnderLoad(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	failing := func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if string(r.GetArgs()) == "fail" {
			return nil, processor.Fail("broken", "it is broken")
		}
		return processor.Echo().Process(ctx, r)
	}
	n := start(t, dsn, byTask{callTask: g.held(true), initTask: failing}, brief)
	ctx, rows := t.Context(), openDB(t, dsn)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1, MaxBacklog: 1})
	n.started(t, "a")
	n.started(t, "b")
	n.calling("a", "held")
	receive(t, "the task runs", g.entered)
	if _, err := n.Call(ctx, engine.CallParams{Key: key("b"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	n.isHealth(t, "ns", healthDegraded, "BACKLOG_FULL: ")
	if _, err := rows.Exec(ctx, `UPDATE schedule SET scheduled_time = now() - interval '65 s'
		WHERE waits_for = 'place'`); err != nil {
		t.Fatal(err)
	}
	n.isHealth(t, "ns", healthDegraded, "BEHIND: tasks wait to run (1), the oldest for 1m")
	g.release()
	if _, err := n.Start(ctx, engine.StartParams{Key: key("c"), Args: []byte("fail"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "c has failed", func() bool { return n.status(t, "c") == "ERROR" })
	n.isHealth(t, "ns", healthDegraded, "ERRORS: a process has failed in the last 5m; 1 are in ERROR")
	if _, err := rows.Exec(ctx, `UPDATE processes
		SET status_changed_time = now() - interval '1 hour', attention_time = now() - interval '1 hour'
		WHERE process_id = 'c'`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tasks have run", func() bool {
		status, _ := n.health(t, "ns")
		return status == healthOK
	})
}

// Without a node that runs tasks, all namespaces are DOWN.
func TestNamespaceHealthWithoutNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	front := start(t, dsn, fails(t), brief, requestsOnly)
	front.isHealth(t, "ns", healthDown, "NO_NODE: no node that is alive runs tasks")
	start(t, dsn, processor.Echo(), brief)
	eventually(t, "a node runs tasks", func() bool {
		status, _ := front.health(t, "ns")
		return status == healthOK
	})
}
