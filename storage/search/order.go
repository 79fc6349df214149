package search

import (
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// The orders of a list.
const (
	OrderCreated      = "created_time desc" // the default
	OrderOldest       = "created_time"
	OrderID           = "process_id"
	OrderIDDescending = "process_id desc"
	// OrderStatusChanged requires a filter on one status that is neither INIT nor RUNNING.
	OrderStatusChanged = "status_changed_time desc"
)

// order is an order in SQL. Lists are read with an index from a key onwards, so the cost of a page
// does not depend on the number of pages before it. The indexes of lists have the collation POSIX,
// which statements must name (see migrations/00108_processes.sql).
type order struct {
	from    string // condition for the rows of a namespace that an index covers
	at      string // the time in the key
	behind  string // condition for rows of the index after a time and an ID
	by      string // the order of the index
	after   string // like behind, for the rows of a list, which have at and list_id
	listed  string // like by, for the rows of a list
	field   *field // the field that a filter may bound
	column  string // its column
	upwards bool
}

const (
	ofNamespace   = `p.namespace = $?::text`
	ofNamespaceX  = `p.namespace COLLATE "POSIX" = $?::text`
	beforeKey     = `(p.at, p.list_id) < ($?::timestamptz, $?::text)`
	afterKey      = `(p.at, p.list_id) > ($?::timestamptz, $?::text)`
	listedDown    = `p.at DESC, p.list_id DESC`
	listedUp      = `p.at, p.list_id`
	postgresEpoch = `'epoch'::timestamptz` // if the key is only the ID
)

var orders = map[string]*order{
	OrderCreated: {
		from: ofNamespaceX, at: `p.created_time`, field: fieldCreated, column: `p.created_time`,
		behind: `(p.created_time, p.process_id COLLATE "POSIX") < ($?::timestamptz, $?::text)`, after: beforeKey,
		by: `p.created_time DESC, p.process_id COLLATE "POSIX" DESC`, listed: listedDown,
	},
	OrderOldest: {
		from: ofNamespaceX, at: `p.created_time`, field: fieldCreated, column: `p.created_time`, upwards: true,
		behind: `(p.created_time, p.process_id COLLATE "POSIX") > ($?::timestamptz, $?::text)`, after: afterKey,
		by: `p.created_time, p.process_id COLLATE "POSIX"`, listed: listedUp,
	},
	OrderID: {
		from: ofNamespace, at: postgresEpoch, field: fieldProcessID, column: `p.process_id`, upwards: true,
		behind: `($?::timestamptz IS NOT NULL AND p.process_id > $?::text)`,
		after:  `($?::timestamptz IS NOT NULL AND p.list_id > $?::text)`,
		by:     `p.process_id`, listed: `p.list_id`,
	},
	OrderIDDescending: {
		from: ofNamespace, at: postgresEpoch, field: fieldProcessID, column: `p.process_id`,
		behind: `($?::timestamptz IS NOT NULL AND p.process_id < $?::text)`,
		after:  `($?::timestamptz IS NOT NULL AND p.list_id < $?::text)`,
		by:     `p.process_id DESC`, listed: `p.list_id DESC`,
	},
	OrderStatusChanged: {
		from: ofNamespaceX, at: `p.attention_time`, field: fieldStatusChanged, column: `p.attention_time`,
		behind: `(p.attention_time, p.process_id COLLATE "POSIX") < ($?::timestamptz, $?::text)`, after: beforeKey,
		by: `p.attention_time DESC, p.process_id COLLATE "POSIX" DESC`, listed: listedDown,
	},
}

// ofListStatus has the conditions for one status. They are constants, because the planner must see
// that the index processes_by_status_created contains the status.
var ofListStatus = map[process.Status]string{
	process.StatusError: ` AND p.attention = 'ERROR'`, process.StatusSuspended: ` AND p.attention = 'SUSPENDED'`,
	process.StatusCompleted: ` AND p.attention = 'COMPLETED'`,
	process.StatusCancelled: ` AND p.attention = 'CANCELLED'`,
}

// hasIndexOf reports whether an index has the processes of one status in this order. The index of
// statuses by creation does not contain COMPLETED processes: see 00148_list_indexes.sql.
func (o *order) hasIndexOf(status string) bool {
	switch o.field {
	case fieldStatusChanged:
		return status != ""
	case fieldCreated:
		return status != "" && status != string(process.StatusCompleted)
	}
	return false
}

// orderName returns order_by in lower case, with single spaces, and without a final asc.
func orderName(text string) string {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 2 && words[1] == "asc" {
		words = words[:1]
	}
	return strings.Join(words, " ")
}

// orderOf parses order_by: a field, optionally with asc or desc.
func orderOf(text string, f Filter) (string, error) {
	name := orderName(text)
	switch {
	case name == "":
		return OrderCreated, nil
	case name == OrderStatusChanged && f.listStatus() == "":
		return "", &process.InvalidError{Field: "order_by",
			Message: "status_changed_time desc needs a filter on one status that is neither INIT nor RUNNING, as in " +
				"status = ERROR"}
	case orders[name] == nil:
		return "", &process.InvalidError{Field: "order_by",
			Message: "want " + OrderCreated + ", " + OrderOldest + ", " + OrderID + ", " +
				OrderIDDescending + " or, with a filter such as status = ERROR, " + OrderStatusChanged}
	}
	return name, nil
}

// position is a position in a list: the key of the last row that was read.
type position struct {
	at time.Time
	id string
}

// begin returns the position before all rows of a list.
func (o *order) begin() position {
	if o.upwards {
		return position{}
	}
	return position{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), "\U0010FFFF"}
}

// positionOf returns the position after which a page begins: the position in a page token, or the
// beginning of the list. It is not before the range in the filter.
func (o *order) positionOf(pageToken string, q Query, order string) (from position, err error) {
	from = o.begin()
	if pageToken != "" {
		if from, err = parseToken(pageToken, q, order); err != nil {
			return from, err
		}
	}
	return o.start(q.Filter, from), nil
}

// start returns the later of a position and the start of the range in the filter. A scan needs a
// single start. With two bounds, it begins at one of them, and reads and discards the rows up to
// the other (500,000 keys, 30 ms, for an hour in the middle of a million).
func (o *order) start(f Filter, from position) position {
	if o.field == fieldProcessID {
		return from // for keys with one column, PostgreSQL uses the narrowest bound
	}
	for _, c := range o.limits(f) {
		if !o.isStart(c) {
			continue
		}
		// No ID is empty, so ("t", "") is before all of t. PostgreSQL has microseconds.
		at := c.value.time.Truncate(time.Microsecond)
		if c.operator == more || (!o.upwards && c.operator != less) {
			at = at.Add(time.Microsecond)
		}
		if at.After(from.at) == o.upwards && !at.Equal(from.at) {
			from = position{at, ""}
		}
	}
	return from
}

// limits returns the conditions of the filter on the field of the order.
func (o *order) limits(f Filter) (list []*comparison) {
	for _, n := range f.conjuncts() {
		if c, ok := n.(*comparison); ok && c.field == o.field && c.operator != differs {
			list = append(list, c)
		}
	}
	return list
}

// isStart reports whether a condition bounds the start of the list.
func (o *order) isStart(c *comparison) bool {
	if o.upwards {
		return c.operator == more || c.operator == moreEqual || c.operator == equals
	}
	return c.operator == less || c.operator == lessEqual || c.operator == equals
}

// bounds writes the conditions of the filter on the field of the order, so that the index scan ends
// at these bounds. Without these conditions, a list of an old day would also read all later days.
// start handles the start of the list.
func (o *order) bounds(s *statement, f Filter) {
	for _, c := range o.limits(f) {
		switch {
		case c.value.kind == isPrefix:
			o.prefix(s, c.value.text)
			continue
		case o.field != fieldProcessID && c.operator != equals && o.isStart(c):
			continue
		}
		s.add(" AND ")
		s.add(o.column)
		s.add(" ")
		s.add(c.operator) // one of operators
		s.add(boundTypes[o.field], c.value.argument())
	}
}

var boundTypes = map[*field]string{
	fieldCreated: " $?::timestamptz", fieldRunCreated: " $?::timestamptz", fieldDue: " $?::timestamptz",
	fieldStatusChanged: " $?::timestamptz", fieldProcessID: " $?::text",
}

func (o *order) prefix(s *statement, prefix string) {
	s.add(" AND p.process_id >= $?::text", prefix)
	if end := successor(prefix); end != "" {
		s.add(" AND p.process_id < $?::text", end)
	}
}
