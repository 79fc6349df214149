package storage

import "github.com/progressor-engine/progressor/process"

// Most calls meet a process that runs and is free, and most results leave one for which nothing waits. CaptureCall and SaveFinished
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
	if i.missed {
		i.missed, i.whole = false, true
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
	}
	return false
}

func (b busyProcesses) mark(key process.Key) {
	if len(b) >= maxBusy {
		clear(b)
	}
	b[key] = struct{}{}
}
