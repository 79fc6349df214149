package engine

import (
	"bytes"
	"time"

	"github.com/progressor-engine/progressor/internal/parked"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
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
	config  []byte    // configuration of the namespace; if it changes, the processor may change
	worker  string    // ID of the worker that has the process in its memory, or ""
}

func (v *parkedValue) Size() int { return v.kept.Parked().Bytes }

func (v *parkedValue) Drop() { v.kept.Drop() }

func newParking(maximum int) *parking { return &parking{parked.New[*parkedValue](maximum)} }

// take returns the value that the processor keeps for a claim. The value is empty if nothing is
// parked, or if the parked value does not fit the state of the process.
func (p *parking) take(ns *namespace, c *storage.Claim) *processor.Kept {
	v, ok := p.Take(process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID})
	switch {
	case !ok:
		return &processor.Kept{}
	case !usesParked(c) || v.first != c.FirstEventID || v.last != c.LastEventID || !v.created.Equal(c.CreatedTime) ||
		!bytes.Equal(v.config, ns.config):
		p.Drop(v)
		return &processor.Kept{}
	}
	return v.kept
}

// usesParked reports whether a parked value can serve a claim. For other types of tasks, the
// processor needs the history.
func usesParked(c *storage.Claim) bool {
	return c.TaskType == process.TaskCall || c.TaskType == process.TaskNotify || c.TaskType == process.TaskTimeout
}

// toPark is the value that the processor keeps during an attempt. It is parked when the result is
// stored.
type toPark struct {
	kept *processor.Kept // nil if it is parked
	// The state of the parking and of the namespace when the attempt began.
	generation int
	config     []byte
}

// begin sets the value that the processor keeps for the task of a turn.
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

// settle parks the value after the result done of the attempt c is stored. If the next task of the
// process runs on this node, that task gets the value instead. A value that depends on anything but
// the stored events is dropped.
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

// put parks a value. It returns false if the value was not parked.
func (p *parking) put(c *storage.Claim, t *toPark) bool {
	v := &parkedValue{
		kept: t.kept, first: c.FirstEventID, last: t.kept.Parked().LastEventID, created: c.CreatedTime,
		config: t.config,
	}
	if at, ok := t.kept.Value().(*parkedAtWorker); ok {
		v.worker = at.workerID
	}
	return p.Put(process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, v, t.generation)
}

// parkedAtWorker describes a process that a worker has in its memory.
type parkedAtWorker struct {
	workerID string
	id       string // see ProcessResponse.parked_id
}

// parkedAtWorkerBytes is the approximate size of a parkedAtWorker, including the overhead of
// keeping it.
const parkedAtWorkerBytes = 1 << 10

// parkedBy returns what is to be parked when the response to a lease is stored. It is nil if the
// worker does not keep the process in its memory.
func (p *parking) parkedBy(ns *namespace, l *storage.Lease, response *progressorv1.ProcessResponse) *toPark {
	if response.GetParkedId() == "" || l.Claim.Kind != "" {
		return nil
	}
	kept := &processor.Kept{}
	kept.Park(&parkedAtWorker{l.WorkerID, response.GetParkedId()}, processor.Parked{
		LastEventID: l.Claim.LastEventID + int64(len(response.GetResult().GetEvents())), Bytes: parkedAtWorkerBytes,
	}, func() {})
	return &toPark{kept, p.Generation(), ns.config}
}

// atWorker returns the parked value for a lease. It is empty unless the worker of the lease has the
// process in its memory and can continue it.
func (p *parking) atWorker(ns *namespace, l *storage.Lease, continues bool) *processor.Kept {
	kept := p.take(ns, &l.Claim)
	if at, ok := kept.Value().(*parkedAtWorker); !ok || at.workerID != l.WorkerID || !continues {
		kept.Drop()
	}
	return kept
}

// workerOf returns the worker that has a process in its memory, or "" if this node knows none.
func (p *parking) workerOf(key process.Key) string {
	if v, ok := p.Peek(key); ok {
		return v.worker
	}
	return ""
}
