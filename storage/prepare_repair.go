package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

type repairItem struct {
	item
	call     *Call
	prepared Prepared
}

type simpleRepairItem struct {
	item
	call     *Call
	prepared Prepared
}

// PrepareRepair stores a task in which the processor of a process in ERROR repairs the process.
func (s *Store) PrepareRepair(c *Call) (Prepared, error) {
	it := &repairItem{item: newItem(c.Key, c.bytes(), c.keyed()), call: c}
	it.requestID = c.RequestID
	err := s.submit(it)
	return it.prepared, err
}

// SimpleRepair sets a process in ERROR back to RUNNING without calling its processor.
// Prepared.TaskID is the task of the timer that runs again, or 0.
func (s *Store) SimpleRepair(c *Call, by ...process.Actor) (Prepared, error) {
	it := &simpleRepairItem{item: newItem(c.Key, c.bytes(), c.keyed()), call: c}
	it.noted("Repair", "", by)
	it.requestID = c.RequestID
	err := s.submit(it)
	return it.prepared, err
}

func repairStages(s *Store, items []*repairItem) []stage {
	if len(items) == 0 {
		return nil
	}
	arg := dbsqlc.PrepareRepairParams{NodeID: s.nodeID.Load()}
	for n, it := range items {
		c := it.call
		arg.Append(dbsqlc.PrepareRepairItem{
			Ord: int32(n), Key: c.Key, Args: c.Args, Context: c.Context,
			IdempotencyKey: c.IdempotencyKey, RequestID: c.RequestID, Fingerprint: c.Fingerprint,
			HistoryRange: c.HistoryRange, Capture: c.Capture,
			StepTimeoutUs: c.StepTimeout.Microseconds(),
		})
	}
	return []stage{func(ctx context.Context, db DB) error {
		rows, err := s.q.PrepareRepair(ctx, db, arg)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			it := items[r.Ord]
			it.prepared = Prepared{
				Outcome: PrepareOutcome(r.Outcome), ProcessID: r.ProcessID, TaskID: r.TaskID, Status: r.Status,
			}
			if it.prepared.Outcome == Captured {
				c := it.call.claim(process.TaskRepair, r.TaskID, r.FencingToken, r.Now)
				c.Status, c.PreviousStatus, c.StatusChangedTime = r.Status, r.PreviousStatus, r.StatusChangedTime
				c.AuxState, c.Metadata, c.LastEventID, c.FirstEventID, c.Kind, c.CreatedTime = r.AuxState, r.Metadata,
					r.LastEventID, r.FirstEventID, r.Kind, r.CreatedTime
				c.Detail, c.CorruptedBy = r.Detail, r.CorruptedBy
				it.prepared.Claim = c
			}
		}
		return nil
	}}
}

func simpleRepairStage(s *Store, it *simpleRepairItem) stage {
	c := it.call
	arg := dbsqlc.SimpleRepairParams{
		Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID, RequestID: c.RequestID, Fingerprint: c.Fingerprint,
		Context: c.Context,
	}
	return func(ctx context.Context, db DB) error {
		r, err := s.q.SimpleRepair(ctx, db, arg)
		if err != nil {
			return err
		}
		it.prepared = Prepared{
			Outcome: PrepareOutcome(r.Outcome), ProcessID: c.Key.ProcessID, TaskID: r.TaskID, Status: r.Status,
		}
		return nil
	}
}
