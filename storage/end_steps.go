package storage

import (
	"context"
	"encoding/json"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ChildEnd is the end of a child, in a NOTIFY task that reports several ends. A single end is
// stored in the columns of the task.
type ChildEnd struct {
	Namespace string `json:"namespace"`
	ProcessID string `json:"processId"`
	Status    string `json:"status"` // as in the API
	Response  []byte `json:"response"`
	Args      []byte `json:"args"` // the args for the notification, which the sender set when it started the child
	WorkerID  string `json:"workerId"`
	// RunningTime is when the last attempt of the child began. It is zero if an older version
	// stored the end.
	RunningTime time.Time `json:"runningTime"`
}

// ChildEnds returns the ends in a NOTIFY task that reports several ends. It returns nil for all
// other tasks.
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

// endSteps is the stage of a flush that notifies runs when jobs of their steps end.
type endSteps struct {
	store    *Store
	items    []*saveItem // results that may end such a job, in the order of arg
	arg      dbsqlc.EndStepsParams
	outgoing *outgoing
}

// endStepStages returns the stage that notifies runs of ended jobs. It must run after the stages
// that store the ends of the jobs and their effects.
func endStepStages(s *Store, saves []*saveItem, r *outgoing) []stage {
	e := &endSteps{store: s, outgoing: r}
	a := &e.arg
	a.NodeID = s.nodeID.Load()
	for _, it := range saves {
		c := it.completion
		if !c.notifiesRun() {
			continue
		}
		a.Append(dbsqlc.EndStepsItem{
			Ord: int32(len(e.items)), Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
			RunID: c.Run.ProcessID, Capture: c.MayContinue,
			StepTimeoutUs: c.StepTimeout.Microseconds(),
		})
		e.items = append(e.items, it)
	}
	if len(e.items) == 0 {
		return nil
	}
	return []stage{e.run}
}

// run executes EndSteps and sets in each item how its run was notified: by a task that runs next on
// this node, a task that waits for a slot or behind another task, or a message.
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

// claimOf returns the claim of the NOTIFY task in a row.
func claimOf(r *dbsqlc.EndStepsRow) *Claim {
	return &Claim{
		Namespace: r.Namespace, ProcessID: r.ProcessID, TaskID: r.TaskID, TaskType: process.TaskNotify, Attempt: 1,
		FencingToken:  r.FencingToken,
		ScheduledTime: r.Now, RunningTime: r.Now, Child: r.Child, Status: r.Status, PreviousStatus: r.PreviousStatus,
		StatusChangedTime: r.StatusChangedTime,
		Detail:            r.Detail, CorruptedBy: r.CorruptedBy, AuxState: r.AuxState, Metadata: r.Metadata,
		LastEventID: r.LastEventID, FirstEventID: r.FirstEventID, Kind: r.Kind, CreatedTime: r.CreatedTime,
	}
}
