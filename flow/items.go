package flow

import (
	"maps"
	"slices"
)

// beginItems begins as many items of a step as the limits allow. It ends the step after its last
// item.
func (d *Decision) beginItems(step int) {
	p, each := &d.plan.Steps[step], d.State.Each[step]
	for !each.Stopped {
		for each.Next < each.Count && each.Redo != nil && each.Redo[each.Next/8]&(1<<(each.Next%8)) == 0 {
			each.Next++
		}
		if each.Next >= each.Count || p.MaxRunning > 0 && each.Running >= p.MaxRunning {
			break
		}
		if d.starts >= startsAtOnce {
			d.State.More = true
			return
		}
		index := each.Next
		each.Next++
		each.Running++
		d.startWork(step, index)
		if d.Status(step) != Running {
			return // the last item could not begin and ended the step
		}
	}
	if each.Running > 0 || d.Status(step) != Running {
		return
	}
	switch {
	case each.Bytes > MaxItemsBytes:
		d.fail(step, NoIndex, &SizeError{each.Bytes})
	case each.Failed > p.MaxFailures:
		d.endStep(Outcome{Step: step, Index: NoIndex, Status: Failed, WorkerLost: d.State.Lost})
	case each.Stopped:
		d.endStep(Outcome{Step: step, Index: NoIndex, Status: Cancelled, Reason: ReasonStopped})
	default:
		d.endStep(Outcome{Step: step, Index: NoIndex, Status: Succeeded})
	}
}

// stopItems ends the open items of a step because too many of its items have failed. It asks jobs,
// processes and runs to end. Waits end at once.
func (d *Decision) stopItems(step int) {
	if d.plan.Steps[step].Waits == NoWait {
		d.cancelItems(step)
		d.checkLater(step, d.plan.Grace)
		return
	}
	d.endItems(step, ReasonItemsFailed)
}

func (d *Decision) cancelItems(step int) {
	for _, index := range d.openItems(step) {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
	}
}

// dropItems asks the open items of a step to end. It does not wait for them, because they end with
// their step.
func (d *Decision) dropItems(step int, reason string) {
	for _, index := range d.openItems(step) {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
		d.effect(Effect{Kind: EffectEnd, Step: step, Index: index, Status: Cancelled, Reason: reason})
	}
}

// endItems ends the open items of a step whose items are waits or delays.
func (d *Decision) endItems(step int, reason string) {
	for _, index := range d.openItems(step) {
		d.endStepOrItem(Outcome{Step: step, Index: index, Round: d.State.Round, Status: Cancelled, Reason: reason})
	}
}

// redo records which items of a step have to run again.
func (d *Decision) redo(step int, each *Each) {
	*each = redoing(each.Count, d.doneItems(step), each.Bytes)
}

// redoing returns the progress of a step that has to run its items again, except the done ones.
// bytes is the size of their results.
func redoing(count int, done []int, bytes int) Each {
	bits := make([]byte, (count+7)/8)
	for n := range bits {
		bits[n] = 0xff
	}
	for _, index := range done {
		bits[index/8] &^= 1 << (index % 8)
	}
	return Each{Count: count, Succeeded: len(done), Bytes: bytes, Redo: bits}
}

// match compares the items of a step that begins again with its done items. The list may have
// changed. A done item stays done if the list still contains its value, even at another index. All
// other items have to run, and their stored rows are dropped.
func (d *Decision) match(step int, each *Each, items []int64) {
	stored, _ := d.storedItems(step)
	done := slices.DeleteFunc(slices.Clone(stored), func(item Item) bool { return item.Status == Running })
	kept := matchItems(done, items)
	same := len(items) == each.Count && len(kept) == len(done)
	for before, now := range kept {
		same = same && before == now
	}
	if same {
		return
	}
	bytes := each.Bytes * len(kept) / max(len(done), 1) // an estimate: the state has no sizes of single items
	*each = redoing(len(items), slices.Collect(maps.Values(kept)), bytes)
	d.effect(Effect{Kind: EffectDropItems, Step: step, Index: NoIndex, Kept: kept})
}

// matchItems finds the done items in a list, preferably at their old index. It returns a map from
// old to new indexes.
func matchItems(done []Item, items []int64) map[int]int {
	kept := map[int]int{}
	moved := map[int64][]int{} // old indexes by hash
	for _, item := range done {
		switch {
		case item.Index < len(items) && (item.Hash == nil || *item.Hash == items[item.Index]):
			kept[item.Index] = item.Index
		case item.Hash != nil:
			moved[*item.Hash] = append(moved[*item.Hash], item.Index)
		}
	}
	taken := maps.Clone(kept) // by new index: nothing has moved yet
	for index, hash := range items {
		if _, known := taken[index]; !known && len(moved[hash]) > 0 {
			kept[moved[hash][0]] = index
			moved[hash] = moved[hash][1:]
		}
	}
	return kept
}

// openItems returns the open items of a step, including the changes of this decision so far.
func (d *Decision) openItems(step int) []int {
	return d.itemsNow(step, func(status StepStatus) bool { return status == Running })
}

// doneItems returns the items of a step that succeeded or were skipped, including the changes of
// this decision so far.
func (d *Decision) doneItems(step int) []int {
	return d.itemsNow(step, func(status StepStatus) bool {
		return status != Running && status != Failed && status != Cancelled
	})
}

// itemsNow returns the items of a step whose status fits, including the changes of this decision so
// far. The facts contain only the changes of previous decisions.
func (d *Decision) itemsNow(step int, fits func(StepStatus) bool) []int {
	stored, _ := d.storedItems(step)
	var items []int
	for n := range stored {
		if fits(stored[n].Status) {
			items = append(items, stored[n].Index)
		}
	}
	for n := range d.Effects {
		e := &d.Effects[n]
		if e.Step != step {
			continue
		}
		status := e.Status
		switch {
		case e.Kind == EffectDropItems:
			if items = nil; fits(Succeeded) {
				items = slices.Collect(maps.Values(e.Kept))
			}
			continue
		case e.Index == NoIndex || e.Kind != EffectBegin && e.Kind != EffectEnd:
			continue
		case e.Kind == EffectBegin:
			status = Running
		}
		items = slices.DeleteFunc(items, func(index int) bool { return index == e.Index })
		if fits(status) {
			items = append(items, e.Index)
		}
	}
	return items
}
