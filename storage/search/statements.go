package search

import (
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// The layers of the statement of a list, from the outside in: the columns; the rows up to the one
// that exceeds the byte limit; their sizes; the rows that match or end the window; whether they
// match; the window, which is the only layer that reads the table.
const (
	columns = `SELECT p.namespace, p.process_id, p.status, p.previous_status, p.status_changed_time, p.attention,
       p.attention_time, p.detail, p.corrupted_by,
       p.last_event_id, p.kind, p.created_time, p.removed_time, p.aux_state, p.metadata,
       p.cancel_requested_time, p.cancel_reason, p.first_event_id, p.history_restarted_time, p.n, p.matches,
         p.total::bigint AS total
  FROM (SELECT p.*, sum(p.size) OVER (ORDER BY p.place ROWS UNBOUNDED PRECEDING) AS total
  FROM (SELECT p.*, row_number() OVER () AS place, CASE WHEN p.matches
         THEN coalesce(octet_length(p.aux_state), 0) + coalesce(octet_length(p.metadata::text), 0)
           + coalesce(octet_length(p.detail), 0) ELSE 0 END AS size
  FROM (SELECT p.*
  FROM (SELECT p.*, (p.removed_time IS NULL AND `
	// The same layers for a walk, which needs only the position. Its rows count no bytes.
	leanColumns = `SELECT p.process_id, p.status, p.attention_time, p.created_time, p.n, p.matches, p.total
  FROM (SELECT p.*, 0::bigint AS total
  FROM (SELECT p.*, row_number() OVER () AS place, 0::bigint AS size
  FROM (SELECT p.*
  FROM (SELECT p.*, (p.removed_time IS NULL AND `
	matchesEnd   = `) AS matches FROM (`
	windowEnd    = `) p) p WHERE p.matches OR p.n = $?::bigint ORDER BY `
	pageEnd      = ` LIMIT $?::bigint) p) p) p WHERE p.total - p.size <= $?::bigint ORDER BY p.place`
	scanWindow   = `SELECT p.*, row_number() OVER (ORDER BY `
	rowsNumbered = `) AS n FROM (SELECT p.*, `
	scanID       = ` AS at, p.process_id COLLATE "POSIX" AS list_id FROM processes p WHERE `
	scanPlainID  = ` AS at, p.process_id AS list_id FROM processes p WHERE `
	candidates   = `SELECT p.*, row_number() OVER () AS n FROM (SELECT p.*, `
)

// scanStatement reads a window of rows after a position. The planner must know the size of the
// window, because it determines the index to use.
func scanStatement(columns string, q Query, o *order, from position, window, room int, bytes int64) *statement {
	s := &statement{}
	s.add(columns)
	s.filter(q.Filter)
	s.add(matchesEnd)
	s.add(scanWindow)
	s.add(o.listed)
	s.add(rowsNumbered)
	s.add(o.at)
	if o.field == fieldProcessID {
		s.add(scanPlainID)
	} else {
		s.add(scanID)
	}
	if status := q.Filter.listStatus(); o.hasIndexOf(status) {
		s.add(ofNamespaceX, q.Namespace)
		s.add(ofListStatus[process.Status(status)])
	} else {
		s.add(o.from, q.Namespace)
	}
	s.add(" AND ")
	s.add(o.behind, from.at, from.id)
	o.bounds(s, q.Filter)
	s.add(" ORDER BY ")
	s.add(o.by)
	s.add(" LIMIT $?::bigint) p", window)
	s.add(windowEnd, window)
	s.add(o.listed)
	s.add(pageEnd, room+1, bytes)
	return s
}

func (s *statement) filter(f Filter) {
	if f.root == nil {
		s.add("true")
		return
	}
	f.root.compile(s)
}

// indexes contains functions that write a query for a filter with an index other than that of the
// list. Each returns false if the filter has no condition for its index. The cheapest index comes
// first. The index of metadata comes last, because it does not contain namespaces, and is read
// completely before it returns its first row.
var indexes = []func(s *statement, q Query) bool{byID, byIDs(idsByFingerprint), byListStatus, byMetadata}

func byID(s *statement, q Query) bool {
	for _, n := range q.Filter.conjuncts() {
		c, ok := n.(*comparison)
		if !ok || c.field != fieldProcessID || c.operator != equals {
			continue
		}
		s.add(ofNamespace, q.Namespace)
		if c.value.kind == isPrefix {
			orders[OrderID].prefix(s, c.value.text)
		} else {
			s.add(" AND p.process_id = $?::text", c.value.text)
		}
		return true
	}
	return false
}

func byListStatus(s *statement, q Query) bool {
	for _, n := range q.Filter.conjuncts() {
		if statuses := listStatus(n); statuses != nil {
			s.add(ofNamespaceX, q.Namespace)
			// These are constants, for which the planner can estimate the number of rows. It would
			// not use the index for parameters.
			s.add(" AND p.attention IN ('" + strings.Join(statuses, "', '") + "')")
			return true
		}
	}
	return false
}

func byMetadata(s *statement, q Query) bool {
	some := false
	for _, n := range q.Filter.conjuncts() {
		if !contained(nil, n) {
			continue
		}
		if some {
			s.add(" AND ")
		}
		some = true
		s.add("(")
		contained(s, n)
		s.add(")")
	}
	return some
}

// candidateStatement reads the first rows that an index returns, and sorts those that match in the
// order of the list. It returns nil if the filter has no condition for the index.
func candidateStatement(
	columns string, q Query, o *order, from position, index func(*statement, Query) bool, room int, r reach,
) *statement {
	s := &statement{}
	s.add(columns)
	s.filter(q.Filter)
	s.add(" AND p.namespace = $?::text AND ", q.Namespace)
	s.add(o.after, from.at, from.id)
	if o.field == fieldStatusChanged {
		s.add(" AND p.attention = $?::text::process_status", q.Filter.listStatus())
	}
	s.add(matchesEnd)
	s.add(candidates)
	s.add(o.at)
	if o.field == fieldProcessID {
		s.add(scanPlainID)
	} else {
		s.add(scanID)
	}
	if !index(s, q) {
		return nil
	}
	s.add(" LIMIT $?::bigint) p", r.candidates)
	s.add(windowEnd, r.candidates)
	s.add("(p.n = $?::bigint) DESC, ", r.candidates)
	s.add(o.listed)
	s.add(pageEnd, room+2, r.bytes)
	return s
}
