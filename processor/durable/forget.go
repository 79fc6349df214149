package durable

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// beginOrder maps each operation to its place in the order in which a run of the function began
// them. It is nil before the first repair by step, because the entries of the journal then have
// this order.
type beginOrder map[entryKey]int

// place returns the place of an operation. Operations that the function has not begun come last.
func (o beginOrder) place(kind, name string) int {
	if place, ok := o[entryKey{operationKind(kind), name}]; ok {
		return place
	}
	return len(o)
}

// forgetting marks the entries that no longer count after a repair by step.
type forgetting struct {
	*journal
	order  beginOrder
	marked map[int]bool
}

// currentOrder runs the function with the stored journal, and returns the order of its operations.
// If the function fails, the operations after the failure are missing.
func (t *task) currentOrder() (beginOrder, error) {
	if !t.journal.repaired {
		return nil, nil
	}
	j, err := readJournal(t.request.GetProcess())
	if err != nil {
		return nil, err
	}
	r := newRun(t.ctx, t.program, t.request, j)
	r.quiet = true // the repair runs the function again
	defer r.close()
	_ = r.advance()
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.order), t.ctx.Err()
}

// toForget returns the indexes of the entries that a repair forgets, in order.
func (j *journal) toForget(r *stepRepair, order beginOrder) ([]int, error) {
	f := &forgetting{j, order, map[int]bool{}}
	for _, name := range r.Rewind {
		at, err := j.rewindTo(name)
		if err != nil {
			return nil, fmt.Errorf("%s.rewind: %w", repairField, err)
		}
		f.rewind(at)
	}
	if failed, ok := j.position(kindFail, j.start().Name); ok {
		f.revive(failed)
	}
	for at, e := range j.entries {
		if e.Kind == kindStep && !f.marked[at] && r.names(e.Name) {
			if e.Error == nil && !e.Skipped && slices.Contains(r.Skip, e.Name) {
				return nil, fmt.Errorf("%s.skip: step %s has completed and cannot be skipped: "+
					"set its value, or rewind it", repairField, e.Name)
			}
			f.marked[at] = true
		}
	}
	for at, e := range j.entries { // a step that runs again must be undone again
		if step, ok := j.position(kindStep, e.Name); e.Kind == kindUndo && ok && f.marked[step] {
			f.marked[at] = true
		}
	}
	var all []int
	for at := range j.entries {
		if f.marked[at] {
			all = append(all, at)
		}
	}
	return all, nil
}

// rewindable are the kinds of operations to which a function can be rewound.
var rewindable = []string{kindStep, kindValue, kindTimer, kindChild, kindFirst}

// operationKind returns the kind of the operation that an entry is about: a try is about a step.
func operationKind(kind string) string {
	if kind == kindTry {
		return kindStep
	}
	return kind
}

// rewindTo returns the index of the first entry of the operation that a name of a repair means.
// KIND:NAME means the operation of this kind. Another name means the step with this name. If there
// is no such step, it means the only other operation with this name.
func (j *journal) rewindTo(text string) (int, error) {
	kind, name, exact := strings.Cut(text, ":")
	if kind = operationKind(kind); !exact {
		kind, name = kindStep, text
	} else if !slices.Contains(rewindable, kind) {
		return 0, fmt.Errorf("%s: the kind must be step, value, timer, child or first", text)
	}
	first := map[string]int{} // by kind
	var found, similar []string
	for at, e := range j.entries {
		of := operationKind(e.Kind)
		if !slices.Contains(rewindable, of) || exact && of != kind {
			continue
		}
		similar = append(similar, e.Name)
		if _, ok := first[of]; !ok && e.Name == name {
			first[of] = at
			found = append(found, of)
		}
	}
	at, ok := first[kind]
	switch {
	case ok:
		return at, nil
	case len(found) == 1:
		return first[found[0]], nil
	case len(found) > 1:
		return 0, fmt.Errorf("the journal has several entries %s: name one of them as %s:%s", name,
			strings.Join(found, ":"+name+" or "), name)
	case exact:
		return 0, fmt.Errorf("the journal has no %s %s to rewind to: %s", kind, name, nearest(name, similar))
	default:
		return 0, fmt.Errorf("the journal has no entry %s to rewind to: %s", name, nearest(name, similar))
	}
}

// rewind marks an entry and everything that the function did after it, except calls. Entries about
// what happened to a timer or child, such as its end, are marked only with the timer or child.
func (f *forgetting) rewind(at int) {
	scope := scopeOf(f.entries[at].Name)
	for i, e := range f.entries {
		switch e.Kind {
		case kindStep, kindTry, kindValue, kindTimer, kindChild, kindFirst: // see rewindable
			f.mark(i, f.place(i) >= f.place(at) && !areSiblings(scope, scopeOf(e.Name)))
		case kindFired, kindStopped:
			f.markWith(i, kindTimer)
		case kindEnded, kindCancel:
			f.markWith(i, kindChild)
		case kindFail, kindEnd:
			f.marked[i] = true
		}
	}
}

// place returns a number by which entries are ordered: by the place of their operation, then by
// their position in the journal.
func (f *forgetting) place(at int) int {
	return f.order.place(f.entries[at].Kind, f.entries[at].Name)*len(f.entries) + at
}

// markWith marks an entry if the entry with the same name and the given kind is marked.
func (f *forgetting) markWith(at int, kind string) {
	if of, ok := f.position(kind, f.entries[at].Name); ok && f.marked[of] {
		f.marked[at] = true
	}
}

// revive marks the failure of a function, and what the function did because of it. Steps that were
// undone, and children that were cancelled, run again.
func (f *forgetting) revive(failed int) {
	f.marked[failed] = true
	reverted := map[entryKey]bool{}
	for _, e := range f.entries[failed:] {
		switch e.Kind {
		case kindUndo:
			reverted[entryKey{kindStep, e.Name}] = true
		case kindCancel:
			end, ok := f.find(kindEnded, e.Name)
			reverted[entryKey{kindChild, e.Name}] = !ok || end.Error != nil && end.Error.Reason == ReasonChildCancelled
		}
	}
	for at, e := range f.entries {
		switch e.Kind {
		case kindStep, kindTry, kindUndo:
			f.mark(at, reverted[entryKey{kindStep, e.Name}])
		case kindChild, kindEnded, kindCancel:
			f.mark(at, reverted[entryKey{kindChild, e.Name}])
		}
	}
}

// mark marks an entry if the condition is true.
func (f *forgetting) mark(at int, condition bool) {
	if condition {
		f.marked[at] = true
	}
}

// scopeOf returns the scope of a full name, such as "parcel[1]/".
func scopeOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// areSiblings reports whether two scopes are in different branches of the same Each. Events in one
// of them do not depend on the other.
func areSiblings(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i] != "" && bs[i] != "" && eachOf(as[i]) == eachOf(bs[i])
		}
	}
	return false
}

// eachOf returns the name of the Each of a branch such as "parcel[1]".
func eachOf(branch string) string { return branch[:max(0, strings.LastIndexByte(branch, '['))] }
