package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// enqueues is a processor that enqueues jobs when a process starts, records their ends as events,
// and runs the jobs that are pushed to it.
func enqueues(jobs ...*progressorv1.EnqueueCommand) processor.Processor {
	return processor.Func(func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		result, end := processor.Result(), r.GetChild()
		switch {
		case r.GetJobName() != "":
			return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
				Result: &progressorv1.Result{JobResult: structpb.NewStringValue("ran " + r.GetJobName())},
			}}, nil
		case end != nil:
			status := strings.TrimPrefix(end.GetStatus().String(), "PROCESS_STATUS_")
			return result.Event(fmt.Appendf(nil, "%s of %s/%s: %s %s%s", r.GetArgs(), end.GetNamespace(),
				end.GetProcessId(), status, end.GetResponse(), end.GetDetail())).Done()
		}
		for _, job := range jobs {
			result.Enqueue(job)
		}
		return result.Done()
	})
}

func job(namespace, id string, o *progressorv1.JobOptions) *progressorv1.EnqueueCommand {
	return &progressorv1.EnqueueCommand{
		Namespace: namespace, JobId: id, Name: "work", Args: structpb.NewStringValue("args of " + id), Options: o,
		NotifyParentArgs: []byte("end"),
	}
}

// A result enqueues jobs, and the parent is notified of their ends, with the results that are kept.
// If a job with the ID exists, a second parent enqueues nothing and is not notified.
func TestEnqueueCommand(t *testing.T) {
	t.Parallel()
	kept := &progressorv1.JobOptions{
		KeepResult: true, Priority: 7, Tags: []string{"t"}, Timeout: durationpb.New(time.Hour),
	}
	n := start(t, storagetest.DSN(t), enqueues(
		job("pull", "keeps", kept), job("pull", "drops", nil), job("pull", "fails", nil),
		job("", "here", &progressorv1.JobOptions{KeepResult: true}),
		job("pull", "later", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))}),
		&progressorv1.EnqueueCommand{Namespace: "pull", JobId: "silent", Name: "silent"},
	))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"pull"}})
	for _, id := range []string{"parent", "other"} {
		if _, err := n.Start(t.Context(), engine.StartParams{Key: key("ns", id)}); err != nil {
			t.Fatal(err)
		}
		n.noMessages(t)
	}
	stored := n.job(t, "pull", "keeps", progressorv1.JobState_JOB_STATE_AVAILABLE)
	if o := stored.GetOptions(); o.GetPriority() != 7 || o.GetTimeout().AsDuration() != time.Hour ||
		!slices.Equal(o.GetTags(), []string{"t"}) || stored.GetArgs().GetStringValue() != "args of keeps" {
		t.Errorf("the job is %v", stored)
	}
	result, err := structpb.NewValue(map[string]any{"list": []any{1, nil}, "none": nil, "text": "ä\x00"})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		l := n.leaseOne(t, "w1")
		if l.GetRequest().GetProcess().GetProcessId() == "fails" {
			err = n.fail(l, "broken")
		} else {
			err = n.succeed(l, result)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n.job(t, "pull", "later", progressorv1.JobState_JOB_STATE_SCHEDULED)
	if _, err := n.Cancel(t.Context(), key("pull", "later"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"end of ns/here: COMPLETED \"ran work\"", "end of pull/drops: COMPLETED ",
		"end of pull/fails: ERROR as asked",
		`end of pull/keeps: COMPLETED {"list":[1,null],"none":null,"text":"ä` + "\uFFFD" + `"}`,
		"end of pull/later: CANCELLED ",
	}
	enginetest.Eventually(t, testTimeout, "the parent has all ends", func() bool {
		return n.Count(t, "SELECT count(*) FROM events WHERE process_id = 'parent'") == len(want)
	})
	if got := n.events(t, "parent"); !slices.Equal(got, want) {
		t.Errorf("the events are %q", got)
	}
	n.noMessages(t)
	if got := n.events(t, "other"); len(got) > 0 {
		t.Errorf("the other parent has the events %q", got)
	}
}

// If a result enqueues an ID twice, the first job is enqueued, and only its end is sent.
func TestEnqueuedTwice(t *testing.T) {
	t.Parallel()
	first := job("", "same", &progressorv1.JobOptions{KeepResult: true})
	second := job("", "same", nil)
	second.Name, second.NotifyParentArgs = "other", []byte("second end")
	n := start(t, storagetest.DSN(t), enqueues(first, second))
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("ns", "parent")}); err != nil {
		t.Fatal(err)
	}
	n.noMessages(t)
	enginetest.Eventually(t, testTimeout, "the parent has the end", func() bool {
		return n.Count(t, "SELECT count(*) FROM events WHERE process_id = 'parent'") > 0
	})
	n.noMessages(t)
	if got := n.events(t, "parent"); !slices.Equal(got, []string{`end of ns/same: COMPLETED "ran work"`}) {
		t.Errorf("the events are %q", got)
	}
}

// The parent of a job that several workers run is notified of the end of the job, without the
// results of the workers.
func TestEnqueuedForSeveralWorkers(t *testing.T) {
	t.Parallel()
	title, err := structpb.NewStruct(map[string]any{"title": "a\x00b"})
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, storagetest.DSN(t), enqueues(job("pull", "both", &progressorv1.JobOptions{
		KeepResult: true, Workers: &progressorv1.WorkerGroup{Count: 2}, Metadata: title,
	})))
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", CommandNamespaces: []string{"pull"}})
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("ns", "parent")}); err != nil {
		t.Fatal(err)
	}
	n.noMessages(t)
	for _, worker := range []string{"w1", "w2"} {
		if err := n.succeed(n.leaseOne(t, worker), structpb.NewStringValue("of "+worker)); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Eventually(t, testTimeout, "the parent has the end", func() bool {
		return n.Count(t, "SELECT count(*) FROM events WHERE process_id = 'parent'") == 1
	})
	if got := n.events(t, "parent"); !slices.Equal(got, []string{"end of pull/both: COMPLETED "}) {
		t.Errorf("the events are %q", got)
	}
}

// noMessages waits until all messages are delivered.
func (n *node) noMessages(t testing.TB) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "all messages are delivered", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages") == 0
	})
}

// events returns the payloads of the events of a process in alphabetical order.
func (n *node) events(t testing.TB, id string) []string {
	t.Helper()
	p, err := n.GetProcess(t.Context(), key("ns", id), &progressorv1.HistoryRange{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range p.GetHistory() {
		list = append(list, string(e.GetPayload()))
	}
	slices.Sort(list)
	return list
}

// The result of a worker can also enqueue jobs.
func TestEnqueueCommandOfWorker(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), enqueues())
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "p"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	l := n.leaseOne(t, "w1")
	resp, err := enqueues(job("", "j", nil)).Process(t.Context(), l.GetRequest())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.CompleteLease(t.Context(), l.GetLeaseToken(), engine.LeaseAnswer{Response: resp}); err != nil {
		t.Fatal(err)
	}
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	if l := n.leaseOne(t, "w1"); string(l.GetRequest().GetArgs()) != "end" ||
		l.GetRequest().GetChild().GetProcessId() != "j" {
		t.Error(protojson.Format(l.GetRequest()))
	}
}

// A command with options that Enqueue rejects, or for a namespace that is not allowed, fails the
// task.
func TestEnqueueCommandIsChecked(t *testing.T) {
	t.Parallel()
	for want, command := range map[string]*progressorv1.EnqueueCommand{
		"options.heartbeat_interval": job("", "j", &progressorv1.JobOptions{
			LeaseDuration: durationpb.New(time.Second), HeartbeatInterval: durationpb.New(time.Second),
		}),
		"options.unique":              job("", "j", &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}}),
		`the namespace "pull" is not`: job("pull", "j", nil),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), enqueues(command))
			_, err := n.Start(t.Context(), engine.StartParams{Key: key("ns", "p")})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
			if k := n.Count(t, "SELECT count(*) FROM jobs") + n.Count(t, "SELECT count(*) FROM messages"); k != 0 {
				t.Errorf("%d jobs and messages", k)
			}
		})
	}
}
