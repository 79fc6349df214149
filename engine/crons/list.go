package crons

import (
	"context"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// listBytes limits the stored crons of a page, in bytes. The message of a cron with many runs is up
// to eight times as large, because it has their IDs.
const listBytes = storage.ListBytes / 8

// List returns the crons of a namespace that match a filter, by ID. A page may be short or empty
// and still have a next page.
func (c *Crons) List(ctx context.Context, r *progressorv1.ListCronsRequest) ([]*progressorv1.Cron, string, error) {
	if err := c.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	filter, err := search.ParseCrons(r.GetFilter())
	if err != nil {
		return nil, "", err
	}
	page, err := search.List(ctx, c.store, search.Query{
		Namespace: r.GetNamespace(), Filter: filter, OrderBy: search.OrderID, PageSize: int(r.GetPageSize()),
		PageToken: r.GetPageToken(),
		Bytes:     listBytes,
	})
	if err != nil {
		return nil, "", err
	}
	now := time.Now()
	var list []*progressorv1.Cron
	for n := range page.Processes {
		p, err := wire.Process(&page.Processes[n], nil, nil, nil)
		if err != nil {
			return nil, "", err
		}
		if len(p.GetAuxState()) == 0 {
			continue // it is being created
		}
		s, err := stateOf(p)
		if err != nil {
			return nil, "", err
		}
		m, err := s.message(now)
		if err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	return list, page.NextPageToken, nil
}
