package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	sdk "github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// pullWorkers is the number of workers that drain the jobs, each with one request at a time.
// pullBatch is the number of jobs that such a request answers and leases.
const (
	pullWorkers = 8
	pullBatch   = 100
)

// pulled measures how fast workers drain jobs over Connect. The engine runs in its own process, the
// workers run in this one.
func (r *runner) pulled(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	n := r.command.Jobs / jobBatch * jobBatch
	row.Workload, row.Note = v.name()+": pull",
		fmt.Sprintf("%d by %d workers over RPC, %d at a time", n, pullWorkers, pullBatch)
	ns := &progressorv1.Namespace{Namespace: namespaceName, Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
	}}
	text, err := protojson.Marshal(v.withEvents(ns))
	if err != nil {
		return err
	}
	err = r.inScratch(ctx, func(d *scratch) error {
		e, err := r.spawn(ctx, roleEngine,
			order{DSN: d.dsn, Lanes: r.command.Lanes, Namespaces: []json.RawMessage{text}})
		if err != nil {
			return err
		}
		api := sdk.New(e.url(), sdk.WithHTTPClient(newHTTPClient()), sdk.WithoutKeys())
		err = r.pullAll(ctx, d, e, api, n, row)
		if err := errors.Join(err, e.close()); err != nil {
			return err
		}
		return r.verify(ctx, d, row, nil)
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

func (r *runner) pullAll(ctx context.Context, d *scratch, e *spawned, api *sdk.Client, n int, row *Row) error {
	err := each(ctx, n/jobBatch, jobClients, func(ctx context.Context, _ int) error {
		_, err := api.Job.EnqueueBatch(ctx, jobsOf(jobBatch))
		return err
	})
	if err != nil {
		return err
	}
	if err := r.settle(ctx, d.analyze); err != nil {
		return err
	}
	m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: e.cpu, flushes: e.flushes}
	var latencies histogram
	var mu sync.Mutex
	done := 0
	spent, err := m.measure(ctx, func() error {
		return each(ctx, pullWorkers, pullWorkers, func(ctx context.Context, i int) error {
			return pullJobs(ctx, api, fmt.Sprint("worker-", i), func(took time.Duration, answered int) {
				mu.Lock()
				defer mu.Unlock()
				latencies.add(took)
				done += answered
			})
		})
	})
	if err == nil && done != n {
		err = fmt.Errorf("%d of %d jobs were done", done, n)
	}
	row.fill(int64(n), spent.elapsed, &latencies, spent)
	return err
}

// pullJobs is a worker that completes jobs without doing anything, until there are none.
func pullJobs(ctx context.Context, api *sdk.Client, id string, answered func(time.Duration, int)) error {
	next := &progressorv1.PollRequest{
		Namespaces: []string{namespaceName}, WorkerId: id, MaxLeases: pullBatch,
		Wait: durationpb.New(100 * time.Millisecond),
	}
	for {
		polled, err := api.Worker.Poll(ctx, next)
		if err != nil {
			return err
		}
		leases := polled.GetLeases()
		if len(leases) == 0 {
			return nil
		}
		for len(leases) > 0 {
			batch := &progressorv1.CompleteBatchRequest{Next: next}
			for _, l := range leases {
				batch.Answers = append(batch.Answers, &progressorv1.LeaseAnswer{
					LeaseToken: l.GetLeaseToken(),
					Answer:     &progressorv1.LeaseAnswer_JobResult{JobResult: &progressorv1.JobResult{}},
				})
			}
			begin := time.Now()
			done, err := api.Worker.CompleteBatch(ctx, batch)
			if err != nil {
				return err
			}
			for _, o := range done.GetOutcomes() {
				if o.GetError() != nil {
					return fmt.Errorf("an answer was refused: %s", o.GetError().GetMessage())
				}
			}
			answered(time.Since(begin), len(leases))
			leases = done.GetNext()
		}
	}
}
