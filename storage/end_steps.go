package storage

import (
	"context"
	"encoding/json"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ChildEnd is the end of a child of a task that holds several. Of one that holds a single end, the row says it alone.
type ChildEnd struct {
	Namespace string `json:"namespace"`
	ProcessID string `json:"processId"`
	Status    string `json:"status"` // as the API names it
	Response  []byte `json:"response"`
	Args      []byte `json:"args"` // what it was started with for this
}

// ChildEnds reads the ends that the claim of a NOTIFY holds; nil: it is not of several.
func ChildEnds(c *Claim) ([]ChildEnd, error) {
	var child struct {
		Ends []ChildEnd `json:"ends"`
	}
	if len(c.Child) == 0 {
		return nil, nil
	}
	err := json.Unmarshal(c.Child, &child)
	return child.Ends, err
}

// endSteps tells runs the ends of jobs of a flush.
type endSteps struct {
	store    *Store
	items    []*saveItem
	arg      dbsqlc.EndStepsParams
	outgoing *outgoing
}

// endStepStages follow what has ended the jobs, and what their riders write.
func endStepStages(s *Store, saves []*saveItem, r *outgoing) []stage {
	e := &endSteps{store: s, outgoing: r}
	a := &e.arg
	a.NodeID = s.nodeID.Load()
	for _, it := range saves {
		c := it.completion
		if !c.notifiesRun() {
			continue
		}
		a.Ords = append(a.Ords, int32(len(e.items)))
		a.Namespaces = append(a.Namespaces, c.Key.Namespace)
		a.ProcessIds = append(a.ProcessIds, c.Key.ProcessID)
		a.TaskIds = append(a.TaskIds, c.TaskID)
		a.FencingTokens = append(a.FencingTokens, c.FencingToken)
		a.Captures = append(a.Captures, c.GoesOn)
		a.StepTimeoutsUs = append(a.StepTimeoutsUs, c.StepTimeout.Microseconds())
		e.items = append(e.items, it)
	}
	if len(e.items) == 0 {
		return nil
	}
	return []stage{e.run}
}

func (e *endSteps) run(ctx context.Context, db DB) error {
	rows, err := e.store.q.EndSteps(ctx, db, e.arg)
	for _, it := range e.items {
		it.behind = false
	}
	for i := range rows {
		r := &rows[i]
		switch it := e.items[r.Ord]; r.Outcome {
		case "captured":
			it.saved.Next = claimOf(r)
		case "place":
			it.saved.Deferred = true
		case "process":
			it.behind = true
		case "message":
			e.outgoing.targets = append(e.outgoing.targets, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
		}
	}
	return err
}

func claimOf(r *dbsqlc.EndStepsRow) *Claim {
	return &Claim{
		Namespace: r.Namespace, ProcessID: r.ProcessID, TaskID: r.TaskID, TaskType: process.TaskNotify, Attempt: 1, FencingToken: r.FencingToken,
		ScheduledTime: r.Now, RunningTime: r.Now, Child: r.Child, Status: r.Status, PreviousStatus: r.PreviousStatus, StatusChangedTime: r.StatusChangedTime,
		Detail: r.Detail, CorruptedBy: r.CorruptedBy, AuxState: r.AuxState, Metadata: r.Metadata, LastEventID: r.LastEventID, FirstEventID: r.FirstEventID, Kind: r.Kind, CreatedTime: r.CreatedTime,
	}
}
