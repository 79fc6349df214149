package crons_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event that normally happens soon. It is long because
// the machine may be busy.
const testTimeout = time.Minute

// eventually waits until cond returns true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, what, cond)
}

// kim is the author of the commands of these tests.
var kim = process.Actor{Name: "kim", Source: "10.0.0.7:4711"}

// node is a test engine that runs crons.
type node struct {
	*enginetest.Node
	*crons.Crons
	gate chan struct{} // closed to let runs with the args hold continue
}

// start starts an engine with the namespace "ns".
func start(t testing.TB, dsn string) *node {
	t.Helper()
	gate := make(chan struct{})
	n := enginetest.Start(t, dsn, obey(gate), enginetest.Kinds)
	return &node{n, n.Crons, gate}
}

// obey returns a processor that does what the args of a task say. complete and fail end the
// process, and timeout fails the task with the reason of a step timeout. hold keeps its slot until
// the gate is closed. Otherwise the process runs until it is called with one of these args, or
// cancelled.
func obey(gate <-chan struct{}) processor.Processor {
	return processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		switch string(r.GetArgs()) {
		case "complete":
			return processor.Result().Complete().Done()
		case "fail":
			return nil, processor.Fail("broken", "as asked")
		case "timeout":
			return nil, processor.Fail(process.ReasonTimeout, "too long")
		case "hold":
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		return processor.Result().Done()
	})
}

func key(id string) process.Key { return process.Key{Namespace: "ns", ProcessID: id} }

// starts returns a cron whose runs are processes with the given args.
func starts(id, expression, args string) *progressorv1.Cron {
	return &progressorv1.Cron{
		Namespace: "ns", CronId: id, Spec: &progressorv1.CronSpec{Expressions: []string{expression}},
		Policy: &progressorv1.CronPolicy{},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_StartProcess{
				StartProcess: &progressorv1.StartProcessTarget{Args: []byte(args)},
			},
		},
	}
}

// never is an expression whose next fire time is usually months away.
const never = "0 0 1 1 *"

func (n *node) create(t testing.TB, c *progressorv1.Cron) *progressorv1.Cron {
	t.Helper()
	made, err := n.Create(context.Background(), &progressorv1.CreateCronRequest{Cron: c}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (n *node) get(t testing.TB, id string) *progressorv1.Cron {
	t.Helper()
	c, err := n.Get(context.Background(), "ns", id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fires returns the whole ledger of a cron, oldest first.
func (n *node) fires(t testing.TB, id string) []*progressorv1.Fire {
	t.Helper()
	var all []*progressorv1.Fire
	for token := ""; ; {
		page, next, err := n.ListFires(context.Background(), &progressorv1.ListFiresRequest{
			Namespace: "ns", CronId: id, PageSize: 7, PageToken: token,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page {
			all = append([]*progressorv1.Fire{f}, all...)
		}
		if token = next; token == "" {
			return all
		}
	}
}

// showFires formats a ledger: decision, status and attempt of each fire.
func showFires(fires []*progressorv1.Fire) string {
	var list []string
	for _, f := range fires {
		s := strings.TrimPrefix(f.GetDecision().String(), "DECISION_") + " " +
			strings.TrimPrefix(f.GetStatus().String(), "FIRE_STATUS_")
		if f.GetAttempt() > 0 {
			s += fmt.Sprintf(" %d", f.GetAttempt())
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// awaits waits until the ledger of a cron is as expected, and returns it.
func (n *node) awaits(t testing.TB, id, want string) []*progressorv1.Fire {
	t.Helper()
	var got []*progressorv1.Fire
	end := time.Now().Add(testTimeout)
	for {
		if got = n.fires(t, id); showFires(got) == want {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("ledger of %s: %s, want %s: %v", id, showFires(got), want, got)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// call calls the process of a run with args.
func (n *node) call(t testing.TB, id, args string) {
	t.Helper()
	_, err := n.Call(context.Background(), engine.CallParams{Key: key(id), Args: []byte(args), Timeout: testTimeout})
	if err != nil && args == "complete" {
		t.Fatal(err)
	}
}

func stamp(at time.Time) *timestamppb.Timestamp { return timestamppb.New(at) }
