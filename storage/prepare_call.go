package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

type callItem struct {
	item
	call     *Call
	prepared Prepared
	turn     chan struct{} // closed when the call may be stored, see callQueues
	group    *commitGroup  // shared with the result that the call is stored with
	left     time.Time     // when it left its queue
}

// PrepareCall stores a call. It returns when the task is durable, or when the process has refused
// the call and nothing was stored.
func (s *Store) PrepareCall(c *Call) (Prepared, error) {
	if c.MaxWaiting < 1 { // the statement looks at up to MaxWaiting waiting tasks; with 0 the call would overtake them
		return Prepared{}, &process.InvalidError{Field: "max_waiting", Message: "must be at least 1"}
	}
	it := &callItem{item: newItem(c.Key, c.bytes(), c.keyed()), call: c}
	it.requestID, it.general = c.RequestID, !c.Capture
	var err error
	if c.MayWait != nil && !it.general && !s.generalOnly {
		err = s.queueOrSubmit(it)
	} else {
		err = s.submit(it)
	}
	return it.prepared, err
}

// callStages returns the statements for the calls of a flush: CaptureCall for those that can use
// the fast path, PrepareCall for the others.
func callStages(s *Store, items []*callItem) []stage {
	calls := make(map[process.Key]int, len(items))
	for _, it := range items {
		calls[it.key]++
	}
	fast, general := splitPaths(items, func(it *callItem) bool { return !it.general && calls[it.key] == 1 })
	var stages []stage
	if len(fast) > 0 {
		stages = append(stages, captureCallStage(s, fast))
	}
	if len(general) > 0 {
		stages = append(stages, prepareCallStage(s, general))
	}
	return stages
}

func callParams(s *Store, items []*callItem) *dbsqlc.PrepareCallParams {
	arg := &dbsqlc.PrepareCallParams{NodeID: s.nodeID.Load()}
	arg.Grow(len(items))
	for n, it := range items {
		c := it.call
		arg.Append(dbsqlc.PrepareCallItem{
			Ord: int32(n), Key: c.Key, TaskType: string(c.TaskType), Args: c.Args,
			Context: c.Context, IdempotencyKey: c.IdempotencyKey, RequestID: c.RequestID,
			Fingerprint: c.Fingerprint, HistoryRange: c.HistoryRange, Priority: c.Priority,
			Capture: c.Capture, StepTimeoutUs: c.StepTimeout.Microseconds(),
			MaxWaiting: c.MaxWaiting,
		})
	}
	return arg
}

func prepareCallStage(s *Store, items []*callItem) stage {
	arg := callParams(s, items)
	return func(ctx context.Context, db DB) error {
		rows, err := s.q.PrepareCall(ctx, db, *arg)
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
				c := it.call.claim(it.call.TaskType, r.TaskID, r.FencingToken, r.Now)
				c.Status, c.PreviousStatus, c.StatusChangedTime = r.Status, r.PreviousStatus, r.StatusChangedTime
				c.AuxState, c.Metadata, c.LastEventID, c.FirstEventID, c.Kind, c.CreatedTime = r.AuxState, r.Metadata,
					r.LastEventID, r.FirstEventID, r.Kind, r.CreatedTime
				it.prepared.Claim = c
			}
		}
		return nil
	}
}
