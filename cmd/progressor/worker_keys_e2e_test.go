package main

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// wantPermission fails the test unless err denies a permission and contains text.
func wantPermission(t *testing.T, err error, text string) {
	t.Helper()
	if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want permission_denied: %s", err, text)
	}
}

// TestWorkerKeys follows the steps of an operator who creates a key for a worker of one job name.
// The worker gets these jobs, and requests with its key for other jobs fail.
func TestWorkerKeys(t *testing.T) {
	t.Parallel()
	s, program := newTenants(t), clitest.Program{Commands: newCommands}
	_, rootToken := newKey(t, s.dsn, "root", "root")
	root := s.with(rootToken)
	for _, name := range []string{"shop/pull", "billing/pull"} {
		root.OK(t, "namespace", "put", name, "--pull")
	}
	enqueue := func(name string) { root.OK(t, "job", "enqueue", "shop/pull", name, "--id", name) }
	enqueue("resize")
	enqueue("secret")
	id, token := newKey(t, s.dsn, "resizer", "worker:resize", "shop/*")
	if out := s.with(token).OK(t, "whoami"); out != "key:"+id+"\nworker:resize shop/*\n" {
		t.Errorf("whoami: %q", out)
	}
	worker := client.New(s.URL, client.WithToken(token)).Worker
	poll := func(namespace string, names ...string) *progressorv1.PollRequest {
		return &progressorv1.PollRequest{Namespaces: []string{namespace}, WorkerId: "w", JobNames: names, MaxLeases: 10,
			Wait: durationpb.New(0)}
	}
	_, err := worker.Poll(t.Context(), poll("billing/pull"))
	wantPermission(t, err, "Poll needs the permission job.work in namespace billing/pull")
	_, err = worker.Poll(t.Context(), poll("shop/pull", "resize", "secret"))
	wantPermission(t, err, `job_names[1]: job "secret" in namespace shop/pull needs the permission job.work, and key:`+
		id+" has it only for the jobs resize")
	polled, err := worker.Poll(t.Context(), poll("shop/pull"))
	if err != nil || len(polled.GetLeases()) != 1 || polled.GetLeases()[0].GetJob().GetName() != "resize" {
		t.Fatalf("%v, %v", polled, err)
	}
	lease := polled.GetLeases()[0].GetLeaseToken()
	complete := func(lease string, next *progressorv1.PollRequest) error {
		_, err := worker.Complete(t.Context(), &progressorv1.CompleteRequest{
			LeaseToken: lease, Next: next,
			Answer: &progressorv1.CompleteRequest_JobResult{JobResult: &progressorv1.JobResult{}},
		})
		return err
	}
	wantPermission(t, complete(lease, poll("shop/pull", "secret")), `next.job_names[0]: job "secret"`)
	if out := root.OK(t, "job", "get", "shop/pull", "resize"); !strings.Contains(out, "RUNNING") {
		t.Errorf("a denied request has completed the job: %s", out)
	}
	// The worker cannot use the lease of a job that another worker holds.
	other := client.New(s.URL, client.WithToken(rootToken)).Worker
	polled, err = other.Poll(t.Context(),
		&progressorv1.PollRequest{Namespaces: []string{"shop/pull"}, WorkerId: "other"})
	if err != nil || len(polled.GetLeases()) != 1 {
		t.Fatalf("%v, %v", polled, err)
	}
	secret := polled.GetLeases()[0].GetLeaseToken()
	wantPermission(t, complete(secret, nil), `lease_token: job "secret"`)
	batch, err := worker.CompleteBatch(t.Context(), &progressorv1.CompleteBatchRequest{
		Answers: []*progressorv1.LeaseAnswer{
			{LeaseToken: secret, Answer: &progressorv1.LeaseAnswer_JobResult{JobResult: &progressorv1.JobResult{}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if failed := batch.GetOutcomes()[0].GetError(); failed.GetDetail().GetField() != "answers[0].lease_token" ||
		failed.GetDetail().GetReason() != progressorv1.ErrorDetail_REASON_PERMISSION {
		t.Errorf("a batch with the lease of another job: %v", batch)
	}
	_, err = worker.Heartbeat(t.Context(), &progressorv1.HeartbeatRequest{
		WorkerId: "other", Beats: []*progressorv1.LeaseBeat{{LeaseToken: secret}}})
	wantPermission(t, err, `beats[0].lease_token: job "secret"`)
	_, err = worker.Release(t.Context(), &progressorv1.ReleaseRequest{WorkerId: "other", LeaseTokens: []string{secret}})
	wantPermission(t, err, `lease_tokens[0]: job "secret"`)
	_, err = worker.Checkpoint(t.Context(), &progressorv1.CheckpointRequest{
		LeaseToken: secret, Events: []*progressorv1.NewEvent{{}}})
	wantPermission(t, err, `lease_token: job "secret"`)
	if err := complete(lease, poll("shop/pull")); err != nil {
		t.Error(err)
	}
	// Another grant allows more jobs.
	program.OK(t, "grant", "add", "key:"+id, "worker:mail-*", "shop/pull", "--db.dsn", s.dsn)
	clitest.WantLines(t, program.OK(t, "grant", "list", "key:"+id, "--db.dsn", s.dsn),
		"key:"+id+" worker:resize shop/*", "key:"+id+" worker:mail-* shop/pull")
	clitest.Eventually(t, "the grant has an effect", func() error {
		if _, err := worker.Poll(t.Context(), poll("shop/pull", "mail-a", "resize")); err != nil {
			return err
		}
		return nil
	})
	program.OK(t, "grant", "remove", "key:"+id, "worker:mail-*", "shop/pull", "--db.dsn", s.dsn)
	clitest.Eventually(t, "the grant is gone", func() error {
		_, err := worker.Poll(t.Context(), poll("shop/pull", "mail-a"))
		if err == nil {
			return errors.New("the poll succeeds")
		}
		wantPermission(t, err, `job "mail-a"`)
		return nil
	})
	for args, want := range map[string]string{
		"key create --name a --role viewer:a --namespaces a": "--role: only worker can be limited to some jobs",
		"key create --name a --role worker:,viewer --namespaces a": "--role: the jobs must be NAME, PREFIX* or *, " +
			"of 1 to 256 bytes",
		"key create --name a --role root,worker:a": "--namespaces: is required for the role worker:a",
		"grant add key:abc root:a *":               "role: only worker can be limited to some jobs",
	} {
		r := program.Run(t, append(strings.Fields(args), "--db.dsn", s.dsn)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// A key cannot use the worker ID of another key. A key with the same name can, so that keys can be
// replaced while a worker runs.
func TestWorkerIDsOfKeys(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, rootToken := newKey(t, s.dsn, "root", "root")
	s.with(rootToken).OK(t, "namespace", "put", "shop/pull", "--pull")
	poll := func(token string) error {
		_, err := client.New(s.URL, client.WithToken(token)).Worker.Poll(t.Context(),
			&progressorv1.PollRequest{Namespaces: []string{"shop/pull"}, WorkerId: "w"})
		return err
	}
	_, first := newKey(t, s.dsn, "mailer", "worker", "shop/*")
	_, replaced := newKey(t, s.dsn, "mailer", "worker", "shop/*")
	_, other := newKey(t, s.dsn, "other", "worker", "shop/*")
	for _, token := range []string{first, replaced, first} {
		if err := poll(token); err != nil {
			t.Error(err)
		}
	}
	for _, token := range []string{other, rootToken} {
		wantPermission(t, poll(token), `worker_id: worker_id "w" is used by another client in namespace shop/pull`)
	}
	clitest.WantLines(t, s.with(rootToken).OK(t, "worker", "list", "shop/pull"),
		"WORKER LEASES LAST SEEN DIRECTIVE NAMESPACES OWNER", "CONTINUE shop/pull keys:mailer")
}

// The command that creates a key warns if another valid key has its name, because both count as one
// client.
func TestKeyNameInUse(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	program := clitest.Program{Commands: newCommands}
	create := func() string {
		t.Helper()
		r := program.Run(t, "key", "create", "--name", "mailer", "--role", "root", "--db.dsn", s.dsn)
		if r.Code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
		return r.Stderr
	}
	if text := create(); strings.Contains(text, "Warning") {
		t.Error(text)
	}
	if text := create(); !strings.Contains(text, " has the same name. Both keys count as one client") {
		t.Error(text)
	}
	if _, err := storagetest.Connect(t, s.dsn).Exec(t.Context(),
		"UPDATE api_keys SET revoked_time = now()"); err != nil {
		t.Fatal(err)
	}
	if text := create(); strings.Contains(text, "Warning") {
		t.Errorf("after the others were revoked: %s", text)
	}
}
