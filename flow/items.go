package flow

import (
	"maps"
	"slices"
)

// The items of a step that is done once for each of them.

// items begins items, as many as may, and ends the step with the last one.
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
			return // it was the last one, and could not begin
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

// stopItems ends the items of a step that are open because too many of its items have failed: what does them is asked to end, waits end at once.
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

// dropItems asks the items of a step that are open to end, and waits for none of them: the end of their step is theirs.
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

// endItems ends the items of a step of waits or delays that are open.
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

// redo notes which items of a step are to be done again.
func (d *Decision) redo(step int, each *Each) {
	done, err := d.doneItems(step)
	if err != nil {
		d.err = err
		return
	}
	*each = redoing(each.Count, done, each.Bytes)
}

// redoing is a step that has to do its items again, but for those that are done. bytes is the size of their results.
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

// match compares the items of a step that begins again with those that are done. The list may be another one: a done item stays done if the list
// still has its value, also at another index. All other items are to be done, and what is stored of them goes.
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

// matchItems finds the done items in a list, at their old index if they are still there. It returns their new indexes by their old ones.
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

// openItems lists the items of a step that are open, as this decision has left them so far: the reader knows those of the ones before.
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

// doneItems lists the items of a step that succeeded, likewise.
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
