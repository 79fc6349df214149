package engine

import (
	"bytes"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage"
)

// parking contains the values that processors keep for the next task of their processes, such as
// durable functions that wait.
type parking struct{ *parked.Values[*parkedValue] }

// parkedValue is a parked value, with the state of the process on which it depends.
type parkedValue struct {
	kept    *processor.Kept
	first   int64     // FirstEventID
	last    int64     // LastEventID
	created time.Time // a removed process may be created again
	config  []byte    // configuration of the namespace: another one may have another processor
}

func (v *parkedValue) Size() int { return v.kept.Parked().Bytes }

func (v *parkedValue) Drop() { v.kept.Drop() }

func newParking(maximum int) *parking { return &parking{parked.New[*parkedValue](maximum)} }

// take returns what the processor keeps for a claim. It is empty if nothing is parked, or if what
// is parked does not fit the state of the process.
func (p *parking) take(ns *namespace, c *storage.Claim) *processor.Kept {
	v, ok := p.Take(process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID})
	switch {
	case !ok:
		return &processor.Kept{}
	case !usesParked(c) || v.first != c.FirstEventID || v.last != c.LastEventID || !v.created.Equal(c.CreatedTime) ||
		!bytes.Equal(v.config, ns.config):
		v.kept.Drop()
	}
	return v.kept
}

// usesParked reports whether a parked value can serve a claim. For other types of tasks, the
// processor needs the history.
func usesParked(c *storage.Claim) bool {
	return c.TaskType == process.TaskCall || c.TaskType == process.TaskNotify || c.TaskType == process.TaskTimeout
}

// toPark is what the processor keeps during an attempt. It is parked when the result is stored.
type toPark struct {
	kept *processor.Kept // nil if it is parked
	// The state of the parking and of the namespace when the attempt began.
	generation int
	config     []byte
}

// begin sets what the processor keeps for the task of a turn.
func (p *parking) begin(ns *namespace, t *turn) *toPark {
	before := t.kept.Parked()
	switch {
	case !keepsFor(ns, t.claim):
		t.kept.Drop()
		t.kept = nil
	case t.kept == nil:
		t.kept = p.take(ns, t.claim)
	case before != nil && (!usesParked(t.claim) || before.LastEventID != t.claim.LastEventID ||
		!bytes.Equal(t.config, ns.config)):
		t.kept.Drop()
	}
	t.config = ns.config
	return &toPark{t.kept, p.Generation(), ns.config}
}

// settle parks the value after the result done of the attempt c is stored. If a task of the process
// follows here, that task gets it instead. A value that depends on anything but the stored events
// is dropped.
func (t *toPark) settle(p *parking, c *storage.Claim, done *storage.Completion, saved *storage.Saved) {
	if t == nil || t.kept.Parked() == nil {
		return
	}
	if done.Outcome != storage.Finished || done.RestartHistory || saved.ResponseLost ||
		t.kept.Parked().LastEventID != c.LastEventID+int64(len(done.Events)) {
		t.kept.Drop()
		return
	}
	if saved.Next == nil && p.put(c, t) {
		t.kept = nil
	}
}

// put parks a value. It returns false if it did not.
func (p *parking) put(c *storage.Claim, t *toPark) bool {
	v := &parkedValue{
		kept: t.kept, first: c.FirstEventID, last: t.kept.Parked().LastEventID, created: c.CreatedTime,
		config: t.config,
	}
	return p.Put(process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, v, t.generation)
}
