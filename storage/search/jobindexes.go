package search

import "slices"

// jobIndexes are the indexes of a list of jobs, as those of processes are: the last one is of what all lists of jobs have.
var jobIndexes = []func(s *statement, q Query) bool{byID, byJobName, byJobState, byJobTag, byAttention, byMetadata, byJob}

func (q Query) indexes() []func(s *statement, q Query) bool {
	if q.jobs {
		return jobIndexes
	}
	return indexes
}

// The indexes of jobs are read into a list of ids, more of them than a page takes from any index: of a list that was cut, the scan in order
// makes the page.
const (
	idsOf  = ` AND p.process_id = ANY (ARRAY(`
	idsEnd = ` LIMIT 10000))`

	idsByName = idsOf + `SELECT j.process_id FROM jobs j WHERE j.namespace COLLATE "POSIX" = $?::text AND j.name COLLATE "POSIX" = $?::text` + idsEnd
	idsByTag  = idsOf + `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text AND j.tags @> jsonb_build_array($?::text)` + idsEnd
	idsOfJobs = idsOf + `SELECT j.process_id FROM jobs j WHERE j.namespace = $?::text` + idsEnd
	idsByTime = idsOf + `SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'time' AND s.job_name IS NOT NULL` + idsEnd
	// AVAILABLE is what waits for a worker, for a constraint, or for an operator.
	idsOfLines = idsOf + `(SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'place' AND s.job_name IS NOT NULL LIMIT 10000)
 UNION ALL (SELECT s.process_id FROM schedule s WHERE s.namespace COLLATE "POSIX" = $?::text AND s.waits_for = 'constraint' LIMIT 10000)
 UNION ALL (SELECT o.process_id FROM processes o WHERE o.namespace COLLATE "POSIX" = $?::text AND o.attention = 'SUSPENDED' LIMIT 10000)))`
	idsOfRun = idsOf + `SELECT r.process_id FROM running r WHERE r.namespace = $?::text AND r.task_type = 'INIT'` + idsEnd
)

func byJobName(s *statement, q Query) bool {
	return q.byJobs(s, fieldJobName, equals, idsByName)
}

func byJobTag(s *statement, q Query) bool {
	return q.byJobs(s, fieldJobTags, has, idsByTag)
}

// byJobs writes what one condition on a text finds by an index.
func (q Query) byJobs(s *statement, f *field, operator, ids string) bool {
	for _, n := range q.Filter.conjuncts() {
		if c, ok := n.(*comparison); ok && c.field == f && c.operator == operator && c.value.kind == isText {
			s.add(ofNamespace, q.Namespace)
			s.add(ids, q.Namespace, c.value.text)
			return true
		}
	}
	return false
}

// byJobState finds jobs that are not at their end by where their tasks stand.
func byJobState(s *statement, q Query) bool {
	for _, n := range q.Filter.conjuncts() {
		states := statesOf(n)
		in := func(all ...string) bool {
			return len(states) > 0 && !slices.ContainsFunc(states, func(state string) bool { return !slices.Contains(all, state) })
		}
		switch {
		case in("RUNNING", "CANCEL_REQUESTED"):
			s.add(ofNamespace, q.Namespace)
			s.add(idsOfRun, q.Namespace)
			return true
		case in("SCHEDULED", "RETRYABLE"):
			s.add(ofNamespace, q.Namespace)
			s.add(idsByTime, q.Namespace)
			return true
		case in("AVAILABLE"):
			s.add(ofNamespace, q.Namespace)
			s.add(idsOfLines, q.Namespace, q.Namespace, q.Namespace)
			return true
		}
	}
	return false
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

// byJob finds the jobs of a namespace that has few, among any number of processes.
func byJob(s *statement, q Query) bool {
	s.add(ofNamespace, q.Namespace)
	s.add(idsOfJobs, q.Namespace)
	return true
}
