package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Most calls meet a process that runs and is free, and most results leave one for which nothing waits. CaptureCall, SaveFinished and SaveCompleted
// are PrepareCall and SaveResult for these alone, with half of their plan nodes: a server spends more on starting a large statement
// than on carrying it out for a few items. They made a call of a lone client twice as quick, and 128 of them a quarter.
//
// An item that is not of that kind misses: nothing of it is stored, and it goes into the next flush as a whole one. So that busy
// processes do not pay twice, a lane remembers where that happened, until a result says that nothing waits there any more. It is
// only a guess: a wrong one costs a flush.
type busyProcesses map[process.Key]struct{}

// maxBusy bounds what a lane remembers, as calls that are then answered on another node are never told to it.
const maxBusy = 1 << 16

func (b busyProcesses) has(key process.Key) bool {
	_, busy := b[key]
	return busy
}

// learn takes what became of an item that is committed. It returns true where it missed and has to come again.
func (b busyProcesses) learn(op operation) bool {
	i := op.base()
	if i.fallback {
		i.fallback, i.general = false, true
		b.mark(i.key)
		return true
	}
	switch op := op.(type) {
	case *callItem:
		if op.prepared.Outcome == Postponed {
			b.mark(i.key)
		}
	case *saveItem:
		if op.saved.Next == nil && !op.saved.Deferred {
			delete(b, i.key)
		}
		if op.behind {
			b.mark(op.completion.Run)
		}
	}
	return false
}

func (b busyProcesses) mark(key process.Key) {
	if len(b) >= maxBusy {
		clear(b)
	}
	b[key] = struct{}{}
}

// fastPathStages are the quick statements for results: one for those that have finished, one for those with which their processes end.
func fastPathStages(s *Store, items []*saveItem) []stage {
	var finished, completed []*saveItem
	for _, it := range items {
		if it.completion.Outcome == Completed {
			completed = append(completed, it)
		} else {
			finished = append(finished, it)
		}
	}
	var stages []stage
	for _, part := range [][]*saveItem{finished, completed} {
		if len(part) == 0 {
			continue
		}
		b := newSaveBatch(s, part)
		save := b.saveFinished
		if part[0].completion.Outcome == Completed {
			save = b.saveCompleted
		}
		stages = append(append(stages, save), b.leaseStages()...)
	}
	return stages
}

func (b *saveBatch) fastPathParams() dbsqlc.SaveFinishedParams {
	a := &b.arg
	return dbsqlc.SaveFinishedParams{
		Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds, TaskIds: a.TaskIds, FencingTokens: a.FencingTokens,
		AuxStates: a.AuxStates, Metadatas: a.Metadatas, EventCounts: a.EventCounts, Responses: a.Responses,
		EventOrds: a.EventOrds, EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds, EventIds: a.EventIds,
		EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts, EventTimestamps: a.EventTimestamps,
		EventMetadatas: a.EventMetadatas, EventPayloads: a.EventPayloads,
	}
}

func (b *saveBatch) saveFinished(ctx context.Context, db DB) error {
	rows, err := b.store.q.SaveFinished(ctx, db, b.fastPathParams())
	b.missAll(err)
	for _, r := range rows {
		b.took(r.Ord, process.StatusRunning, r.Now)
	}
	return err
}

func (b *saveBatch) saveCompleted(ctx context.Context, db DB) error {
	a := b.fastPathParams()
	arg := dbsqlc.SaveCompletedParams{
		Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds, TaskIds: a.TaskIds, FencingTokens: a.FencingTokens,
		AuxStates: a.AuxStates, Metadatas: a.Metadatas, EventCounts: a.EventCounts, Responses: a.Responses,
		EventOrds: a.EventOrds, EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds, EventIds: a.EventIds,
		EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts, EventTimestamps: a.EventTimestamps,
		EventMetadatas: a.EventMetadatas, EventPayloads: a.EventPayloads,
		JobNames: make([]string, len(b.items)), WorkerIds: b.arg.WorkerIds, Awaiteds: make([]bool, len(b.items)), Frees: make([]bool, len(b.items)),
		Modes: b.store.eventModes(a.Namespaces),
	}
	for n, it := range b.items {
		arg.Awaiteds[n], arg.Frees[n] = it.completion.notifiesRun(), it.completion.freesKeys()
		if job := it.completion.Job; job != nil {
			arg.JobNames[n] = job.Name
		}
	}
	rows, err := b.store.q.SaveCompleted(ctx, db, arg)
	b.missAll(err)
	for _, r := range rows {
		b.took(r.Ord, process.StatusCompleted, r.Now)
	}
	return err
}

// missAll marks all items as missed, before those are taken back that did not.
func (b *saveBatch) missAll(err error) {
	if err != nil {
		return
	}
	for _, it := range b.items {
		it.fallback = true
	}
}

func (b *saveBatch) took(ord int32, status process.Status, now time.Time) {
	it := b.items[ord]
	it.fallback = false
	it.saved = Saved{Status: status, Now: now, TimerDelay: -1}
}
