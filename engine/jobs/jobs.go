package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// Jobs keeps the jobs of one node.
type Jobs struct {
	engine    *engine.Engine
	store     *storage.Store
	admission *admission
	metrics   *metrics
	groups    *groups
}

// New makes the jobs of an engine and its store, with metrics where there is somebody to register them. Their kind has to be added to it.
func New(e *engine.Engine, store *storage.Store, registerer ...prometheus.Registerer) *Jobs {
	q := &Jobs{engine: e, store: store}
	q.admission = newAdmission(q)
	q.metrics = newMetrics(q, registerer)
	q.groups = newGroups(q)
	return q
}

// Kind is what the engine has to know of jobs.
func (q *Jobs) Kind() engine.Kind {
	return engine.Kind{
		Name: storage.JobKind, Decide: decide, Forget: q.forget,
		Run: q.run, Noted: q.groups.wake, Standing: q.standing, Admit: q.admit, Stored: q.stored, Explain: q.explain,
	}
}

// admit tells whether a claim may run, and counts it.
func (q *Jobs) admit(c *storage.Claim) bool {
	if !q.admission.admit(c) {
		return false
	}
	q.metrics.claims.WithLabelValues(c.Namespace).Inc()
	return true
}

// standing takes what other nodes have left, and which constraints they have changed.
func (q *Jobs) standing(all []storage.Standing) {
	q.admission.refresh(all)
	if q.groups.strand(all) || slices.ContainsFunc(all, func(s storage.Standing) bool { return s.GroupsDue }) {
		q.groups.wake()
	}
}

// stored counts the end of an attempt, and has those looked at who waited for its keys.
func (q *Jobs) stored(c *storage.Claim, done *storage.Completion, now time.Time) {
	q.metrics.ended(c, done, now)
	q.admission.stored(c)
}

// forget drops what nobody asks for any more.
func (q *Jobs) forget(ctx context.Context) (more bool, err error) {
	more, err = jobs.Forget(ctx, q.store)
	if err != nil {
		return more, err
	}
	names, err := q.store.ForgetJobNames(ctx)
	return more || names, err
}

// run works beside the jobs of this node until ctx ends.
func (q *Jobs) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return q.admission.Run(ctx) })
	group.Go(func() error { return q.groups.Run(ctx) })
	return group.Wait()
}

// Enqueue makes a job, or gives the one that holds its unique or its idempotency key. by: who asked, if that is known.
func (q *Jobs) Enqueue(ctx context.Context, r *progressorv1.EnqueueRequest, by ...process.Actor) (*progressorv1.EnqueueResponse, error) {
	j, err := q.NewJob("", r)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkTimes("", r.GetOptions()), q.checkTakers(ctx, "", j)); err != nil {
		return nil, err
	}
	j.Actor = nameOf(by)
	done, replaced, err := q.storeJob(ctx, j)
	if err != nil {
		return nil, err
	}
	q.enqueued(j)
	resp := &progressorv1.EnqueueResponse{Enqueued: done.Outcome == storage.JobEnqueued, Replaced: replaced}
	resp.Job, err = q.Get(ctx, process.Key{Namespace: j.Key.Namespace, ProcessID: done.ProcessID}, 0)
	if errors.Is(err, process.ErrJobNotFound) { // idempotency and unique keys can outlive their job
		resp.Removed, err = true, nil
		resp.Job = &progressorv1.Job{Namespace: j.Key.Namespace, JobId: done.ProcessID}
	}
	return resp, err
}

// nameOf is who asked; "": nobody who is known.
func nameOf(by []process.Actor) string {
	if len(by) == 0 {
		return ""
	}
	return by[0].Name
}

// EnqueueBatch makes jobs, all of them or none. It answers with ids and names alone: what else there is to know the caller has just said.
func (q *Jobs) EnqueueBatch(ctx context.Context, r *progressorv1.EnqueueBatchRequest, by ...process.Actor) (*progressorv1.EnqueueBatchResponse, error) {
	all := make([]*storage.NewJob, len(r.GetJobs()))
	ids := map[process.Key]int{}
	for n, e := range r.GetJobs() {
		j, err := q.NewJob(fmt.Sprintf("jobs[%d].", n), e)
		if err == nil {
			err = cmp.Or(checkTimes(fmt.Sprintf("jobs[%d].", n), e.GetOptions()), q.checkTakers(ctx, fmt.Sprintf("jobs[%d].", n), j))
		}
		if err != nil {
			return nil, err
		}
		if j.Unique.Replace {
			return nil, &process.InvalidError{
				Field: fmt.Sprintf("jobs[%d].options.unique.replace", n), Message: "is not supported in EnqueueBatch: use Enqueue",
			}
		}
		if first, twice := ids[j.Key]; twice {
			return nil, &process.InvalidError{Field: fmt.Sprintf("jobs[%d].job_id", n), Message: fmt.Sprintf("%q is the id of jobs[%d] too", j.Key.ProcessID, first)}
		}
		j.Actor = nameOf(by)
		ids[j.Key], all[n] = n, j
	}
	done, err := q.engine.EnqueueBatch(ctx, all)
	if err != nil {
		return nil, err
	}
	q.enqueued(all...)
	resp := &progressorv1.EnqueueBatchResponse{Jobs: make([]*progressorv1.EnqueueResponse, len(all))}
	for n, d := range done {
		job := &progressorv1.Job{Namespace: all[n].Key.Namespace, JobId: d.ProcessID, Name: all[n].Name}
		enqueued := d.Outcome == storage.JobEnqueued
		if enqueued {
			job.State = progressorv1.JobState_JOB_STATE_AVAILABLE
			if d.Later {
				job.State = progressorv1.JobState_JOB_STATE_SCHEDULED
			}
		}
		resp.Jobs[n] = &progressorv1.EnqueueResponse{Job: job, Enqueued: enqueued}
	}
	return resp, nil
}

// checkTimes refuses durations that a job cannot have. Crons and templates that were stored with such a duration get the default.
// path is put before the names of fields in errors.
func checkTimes(path string, o *progressorv1.JobOptions) error {
	if o.GetTimeout() != nil && o.GetTimeout().AsDuration() <= 0 {
		return &process.InvalidError{Field: path + "options.timeout", Message: "must be a positive duration, such as 30s"}
	}
	return wire.CheckLease(path+"options.", o)
}

// checkTakers refuses a job that several workers run where there are none. path is put before the names of fields in errors.
func (q *Jobs) checkTakers(ctx context.Context, path string, j *storage.NewJob) error {
	if !j.Grouped || q.engine.Pulls(ctx, j.Key.Namespace) {
		return nil
	}
	return &process.InvalidError{Field: path + "options.workers", Message: fmt.Sprintf(
		"the tasks of namespace %q go to its processor; workers take those of namespaces whose processor is pull", j.Key.Namespace)}
}

// enqueued has new jobs looked at that nobody takes by itself.
func (q *Jobs) enqueued(all ...*storage.NewJob) {
	grouped := false
	for _, j := range all {
		q.admission.enqueued(j)
		grouped = grouped || j.Grouped
	}
	if grouped {
		q.groups.wake()
	}
}

// NewJob makes what is stored of a request, with the keys that it needs to run. path is put before the names of fields in errors.
func (q *Jobs) NewJob(path string, r *progressorv1.EnqueueRequest) (*storage.NewJob, error) {
	j, err := newJob(path, r)
	if err != nil {
		return nil, err
	}
	if j.Grouped {
		return j, nil // its members need keys
	}
	j.Constraints = q.admission.known(j.Key.Namespace).constrained(jobs.Subject{Name: j.Name, Args: j.Args, Metadata: j.Metadata, Tags: j.Tags, Priority: j.Priority})
	return j, nil
}

// maxArgs returns the limit for the args of a job, in bytes of JSON. A job that undoes a step of a run gets the
// input and the result of the step, each within its own limit.
func maxArgs(jobID string) int {
	if strings.HasPrefix(jobID, process.StepPrefix) {
		return process.MaxMessageBytes
	}
	return process.MaxPayloadBytes
}

// newJob checks a request and makes what is stored of it. path is put before the names of fields in errors.
func newJob(path string, r *progressorv1.EnqueueRequest) (*storage.NewJob, error) {
	args, err := valueJSON(path+"args", r.GetArgs(), maxArgs(r.GetJobId()))
	if err != nil {
		return nil, err
	}
	o, err := storedOptions(path+"options.", r.GetOptions())
	if err != nil {
		return nil, err
	}
	if err := checkReplace(path, r.GetOptions().GetUnique()); err != nil {
		return nil, err
	}
	j := &storage.NewJob{
		Key: process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetJobId()}, Name: r.GetName(), Args: args, Metadata: o.metadata, Tags: o.tags,
		Options: o.options, Timeout: o.timeout, Grouped: o.grouped, Priority: r.GetOptions().GetPriority(), IdempotencyKey: r.GetIdempotencyKey(),
		RequestID: process.RequestID(r.GetNamespace(), r.GetJobId(), r.GetIdempotencyKey()),
	}
	if t := r.GetOptions().GetRunTime(); t != nil {
		j.RunTime = t.AsTime()
	}
	if j.Delay = r.GetDelay().AsDuration(); r.GetDelay() != nil && !j.RunTime.IsZero() {
		return nil, &process.InvalidError{
			Field: path + "delay", Message: "must not be set together with " + path + "options.run_time: set one of them",
		}
	}
	if j.IdempotencyKey != "" {
		j.Fingerprint = process.Fingerprint("enqueue", []byte(r.GetJobId()), []byte(r.GetName()), args)
	}
	j.Unique = uniqueOf(r.GetOptions(), j.Name, args)
	switch {
	case j.Key.ProcessID != "":
	case j.IdempotencyKey != "":
		j.Key.ProcessID = process.DerivedProcessID(j.RequestID)
	default:
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		j.Key.ProcessID, j.Chosen = id.String(), true
	}
	return j, nil
}

// Get reads a job, and waits for its end at most so long.
func (q *Jobs) Get(ctx context.Context, key process.Key, wait time.Duration) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	job, err := wire.Job(row)
	if err == nil && waitsForKey(row) {
		job.BlockedOn, err = q.blockedOn(ctx, row)
	} else if err == nil && job.GetState() == progressorv1.JobState_JOB_STATE_AVAILABLE && job.GetBlockedOn() == "" && q.engine.IsPaused(key.Namespace) {
		job.BlockedOn = "namespace: paused"
	}
	return job, err
}

// row reads a job, and waits for its end at most so long.
func (q *Jobs) row(ctx context.Context, key process.Key, wait time.Duration) (*jobs.Row, error) {
	over := time.Now().Add(wait)
	for {
		rows, err := jobs.Get(ctx, q.store, key)
		if err != nil {
			return nil, err
		}
		if rows[0] == nil {
			return nil, q.notFound(ctx, key)
		}
		left := time.Until(over)
		if rows[0].Status.Ended() || rows[0].Status == process.StatusError || left <= 0 {
			return rows[0], nil
		}
		if _, err := q.engine.AwaitTask(ctx, engine.AwaitParams{Key: key, TaskID: rows[0].TaskID, Timeout: left}); err != nil {
			return nil, err
		}
	}
}

// notFound returns the error of a job that does not exist: its namespace may not exist, either.
func (q *Jobs) notFound(ctx context.Context, key process.Key) error {
	if _, err := q.engine.GetNamespace(ctx, key.Namespace); err != nil {
		return err
	}
	return fmt.Errorf("job %s: %w", key, process.ErrJobNotFound)
}

// FetchResult hands a kept result out once; it waits for the job's end at most so long.
func (q *Jobs) FetchResult(ctx context.Context, key process.Key, wait time.Duration) (*progressorv1.FetchResultResponse, error) {
	row, err := q.row(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	job, err := wire.Job(row)
	if err != nil {
		return nil, err
	}
	resp := &progressorv1.FetchResultResponse{State: job.GetState()}
	if !row.Status.Ended() && row.Status != process.StatusError {
		return resp, nil
	}
	resp.FinishedTime = job.GetFinishedTime()
	if failures := job.GetFailures(); row.Status == process.StatusError && len(failures) > 0 {
		resp.Failure = failures[len(failures)-1]
	}
	if row.Status != process.StatusCompleted {
		return resp, nil
	}
	result, err := jobs.FetchResult(ctx, q.store, key)
	if err != nil {
		return nil, err
	}
	resp.Dropped = result == nil
	resp.Result, err = wire.Value(result)
	return resp, err
}

// Cancel asks a job to end: one that waits is CANCELLED at once, the worker of one that runs is told so by its next heartbeat.
func (q *Jobs) Cancel(ctx context.Context, key process.Key, reason string, by process.Actor) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	if row.Status.Ended() || row.Status == process.StatusError {
		return nil, q.byState(ctx, key, &process.WrongStatusError{Key: key, Status: row.Status, Reason: "the job is at its end"})
	}
	options, err := wire.JobOptions(row.Options)
	if err != nil {
		return nil, err
	}
	grace := process.DefaultCancelGrace
	if g := options.GetCancelGrace(); g != nil {
		grace = g.AsDuration()
	}
	if _, err := q.engine.CancelProcess(ctx, engine.CancelParams{Key: key, Reason: reason, Grace: &grace, Actor: by}); err != nil {
		return nil, err
	}
	q.groups.wake()
	q.admission.look(key.Namespace)
	return q.Get(ctx, key, 0)
}

// byState has a refusal name the state of the job: who has asked for a job does not know it by the status of its process.
func (q *Jobs) byState(ctx context.Context, key process.Key, err error) error {
	wrong, ok := errors.AsType[*process.WrongStatusError](err)
	if !ok {
		return err
	}
	if row, rowErr := q.row(ctx, key, 0); rowErr == nil {
		wrong.State = strings.TrimPrefix(wire.JobState(row).String(), "JOB_STATE_")
	}
	return wrong // without what was put around it: that has the words of before
}

// Retry runs a job again that has ended, or makes the next attempt of a job in backoff now. by: who asked, if that is
// known.
func (q *Jobs) Retry(ctx context.Context, key process.Key, clearSuccesses bool, by ...process.Actor) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	options, err := wire.JobOptions(row.Options)
	if err != nil {
		return nil, err
	}
	// What it is made of never changes, so that it need not be read under the lock.
	unique := uniqueOf(options, row.Name, row.Args)
	if err := jobs.Retry(ctx, q.store, key, unique, clearSuccesses, by...); err != nil {
		return nil, q.byState(ctx, key, err)
	}
	return q.retried(ctx, key)
}
