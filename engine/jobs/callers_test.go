package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// limitedTo returns the request context of a client that may take only some jobs.
func limitedTo(t *testing.T, patterns ...string) context.Context {
	t.Helper()
	return pull.WithCaller(t.Context(), &pull.Caller{
		Name: "key:a", Jobs: func(string) process.Patterns { return patterns },
	})
}

// enqueueAll enqueues a job for each name, with the name as its ID, and starts a process that is
// not a job.
func (n *node) enqueueAll(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "pull", JobId: name, Name: name})
		must(t, err)
	}
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("pull", "process"), Accepted: true})
	must(t, err)
}

// wantDenied fails the test unless err denies access to a field with a text.
func wantDenied(t *testing.T, err error, field, text string) {
	t.Helper()
	denied, ok := errors.AsType[*process.DeniedError](err)
	if !ok || denied.Field != field || denied.Namespace != "pull" || !strings.Contains(denied.Message, text) {
		t.Errorf("%v, want %s: … %s", err, field, text)
	}
}

// A client that is limited to some jobs gets only these jobs, with every kind of poll.
func TestPollsOfLimitedClients(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueueAll(t, "mail-a", "mail-b", "resize", "secret")
	poll := func(ctx context.Context, jobsOnly bool, names ...string) (got []string, err error) {
		leases, err := n.Poll(ctx, pull.PollParams{
			Namespaces: []string{"pull"}, WorkerID: "w", JobNames: names, JobsOnly: jobsOnly, Max: 100,
		})
		var tokens []string
		for _, l := range leases {
			got, tokens = append(got, l.GetRequest().GetProcess().GetProcessId()), append(tokens, l.GetLeaseToken())
		}
		must(t, n.ReleaseLeases(t.Context(), tokens, 0))
		slices.Sort(got)
		return got, err
	}
	for _, c := range []struct {
		patterns []string
		names    []string
		want     string
	}{
		{[]string{"resize"}, nil, "resize"},
		{[]string{"mail-a", "resize"}, nil, "mail-a resize"},
		{[]string{"mail-a", "resize"}, []string{"resize"}, "resize"},
		{[]string{"mail-*"}, []string{"mail-a", "mail-b"}, "mail-a mail-b"},
		{[]string{"*"}, nil, "mail-a mail-b resize secret"},
		{[]string{"absent"}, nil, ""},
		{[]string{}, nil, ""},
	} {
		for _, jobsOnly := range []bool{false, true} {
			got, err := poll(limitedTo(t, c.patterns...), jobsOnly, c.names...)
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%q polls for %q: %q, %v; want %q", c.patterns, c.names, got, err, c.want)
			}
		}
	}
	for _, c := range []struct {
		patterns    []string
		names       []string
		field, text string
	}{
		{[]string{"resize"}, []string{"secret"}, "job_names[0]",
			`job "secret" in namespace pull needs the permission job.work, and key:a has it only for the jobs resize`},
		{[]string{"mail-*", "resize"}, []string{"mail-a", "resized"}, "job_names[1]",
			`job "resized" in namespace pull needs the permission job.work, and key:a has it only for the jobs ` +
				`mail-*, resize`},
		{[]string{"mail-*", "resize"}, nil, "job_names", "a poll without job_names"},
		{[]string{}, []string{"secret"}, "job_names[0]", `job "secret"`},
		{[]string{"a1", "a2", "a3", "a4", "a5", "a6"}, []string{"secret"}, "job_names[0]", "a4, a5, …"},
	} {
		got, err := poll(limitedTo(t, c.patterns...), false, c.names...)
		if len(got) > 0 {
			t.Errorf("%q polls for %q: %q", c.patterns, c.names, got)
		}
		wantDenied(t, err, c.field, c.text)
	}
	if got, err := poll(t.Context(), false); err != nil || len(got) != 5 {
		t.Errorf("without a limit: %q, %v", got, err)
	}
}

// A client that is limited to some jobs cannot use the leases of other jobs, either on the node
// that has handed them out or on another node. Even a repeated answer is not confirmed.
func TestLeasesOfLimitedClients(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	n.enqueueAll(t, "resize", "secret")
	tokens := map[string]string{}
	for len(tokens) < 3 {
		for _, l := range n.poll(t, "w", 3) {
			tokens[l.GetRequest().GetProcess().GetProcessId()] = l.GetLeaseToken()
		}
	}
	done := engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Result{
			Result: &progressorv1.Result{JobResult: structpb.NewBoolValue(true)},
		},
	}}
	beat := func(id string) *progressorv1.HeartbeatRequest {
		return &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: tokens[id]}}}
	}
	resizer := limitedTo(t, "resize")
	for _, at := range []*node{n, other} {
		for id, text := range map[string]string{
			"secret": `job "secret"`, "process": "a task of a process that is not a job",
		} {
			_, err := at.BeatLeases(resizer, beat(id))
			wantDenied(t, err, "beats[0].lease_token", text)
			err = at.ReleaseLeases(resizer, []string{tokens["resize"], tokens[id]}, 0)
			wantDenied(t, err, "lease_tokens[1]", text)
			wantDenied(t, at.CompleteLease(resizer, tokens[id], done), "lease_token", text)
		}
	}
	// None of these requests has had an effect.
	for id := range tokens {
		d, err := n.BeatLeases(t.Context(), beat(id))
		if err != nil || d[0].GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
			t.Errorf("%s: %v, %v", id, d, err)
		}
	}
	if _, err := n.BeatLeases(resizer, beat("resize")); err != nil {
		t.Error(err)
	}
	must(t, n.CompleteLease(resizer, tokens["resize"], done))
	must(t, n.CompleteLease(resizer, tokens["resize"], done)) // again
	must(t, n.CompleteLease(t.Context(), tokens["secret"], done))
	// The salt in the token of an ended task is not checked, so the error must not name the job.
	if err := n.CompleteLease(resizer, tokens["secret"], done); !errors.Is(err, process.ErrFenced) ||
		strings.Contains(err.Error(), "job") {
		t.Errorf("a repeated answer: %v", err)
	}
}

// A heartbeat for many leases that another node has handed out takes few statements. So does a
// release of such leases that is denied.
func TestLeasesTakeFewStatements(t *testing.T) {
	t.Parallel()
	const leases = 50
	dsn := storagetest.DSN(t)
	n := start(t, dsn, scripted())
	slow, statements := storagetest.CountStatements(t, dsn)
	other := start(t, slow, scripted())
	for i := range leases {
		_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: fmt.Sprint("j", i), Name: "resize"})
		must(t, err)
	}
	client := pull.WithCaller(t.Context(), &pull.Caller{
		Name: "key:a", Owner: "key:a", Jobs: func(string) process.Patterns { return process.Patterns{"resize"} },
	})
	beat := &progressorv1.HeartbeatRequest{WorkerId: "w"}
	for len(beat.GetBeats()) < leases {
		got, err := n.Poll(client, pull.PollParams{Namespaces: []string{"pull"}, WorkerID: "w", Max: leases})
		must(t, err)
		for _, l := range got {
			beat.Beats = append(beat.Beats, &progressorv1.LeaseBeat{LeaseToken: l.GetLeaseToken()})
		}
	}
	// In the background, the node runs some statements per second. Take the lowest count.
	few := func(what string, want int64, request func()) {
		t.Helper()
		lowest := int64(math.MaxInt64)
		for range 10 {
			before := statements.Load()
			request()
			lowest = min(lowest, statements.Load()-before)
		}
		if lowest > want {
			t.Errorf("%s of %d leases took at least %d statements, want at most %d", what, leases, lowest, want)
		}
	}
	few("a heartbeat", 10, func() {
		d, err := other.BeatLeases(client, beat)
		must(t, err)
		for _, one := range d {
			if one.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
				t.Fatal(one)
			}
		}
	})
	tokens := make([]string, leases)
	for i, b := range beat.GetBeats() {
		tokens[i] = b.GetLeaseToken()
	}
	few("a denied release", 10, func() {
		wantDenied(t, other.ReleaseLeases(ownedBy(t, "key:b"), tokens, 0), "lease_tokens[0]", "used by another client")
	})
}

// CheckNext denies a next poll for jobs that the client may not take, and names the field.
func TestNextPollOfLimitedClients(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	next := pull.PollParams{Namespaces: []string{"pull"}, WorkerID: "w", JobNames: []string{"secret"}}
	wantDenied(t, n.CheckNext(limitedTo(t, "resize"), next), "next.job_names[0]", `job "secret"`)
	must(t, n.CheckNext(limitedTo(t, "resize", "secret"), next))
	must(t, n.CheckNext(t.Context(), next))
}

// ownedBy returns the request context of a client.
func ownedBy(t *testing.T, owner string) context.Context {
	t.Helper()
	return pull.WithCaller(t.Context(), &pull.Caller{Name: owner, Owner: owner})
}

// A client cannot use the worker ID of another client on any node, unless that worker has been
// absent for a long time.
func TestWorkerIDsHaveOwners(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	n.enqueueAll(t, "first")
	a, b := ownedBy(t, "key:a"), ownedBy(t, "key:b")
	poll := func(at *node, ctx context.Context, id string, names ...string) ([]*progressorv1.Lease, error) {
		return at.Poll(ctx, pull.PollParams{
			Namespaces: []string{"pull"}, WorkerID: id, JobNames: names, Max: 1})
	}
	leases, err := poll(n, a, "w", "first")
	if err != nil || len(leases) != 1 {
		t.Fatalf("%v, %v", leases, err)
	}
	token := leases[0].GetLeaseToken()
	beat := &progressorv1.HeartbeatRequest{WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: token}}}
	done := engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
		Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
	}}
	attack := func(when string) {
		t.Helper()
		const text = `worker_id "w" is used by another client in namespace pull`
		for _, at := range []*node{n, other} {
			_, err := poll(at, b, "w", "absent")
			wantDenied(t, err, "worker_id", text)
			_, err = at.BeatLeases(b, beat)
			wantDenied(t, err, "worker_id", text)
			wantDenied(t, at.CompleteLease(b, token, done), "lease_token", text)
			wantDenied(t, at.ReleaseLeases(b, []string{token}, 0), "lease_tokens[0]", text)
		}
		if t.Failed() {
			t.Fatal(when)
		}
	}
	attack("while the worker polls")
	// While a worker has a lease, its ID belongs to its owner, even if the worker was not seen for
	// a long time.
	age := func() {
		t.Helper()
		_, err := n.DB.Exec(t.Context(), "UPDATE workers SET last_seen_time = now() - interval '3 minutes'")
		must(t, err)
	}
	age()
	attack("while the worker has a lease")
	d, err := other.BeatLeases(a, beat)
	if err != nil || d[0].GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Fatalf("the owner on another node: %v, %v", d, err)
	}
	must(t, other.CompleteLease(a, token, done))
	third, fourth := start(t, dsn, scripted()), start(t, dsn, scripted()) // they have not seen the worker
	_, err = poll(third, b, "w", "absent")
	wantDenied(t, err, "worker_id", "is used by another client")
	age()
	if _, err := poll(third, b, "w", "absent"); err != nil {
		t.Errorf("after the worker is gone: %v", err)
	}
	_, err = poll(fourth, a, "w", "absent")
	wantDenied(t, err, "worker_id", "is used by another client")
	// Without authentication, clients have no names, and do not own worker IDs.
	if _, err := poll(fourth, t.Context(), "w", "absent"); err != nil {
		t.Error(err)
	}
}

// pollAs polls as a client and returns the directive to its worker.
func (n *node) pollAs(
	client context.Context, t *testing.T, id string, namespaces ...string,
) (progressorv1.WorkerDirective, error) {
	t.Helper()
	_, err := n.Poll(client, pull.PollParams{
		Namespaces: namespaces, WorkerID: id, JobNames: []string{"absent"}, Max: 1,
	})
	return n.WorkerDirective(client, id), err
}

// A command to a worker does not affect a worker of another client with the same ID in another
// namespace, nor the leases of that worker.
func TestCommandsReachWorkersOfOneClient(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for _, name := range []string{"evil", "more"} {
		n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.Namespace = name }))
	}
	n.enqueueAll(t, "first")
	a, b := ownedBy(t, "key:a"), ownedBy(t, "key:b")
	_, err := n.pollAs(a, t, "w", "pull", "more")
	must(t, err)
	leases, err := n.Poll(a, pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w", JobNames: []string{"first"}, Max: 1,
	})
	if err != nil || len(leases) != 1 {
		t.Fatalf("%v, %v", leases, err)
	}
	_, err = n.pollAs(b, t, "w", "evil")
	must(t, err)
	stop := func(namespace string) {
		t.Helper()
		_, err := n.StopWorker(t.Context(), &progressorv1.StopWorkerRequest{
			Namespace: namespace, WorkerId: "w", Grace: durationpb.New(0),
		}, process.Actor{Name: "ann"})
		must(t, err)
	}
	want := func(when string, ofA, ofB progressorv1.WorkerDirective) {
		t.Helper()
		gotA, err := n.pollAs(a, t, "w", "pull")
		must(t, err)
		gotB, err := n.pollAs(b, t, "w", "evil")
		must(t, err)
		if gotA != ofA || gotB != ofB {
			t.Fatalf("%s: %v and %v", when, gotA, gotB)
		}
	}
	directive := func() progressorv1.LeaseDirective_Directive {
		t.Helper()
		d, err := n.BeatLeases(a, &progressorv1.HeartbeatRequest{
			WorkerId: "w", Beats: []*progressorv1.LeaseBeat{{LeaseToken: leases[0].GetLeaseToken()}},
		})
		must(t, err)
		return d[0].GetDirective()
	}
	stop("evil")
	want("stopped in evil", goesOn, stops)
	for namespace, names := range map[string]string{"pull": "more pull", "more": "more pull", "evil": "evil"} {
		list := n.workers(t, namespace)
		if len(list) != 1 || strings.Join(list[0].GetNamespaces(), " ") != names ||
			(list[0].GetLeases() == 1) != (namespace != "evil") ||
			(list[0].GetDirective() == stops) != (namespace == "evil") {
			t.Errorf("%s: %v", namespace, list)
		}
	}
	// The worker of key:c is stopped after the worker of key:b. When the node has released the
	// lease of key:c, it has also handled the STOP of key:b.
	c := ownedBy(t, "key:c")
	_, err = n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "pull", JobId: "c", Name: "second"})
	must(t, err)
	if got, err := n.Poll(c, pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "c", JobNames: []string{"second"}, Max: 1,
	}); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	_, err = n.StopWorker(t.Context(), &progressorv1.StopWorkerRequest{
		Namespace: "pull", WorkerId: "c", Grace: durationpb.New(0),
	}, process.Actor{Name: "ann"})
	must(t, err)
	again := n.poll(t, "w2", 1, "second")
	if len(again) != 1 {
		t.Fatalf("%v", again)
	}
	if d := directive(); d != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("the lease of the other worker: %v", d)
	}
	stop("more")
	want("stopped in more", stops, stops)
	if again := n.poll(t, "w2", 1, "first"); len(again) != 1 {
		t.Errorf("%v", again)
	}
}

// After the grace period of a STOP, the client of the worker loses the worker ID to the first other
// client that polls with this ID. The new owner does not get the command.
func TestStoppedWorkerLosesItsID(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	intruder, owner := ownedBy(t, "key:b"), ownedBy(t, "key:a")
	_, err := n.pollAs(intruder, t, "w", "pull")
	must(t, err)
	_, err = n.pollAs(owner, t, "w", "pull")
	wantDenied(t, err, "worker_id", "is used by another client")
	n.tell(t, "w", quiet, nil)
	_, err = n.pollAs(owner, t, "w", "pull")
	wantDenied(t, err, "worker_id", "is used by another client")
	n.tell(t, "w", stops, durationpb.New(time.Hour))
	_, err = n.pollAs(owner, t, "w", "pull")
	wantDenied(t, err, "worker_id", "is used by another client")
	n.tell(t, "w", stops, durationpb.New(0))
	if d, err := n.pollAs(intruder, t, "w", "pull"); err != nil || d != stops {
		t.Errorf("before another client takes the ID: %v, %v", d, err)
	}
	_, err = other.pollAs(intruder, t, "w", "pull")
	must(t, err)
	_, err = n.pollAs(owner, t, "w", "pull")
	must(t, err)
	_, err = other.pollAs(intruder, t, "w", "pull") // this node does not know of the new owner yet
	must(t, err)
	other.workers(t, "pull") // stores which workers were seen
	for _, at := range []*node{n, other} {
		_, err = at.pollAs(intruder, t, "w", "pull")
		wantDenied(t, err, "worker_id", "is used by another client")
	}
	if list := n.workers(t, "pull"); len(list) != 1 || list[0].GetDirective() != goesOn {
		t.Errorf("%v", list)
	}
	if d, err := n.pollAs(owner, t, "w", "pull"); err != nil || d != goesOn {
		t.Errorf("the new owner: %v, %v", d, err)
	}
}
