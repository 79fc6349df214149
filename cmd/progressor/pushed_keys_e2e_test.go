package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// TestPushedCheckpointKeys follows the steps of an operator who creates a key for a processor that
// stores checkpoints. Keys for other namespaces, for certain jobs or with other roles cannot store
// them, even with the token of the attempt.
func TestPushedCheckpointKeys(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, rootToken := newKey(t, s.dsn, "root", "root")
	root := s.with(rootToken)
	of := func(role, namespaces string) *client.Client {
		_, token := newKey(t, s.dsn, role, role, namespaces)
		return client.New(s.URL, client.WithToken(token))
	}
	worker := of("worker", "shop/*")
	denied := map[*client.Client]string{
		of("worker", "billing*"): "Checkpoint needs the permission job.work in namespace shop/pushed",
		of("client", "shop/*"):   "Checkpoint needs the permission job.work in namespace shop/pushed",
		of("worker:*", "shop/*"): "lease_token: a task of a process that is not a job in namespace shop/pushed",
	}
	server := httptest.NewServer(processor.Handler(processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			return processor.Result().SetTimerAfter(0).Done()
		}
		for c, want := range denied {
			_, err := c.Worker.Checkpoint(ctx, &progressorv1.CheckpointRequest{
				LeaseToken: r.GetCheckpointToken(), Events: []*progressorv1.NewEvent{{}}})
			wantPermission(t, err, want)
		}
		if _, err := processor.Checkpoint(ctx, processor.Result().Event([]byte("a"))); err != nil {
			return nil, err
		}
		return processor.Result().Event([]byte("b")).Complete().Done()
	}), processor.WithCheckpoints(worker)))
	t.Cleanup(server.Close)
	root.OK(t, "namespace", "put", "shop/pushed", "--connect-url", server.URL, "--checkpoints")
	root.OK(t, "start", "shop/pushed", "p")
	clitest.Eventually(t, "the process is completed", func() error {
		if out := root.OK(t, "get", "shop/pushed", "p"); !strings.Contains(out, "COMPLETED") {
			return errors.New(out)
		}
		return nil
	})
}
