package search

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// idsOf returns a query for the IDs of jobs by one condition of a filter, with its parameters. It
// returns "" if the filter has no such condition.
type idsOf func(q Query) (ids string, args []any)

// jobIndexes has the indexes for a list of jobs. indexes has those for a list of processes. The
// last index in jobIndexes applies to all lists of jobs. jobIDs and processIDs are the queries that
// the indexes read first, in the same order.
var (
	processIDs = []idsOf{nil, idsByFingerprint, nil, nil}
	jobIDs     = []idsOf{
		nil, idsByFingerprint, idsByName, idsByState, idsByTag, idsByListStatus, nil, idsOfJobs,
	}
	jobIndexes = []func(s *statement, q Query) bool{
		byID, byIDs(idsByFingerprint), byIDs(idsByName), byIDs(idsByState), byIDs(idsByTag), byListStatus, byMetadata,
		byIDs(idsOfJobs),
	}
)

func (q Query) indexes() []func(s *statement, q Query) bool {
	if q.jobs {
		return jobIndexes
	}
	return indexes
}

func (q Query) ids(n int) idsOf {
	if q.jobs {
		return jobIDs[n]
	}
	return processIDs[n]
}

// byIDs returns an index function for the IDs that a query returns. It reads more IDs than a page
// takes from any index, which shows whether the list of IDs was cut.
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

// crowded reports whether an index must not be used, because the filter has no condition for it, or
// because it returns more IDs than a page takes from any index. Counting IDs takes 1 ms, but
// reading 2,000 jobs takes 20 ms.
func (l *list) crowded(ctx context.Context, tx pgx.Tx, n int) (bool, error) {
	of := l.query.ids(n)
	if of == nil {
		return false, nil
	}
	ids, args := of(l.query)
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
	ofName = `SELECT j.process_id FROM jobs j WHERE j.namespace COLLATE "POSIX" = $?::text
		AND j.name COLLATE "POSIX" = $?::text`
	ofTag = `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text AND j.tags @> jsonb_build_array($?::text)`
	// A process may have several failed tasks. LIMIT applies to tasks, so that a cut is noticed.
	ofFingerprint = `SELECT u.process_id FROM (
 (SELECT t.process_id FROM tasks t WHERE t.namespace COLLATE "POSIX" = $?::text AND t.status = 'ERROR'
   AND ` + taskFingerprint + ` = $?::text LIMIT 10000)
 UNION ALL (SELECT p.process_id FROM processes p WHERE p.namespace COLLATE "POSIX" = $?::text
   AND p.attention = 'ERROR' AND p.corrupted_by = 0 AND ` + importedFingerprint + ` = $?::text LIMIT 10000)) u`
	ofJobs = `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text`
	ofTime = `SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'time'
		AND s.job_name IS NOT NULL`
	// A RUNNING job has a running task or is a job of several workers. A job of several workers may
	// have a cancel request even if no worker runs it.
	ofRun = `SELECT u.process_id FROM (
 (SELECT r.process_id FROM running r WHERE r.namespace = $?::text AND r.task_type = 'INIT' LIMIT 10000)
 UNION ALL (SELECT g.process_id FROM job_groups g WHERE g.namespace = $?::text AND g.running_time IS NOT NULL
   LIMIT 10000)
 UNION ALL (SELECT c.process_id FROM processes c WHERE c.namespace = $?::text AND c.cancel_deadline IS NOT NULL
   AND c.removed_time IS NULL LIMIT 10000)) u`
	// AVAILABLE jobs wait for a worker, a constraint, an operator or the workers of their members.
	ofLines = `SELECT u.process_id FROM (
 (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'place'
   AND s.job_name IS NOT NULL LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text
   AND s.waits_for = 'constraint' LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'members'
   LIMIT 10000)
 UNION ALL (SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text
   AND o.attention = 'SUSPENDED' LIMIT 10000)) u`
	ofEnds = `SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text
		AND o.attention = ANY ($?::text[]::process_status[])`
)

// idsByFingerprint returns the query for processes whose tasks have failed with an error, and for
// processes that were imported with it.
func idsByFingerprint(q Query) (string, []any) {
	for _, n := range q.Filter.conjuncts() {
		if text, ok := textOf(fieldFingerprint)(n); ok {
			return ofFingerprint, []any{q.Namespace, text, q.Namespace, text}
		}
	}
	return "", nil
}

func idsByName(q Query) (string, []any) { return q.idsOfText(fieldJobName, equals, ofName) }
func idsByTag(q Query) (string, []any)  { return q.idsOfText(fieldJobTags, has, ofTag) }
func idsOfJobs(q Query) (string, []any) { return ofJobs, []any{q.Namespace} }

// idsOfText returns the query for one condition on a text.
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

// idsByState returns the query for jobs that have not ended, by the state of their tasks.
func idsByState(q Query) (string, []any) {
	for _, n := range q.Filter.conjuncts() {
		states := statesOf(n)
		in := func(all ...string) bool {
			return len(states) > 0 && !slices.ContainsFunc(states, func(state string) bool {
				return !slices.Contains(all, state)
			})
		}
		switch {
		case in("RUNNING", "CANCEL_REQUESTED"):
			return ofRun, []any{q.Namespace, q.Namespace, q.Namespace}
		case in("SCHEDULED", "RETRYABLE"):
			return ofTime, []any{q.Namespace}
		case in("AVAILABLE"):
			return ofLines, []any{q.Namespace, q.Namespace, q.Namespace, q.Namespace}
		}
	}
	return "", nil
}

// statesOf returns the states that a job can have if n holds. It returns nil if a final state is
// possible.
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
