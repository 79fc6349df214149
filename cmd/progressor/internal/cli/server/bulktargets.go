package server

import (
	"context"
	"errors"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// jobTarget returns jobs as a target of bulks.
func jobTarget(queue *jobs.Jobs) bulk.Target {
	return bulk.Target{
		Kind: "job", Plural: "jobs", IDField: "job_id",
		Check: func(filter string) error {
			_, err := search.ParseJobs(filter)
			return err
		},
		Find: func(ctx context.Context, namespace, filter, token string, limit int) ([]bulk.Item, string, error) {
			page, next, err := queue.List(ctx, &progressorv1.ListJobsRequest{
				Namespace: namespace, Filter: filter, OrderBy: search.OrderOldest, PageToken: token,
				PageSize: int32(limit), //nolint:gosec // a page
			})
			items := make([]bulk.Item, len(page))
			for n, j := range page {
				items[n] = bulk.Item{
					Cursor: search.Cursor{CreatedTime: j.GetCreatedTime().AsTime(), ProcessID: j.GetJobId()},
					State:  output.Enum(j.GetState()),
				}
			}
			return items, next, err
		},
		Verbs: map[progressorv1.BulkVerb]bulk.Verb{
			progressorv1.BulkVerb_BULK_VERB_RETRY: {
				Allowed: []string{"FAILED", "CANCELLED", "RETRYABLE"},
				Do: func(ctx context.Context, key process.Key, _ bulk.Options, by process.Actor) error {
					_, err := queue.Retry(ctx, key, false, by)
					return err
				},
			},
			progressorv1.BulkVerb_BULK_VERB_CANCEL: {
				Allowed: []string{"SCHEDULED", "AVAILABLE", "RUNNING", "RETRYABLE", "CANCEL_REQUESTED"},
				Do: func(ctx context.Context, key process.Key, o bulk.Options, by process.Actor) error {
					_, err := queue.Cancel(ctx, key, o.Reason, by)
					return err
				},
			},
			progressorv1.BulkVerb_BULK_VERB_REMOVE: {
				Allowed: []string{"SUCCEEDED", "FAILED", "CANCELLED"},
				Do: func(ctx context.Context, key process.Key, _ bulk.Options, by process.Actor) error {
					return queue.Remove(ctx, key, by)
				},
			},
		},
	}
}

// runTarget returns runs as a target of bulks.
func runTarget(runs *flows.Flows) bulk.Target {
	return bulk.Target{
		Kind: "flow", Plural: "runs", IDField: "run_id",
		Check: func(filter string) error {
			_, err := search.ParseRuns(filter)
			return err
		},
		Find: func(ctx context.Context, namespace, filter, token string, limit int) ([]bulk.Item, string, error) {
			page, next, err := runs.ListRuns(ctx, &progressorv1.ListRunsRequest{
				Namespace: namespace, Filter: filter, OrderBy: search.OrderOldest, PageToken: token,
				PageSize: int32(limit), //nolint:gosec // a page
			})
			items := make([]bulk.Item, len(page))
			for n, r := range page {
				items[n] = bulk.Item{
					Cursor: search.Cursor{CreatedTime: r.GetCreatedTime().AsTime(), ProcessID: r.GetRunId()},
					State:  output.Enum(r.GetStatus()),
				}
			}
			return items, next, err
		},
		Verbs: map[progressorv1.BulkVerb]bulk.Verb{
			progressorv1.BulkVerb_BULK_VERB_RETRY: {
				Allowed: []string{"FAILED", "CANCELLED", "EXPIRED"},
				Do: func(ctx context.Context, key process.Key, _ bulk.Options, by process.Actor) error {
					r := &progressorv1.RetryRunRequest{Namespace: key.Namespace, RunId: key.ProcessID}
					_, err := runs.Retry(ctx, r, by)
					return runStatus(key, err)
				},
			},
			progressorv1.BulkVerb_BULK_VERB_CANCEL: {
				Allowed: []string{"PENDING", "QUEUED", "RUNNING", "WAITING_WORKER", "CANCEL_REQUESTED", "COMPENSATING"},
				Do: func(ctx context.Context, key process.Key, o bulk.Options, by process.Actor) error {
					r := &progressorv1.CancelRunRequest{
						Namespace: key.Namespace, RunId: key.ProcessID, Reason: o.Reason,
					}
					_, err := runs.Cancel(ctx, r, by)
					return runStatus(key, err)
				},
			},
			progressorv1.BulkVerb_BULK_VERB_REMOVE: {
				Allowed: []string{"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"},
				Do: func(ctx context.Context, key process.Key, _ bulk.Options, by process.Actor) error {
					return runStatus(key, runs.Remove(ctx, key.Namespace, key.ProcessID, by))
				},
			},
		},
	}
}

// runStatus converts the error for a run in the wrong status to the error for a process in the
// wrong status, which a bulk skips.
func runStatus(key process.Key, err error) error {
	if wrong, ok := errors.AsType[*flows.StatusError](err); ok {
		return &process.WrongStatusError{Key: key, Reason: wrong.Error()}
	}
	return err
}
