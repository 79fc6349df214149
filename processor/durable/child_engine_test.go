package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// family runs parents in the namespace ns and children in the namespace kids.
func family(t *testing.T, parent, child processor.Processor) *enginetest.Node {
	t.Helper()
	n := node(t, storagetest.DSN(t), processor.Func(func(ctx context.Context, req *request) (*response, error) {
		if req.GetProcess().GetNamespace() == "kids" {
			return child.Process(ctx, req)
		}
		resp, err := parent.Process(ctx, req)
		if req.GetType() == progressorv1.TaskType_TASK_TYPE_NOTIFY && req.GetAttempt() == 1 {
			return nil, &processor.LostError{Err: errors.New("the test lost it")}
		}
		return resp, err
	}))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"kids", "pull", "images"},
		RetryPolicy: &progressorv1.RetryPolicy{InitialInterval: durationpb.New(20 * time.Millisecond)}})
	n.Put(t, &progressorv1.Namespace{Namespace: "kids"})
	n.Put(t, enginetest.Pull("pull"))
	return n
}

// On PostgreSQL, children are started once and their ends reach the function, although the first
// attempt at each end is lost.
func TestEngineChildren(t *testing.T) {
	t.Parallel()
	var done effects
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		values, err := durable.Each(ctx, "item", []int{1, 2, 3}, func(ctx durable.Ctx, item int) (string, error) {
			value, err := durable.Child[string](ctx, "kid", item, durable.In("kids")).Get()
			if failed, ok := errors.AsType[*durable.StepError](err); ok {
				return failed.Reason, nil
			}
			return value, err
		})
		return strings.Join(values, " "), err
	}), durable.Func("kid", func(ctx durable.Ctx, item int) (string, error) {
		durable.Sleep(ctx, "pause", 10*time.Millisecond)
		what, err := durable.Step(ctx, "a", done.says(fmt.Sprint(item)))
		if item == 2 {
			return "", processor.Reject("odd", "no")
		}
		return what, err
	}))
	begin(t, n)
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"1 odd 3"}`)
	ran := strings.Fields(done.String())
	slices.Sort(ran)
	check(t, "effects", strings.Join(ran, " "), "1 2 3")
}

// On PostgreSQL, workers run children in a namespace that they poll.
func TestEngineChildrenOfWorkers(t *testing.T) {
	t.Parallel()
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		return durable.Child[string](ctx, "label", "cup", durable.In("pull")).Get()
	}), nil)
	begin(t, n)
	leases, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", Max: 1, Wait: 20 * time.Second,
	})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	resp, err := labels.Process(t.Context(), leases[0].GetRequest())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.CompleteLease(t.Context(), leases[0].GetLeaseToken(), engine.LeaseAnswer{Response: resp}); err != nil {
		t.Fatal(err)
	}
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"label of cup"}`)
}

// On PostgreSQL, the cancel of a function cancels its children.
func TestEngineCancelsChildren(t *testing.T) {
	t.Parallel()
	wait := function(func(ctx durable.Ctx) (string, error) {
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	})
	n := family(t, function(func(ctx durable.Ctx) (string, error) {
		return durable.Child[string](ctx, "kid", struct{}{}, durable.In("kids")).Get()
	}), wait)
	begin(t, n)
	is := func(status string) func() bool {
		return func() bool {
			return n.Count(t, "SELECT count(*) FROM processes WHERE namespace = 'kids' AND status = $1", status) == 1
		}
	}
	enginetest.Eventually(t, 20*time.Second, "the child runs", is("RUNNING"))
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key, Reason: "no more"}); err != nil {
		t.Fatal(err)
	}
	stored(t, n, cancelled)
	enginetest.Eventually(t, 20*time.Second, "the child is cancelled", is("CANCELLED"))
}

// On PostgreSQL, workers run the jobs of a function, and their results reach it.
func TestEngineJobs(t *testing.T) {
	t.Parallel()
	n := family(t, durable.Func("gallery", gallery), nil)
	n.Put(t, enginetest.Pull("images"))
	if _, err := n.Start(t.Context(), engine.StartParams{
		Key: key, Args: []byte(`{"pictures": ["a.png", "b.png"]}`),
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		leases, err := n.Poll(t.Context(), pull.PollParams{
			Namespaces: []string{"images"}, WorkerID: "w", JobNames: []string{"resize"}, Max: 1, Wait: 20 * time.Second,
		})
		if err != nil || len(leases) != 1 {
			t.Fatal(leases, err)
		}
		result := &progressorv1.Result{JobResult: structpb.NewStringValue(
			"small " + leases[0].GetRequest().GetJobArgs().GetStringValue())}
		if err := n.CompleteLease(t.Context(), leases[0].GetLeaseToken(), engine.LeaseAnswer{
			Response: &response{Outcome: &progressorv1.ProcessResponse_Result{Result: result}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"gallery","v":{"previews":["small a.png","small b.png"]}}`)
}
