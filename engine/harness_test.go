package engine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// longWait is how long a test waits for an event that should come soon. It is long because the
// machine may be busy.
const longWait = time.Minute

// eventually waits until cond returns true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	enginetest.Eventually(t, longWait, what, cond)
}

// pass waits while something must not happen.
func pass(d time.Duration) { <-time.After(d) }

// receive waits for a value.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(longWait):
		t.Fatalf("timed out after %s: %s", longWait, what)
		panic("unreachable")
	}
}

// db is a pool of connections to the database of a test.
type db struct{ *pgxpool.Pool }

func openDB(t testing.TB, dsn string) db { return db{storagetest.Connect(t, dsn)} }

// count returns the number that a query returns.
func (d db) count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	return enginetest.Count(t, d.Pool, sql, args...)
}

// texts returns the first column of a query.
func (d db) texts(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	return enginetest.Texts(t, d.Pool, sql, args...)
}

// exec runs a statement.
func (d db) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := d.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// registry contains the metrics of a node.
type registry struct{ *prometheus.Registry }

func newRegistry() registry { return registry{prometheus.NewRegistry()} }

func (r registry) use(c *engine.Config) { c.Registerer = r }

// value returns the value of a counter or gauge, or the number of observations of a histogram,
// summed over the metrics with these labels (as "name=value").
func (r registry) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// has reports whether a metric has a series with these labels.
func (r registry) has(t testing.TB, name string, labels ...string) bool {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
			return hasLabels(m, labels)
		}) {
			return true
		}
	}
	return false
}

func hasLabels(m *dto.Metric, labels []string) bool {
	have := map[string]bool{}
	for _, l := range m.GetLabel() {
		have[l.GetName()+"="+l.GetValue()] = true
	}
	for _, l := range labels {
		if !have[l] {
			return false
		}
	}
	return true
}

// quick returns a namespace with short retry intervals.
func quick() *progressorv1.Namespace {
	return &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(20 * time.Millisecond), MaxAttempts: 3,
	}}
}

// byTask is a processor with one function per type of task. Types without a function are echoed.
type byTask map[progressorv1.TaskType]func(
	ctx context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error)

// The task types that tests use.
const (
	initTask    = progressorv1.TaskType_TASK_TYPE_INIT
	callTask    = progressorv1.TaskType_TASK_TYPE_CALL
	notifyTask  = progressorv1.TaskType_TASK_TYPE_NOTIFY
	repairTask  = progressorv1.TaskType_TASK_TYPE_REPAIR
	cancelTask  = progressorv1.TaskType_TASK_TYPE_CANCEL
	timeoutTask = progressorv1.TaskType_TASK_TYPE_TIMEOUT
)

func (b byTask) Process(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	if f := b[r.GetType()]; f != nil {
		return f(ctx, r)
	}
	return processor.Echo().Process(ctx, r)
}

// answers returns a processor function with a fixed result.
func answers(
	b *processor.ResultBuilder,
) func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return b.Done()
	}
}

// gate holds attempts until a test releases them.
type gate struct {
	entered chan *progressorv1.ProcessRequest
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate {
	return &gate{entered: make(chan *progressorv1.ProcessRequest, 10_000), open: make(chan struct{})}
}

// pass waits until the gate is open. If heeds is set, it also returns when ctx is cancelled.
func (g *gate) pass(ctx context.Context, r *progressorv1.ProcessRequest, heeds bool) error {
	g.entered <- r
	if !heeds {
		<-g.open
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// heldBefore returns a function that calls f. Calls with the args "hold" reach f only when the gate
// is open.
func (g *gate) heldBefore(f processor.Func) processor.Func {
	return func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if string(r.GetArgs()) == "hold" {
			if err := g.pass(ctx, r, true); err != nil {
				return nil, err
			}
		}
		return f(ctx, r)
	}
}

// held returns a function that echoes after the gate is open.
func (g *gate) held(
	heeds bool,
) func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if err := g.pass(ctx, r, heeds); err != nil {
			return nil, err
		}
		return processor.Echo().Process(ctx, r)
	}
}

// started starts a process, which must succeed.
func (n *node) started(t testing.TB, id string) engine.Answer {
	t.Helper()
	ans, err := n.Start(context.Background(), engine.StartParams{Key: key(id), Args: []byte("start")})
	if err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
	return ans
}

// called calls a process, which must succeed.
func (n *node) called(t testing.TB, id, args string) engine.Answer {
	t.Helper()
	ans, err := n.Call(context.Background(), engine.CallParams{Key: key(id), Args: []byte(args)})
	if err != nil {
		t.Fatalf("call %s: %v", id, err)
	}
	return ans
}

// result is the result of a request.
type result struct {
	ans engine.Answer
	err error
}

// calling calls a process without waiting.
func (n *node) calling(id, args string, change ...func(*engine.CallParams)) <-chan result {
	p := engine.CallParams{Key: key(id), Args: []byte(args)}
	for _, f := range change {
		f(&p)
	}
	c := make(chan result, 1)
	go func() {
		ans, err := n.Call(context.Background(), p)
		c <- result{ans, err}
	}()
	return c
}

// persisting calls a process without waiting, and retries until it gets a slot. If there are few
// slots, a scan may hold all of them for a while.
func (n *node) persisting(id, args string) <-chan result {
	c := make(chan result, 1)
	go func() {
		for {
			res := <-n.calling(id, args)
			if !errors.Is(res.err, process.ErrOverloaded) {
				c <- res
				return
			}
		}
	}()
	return c
}

// status returns the status of a process, or "" if there is none.
func (n *node) status(t testing.TB, id string) string {
	t.Helper()
	p, err := n.GetProcess(context.Background(), key(id), &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if errors.Is(err, process.ErrProcessNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(p.GetStatus().String(), "PROCESS_STATUS_")
}

// taskError returns err as a TaskError.
func taskError(t testing.TB, err error) *engine.TaskError {
	t.Helper()
	var te *engine.TaskError
	if !errors.As(err, &te) {
		t.Fatalf("%v is not a TaskError", err)
	}
	return te
}

// crash ends a node like SIGKILL from the point of view of the database: nothing is released and
// its row stays.
func (n *node) crash() { n.store.Close() }

// proxy is a proxy between a node and the database. It counts statements and can break the
// connections.
type proxy struct {
	*storagetest.Proxy
	statements atomic.Int64
	down       atomic.Bool
}

// through starts a proxy and returns it with its connection string.
func through(t testing.TB, dsn string) (*proxy, string) {
	t.Helper()
	p := &proxy{}
	p.Proxy = storagetest.NewProxy(t, dsn, func(client, server net.Conn) {
		if p.down.Load() {
			return
		}
		go func() {
			defer client.Close()
			defer server.Close()
			_ = storagetest.CopyStatements(server, client, &p.statements)
		}()
		_, _ = io.Copy(client, server)
	})
	return p, p.DSN
}

// rate returns the number of statements per second during d.
func (p *proxy) rate(d time.Duration) float64 {
	began, before := time.Now(), p.statements.Load()
	pass(d)
	return float64(p.statements.Load()-before) / time.Since(began).Seconds()
}

// away breaks all connections and accepts no new ones until back is called.
func (p *proxy) away() {
	p.down.Store(true)
	p.Cut()
}

func (p *proxy) back() { p.down.Store(false) }
