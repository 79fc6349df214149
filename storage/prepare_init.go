package storage

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

type initItem struct {
	item
	init     *Init
	prepared Prepared
}

// PrepareInit creates a process with its INIT task. It returns when both are durable.
func (s *Store) PrepareInit(in *Init) (Prepared, error) {
	it := &initItem{item: newItem(in.Key, in.bytes()+len(in.Metadata), in.keyed()), init: in}
	it.requestID, it.audit = in.RequestID, in.AuditRecord
	err := s.submit(it)
	return it.prepared, err
}

func initStages(s *Store, items []*initItem) []stage {
	if len(items) == 0 {
		return nil
	}
	slices.SortFunc(items, func(a, b *initItem) int { return a.key.Compare(b.key) }) // see the statement
	arg := dbsqlc.PrepareInitParams{NodeID: s.nodeID.Load()}
	arg.Grow(len(items))
	for n, it := range items {
		in := it.init
		arg.Append(dbsqlc.PrepareInitItem{
			Ord: int32(n), Key: in.Key, Kind: in.Kind, Args: in.Args, Context: in.Context,
			Metadata: string(in.Metadata), IdempotencyKey: in.IdempotencyKey,
			RequestID: in.RequestID, Fingerprint: in.Fingerprint, HistoryRange: in.HistoryRange,
			Priority: in.Priority, StartTime: in.StartTime, Capture: in.Capture,
			StepTimeoutUs: in.StepTimeout.Microseconds(),
		})
	}
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := s.q.PrepareInit(ctx, db, arg)
		if err != nil {
			return err
		}
		for _, r := range rows {
			it := items[r.Ord]
			it.prepared = Prepared{
				Outcome: PrepareOutcome(r.Outcome), ProcessID: r.ProcessID, TaskID: r.TaskID,
				Status: process.StatusInit,
			}
			if it.prepared.Outcome == Captured {
				c := it.init.claim(process.TaskInit, r.TaskID, r.FencingToken, r.Now)
				c.ScheduledTime = r.ScheduledTime
				c.Status, c.Metadata, c.Kind = process.StatusInit, it.init.Metadata, it.init.Kind
				c.CreatedTime, c.StatusChangedTime, c.FirstEventID = r.Now, r.Now, 1
				it.prepared.Claim = c
			}
		}
		return nil
	}}
}
