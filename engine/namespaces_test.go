package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func builtin(name string) *progressorv1.ProcessorConfig {
	return &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: name}},
	}
}

func TestUnknownNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), processor.Echo())
	other := process.Key{Namespace: "other", ProcessID: "p"}
	_, err := n.Start(t.Context(), engine.StartParams{Key: other})
	for what, err := range map[string]error{
		"start": err,
		"call": func() error {
			_, err := n.Call(t.Context(), engine.CallParams{Key: other})
			return err
		}(),
		"repair": func() error {
			_, err := n.Repair(t.Context(), engine.RepairParams{Key: other})
			return err
		}(),
		"get": func() error {
			_, err := n.GetProcess(t.Context(), other, nil, 0)
			return err
		}(),
		"await": func() error {
			_, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: other, TaskID: 1})
			return err
		}(),
		"remove": n.RemoveProcess(t.Context(), other, process.Actor{}),
		"namespace": func() error {
			_, err := n.GetNamespace(t.Context(), "other")
			return err
		}(),
		"pause": func() error {
			_, err := n.SetNamespacePaused(t.Context(), "other", true)
			return err
		}(),
	} {
		if !errors.Is(err, process.ErrNamespaceNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var invalid *process.InvalidError
	for _, cfg := range []*progressorv1.ProcessorConfig{nil, {}, builtin("missing"),
		{Transport: &progressorv1.ProcessorConfig_Pull{
			Pull: &progressorv1.PullProcessor{LeaseDuration: durationpb.New(2 * time.Hour)},
		}}} {
		if _, err := n.PutNamespace(t.Context(), &progressorv1.Namespace{
			Namespace: "other", Processor: cfg,
		}); !errors.As(err, &invalid) {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}

// Another node applies a change within 3 s. Unknown namespaces are read from the database.
func TestNamespaceOfAnotherNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	fast := func(c *engine.Config) {
		c.Builtins["fast"] = byTask{callTask: answers(processor.Result().Response([]byte("fast")))}
	}
	a, b := start(t, dsn, processor.Echo(), fast), start(t, dsn, processor.Echo(), fast)
	a.put(t, &progressorv1.Namespace{Namespace: "new"})
	if _, err := b.Start(t.Context(), engine.StartParams{
		Key: process.Key{Namespace: "new", ProcessID: "p"},
	}); err != nil {
		t.Errorf("a namespace unknown to node b: %v", err)
	}
	b.started(t, "p")
	began := time.Now()
	a.put(t, &progressorv1.Namespace{Namespace: "ns", Processor: builtin("fast")})
	if got := string(a.called(t, "p", "x").Response); got != "fast" {
		t.Errorf("the node that stored the namespace returns %q", got)
	}
	eventually(t, "node b has the new processor", func() bool {
		return string(b.called(t, "p", "x").Response) == "fast"
	})
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("after %s", took)
	}
	list, _, err := b.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{})
	if err != nil || len(list) != 2 || list[0].GetNamespace() != "new" ||
		list[1].GetProcessor().GetBuiltin().GetName() != "fast" {
		t.Errorf("%v, %v", list, err)
	}
}

// Requests to a paused namespace are stored, and run when the namespace is resumed.
func TestPaused(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: answers(processor.Result().Response([]byte("ok")).SetTimerAfter(0))})
	n.started(t, "p")
	if ns, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil || !ns.GetPaused() {
		t.Fatalf("%v, %v", ns, err)
	}
	if ns, err := n.GetNamespace(t.Context(), "ns"); err != nil || !ns.GetPaused() {
		t.Fatalf("%v, %v", ns, err)
	}
	call := n.calling("p", "a")
	begun := make(chan result, 1)
	go func() {
		ans, err := n.Start(context.Background(), engine.StartParams{Key: key("q"), Args: []byte("b")})
		begun <- result{ans, err}
	}()
	d := openDB(t, dsn)
	eventually(t, "both wait", func() bool {
		return d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") == 2
	})
	n.ScanNow()
	pass(50 * time.Millisecond)
	if d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") != 2 || n.Attempts() != 0 {
		t.Error("a task of a paused namespace was run")
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns"}) // putting a namespace does not resume it
	if ns, err := n.GetNamespace(t.Context(), "ns"); err != nil || !ns.GetPaused() {
		t.Errorf("%v, %v", ns, err)
	}
	if ns, err := n.SetNamespacePaused(t.Context(), "ns", false); err != nil || ns.GetPaused() {
		t.Fatalf("%v, %v", ns, err)
	}
	if res := receive(t, "the call", call); string(res.ans.Response) != "ok" {
		t.Errorf("%+v", res)
	}
	if res := receive(t, "the start", begun); string(res.ans.Response) != "b" {
		t.Errorf("%+v", res)
	}
	eventually(t, "the timer has fired", func() bool {
		return d.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT'") == 1
	})
}

// A process that runs a task when its namespace is paused finishes that task and runs no other.
func TestPausedAtWork(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{callTask: g.held(true)})
	n.started(t, "p")
	first := n.calling("p", "1")
	receive(t, "the call runs", g.entered)
	second := n.calling("p", "2")
	d := openDB(t, dsn)
	eventually(t, "the second waits", func() bool { return d.count(t, "SELECT count(*) FROM schedule") == 1 })
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	g.release()
	if res := receive(t, "the first", first); res.err != nil {
		t.Error(res.err)
	}
	if got := d.texts(t, "SELECT waits_for::text FROM schedule"); len(got) != 1 || got[0] != "place" {
		t.Errorf("the second waits for %v", got)
	}
	if _, err := n.SetNamespacePaused(t.Context(), "ns", false); err != nil {
		t.Fatal(err)
	}
	if res := receive(t, "the second", second); res.err != nil {
		t.Error(res.err)
	}
}

// A node applies a pause and a resume that another node has stored. The whole test takes at most 10
// s. A cancelled process of a paused namespace ends when its grace period is over.
func TestPausedOnEveryNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())
	a.started(t, "p")
	a.started(t, "q")
	b.called(t, "p", "x")
	began := time.Now()
	if _, err := a.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node b has applied the pause", func() bool { return b.Paused("ns") })
	call := b.calling("p", "waits")
	d := openDB(t, dsn)
	eventually(t, "the call waits", func() bool {
		return d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") == 1
	})
	grace := 50 * time.Millisecond
	if _, err := b.CancelProcess(t.Context(), engine.CancelParams{Key: key("q"), Grace: &grace}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is CANCELLED", func() bool { return a.status(t, "q") == "CANCELLED" })
	want := "INIT start FINISHED = start, CANCEL ERROR attempt 0 " + process.ReasonGraceExpired
	if got, err := a.tasks("q"); got != want || err != nil {
		t.Errorf("the tasks of a process in a paused namespace: %s (want %s), %v", got, want, err)
	}
	if _, err := a.SetNamespacePaused(t.Context(), "ns", false); err != nil {
		t.Fatal(err)
	}
	if res := receive(t, "the call", call); string(res.ans.Response) != "waits" {
		t.Errorf("%+v", res)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("after %s", took)
	}
}

// A request to a node that cannot serve the namespace is stored and runs on another node. Its
// client gets the response from the first node.
func TestServedElsewhere(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	able := func(c *engine.Config) {
		c.Builtins["able"] = byTask{callTask: answers(processor.Result().Response([]byte("able")))}
	}
	b := start(t, dsn, processor.Echo(), able)
	a := start(t, dsn, processor.Echo())
	b.put(t, &progressorv1.Namespace{Namespace: "elsewhere", Processor: builtin("able")})
	k := process.Key{Namespace: "elsewhere", ProcessID: "p"}
	if _, err := a.Start(t.Context(), engine.StartParams{Key: k, Args: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	ans, err := a.Call(t.Context(), engine.CallParams{Key: k, Args: []byte("x")})
	if err != nil || string(ans.Response) != "able" {
		t.Errorf("%+v, %v", ans, err)
	}
}

// A node that loses the processor of a claimed task releases the task once, and does not claim it
// again.
func TestProcessorIsLost(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	only := func(c *engine.Config) { c.Builtins["only here"] = byTask{callTask: g.held(true)} }
	a := start(t, dsn, processor.Echo(), only)
	a.put(t, &progressorv1.Namespace{Namespace: "ns", Processor: builtin("only here")})
	a.started(t, "p")
	first := a.calling("p", "1")
	receive(t, "the call runs", g.entered)
	second := a.calling("p", "2")
	d := openDB(t, dsn)
	eventually(t, "the second waits", func() bool { return d.count(t, "SELECT count(*) FROM schedule") == 1 })
	// Another program sets a processor that this node does not have.
	storagetest.Exec(t, d, `UPDATE namespaces SET config = '{"processor": {"builtin": {"name": "missing"}}}'
			WHERE namespace = 'ns'`)
	eventually(t, "the node has read the new configuration", func() bool { return !a.Serves("ns") })
	g.release()
	if res := receive(t, "the first", first); res.err != nil {
		t.Error(res.err)
	}
	eventually(t, "the second waits for a node", func() bool {
		return a.Attempts() == 0 && d.count(t,
			"SELECT count(*) FROM schedule WHERE waits_for = 'place' AND attempt = 0") == 1
	})
	tokens := d.count(t, "SELECT last_value FROM fencing_tokens")
	pass(50 * time.Millisecond)
	if now := d.count(t, "SELECT last_value FROM fencing_tokens"); now > tokens+2 {
		t.Errorf("%d attempts in 50 ms", now-tokens)
	}
	able := start(t, dsn, processor.Echo(), func(c *engine.Config) { c.Builtins["missing"] = processor.Echo() })
	_ = able
	storagetest.Exec(t, d, `UPDATE namespaces SET config = '{"processor": {"builtin": {"name": "missing"}}}'
			WHERE namespace = 'ns'`)
	if res := receive(t, "the second", second); string(res.ans.Response) != "2" {
		t.Errorf("%+v", res)
	}
}

// The step timeout of a namespace determines the deadline of an attempt, which its context and its
// request contain.
func TestNamespaceSettings(t *testing.T) {
	t.Parallel()
	deadlines := make(chan time.Duration, 1)
	n := start(t, storagetest.DSN(t),
		byTask{callTask: func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			at, _ := ctx.Deadline()
			if !r.GetDeadline().AsTime().Equal(at.Round(0).UTC()) {
				t.Errorf("the context ends at %s, but the request has %s", at, r.GetDeadline().AsTime())
			}
			deadlines <- time.Until(at)
			return processor.Echo().Process(ctx, r)
		}})
	n.started(t, "p")
	n.called(t, "p", "x")
	if d := <-deadlines; d > 60*time.Second || d < 50*time.Second {
		t.Errorf("the default step timeout leaves %s", d)
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(time.Hour)})
	n.called(t, "p", "x")
	if d := <-deadlines; d > time.Hour || d < 50*time.Minute {
		t.Errorf("the step timeout leaves %s", d)
	}
}

// The number of namespaces is limited, even if many are created at the same time. The limit does
// not affect namespaces that exist.
func TestNamespacesAreLimited(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, processor.Echo(), reg.use, func(c *engine.Config) { c.MaxNamespaces = 3 })
	results := make(chan error, 20)
	for k := range cap(results) {
		go func() {
			_, err := n.PutNamespace(t.Context(),
				&progressorv1.Namespace{Namespace: fmt.Sprintf("extra-%d", k), Processor: builtin("p")})
			results <- err
		}()
	}
	refused := 0
	for range cap(results) {
		if err := receive(t, "put", results); errors.Is(err, process.ErrOverloaded) {
			if !strings.Contains(err.Error(), "there are 3 namespaces, and max_namespaces of this node is 3") {
				t.Error(err)
			}
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 18 || reg.value(t, "progressor_requests_refused_total", "bound=namespaces") != 18 {
		t.Errorf("%d of 20 namespaces were rejected", refused)
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxWaiting: 17})
	storagetest.Exec(t, openDB(t, dsn), `INSERT INTO namespaces (namespace, config) VALUES ('of-another-node', '{}')`)
	n.put(t, &progressorv1.Namespace{Namespace: "of-another-node", MaxWaiting: 17})
}
