package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// startSteps is the stage of a flush that creates processes for the steps of runs.
type startSteps struct {
	store    *Store
	items    []*saveItem // one per message
	messages []*Message
	arg      dbsqlc.StartStepsParams
	outgoing *outgoing
}

// startStepStages returns the statement that starts steps. It runs after the statements that store
// the results of the runs. The first step of a result may run at once.
func startStepStages(s *Store, saves []*saveItem, r *outgoing) []stage {
	b := &startSteps{store: s, outgoing: r}
	b.arg.NodeID = s.nodeID.Load()
	for _, it := range saves {
		b.add(it, it.completion)
		if run := it.completion.Advance; run != nil {
			b.add(it, run.Completion)
		}
	}
	if len(b.messages) == 0 {
		return nil
	}
	return []stage{b.run}
}

// add adds the steps that a completion of an item starts.
func (b *startSteps) add(it *saveItem, c *Completion) {
	captures := c.MayStartStep
	for n := range c.Messages {
		m := &c.Messages[n]
		if !c.starts(m) {
			continue
		}
		b.arg.Append(dbsqlc.StartStepsItem{
			Ord: int32(len(b.messages)), Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
			TargetID: m.Target.ProcessID, Args: m.Args, Context: m.Context, Metadata: string(m.Metadata),
			NotifyParentArgs: m.NotifyParentArgs, KindRow: string(m.KindRow), Capture: captures,
			StepTimeoutUs: c.StepTimeout.Microseconds(), Mode: b.store.EventModeOf(c.Key.Namespace),
		})
		b.items, b.messages = append(b.items, it), append(b.messages, m)
		captures = false
	}
}

func (b *startSteps) run(ctx context.Context, db DB) error {
	rows, err := b.store.q.StartSteps(ctx, db, b.arg)
	for i := range rows {
		r := &rows[i]
		it, m := b.items[r.Ord], b.messages[r.Ord]
		switch r.Outcome {
		case "captured":
			it.saved.Next = &Claim{
				Namespace: m.Target.Namespace, ProcessID: m.Target.ProcessID, TaskID: r.TaskID,
				TaskType: process.TaskInit, Attempt: 1, Priority: r.Priority,
				FencingToken: r.FencingToken, ScheduledTime: r.Now, RunningTime: r.Now, Args: m.Args,
				Context: m.Context, Status: process.StatusInit, StatusChangedTime: r.Now,
				Metadata: m.Metadata, FirstEventID: 1, Kind: m.StartedKind, CreatedTime: r.Now,
				KindName: r.KindName, KindOptions: r.KindOptions, KindTimeoutUs: r.KindTimeoutUs,
				KindTags: r.KindTags,
			}
			if !b.store.generalOnly {
				it.saved.Reserved = ReservedTask{r.ReservedTaskID, r.ReservedToken}
			}
		case "place":
			it.saved.Deferred = true
		default:
			b.outgoing.targets = append(b.outgoing.targets, m.Target)
		}
	}
	return err
}
