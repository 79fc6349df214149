package flow

import (
	"maps"
	"slices"
)

// items begins as many items of a step as the limits allow. It ends the step after its last item.
func (d *Decision) items(step int) {
	p, each := &d.Plan.Steps[step], d.State.Each[step]
	for !each.Stopped && d.err == nil {
		for each.Next < each.Count && each.Redo != nil && each.Redo[each.Next/8]&(1<<(each.Next%8)) == 0 {
			each.Next++
		}
		if each.Next >= each.Count || p.MaxRunning > 0 && each.Open >= p.MaxRunning {
			break
		}
		if d.starts >= startsAtOnce {
			d.State.More = true
			return
		}
		index := each.Next
		each.Next++
		each.Open++
		d.start(step, index)
		if d.Status(step) != Open {
			return // the last item could not begin and ended the step
		}
	}
	if each.Open > 0 || d.err != nil || d.Status(step) != Open {
		return
	}
	switch {
	case each.Bytes > MaxItemsBytes:
		d.broken(step, NoIndex, &SizeError{each.Bytes})
	case each.Failed > p.MaxFailures:
		d.end(step, Failed, "", d.State.Lost)
	case each.Stopped:
		d.end(step, Cancelled, ReasonStopped, false)
	default:
		d.end(step, Succeeded, "", false)
	}
}

// stopItems ends the open items of a step because too many of its items have failed. It asks jobs,
// processes and runs to end. Waits end at once.
func (d *Decision) stopItems(step int) {
	if d.Plan.Steps[step].Waits == NoWait {
		d.askItems(step)
		d.checkLater(step, d.Plan.Grace)
		return
	}
	d.endItems(step, ReasonItemsFailed)
}

func (d *Decision) askItems(step int) {
	items, err := d.openItems(step)
	if err != nil {
		d.err = err
		return
	}
	for _, index := range items {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
	}
}

// dropItems asks the open items of a step to end and does not wait for them: they end with their
// step.
func (d *Decision) dropItems(step int, reason string) {
	items, err := d.openItems(step)
	if err != nil {
		d.err = err
		return
	}
	for _, index := range items {
		d.effect(Effect{Kind: EffectCancel, Step: step, Index: index})
		d.effect(Effect{Kind: EffectEnd, Step: step, Index: index, Status: Cancelled, Reason: reason})
	}
}

// endItems ends the open items of a step of waits or delays.
func (d *Decision) endItems(step int, reason string) {
	items, err := d.openItems(step)
	if err != nil {
		d.err = err
		return
	}
	for _, index := range items {
		d.ended(Outcome{Step: step, Index: index, Round: d.State.Round, Status: Cancelled, Reason: reason})
	}
}

// redo records which items of a step have to run again.
func (d *Decision) redo(step int, each *Each) {
	done, err := d.doneItems(step)
	if err != nil {
		d.err = err
		return
	}
	*each = redoing(each.Count, done, each.Bytes)
}

// redoing returns the progress of a step that has to run its items again, except those that are
// done. bytes is the size of the results of those.
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
	done, err := d.Reader.DoneItems(step)
	if err != nil {
		d.err = err
		return
	}
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
func matchItems(done []DoneItem, items []int64) map[int]int {
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

// openItems returns the open items of a step, including the changes of this decision so far. The
// reader only knows the changes of previous decisions.
func (d *Decision) openItems(step int) ([]int, error) {
	items, err := d.Reader.OpenItems(step)
	for _, e := range d.Effects {
		switch {
		case e.Step == step && e.Kind == EffectDropItems:
			items = nil
		case e.Step != step || e.Index == NoIndex:
		case e.Kind == EffectBegin:
			items = append(items, e.Index)
		case e.Kind == EffectEnd:
			items = slices.DeleteFunc(items, func(index int) bool { return index == e.Index })
		}
	}
	return items, err
}

// doneItems returns the items of a step that succeeded, including the changes of this decision so
// far.
func (d *Decision) doneItems(step int) ([]int, error) {
	done, err := d.Reader.DoneItems(step)
	items := make([]int, 0, len(done))
	for n := range done {
		items = append(items, done[n].Index)
	}
	for _, e := range d.Effects {
		switch {
		case e.Step == step && e.Kind == EffectDropItems:
			items = slices.Collect(maps.Values(e.Kept))
		case e.Kind == EffectEnd && e.Step == step && e.Index != NoIndex && e.Status != Failed && e.Status != Cancelled:
			items = append(items, e.Index)
		}
	}
	return items, err
}
