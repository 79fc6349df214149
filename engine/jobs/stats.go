package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// States are the states by which jobs are counted. The first five are states of open jobs.
var States = []string{
	"scheduled", "available", "running", "retryable", "cancel_requested", "succeeded", "failed", "cancelled",
}

// MaxStatsNames is the maximum number of names in one response. Names with the most open jobs come
// first, then names with the most jobs.
const MaxStatsNames = 1000

// Stats returns the number of jobs of a namespace by state, in total and by name, and the age of
// the oldest available job. It reads stored counts.
func (q *Jobs) Stats(ctx context.Context, namespace string) (*progressorv1.GetQueueStatsResponse, error) {
	if err := q.engine.CheckNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	all, err := jobs.Count(ctx, q.store, []string{namespace})
	if err != nil {
		return nil, err
	}
	resp := &progressorv1.GetQueueStatsResponse{CountByState: countByState(&jobs.Counts{})}
	oldest := time.Duration(-1)
	for _, c := range all {
		for state, n := range c.ByState {
			resp.CountByState[state] += n
		}
		oldest = max(oldest, c.Oldest)
	}
	if oldest >= 0 {
		resp.OldestAvailableAge = durationpb.New(oldest)
	}
	for _, c := range most(all) {
		resp.Names = append(resp.Names, &progressorv1.JobNameStats{Name: c.Name, CountByState: countByState(c)})
	}
	slices.SortFunc(resp.GetNames(), func(a, b *progressorv1.JobNameStats) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	return resp, nil
}

func countByState(c *jobs.Counts) map[string]int64 {
	counts := make(map[string]int64, len(States))
	for _, state := range States {
		counts[state] = c.ByState[state]
	}
	return counts
}

// most returns at most MaxStatsNames names, those with the most jobs first. It omits names that no
// longer have jobs.
func most(all []*jobs.Counts) []*jobs.Counts {
	list := slices.DeleteFunc(slices.Clone(all), func(c *jobs.Counts) bool {
		return c.Oldest < 0 && open(c)+ended(c) == 0
	})
	slices.SortFunc(list, func(a, b *jobs.Counts) int {
		return cmp.Or(cmp.Compare(open(b), open(a)), cmp.Compare(ended(b), ended(a)), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), MaxStatsNames)]
}

func open(c *jobs.Counts) (n int64) {
	for _, state := range States[:5] {
		n += c.ByState[state]
	}
	return n
}

func ended(c *jobs.Counts) (n int64) {
	for _, state := range States[5:] {
		n += c.ByState[state]
	}
	return n
}
