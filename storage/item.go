package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// item is one operation in a lane. Each kind of operation embeds it.
type item struct {
	key       process.Key
	also      process.Key // another process that it locks, and whose lane it uses; zero if there is none
	requestID uuid.UUID   // only for a request with an idempotency key
	deferred  bool        // it was deferred once, because another item has the same request or creates the same process
	// repeatable items are retried if it is unknown whether they were committed. The others return
	// ErrUnavailable.
	repeatable bool
	repeated   bool // retried after the response of a commit was lost; it may find its own result
	general    bool // must use the general statement instead of the fast path
	fast       bool // the flush uses the fast path for the item
	fallback   bool // the fast path did not apply
	bytes      int
	audit      *AuditRecord // audit record of an operator's command, or nil
	tries      int          // retries of a result or checkpoint that PostgreSQL did not store
	slow       bool         // it timed out when it was flushed alone, so it is flushed alone again
	// contendedSince is when the item was first put aside because another session had locked a row.
	// It is zero if the item was never put aside.
	contendedSince time.Time
	done           chan struct{}
	err            error
}

func newItem(key process.Key, bytes int, repeatable bool) item {
	return item{key: key, bytes: bytes, repeatable: repeatable, done: make(chan struct{})}
}

func (i *item) base() *item { return i }

// home returns the process whose lane the item uses.
func (i *item) home() process.Key {
	if (i.also != process.Key{}) {
		return i.also
	}
	return i.key
}

// keysOfItems returns all processes of the items of a flush.
func keysOfItems(ops []operation) []process.Key {
	keys := make([]process.Key, 0, len(ops))
	for _, op := range ops {
		i := op.base()
		if keys = append(keys, i.key); (i.also != process.Key{}) {
			keys = append(keys, i.also)
		}
		if step, starts := startedStep(op); starts {
			keys = append(keys, step)
		}
	}
	return keys
}

// startedStep returns the process of the first step that a result starts, which may run here.
func startedStep(op operation) (key process.Key, starts bool) {
	c := completionOf(op)
	if c == nil || !c.MayStartStep {
		return key, false
	}
	if c.Advance != nil {
		c = c.Advance.Completion
	}
	for n := range c.Messages {
		if c.starts(&c.Messages[n]) {
			return c.Messages[n].Target, true
		}
	}
	return key, false
}

// operation is an item of any kind.
type operation interface{ base() *item }

// finish completes an item. It must be called once.
func finish(op operation, err error) {
	i := op.base()
	i.err = err
	close(i.done)
}

// batch holds the items of one flush, by kind.
type batch struct {
	checkpoints []*checkpointItem
	saves       []*saveItem
	removes     []*removeItem
	suspends    []*suspendItem
	resumes     []*suspendItem
	cancels     []*cancelItem
	restarts    []*restartItem
	inits       []*initItem
	inserts     []Insertion
	calls       []*callItem
	repairs     []*repairItem
	simples     []*simpleRepairItem
	delivers    []*deliverItem
	lateLocks   []process.Key // processes that this flush inserts, and on which it then acts
	outgoing    outgoing
	audits      auditRecords // commands of operators, except for those in lateAudits
	lateAudits  auditRecords // starts and simple repairs, which run later
}

func (b *batch) add(op operation) {
	if i := op.base(); i.audit != nil {
		switch op.(type) {
		case *simpleRepairItem, *initItem:
			b.lateAudits.add(i)
		default:
			b.audits.add(i)
		}
	}
	switch op := op.(type) {
	case *checkpointItem:
		b.checkpoints = append(b.checkpoints, op)
	case *saveItem:
		b.saves = append(b.saves, op)
	case *removeItem:
		b.removes = append(b.removes, op)
		if op.completion == nil {
			b.outgoing.ended(op.key, 0)
		} else {
			b.outgoing.completed(op.completion, false)
		}
	case *suspendItem:
		if op.resumes {
			b.resumes = append(b.resumes, op)
			b.outgoing.released(op.key)
		} else {
			b.suspends = append(b.suspends, op)
		}
	case *cancelItem:
		b.cancels = append(b.cancels, op)
		b.outgoing.ended(op.key, 0)
	case *restartItem:
		b.restarts = append(b.restarts, op)
	case *initItem:
		b.inits = append(b.inits, op)
	case *callItem:
		b.calls = append(b.calls, op)
	case *repairItem:
		b.repairs = append(b.repairs, op)
	case *simpleRepairItem:
		b.simples = append(b.simples, op)
		b.outgoing.released(op.key)
	case *deliverItem:
		b.delivers = append(b.delivers, op)
	case Insertion:
		b.inserts = append(b.inserts, op)
	}
}

// stages returns the statements of the flush that follow its locks. They run in this order:
// checkpoints, results of attempts (so that a call to a process whose attempt ends here gets its
// slot), commands of operators, deliveries of messages, new requests.
func (b *batch) stages(s *Store) []stage {
	stages := checkpointStages(s, b.checkpoints)
	b.skipFastPath()
	fast, general := splitPaths(b.saves, func(it *saveItem) bool { return !it.general })
	for _, it := range b.saves {
		b.outgoing.completed(it.completion, it.fast)
		if run := it.completion.Advance; run != nil {
			b.outgoing.completed(run.Completion, true)
		}
	}
	stages = append(stages, fastPathStages(s, fast)...)
	saves, records := saveStages(s, general)
	stages = append(append(stages, saves...), endLeaseStages(s, b.saves)...)
	stages = append(stages, records...)
	stages = append(stages, advanceRunStages(s, b.saves)...)
	stages = append(stages, removeStages(s, b.removes)...)
	stages = append(stages, suspendStages(s, b.suspends)...)
	stages = append(stages, resumeStages(s, b.resumes)...)
	stages = append(stages, cancelStages(s, b.cancels)...)
	stages = append(stages, restartStages(s, b.restarts)...)
	stages = append(stages, b.freeStages(s)...)
	stages = append(stages, b.audits.stages(s)...)
	stages = append(stages, b.outgoing.sendStages(s)...)
	stages = append(stages, deferStages(s, general)...)
	stages = append(stages, startStepStages(s, b.saves, &b.outgoing)...)
	stages = append(stages, endStepStages(s, b.saves, &b.outgoing)...)
	stages = append(stages, b.outgoing.notifyStages(s)...)
	stages = append(stages, purgeStages(s, b.removes)...)
	stages = append(stages, deliverStages(s, b.delivers, &b.outgoing)...)
	stages = append(stages, initStages(s, b.inits)...)
	stages = append(stages, insertStages(s, b.inserts)...)
	if len(b.lateLocks) > 0 {
		stages = append(stages, s.tryLockStage(lockRequest{keys: b.lateLocks, again: true}))
	}
	stages = append(stages, callStages(s, b.calls)...)
	stages = append(stages, repairStages(s, b.repairs)...)
	for _, r := range b.simples {
		stages = append(stages, simpleRepairStage(s, r))
	}
	stages = append(stages, b.lateAudits.stages(s)...)
	return append(stages, b.outgoing.releaseStages(s)...)
}
