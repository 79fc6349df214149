package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// own returns a kind whose processes are run by p.
func own(p byTask) []engine.Kind { return []engine.Kind{{Name: "own", Processor: p}} }

// startedOwn starts a process of the kind without waiting.
func (n *node) startedOwn(t testing.TB, id string) engine.Answer {
	t.Helper()
	ans, err := n.Start(context.Background(), engine.StartParams{
		Key: key(id), Args: []byte("start"), Kind: "own", Accepted: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

// The processor of a kind runs all tasks of its processes, and the processor of the namespace runs
// none. The processor of the kind gets no history.
func TestKindsOwnProcessor(t *testing.T) {
	t.Parallel()
	refuses := byTask{initTask: func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		return nil, processor.Fail("strange", "a task of another kind")
	}}
	events := make(chan int, 10)
	n := startKinds(t, storagetest.DSN(t), refuses, own(byTask{
		initTask: answers(processor.Result().Event([]byte("began")).AuxState([]byte("one")).SetTimerAfter(0)),
		timeoutTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			events <- len(r.GetProcess().GetHistory())
			return processor.Result().AuxState(append(r.GetProcess().GetAuxState(),
				r.GetProcess().GetKind()...)).Complete().Done()
		},
	}))
	n.startedOwn(t, "~own/p")
	eventually(t, "the process has ended", func() bool { return n.status(t, "~own/p") == "COMPLETED" })
	p, err := n.GetProcess(t.Context(), key("~own/p"), nil, 0)
	if err != nil || string(p.GetAuxState()) != "oneown" || p.GetKind() != "own" ||
		receive(t, "the timer", events) != 0 {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("plain")}); taskError(t,
		err).Failure.GetReason() != "strange" {
		t.Errorf("a plain process: %v", err)
	}
}

// The processor of the namespace runs processes of a kind without a processor.
func TestKindOfTheNamespacesProcessor(t *testing.T) {
	t.Parallel()
	n := startKinds(t, storagetest.DSN(t), processor.Echo(), []engine.Kind{{Name: "own"}})
	n.startedOwn(t, "p")
	eventually(t, "the process has started", func() bool { return n.status(t, "p") == "RUNNING" })
}

// The retry policy of the namespace does not apply to the processor of a kind.
func TestKindHasItsOwnRetryPolicy(t *testing.T) {
	t.Parallel()
	tries := make(chan int32, 10)
	n := startKinds(t, storagetest.DSN(t), processor.Echo(), own(byTask{
		initTask: answers(processor.Result().SetTimerAfter(0)),
		timeoutTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			tries <- r.GetAttempt()
			if r.GetAttempt() == 1 {
				return nil, errors.New("the database was away")
			}
			return processor.Result().Complete().Done()
		},
	}))
	n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 1}})
	n.startedOwn(t, "~own/p")
	if one, two := receive(t, "an attempt", tries), receive(t, "another", tries); one != 1 || two != 2 {
		t.Errorf("attempts %d and %d", one, two)
	}
	eventually(t, "the process has ended", func() bool { return n.status(t, "~own/p") == "COMPLETED" })
}

// A node that does not know a kind leaves its tasks to another node, without counting an attempt.
func TestKindThatANodeDoesNotKnow(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn, processor.Echo())
	a.startedOwn(t, "~own/p")
	d := openDB(t, dsn)
	eventually(t, "the task waits for a node that knows the kind", func() bool {
		return d.count(t, `SELECT count(*) FROM schedule WHERE process_id = '~own/p' AND waits_for = 'time'
			AND attempt = 0`) == 1
	})
	startKinds(t, dsn, processor.Echo(),
		own(byTask{initTask: func(
			_ context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if r.GetAttempt() != 1 {
				return nil, errors.New("an attempt was counted")
			}
			return processor.Result().Complete().Done()
		}}), func(c *engine.Config) { c.ScanInterval = 20 * time.Millisecond })
	eventually(t, "the process has ended", func() bool {
		_, err := d.Exec(t.Context(), `UPDATE schedule SET scheduled_time = statement_timestamp()
			WHERE waits_for = 'time'`)
		if err != nil {
			t.Fatal(err)
		}
		return a.status(t, "~own/p") == "COMPLETED"
	})
}

// Each time a node has claimed a task of a kind that it does not know, the task waits longer, up to
// a limit. Otherwise, 10,000 such tasks would cause 10,000 claims per second. No attempt is
// counted, and other processes of the namespace continue.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo(), func(c *engine.Config) { c.ScanInterval = 20 * time.Millisecond })
	n.startedOwn(t, "~own/p")
	d := openDB(t, dsn)
	eventually(t, "the task waits", func() bool {
		return d.count(t, `SELECT count(*) FROM schedule WHERE waits_for = 'time'
			AND retry_interval >= interval '1 second'`) == 1
	})
	for _, waits := range [][2]int{{8, 16}, {16, 30}, {30, 30}, {600, 30}} {
		_, err := d.Exec(t.Context(), `UPDATE schedule
			SET scheduled_time = statement_timestamp(), retry_interval = $1 * interval '1 second'`, waits[0])
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the wait grows up to its limit", func() bool {
			return d.count(t, `SELECT count(*) FROM schedule WHERE waits_for = 'time'
				AND scheduled_time > statement_timestamp()
				AND retry_interval = $1 * interval '1 second' AND attempt = 0 AND failure IS NULL`, waits[1]) == 1
		})
	}
	n.started(t, "plain")
}

// The task of a kind is retried after its node died, even if the zombie policy of the namespace is
// ERROR.
func TestZombieOfAKind(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	ends := byTask{timeoutTask: func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Complete().Done()
	}}
	begins := answers(processor.Result().SetTimerAfter(0))
	short := func(c *engine.Config) { c.ZombieAfter = time.Second }
	a := startKinds(t, dsn, processor.Echo(), own(byTask{initTask: begins, timeoutTask: g.held(false)}), short)
	a.put(t, &progressorv1.Namespace{
		Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR,
		StepTimeout: durationpb.New(time.Minute),
	})
	a.startedOwn(t, "~own/p")
	receive(t, "the timer runs", g.entered)
	a.crash()
	b := startKinds(t, dsn, processor.Echo(), own(ends), short)
	b.put(t, &progressorv1.Namespace{Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR})
	eventually(t, "the process has ended", func() bool { return b.status(t, "~own/p") == "COMPLETED" })
}

// The audit entry of a start is stored once, even if the start is repeated.
func TestAuditOfAStart(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	p := engine.StartParams{Key: key("p"), IdempotencyKey: "k", AuditRecord: &storage.AuditRecord{
		Method: "StartBulk", By: process.Actor{Name: "kim", Source: "10.0.0.7:1"},
		Details: map[string]string{"verb": "cancel", "reason": ""},
	}}
	for range 2 {
		if _, err := n.Start(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	n.started(t, "q")
	got := openDB(t, dsn).texts(t,
		"SELECT concat_ws(' ', method, actor, source, namespace, subject, details) FROM audit")
	if len(got) != 1 || got[0] != `StartBulk kim 10.0.0.7:1 ns p {"verb": "cancel"}` {
		t.Errorf("noted: %q", got)
	}
}

// TestKindSurvivesFailedCommands checks that neither a temporary nor a permanent failure of a
// command sets a process of a kind to ERROR. A temporary failure is retried, and a permanent
// failure becomes a rejection.
func TestKindSurvivesFailedCommands(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	inits, initTries := faulty(1, processor.Result().Event([]byte("began")))
	calls, callTries := faulty(1, processor.Result().Response([]byte("done")))
	n := startKinds(t, dsn, processor.Echo(), own(byTask{
		initTask: inits,
		callTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			switch string(r.GetArgs()) {
			case "panic":
				panic("odd")
			case "never":
				return nil, processor.Fail("hopeless", "it never works").NonRetryable()
			case "large":
				return processor.Result().Response(make([]byte, process.MaxResultBytes+1)).Done()
			}
			return calls(ctx, r)
		},
	}))
	n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 1}})
	start := engine.StartParams{Key: key("~own/p"), Kind: "own", Internal: true, Timeout: longWait}
	if _, err := n.Start(t.Context(), start); err != nil || initTries.Load() != 2 {
		t.Errorf("start after %d attempts: %v", initTries.Load(), err)
	}
	call := engine.CallParams{Key: key("~own/p"), Args: []byte("works"), Internal: true, Timeout: longWait}
	if ans, err := n.Call(t.Context(), call); err != nil || string(ans.Response) != "done" || callTries.Load() != 2 {
		t.Errorf("call after %d attempts: %q, %v", callTries.Load(), ans.Response, err)
	}
	for args, reason := range map[string]string{
		"panic": process.ReasonPanic, "never": "hopeless", "large": process.ReasonBadResponse,
	} {
		call.Args = []byte(args)
		if _, err := n.Call(t.Context(), call); taskError(t, err).Rejection.GetReason() != reason {
			t.Errorf("%s: %v, want a rejection with the reason %s", args, err, reason)
		}
	}
	if got := n.status(t, "~own/p"); got != "RUNNING" {
		t.Errorf("the process is %s", got)
	}
	start.Key = key("~own/q")
	n2 := startKinds(t, storagetest.DSN(t), processor.Echo(), own(byTask{
		initTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Fail("hopeless", "it never works").NonRetryable()
		},
	}))
	if _, err := n2.Start(t.Context(), start); taskError(t, err).Rejection.GetReason() != "hopeless" {
		t.Errorf("start: %v", err)
	}
	if got := n2.status(t, "~own/q"); got != "" {
		t.Errorf("a process that could not start is %s", got)
	}
}

// If the processor of a kind fails before it returns a result, the messages of that try are not
// sent.
func TestRepeatedTryOfAKind(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	n := startKinds(t, storagetest.DSN(t), processor.Echo(), own(byTask{
		initTask: func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			try := tries.Add(1)
			engine.AttemptOf(ctx).Send(storage.Message{
				Kind: storage.MessageStart, Target: key(fmt.Sprintf("of-try-%d", try)),
			})
			if try == 1 {
				return nil, &processor.UnreachableError{Err: errors.New("the database is not available")}
			}
			return processor.Result().Done()
		},
	}))
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("~own/p"), Kind: "own", Internal: true,
		Timeout: longWait}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process of the second try exists", func() bool { return n.status(t, "of-try-2") != "" })
	if got := n.status(t, "of-try-1"); got != "" {
		t.Errorf("the process of the first try is %s", got)
	}
}

// faulty returns a function that returns an error without a reason the first n times and then
// succeeds.
func faulty(n int32, b *processor.ResultBuilder) (processor.Func, *atomic.Int32) {
	var tries atomic.Int32
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if tries.Add(1) <= n {
			return nil, errors.New("canceling statement due to statement timeout")
		}
		return b.Done()
	}, &tries
}
