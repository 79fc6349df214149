package search

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// Cursor is the position in a walk after a process. Both fields are constant while the process
// exists. The zero value is before all processes.
type Cursor struct {
	CreatedTime time.Time `json:"created_time"`
	ProcessID   string    `json:"process_id"`
}

// Step is a process that a walk has found, with its status at that time. Its cursor is the position
// after it.
type Step struct {
	Cursor
	Status process.Status
}

// Walk returns the next processes of a namespace that match a filter, oldest first, at most limit
// and MaxPageSize. A walk returns a process once if the process matches when the walk reaches it.
// The process may have changed since. Changes to processes that the walk has passed do not affect
// it. One call may return fewer processes than requested, or none, and still report more. The walk
// then continues at next. Walk reads no states, and metadata only if the filter names it.
func Walk(
	ctx context.Context, store *storage.Store, namespace string, filter Filter, from Cursor, limit int,
) (found []Step, next Cursor, more bool, err error) {
	l := &list{
		query: Query{Namespace: namespace, Filter: filter}, order: orders[OrderOldest], reach: usual,
		size: min(limit, MaxPageSize),
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

// Only returns a filter that matches only the process of a cursor, if f matches it. It does not
// match a later process with the same ID.
func (f Filter) Only(c Cursor) Filter {
	return f.And(Filter{allOf{
		&comparison{field: fieldProcessID, operator: equals, value: value{kind: isText, text: c.ProcessID}},
		&comparison{field: fieldCreated, operator: equals, value: value{kind: isTime, time: c.CreatedTime}},
	}})
}

// OfUsers matches the processes of users: neither jobs nor the engine's own processes, whose IDs
// begin with ~, such as runs, crons and bulks.
var OfUsers = Filter{allOf{
	&comparison{field: fieldKind, operator: equals, value: value{kind: isText}},
	not{&comparison{field: fieldProcessID, operator: equals, value: value{kind: isPrefix, text: "~"}}},
}}

// And returns a filter that matches if both match.
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
