package search

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Cursor is a place in a walk: behind this process. Neither of its parts changes while a process lives. The zero value is before all.
type Cursor struct {
	CreatedTime time.Time `json:"created_time"`
	ProcessID   string    `json:"process_id"`
}

// Step is a process that a walk has found, as it was then. Its cursor is the place behind it.
type Step struct {
	Cursor
	Status process.Status
}

// Walk finds the next processes of a namespace that match, at most limit (and MaxPageSize), the oldest first. A walk meets every process
// once that matches when it comes to it: it may have changed since, and what changes behind the walk shifts nothing. One step may find
// fewer processes than asked for, or none, and still say more: then the walk goes on behind next. It reads no states and no metadata but
// those that the filter names.
func Walk(ctx context.Context, store *storage.Store, namespace string, filter Filter, from Cursor, limit int) (found []Step, next Cursor, more bool, err error) {
	l := &list{
		query: Query{Namespace: namespace, Filter: filter}, order: orders[OrderOldest], reach: usual, size: min(limit, MaxPageSize),
		lean: true,
	}
	l.last = l.order.start(filter, position{from.CreatedTime, from.ProcessID})
	if err := store.Search(ctx, "walk processes", l.read); err != nil {
		return nil, from, false, err
	}
	found = make([]Step, len(l.found))
	for n := range l.found {
		p := &l.found[n]
		found[n] = Step{Cursor{p.CreatedTime, p.ProcessID}, p.Status}
	}
	return found, Cursor{l.last.at, l.last.id}, l.more, nil
}

// Only is a filter that holds for one process where f does: that of a step, as long as it lives, and not another one under its id.
func (f Filter) Only(c Cursor) Filter {
	return f.And(Filter{allOf{
		&comparison{field: fieldProcessID, operator: equals, value: value{kind: isText, text: c.ProcessID}},
		&comparison{field: fieldCreated, operator: equals, value: value{kind: isTime, time: c.CreatedTime}},
	}})
}

// And is a filter that holds where both do.
func (f Filter) And(g Filter) Filter {
	all := append(allOf{}, f.conjuncts()...)
	all = append(all, g.conjuncts()...)
	switch len(all) {
	case 0:
		return Filter{}
	case 1:
		return Filter{all[0]}
	}
	return Filter{all}
}
