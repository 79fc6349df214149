package search

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// An index of jobs gives the ids of jobs by one condition of a filter, as SQL and its parameters; "": the filter has nothing for it.
type idsOf func(q Query) (ids string, args []any)

// jobIndexes are the indexes of a list of jobs, as those of processes are; the last one is of what all lists of jobs have. jobIDs are what each
// of them reads first, in the same order.
var (
	jobIDs     = []idsOf{nil, idsByName, idsByState, idsByTag, idsByListStatus, nil, idsOfJobs}
	jobIndexes = []func(s *statement, q Query) bool{byID, byIDs(idsByName), byIDs(idsByState), byIDs(idsByTag), byListStatus, byMetadata, byIDs(idsOfJobs)}
)

func (q Query) indexes() []func(s *statement, q Query) bool {
	if q.jobs {
		return jobIndexes
	}
	return indexes
}

// byIDs writes what an index of jobs finds: more than a page takes from any index, so that it shows where the list of ids was cut.
func byIDs(of idsOf) func(s *statement, q Query) bool {
	return func(s *statement, q Query) bool {
		ids, args := of(q)
		if ids == "" {
			return false
		}
		s.add(ofNamespace, q.Namespace)
		s.add(" AND p.process_id = ANY (ARRAY(")
		s.add(ids, args...)
		s.add(" LIMIT 10000))")
		return true
	}
}

// crowded tells whether an index of jobs gives more than a page takes from any: to count ids takes a millisecond, to look at 2,000 jobs twenty.
func (l *list) crowded(ctx context.Context, tx pgx.Tx, n int) (bool, error) {
	if !l.query.jobs || jobIDs[n] == nil {
		return false, nil
	}
	ids, args := jobIDs[n](l.query)
	if ids == "" {
		return true, nil
	}
	s := &statement{}
	s.add("SELECT count(*) FROM (")
	s.add(ids, args...)
	s.add(" LIMIT $?::bigint) x", l.reach.candidates)
	var count int
	err := tx.QueryRow(ctx, s.text.String(), append([]any{pgx.QueryExecModeDescribeExec}, s.args...)...).Scan(&count)
	return count >= l.reach.candidates, err
}

const (
	ofName = `SELECT j.process_id FROM jobs j WHERE j.namespace COLLATE "POSIX" = $?::text AND j.name COLLATE "POSIX" = $?::text`
	ofTag  = `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text AND j.tags @> jsonb_build_array($?::text)`
	ofJobs = `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text`
	ofTime = `SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'time' AND s.job_name IS NOT NULL`
	// RUNNING is what runs, and what several workers run, held by an operator or not.
	ofRun = `SELECT u.process_id FROM (
 (SELECT r.process_id FROM running r WHERE r.namespace = $?::text AND r.task_type = 'INIT' LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'members' LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND (s.waits_for = 'place')::int = 1 AND s.taker = '~' LIMIT 10000)
 UNION ALL (SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text AND o.attention = 'SUSPENDED' LIMIT 10000)) u`
	// AVAILABLE is what waits for a worker, for a constraint, or for an operator.
	ofLines = `SELECT u.process_id FROM (
 (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'place' AND s.job_name IS NOT NULL LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'constraint' LIMIT 10000)
 UNION ALL (SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text AND o.attention = 'SUSPENDED' LIMIT 10000)) u`
	ofEnds = `SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text AND o.attention = ANY ($?::text[]::process_status[])`
)

func idsByName(q Query) (string, []any) { return q.idsOfText(fieldJobName, equals, ofName) }
func idsByTag(q Query) (string, []any)  { return q.idsOfText(fieldJobTags, has, ofTag) }
func idsOfJobs(q Query) (string, []any) { return ofJobs, []any{q.Namespace} }

// idsOfText are those of one condition on a text.
func (q Query) idsOfText(f *field, operator, ids string) (string, []any) {
	for _, n := range q.Filter.conjuncts() {
		if c, ok := n.(*comparison); ok && c.field == f && c.operator == operator && c.value.kind == isText {
			return ids, []any{q.Namespace, c.value.text}
		}
	}
	return "", nil
}

func idsByListStatus(q Query) (string, []any) {
	for _, n := range q.Filter.conjuncts() {
		if statuses := listStatus(n); statuses != nil {
			return ofEnds, []any{q.Namespace, statuses}
		}
	}
	return "", nil
}

// idsByState are those of jobs that are not at their end, by where their tasks stand.
func idsByState(q Query) (string, []any) {
	for _, n := range q.Filter.conjuncts() {
		states := statesOf(n)
		in := func(all ...string) bool {
			return len(states) > 0 && !slices.ContainsFunc(states, func(state string) bool { return !slices.Contains(all, state) })
		}
		switch {
		case in("RUNNING", "CANCEL_REQUESTED"):
			return ofRun, []any{q.Namespace, q.Namespace, q.Namespace, q.Namespace}
		case in("SCHEDULED", "RETRYABLE"):
			return ofTime, []any{q.Namespace}
		case in("AVAILABLE"):
			return ofLines, []any{q.Namespace, q.Namespace, q.Namespace}
		}
	}
	return "", nil
}

// statesOf is the states, none of them an end, of which a job has one if n holds; nil: it may have another.
func statesOf(n node) []string {
	switch n := n.(type) {
	case *comparison:
		if n.field == fieldJobState && n.operator == equals {
			return []string{n.value.text}
		}
	case anyOf:
		var all []string
		for _, part := range n {
			one := statesOf(part)
			if one == nil {
				return nil
			}
			all = append(all, one...)
		}
		return all
	}
	return nil
}
