package crons_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A namespace is deleted with data of every kind: crons with fires, runs, jobs with unique keys,
// constraints, leases and several workers, messages and idempotency keys. A cron of another
// namespace whose run is a process of the deleted namespace is notified that the run has ended.
func TestDeleteNamespaceOfEveryKind(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	ctx := t.Context()
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// A cron of namespace ns starts a process in namespace pull, and waits until this process ends.
	waiting := starts("waits", never, "")
	waiting.Target.GetStartProcess().Namespace = "pull"
	n.create(t, waiting)
	_, err := n.Trigger(ctx, &progressorv1.TriggerCronRequest{Namespace: "ns", CronId: "waits"}, kim)
	done(err)
	// In namespace pull, there are a cron, a run, jobs and constraints.
	own := enqueues("own", nil)
	own.Namespace = "pull"
	n.create(t, own)
	_, err = n.Trigger(ctx, &progressorv1.TriggerCronRequest{Namespace: "pull", CronId: "own"}, kim)
	done(err)
	_, err = n.Flows.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: &progressorv1.Template{
		Namespace: "pull", Type: "t",
		Steps: []*progressorv1.StepTemplate{
			{StepId: "a", Action: &progressorv1.StepTemplate_Wait{Wait: &progressorv1.WaitAction{}}},
		},
	}})
	done(err)
	_, err = n.Flows.Start(ctx, &progressorv1.StartRunRequest{
		Namespace: "pull", Type: "t", RunId: "r", IdempotencyKey: "k",
	}, kim)
	done(err)
	_, err = n.Jobs.PutConstraint(ctx, &progressorv1.Constraint{
		Namespace: "pull", Name: "c", Match: `job.name == "limited"`, MaxRunning: 1,
		Rate: &progressorv1.RateLimit{Count: 1, Per: durationpb.New(time.Hour)},
	})
	done(err)
	for k := range 3 {
		_, err = n.Jobs.Enqueue(ctx, &progressorv1.EnqueueRequest{Namespace: "pull", JobId: fmt.Sprint("l", k),
			Name: "limited", IdempotencyKey: "k", Args: structpb.NewStringValue("x"),
			Options: &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: fmt.Sprint("u", k)}}})
		done(err)
	}
	_, err = n.Jobs.Enqueue(ctx, &progressorv1.EnqueueRequest{Namespace: "pull", JobId: "many", Name: "many",
		Options: &progressorv1.JobOptions{Workers: &progressorv1.WorkerGroup{Count: 2}}})
	done(err)
	leased := 0
	eventually(t, "tasks are leased", func() bool {
		leases, err := n.Poll(ctx, pull.PollParams{Namespaces: []string{"pull"}, WorkerID: "w", Max: 10})
		done(err)
		leased += len(leases)
		return leased >= 4
	})
	_, err = n.DeleteNamespace(ctx, &progressorv1.DeleteNamespaceRequest{Namespace: "pull", WithData: true}, kim)
	done(err)
	if _, err := n.Poll(ctx, pull.PollParams{Namespaces: []string{"pull"}, WorkerID: "w", Max: 1}); !errors.Is(err,
		process.ErrNamespaceDeleting) {
		t.Errorf("a poll of a namespace that is being deleted: %v", err)
	}
	eventually(t, "the namespace is deleted", func() bool {
		_, err := n.GetNamespace(context.Background(), "pull")
		return errors.Is(err, process.ErrNamespaceNotFound)
	})
	for _, table := range enginetest.Texts(t, n.DB, `SELECT c.table_name::text FROM information_schema.columns c
		JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = 'progressor' AND c.column_name = 'namespace' AND t.table_type = 'BASE TABLE'
		  AND c.table_name <> 'audit'`) {
		if left := n.Count(t, "SELECT count(*) FROM "+table+" WHERE namespace = 'pull'"); left > 0 {
			t.Errorf("%s has %d rows of the deleted namespace", table, left)
		}
	}
	eventually(t, "the fire of the other cron has ended", func() bool {
		return enginetest.Count(t, n.DB,
			`SELECT count(*) FROM cron_fires WHERE namespace = 'ns' AND cron_id = 'waits'
				AND ended_time IS NOT NULL`) == 1
	})
}
