package jobs

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// List returns the jobs of a namespace that match a filter (see storage/search). A page may be
// short or empty and still have a next page.
func (q *Jobs) List(ctx context.Context, r *progressorv1.ListJobsRequest) ([]*progressorv1.Job, string, error) {
	if err := q.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	page, err := search.ListJobs(ctx, q.store, search.JobQuery{
		Namespace: r.GetNamespace(), Filter: r.GetFilter(), OrderBy: r.GetOrderBy(), PageSize: int(r.GetPageSize()),
		PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.Job, len(page.Jobs))
	for n, row := range page.Jobs {
		if list[n], err = wire.Job(row); err != nil {
			return nil, "", err
		}
	}
	return list, page.NextPageToken, nil
}
