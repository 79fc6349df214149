package crons

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/crons"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// listBytes limits the size of the stored crons of a page, in bytes. The message of a cron with
// many runs is up to eight times as large, because it contains their IDs.
const listBytes = storage.ListBytes / 8

// List returns the crons of a namespace that match a filter, sorted by ID. A page may be short or
// empty and still have a next page.
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

// nextCrons is the default number of crons that ListNext returns.
const nextCrons = 10

// ListNext returns the crons of a namespace that fire next, the soonest first. If r has no
// namespace, ListNext returns those of all namespaces that are visible and not paused.
func (c *Crons) ListNext(ctx context.Context, r *progressorv1.ListNextCronsRequest) ([]*progressorv1.Cron, error) {
	names, leave, err := c.engine.Enter(ctx, r.GetNamespace())
	if err != nil {
		return nil, err
	}
	defer leave()
	if r.GetNamespace() == "" {
		names = slices.DeleteFunc(names, c.engine.IsPaused) // their due timers would hide the others
	}
	rows, err := crons.ListNext(ctx, c.store, names, cmp.Or(int(r.GetPageSize()), nextCrons), listBytes)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	list := make([]*progressorv1.Cron, len(rows))
	for n, row := range rows {
		s, err := decode(row.AuxState, json.Unmarshal)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", process.Key{Namespace: row.Namespace, ProcessID: row.ProcessID}, err)
		}
		if list[n], err = s.message(now); err != nil {
			return nil, err
		}
	}
	return list, nil
}
