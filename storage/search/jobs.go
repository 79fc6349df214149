package search

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// The conditions on jobs, of a row p of processes. Each reads one row by its key, so that its cost
// depends only on the rows that a page reads. They are scalar subqueries, because PostgreSQL may
// plan EXISTS as a hash of the whole table.
const (
	ofJob = " j WHERE j.namespace = p.namespace AND j.process_id = p.process_id LIMIT 1)"

	// jobState is the state of a job that has not ended, like wire.JobState.
	jobState = `(p.status NOT IN ('COMPLETED', 'ERROR', 'CANCELLED') AND coalesce(
  (SELECT CASE WHEN p.cancel_deadline IS NULL THEN 'RUNNING' ELSE 'CANCEL_REQUESTED' END FROM running r
    WHERE r.namespace = p.namespace AND r.process_id = p.process_id AND r.task_type = 'INIT' LIMIT 1),
  (SELECT CASE WHEN s.taker = '~' AND s.attempt > 0 AND p.cancel_deadline IS NOT NULL THEN 'CANCEL_REQUESTED'
       WHEN (SELECT g.running_time FROM job_groups g WHERE s.taker = '~' AND g.namespace = s.namespace
         AND g.process_id = s.process_id) IS NOT NULL THEN 'RUNNING'
       WHEN s.waits_for <> 'time' THEN 'AVAILABLE' WHEN s.attempt > 0 THEN 'RETRYABLE' ELSE 'SCHEDULED' END
       FROM schedule s
    WHERE s.namespace = p.namespace AND s.process_id = p.process_id AND s.task_type = 'INIT'
      LIMIT 1), 'AVAILABLE') = $?::text)`

	// ofTask is a column of the INIT task of a job, from the table that has the task.
	ofTask = `coalesce(
  (SELECT r.COLUMN FROM running r WHERE r.namespace = p.namespace AND r.process_id = p.process_id
    AND r.task_type = 'INIT' LIMIT 1),
  (SELECT s.COLUMN FROM schedule s WHERE s.namespace = p.namespace AND s.process_id = p.process_id
    AND s.task_type = 'INIT' LIMIT 1),
  (SELECT t.COLUMN FROM tasks t WHERE t.namespace = p.namespace AND t.process_id = p.process_id AND t.task_type = 'INIT'
    ORDER BY t.namespace DESC, t.process_id DESC, t.task_id DESC LIMIT 1))`

	// jobWorker is the worker of a job, or NULL, as in GetJobs: the worker that has the lease, the
	// one whose result ended the job, or the one of the last attempt.
	jobWorker = `coalesce(
  (SELECT l.worker_id FROM running r JOIN leases l ON l.namespace = r.namespace AND l.process_id = r.process_id
      AND l.fencing_token = r.fencing_token
    WHERE r.namespace = p.namespace AND r.process_id = p.process_id AND r.task_type = 'INIT' LIMIT 1),
  (SELECT t.worker_id FROM tasks t WHERE p.status IN ('COMPLETED', 'ERROR', 'CANCELLED') AND t.namespace = p.namespace
    AND t.process_id = p.process_id AND t.task_type = 'INIT'
    ORDER BY t.namespace DESC, t.process_id DESC, t.task_id DESC LIMIT 1),
  (SELECT j.worker_id FROM jobs` + ofJob + ")"
)

// The fields of jobs, of a row p of processes. Only sift supports args.
var (
	// fieldJobID is replaced by fieldProcessID: see check.
	fieldJobID    = &field{name: "job_id", compare: fieldProcessID.compare, prefix: fieldProcessID.prefix}
	fieldJobState = &field{name: "state", values: isState, compare: map[string]string{equals: jobState}}
	fieldJobName  = &field{
		name:    "name",
		compare: map[string]string{equals: "coalesce((SELECT j.name = $?::text FROM jobs" + ofJob + ", false)"},
		prefix:  "coalesce((SELECT starts_with(j.name, $?::text) FROM jobs" + ofJob + ", false)",
	}
	fieldJobTags = &field{
		name: "tags",
		compare: map[string]string{
			has: "coalesce((SELECT j.tags @> jsonb_build_array($?::text) FROM jobs" + ofJob + ", false)",
		},
		there: "coalesce((SELECT j.tags IS NOT NULL FROM jobs" + ofJob + ", false)",
	}
	fieldPriority = &field{
		name: "priority", values: isInteger,
		compare: inOrder("(coalesce("+strings.ReplaceAll(ofTask, "COLUMN", "priority")+", 0)", "$?::bigint)"),
	}
	fieldJobWorker = &field{
		name:    "worker_id",
		compare: map[string]string{equals: "coalesce(" + jobWorker + " = $?::text, false)"},
		prefix:  "coalesce(starts_with(" + jobWorker + ", $?::text), false)",
	}
	fieldArgs = documentField("args", "p.args")
)

var jobTable = &table{
	fields: []*field{
		fieldJobID, fieldJobState, fieldJobName, fieldPriority, fieldJobTags, fieldJobWorker, fieldCreated,
		fieldReason, fieldFingerprint, fieldMetadata, fieldArgs,
	},
	example: "state = FAILED", text: "name = ",
}

// ended maps the final states of a job to the statuses of its process.
var ended = map[string]process.Status{
	"SUCCEEDED": process.StatusCompleted, "FAILED": process.StatusError, "CANCELLED": process.StatusCancelled,
}

var jobStates = []string{
	"SCHEDULED", "AVAILABLE", "RUNNING", "RETRYABLE", "CANCEL_REQUESTED", "SUCCEEDED", "FAILED", "CANCELLED",
}

// state checks a comparison with a state. If a process status corresponds to the state, it compares
// the status.
func (p *parser) state(r restriction) (node, error) {
	l := r.literal
	name := strings.TrimPrefix(strings.ToUpper(l.text), "JOB_STATE_")
	if !slices.Contains(jobStates, name) || l.stars > 0 {
		return nil, p.errorf(l.at, "%q is not a state: use one of %s", clip(l.text), strings.Join(jobStates, ", "))
	}
	c := &comparison{field: fieldJobState, operator: r.operator, value: value{kind: isText, text: name}}
	if status, is := ended[name]; is {
		c = &comparison{field: fieldStatus, operator: r.operator, value: value{kind: isStatus, status: status}}
	}
	return c, nil
}

// onlyJobs matches only jobs.
var onlyJobs = Filter{
	&comparison{field: fieldKind, operator: equals, value: value{kind: isText, text: process.JobKind}},
}

// The orders of a list of jobs by their names in the API.
var jobOrders = map[string]string{
	"": OrderCreated, OrderCreated: OrderCreated, OrderOldest: OrderOldest, "job_id": OrderID,
	"job_id desc":        OrderIDDescending,
	"finished_time desc": OrderStatusChanged,
}

func jobOrder(text string, f Filter) (string, error) {
	order, known := jobOrders[orderName(text)]
	switch {
	case !known:
		return "", &process.InvalidError{Field: "order_by",
			Message: "must be created_time desc, created_time, job_id, job_id desc or, with a filter such as " +
				"state = FAILED, finished_time desc"}
	case order == OrderStatusChanged && f.listStatus() == "":
		return "", &process.InvalidError{Field: "order_by",
			Message: "finished_time desc needs a filter on one of the states SUCCEEDED, FAILED and CANCELLED, as in " +
				"state = FAILED"}
	}
	return order, nil
}

// ParseJobs parses a filter of ListJobs.
func ParseJobs(text string) (Filter, error) { return parse(text, jobTable) }

// JobQuery selects a page of a list of jobs.
type JobQuery struct {
	Namespace string
	Filter    string // over the fields of jobs
	OrderBy   string // "" means created_time desc
	PageSize  int    // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string // token from the previous page; "" for the first
}

// JobPage is a page of a list of jobs. It may have fewer jobs than requested, or none, and still
// have a next page.
type JobPage struct {
	Jobs          []*jobs.Row
	NextPageToken string // "" if this is the last page
}

// usualJobs is smaller than usual, because the conditions of jobs read rows of other tables.
var usualJobs = reach{
	first: 1_000, scanned: 20_000, candidates: 2_000, bytes: storage.ListBytes, time: 15 * time.Millisecond,
}

// ListJobs returns a page. It reads the processes that match in one snapshot, and then their jobs.
func ListJobs(ctx context.Context, store *storage.Store, q JobQuery) (JobPage, error) {
	return listJobsWithin(ctx, store, q, usualJobs)
}

func listJobsWithin(ctx context.Context, store *storage.Store, q JobQuery, r reach) (JobPage, error) {
	filter, err := parse(q.Filter, jobTable)
	if err != nil {
		return JobPage{}, err
	}
	filter = onlyJobs.And(filter)
	name, err := jobOrder(q.OrderBy, filter)
	if err != nil {
		return JobPage{}, err
	}
	withoutArgs, ofArgs := filter.apart(fieldArgs)
	l := &jobList{
		list: list{
			query: Query{Namespace: q.Namespace, Filter: withoutArgs, jobs: true}, order: orders[name], reach: r,
			lean: true,
		},
		ofArgs: ofArgs,
	}
	l.wanted = pageSize(q.PageSize)
	l.size = l.wanted
	if ofArgs.root != nil {
		l.size = MaxPageSize // few of them may match args
	}
	signed := Query{Namespace: q.Namespace, Filter: filter}
	if l.last, err = l.order.positionOf(q.PageToken, signed, name); err != nil {
		return JobPage{}, err
	}
	begin := l.last
	err = store.Search(ctx, "list jobs", func(ctx context.Context, tx pgx.Tx) error {
		l.last, l.ids, l.taken = begin, nil, 0
		return l.read(ctx, tx)
	})
	if err != nil {
		return JobPage{}, err
	}
	page := JobPage{Jobs: l.rows}
	if l.more {
		page.NextPageToken = token(signed, name, l.last)
	}
	return page, nil
}

// apart splits the conditions that must all hold into those without and those with a field.
func (f Filter) apart(of *field) (without, with Filter) {
	for _, n := range f.conjuncts() {
		if names(n, of) {
			with = with.And(Filter{n})
		} else {
			without = without.And(Filter{n})
		}
	}
	return without, with
}

func names(n node, of *field) bool {
	switch n := n.(type) {
	case allOf:
		return slices.ContainsFunc(n, func(part node) bool { return names(part, of) })
	case anyOf:
		return slices.ContainsFunc(n, func(part node) bool { return names(part, of) })
	case not:
		return names(n.of, of)
	case *comparison:
		return n.field == of
	}
	return false
}

// jobList is a page of jobs that is being read. It takes the rows of a list whose args match, until
// their bytes fill the page.
type jobList struct {
	list
	wanted int
	taken  int64 // bytes of the jobs on the page
	ofArgs Filter
	ids    []string // IDs of the jobs on the page
	rows   []*jobs.Row
}

// Rows are sifted in batches. If the filter reads args, which may have 1 MiB each, the first batch
// is small, and the next ones are as large as the time allows.
const (
	firstSift     = 100
	firstSiftArgs = 4
	siftTime      = 15 * time.Millisecond
)

// read fills the page. A filter on args is applied to the rows that match the other conditions,
// list by list, while there is time.
func (l *jobList) read(ctx context.Context, tx pgx.Tx) error {
	began, batch := time.Now(), firstSift
	if l.ofArgs.root != nil {
		batch = firstSiftArgs
	}
	for {
		if err := l.list.read(ctx, tx); err != nil {
			return err
		}
		behind, more := l.last, l.more
		left, err := l.siftAll(ctx, tx, &batch)
		if err != nil {
			return err
		}
		l.more = more || left
		if left {
			break
		}
		l.last = behind
		if !more || l.full() || l.ofArgs.root == nil || l.late(began) {
			break
		}
	}
	return l.fill(ctx, tx)
}

func (l *jobList) full() bool { return len(l.ids) == l.wanted || l.taken > l.reach.bytes }

func (l *jobList) late(began time.Time) bool { return l.reach.time > 0 && time.Since(began) > siftTime }

// siftAll takes the matching rows of a list until the page is full or the time is over. left is
// true if there may be rows after l.last.
func (l *jobList) siftAll(ctx context.Context, tx pgx.Tx, batch *int) (left bool, err error) {
	began, found := time.Now(), l.found
	for len(found) > 0 {
		if l.full() || len(found) < len(l.found) && l.late(began) {
			return true, nil
		}
		n := min(*batch, len(found))
		all, err := l.sift(ctx, tx, found[:n])
		if err != nil {
			return false, err
		}
		for k, s := range all {
			l.last = l.order.position(&row{Process: found[k]})
			if s.Matches {
				l.ids, l.taken = append(l.ids, found[k].ProcessID), l.taken+s.Size
			}
			if l.full() {
				return k+1 < len(found), nil
			}
		}
		found, *batch = found[n:], min(4**batch, MaxPageSize)
	}
	return false, nil
}

// fill reads the jobs of the page.
func (l *jobList) fill(ctx context.Context, tx pgx.Tx) error {
	var a dbsqlc.GetJobsParams
	for n, id := range l.ids {
		a.Append(dbsqlc.GetJobsItem{
			Ord: int32(n), Key: process.Key{Namespace: l.query.Namespace, ProcessID: id},
		})
	}
	rows, err := dbsqlc.New().GetJobs(ctx, tx, a)
	if err != nil {
		return err
	}
	l.rows = make([]*jobs.Row, len(rows))
	slices.SortFunc(rows, func(a, b dbsqlc.GetJobsRow) int { return int(a.Ord - b.Ord) })
	for n := range rows {
		l.rows[n] = &rows[n]
	}
	return nil
}

// sifted contains the columns of a row that are needed before its job is read.
type sifted struct {
	Matches bool
	Size    int64 // size of the job in bytes
}

// The parts of the statement of sift. It reads no args unless a condition names them. Their size is
// stored in the rows.
const (
	siftJobs = `SELECT `
	siftSize = ` AS matches, (coalesce(p.arg_bytes, 0) + coalesce(octet_length(p.metadata::text), 0)
       + coalesce(octet_length(j.failures::text), 0)
       + coalesce(octet_length(j.options::text), 0) + coalesce(octet_length(j.progress::text), 0)
         + coalesce(octet_length(j.result), 0)
       + CASE WHEN j.options ? 'workers'
         THEN coalesce((SELECT sum(coalesce(octet_length(l.result), 0) + coalesce(octet_length(l.failure::text), 0))
           FROM job_places l WHERE l.namespace = p.namespace AND l.job_id = p.process_id), 0)
             ELSE 0 END)::bigint AS size
  FROM (SELECT p.*, k.ord, octet_length(p.raw) AS arg_bytes`
	siftArgs = `, convert_from(p.raw, 'UTF8')::jsonb AS args`
	siftFrom = ` FROM unnest($?::text[]) WITH ORDINALITY AS k(id, ord)
        CROSS JOIN LATERAL (SELECT p.*, `
	siftRows = ` AS raw FROM processes p WHERE p.namespace = $?::text AND p.process_id = k.id LIMIT 1) p OFFSET 0) p
  LEFT JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.namespace = p.namespace AND j.process_id = p.process_id
    LIMIT 1) j ON true
 ORDER BY p.ord`
)

var taskArgs = strings.ReplaceAll(ofTask, "COLUMN", "args")

// sift returns for each row whether its args match, and the size of its job.
func (l *jobList) sift(ctx context.Context, tx pgx.Tx, found []storage.Process) ([]sifted, error) {
	ids := make([]string, len(found))
	for n := range found {
		ids[n] = found[n].ProcessID
	}
	s := &statement{}
	s.add(siftJobs)
	s.filter(l.ofArgs)
	s.add(siftSize)
	if l.ofArgs.root != nil {
		s.add(siftArgs)
	}
	s.add(siftFrom, ids)
	s.add(taskArgs)
	s.add(siftRows, l.query.Namespace)
	return query[sifted](ctx, tx, s)
}
