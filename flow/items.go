package flow

import "slices"

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
		if d.Letter(step) != Open {
			return // it was the last one, and could not begin
		}
	}
	if each.Open > 0 || d.err != nil || d.Letter(step) != Open {
		return
	}
	switch {
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
		d.effect(Effect{Deed: DeedAsk, Step: step, Index: index})
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
		d.effect(Effect{Deed: DeedAsk, Step: step, Index: index})
		d.effect(Effect{Deed: DeedEnd, Step: step, Index: index, Letter: Cancelled, Reason: reason})
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
		d.ended(Outcome{Step: step, Index: index, Round: d.State.Round, Letter: Cancelled, Reason: reason})
	}
}

// redo notes which items of a step are to be done again.
func (d *Decision) redo(step int, each *Each) {
	done, err := d.doneItems(step)
	if err != nil {
		d.err = err
		return
	}
	bits := make([]byte, (each.Count+7)/8)
	for n := range bits {
		bits[n] = 0xff
	}
	for _, index := range done {
		bits[index/8] &^= 1 << (index % 8)
	}
	*each = Each{Count: each.Count, Succeeded: len(done), Redo: bits}
}

// openItems lists the items of a step that are open, as this decision has left them so far: the reader knows those of the ones before.
func (d *Decision) openItems(step int) ([]int, error) {
	items, err := d.Reader.OpenItems(step)
	for _, e := range d.Effects {
		switch {
		case e.Step == step && e.Deed == DeedDrop:
			items = nil
		case e.Step != step || e.Index == NoIndex:
		case e.Deed == DeedBegin:
			items = append(items, e.Index)
		case e.Deed == DeedEnd:
			items = slices.DeleteFunc(items, func(index int) bool { return index == e.Index })
		}
	}
	return items, err
}

// doneItems lists the items of a step that succeeded, likewise.
func (d *Decision) doneItems(step int) ([]int, error) {
	items, err := d.Reader.DoneItems(step)
	for _, e := range d.Effects {
		switch {
		case e.Step == step && e.Deed == DeedDrop:
			items = nil
		case e.Deed == DeedEnd && e.Step == step && e.Index != NoIndex && e.Letter != Failed && e.Letter != Cancelled:
			items = append(items, e.Index)
		}
	}
	return items, err
}
