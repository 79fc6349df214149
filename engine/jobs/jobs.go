package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

// Jobs implements the jobs of one node.
type Jobs struct {
	engine    *engine.Engine
	store     *storage.Store
	admission *admission
	metrics   *metrics
	groups    *groups
	late      *lateJobs
	fairness  *fairness
	watchers  *eventWatchers
}

// New returns the jobs of an engine and its store. The caller must add Kind to the engine. A
// registerer is optional.
func New(e *engine.Engine, store *storage.Store, registerer ...prometheus.Registerer) *Jobs {
	q := &Jobs{engine: e, store: store, fairness: &fairness{}}
	q.admission = newAdmission(q)
	q.metrics = newMetrics(q, registerer)
	q.groups = newGroups(q)
	q.late, q.watchers = newLateJobs(q), newEventWatchers(q)
	return q
}

// Kind returns the kind of jobs for the engine.
func (q *Jobs) Kind() engine.Kind {
	return engine.Kind{
		Name: process.JobKind, Describe: describe, CancelsAttempts: true, Decide: decide, Forget: q.forget,
		Expire: q.expire,
		Run:    q.run, Pause: q.pause, Wake: q.groups.wake, ObserveNamespaces: q.observeNamespaces, Admit: q.admit,
		Stored: q.stored, Explain: q.explain,
		CheckNamespace: CheckFairnessKey, Starts: engine.StartHooks{Before: q.keyStarts, Message: q.message},
	}
}

// describe returns the name and the timeout of the job in a claim.
func describe(c *storage.Claim) (name string, timeout time.Duration, ok bool) {
	job, ok := jobs.JobOf(c)
	return job.Name, job.Timeout, ok
}

// admit reports whether a claim may run, and counts it.
func (q *Jobs) admit(c *storage.Claim) bool {
	if !q.admission.admit(c) {
		return false
	}
	q.metrics.claimed(c)
	return true
}

// observeNamespaces completes unfinished work of other nodes, and applies their changes of
// constraints.
func (q *Jobs) observeNamespaces(all []storage.NamespaceState) {
	q.admission.forgetDeleted(all)
	q.admission.refresh(all)
	q.late.wakeIfLate(all)
	if q.groups.strand(all) || slices.ContainsFunc(all, func(s storage.NamespaceState) bool { return s.GroupsDue }) {
		q.groups.wake()
	}
}

// stored counts the end of an attempt, and checks the queues of jobs that wait for its keys.
func (q *Jobs) stored(c *storage.Claim, done *storage.Completion, now time.Time) {
	q.metrics.ended(c, done, now)
	q.admission.stored(c)
}

// forget deletes jobs, names and workers that are past their retention.
func (q *Jobs) forget(ctx context.Context) (more bool, err error) {
	more, err = jobs.Forget(ctx, q.store)
	if err != nil {
		return more, err
	}
	names, err := jobs.ForgetNames(ctx, q.store)
	if err != nil {
		return more || names, err
	}
	workers, err := pull.ForgetWorkers(ctx, q.store)
	return more || names || workers, err
}

// expire deletes events of jobs and runs that are past their retention.
func (q *Jobs) expire(ctx context.Context, longest map[string]time.Duration) (more bool, err error) {
	return jobs.ForgetEvents(ctx, q.store, longest)
}

// run assigns keys, decides about groups, ends late jobs and reads watched events until ctx ends.
func (q *Jobs) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return q.admission.Run(ctx) })
	group.Go(func() error { return q.groups.Run(ctx) })
	group.Go(func() error { return q.late.Run(ctx) })
	group.Go(func() error { return q.watchers.Run(ctx) })
	return group.Wait()
}

// Enqueue creates a job, or returns the job that has its unique or its idempotency key. by is the
// caller, if known.
func (q *Jobs) Enqueue(
	ctx context.Context, r *progressorv1.EnqueueRequest, by ...process.Actor,
) (*progressorv1.EnqueueResponse, error) {
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
	resp := &progressorv1.EnqueueResponse{Enqueued: done.Outcome == jobs.JobEnqueued, Replaced: replaced}
	resp.Job, err = q.Get(ctx, process.Key{Namespace: j.Key.Namespace, ProcessID: done.ProcessID}, 0)
	if errors.Is(err, process.ErrJobNotFound) { // idempotency and unique keys can outlive their job
		resp.Removed, err = true, nil
		resp.Job = &progressorv1.Job{Namespace: j.Key.Namespace, JobId: done.ProcessID}
	}
	return resp, err
}

// nameOf returns the name of the caller, or "" if it is not known.
func nameOf(by []process.Actor) string {
	if len(by) == 0 {
		return ""
	}
	return by[0].Name
}

// EnqueueBatch creates either all of the jobs or none. The response contains only IDs, names and
// states.
func (q *Jobs) EnqueueBatch(
	ctx context.Context, r *progressorv1.EnqueueBatchRequest, by ...process.Actor,
) (*progressorv1.EnqueueBatchResponse, error) {
	all := make([]*jobs.NewJob, len(r.GetJobs()))
	ids := map[process.Key]int{}
	for n, e := range r.GetJobs() {
		j, err := q.NewJob(fmt.Sprintf("jobs[%d].", n), e)
		if err == nil {
			err = cmp.Or(checkTimes(fmt.Sprintf("jobs[%d].", n), e.GetOptions()),
				q.checkTakers(ctx, fmt.Sprintf("jobs[%d].", n), j))
		}
		if err != nil {
			return nil, err
		}
		if j.Unique.Replace {
			return nil, &process.InvalidError{
				Field:   fmt.Sprintf("jobs[%d].options.unique.replace", n),
				Message: "is not supported in EnqueueBatch: use Enqueue",
			}
		}
		if first, twice := ids[j.Key]; twice {
			return nil, &process.InvalidError{
				Field:   fmt.Sprintf("jobs[%d].job_id", n),
				Message: fmt.Sprintf("%q is also the ID of jobs[%d]", j.Key.ProcessID, first),
			}
		}
		j.Actor = nameOf(by)
		ids[j.Key], all[n] = n, j
	}
	done, err := q.enqueueAll(ctx, all)
	if err != nil {
		return nil, err
	}
	q.enqueued(all...)
	resp := &progressorv1.EnqueueBatchResponse{Jobs: make([]*progressorv1.EnqueueResponse, len(all))}
	for n, d := range done {
		job := &progressorv1.Job{Namespace: all[n].Key.Namespace, JobId: d.ProcessID, Name: all[n].Name}
		enqueued := d.Outcome == jobs.JobEnqueued
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

// checkTimes rejects durations that are not valid for a job. Stored crons and templates with such a
// duration use the default instead. path is the prefix of field names in errors.
func checkTimes(path string, o *progressorv1.JobOptions) error {
	if o.GetTimeout() != nil && o.GetTimeout().AsDuration() <= 0 {
		return &process.InvalidError{Field: path + "options.timeout", Message: durations.Positive}
	}
	return processor.CheckJobTimes(path+"options.", o)
}

// checkTakers rejects a job for several workers in a namespace whose tasks workers cannot take.
// path is the prefix of field names in errors.
func (q *Jobs) checkTakers(ctx context.Context, path string, j *jobs.NewJob) error {
	if !j.Grouped || q.engine.IsPulled(ctx, j.Key.Namespace) {
		return nil
	}
	return &process.InvalidError{Field: path + "options.workers", Message: fmt.Sprintf(
		"namespace %q calls its processor: workers get tasks only if the processor is pull", j.Key.Namespace)}
}

// enqueued wakes admission and groups for new jobs that need them.
func (q *Jobs) enqueued(all ...*jobs.NewJob) {
	grouped := false
	for _, j := range all {
		q.admission.enqueued(j)
		grouped = grouped || j.Grouped
	}
	if grouped {
		q.groups.wake()
	}
}

// NewJob converts a request to its stored form, with the keys that the job needs to run and its
// fairness key. path is the prefix of field names in errors.
func (q *Jobs) NewJob(path string, r *progressorv1.EnqueueRequest) (*jobs.NewJob, error) {
	j, err := q.Convert(path, r)
	if err == nil {
		q.AddKeys(j)
	}
	return j, err
}

// message returns the message of a command that enqueues a job.
func (q *Jobs) message(
	sender process.Key, command *progressorv1.Command,
) (m storage.Message, ok bool, err error) {
	c := command.GetEnqueue()
	if c == nil {
		return m, false, nil
	}
	r := &progressorv1.EnqueueRequest{
		Namespace: cmp.Or(c.GetNamespace(), sender.Namespace), JobId: c.GetJobId(), Name: c.GetName(),
		Args: c.GetArgs(), Options: c.GetOptions(),
	}
	j, err := q.NewJob("", r)
	if err == nil {
		m, err = j.Message()
	}
	if err != nil {
		return m, true, fmt.Errorf("enqueue: %w", err)
	}
	m.Plain = false // StartSteps requires that no other command of the flush has this ID
	m.NotifyParentArgs = c.GetNotifyParentArgs()
	return m, true, nil
}

// AddKeys adds the keys that a job needs to run and its fairness key, as this node knows the
// configuration of its namespace.
func (q *Jobs) AddKeys(j *jobs.NewJob) {
	if j.Grouped {
		return // only its members need keys
	}
	subject := jobs.Subject{Name: j.Name, Args: j.Args, Metadata: j.Metadata, Tags: j.Tags, Priority: j.Priority}
	j.Constraints = q.admission.known(j.Key.Namespace).constrained(subject)
	j.FairnessKey = q.fairnessKey(j.Key.Namespace, subject)
}

// maxArgs returns the limit for the args of a job, in bytes of JSON. A job that compensates a step
// of a run gets both the input and the result of the step, each within its own limit.
func maxArgs(jobID string) int {
	if strings.HasPrefix(jobID, process.StepPrefix) {
		return process.MaxMessageBytes
	}
	return process.MaxPayloadBytes
}

// Convert validates a request and converts it to its stored form without keys. path is the prefix
// of field names in errors.
func (*Jobs) Convert(path string, r *progressorv1.EnqueueRequest) (*jobs.NewJob, error) {
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
	j := &jobs.NewJob{
		Key: process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetJobId()}, Name: r.GetName(), Args: args,
		Metadata: o.metadata, Tags: o.tags,
		Options: o.options, Timeout: o.timeout, Grouped: o.grouped, Priority: r.GetOptions().GetPriority(),
		IdempotencyKey: r.GetIdempotencyKey(),
		RequestID:      process.RequestID(r.GetNamespace(), r.GetJobId(), r.GetIdempotencyKey()),
	}
	if t := r.GetOptions().GetRunTime(); t != nil {
		j.RunTime = t.AsTime()
	}
	if j.Delay = r.GetDelay().AsDuration(); r.GetDelay() != nil && !j.RunTime.IsZero() {
		return nil, &process.InvalidError{
			Field:   path + "delay",
			Message: "must not be set together with " + path + "options.run_time: set one of them",
		}
	}
	if j.IdempotencyKey != "" {
		j.Fingerprint = process.Fingerprint("enqueue", []byte(r.GetJobId()), []byte(r.GetName()), args)
	}
	j.Unique = uniqueOf(r.GetOptions(), j.Name, args)
	switch {
	case j.Key.ProcessID != "":
	case j.IdempotencyKey != "":
		j.Key.ProcessID = process.DerivedProcessID(j.RequestID, j.IdempotencyKey)
	default:
		id, err := engine.NewID()
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		j.Key.ProcessID, j.Chosen = id, true
	}
	return j, nil
}

// Get returns a job. It waits at most wait for the end of the job.
func (q *Jobs) Get(ctx context.Context, key process.Key, wait time.Duration) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	job, err := wire.Job(row)
	if err != nil {
		return job, err
	}
	paused := q.engine.IsNamePaused(key.Namespace, row.Name) &&
		job.GetState() == progressorv1.JobState_JOB_STATE_AVAILABLE
	switch {
	case paused && row.StoredIn == "schedule" && row.WaitsFor != string(process.WaitsForOperator):
		job.BlockedOn = "job name: paused"
	case waitsForKey(row):
		job.BlockedOn, err = q.blockedOn(ctx, row)
	case job.GetState() == progressorv1.JobState_JOB_STATE_AVAILABLE && job.GetBlockedOn() == "" &&
		q.engine.IsPaused(key.Namespace):
		job.BlockedOn = "namespace: paused"
	}
	return job, err
}

// row reads a job. It waits at most wait for the end of the job.
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
		if _, err := q.engine.AwaitTask(ctx, engine.AwaitParams{
			Key: key, TaskID: rows[0].TaskID, Timeout: left,
		}); err != nil {
			return nil, err
		}
	}
}

// notFound returns the error for a job that does not exist, or for its namespace if that does not
// exist.
func (q *Jobs) notFound(ctx context.Context, key process.Key) error {
	if err := q.engine.CheckNamespace(ctx, key.Namespace); err != nil {
		return err
	}
	return fmt.Errorf("job %s: %w", key, process.ErrJobNotFound)
}

// FetchResult returns the stored result of a job and deletes it. It waits at most wait for the end
// of the job.
func (q *Jobs) FetchResult(
	ctx context.Context, key process.Key, wait time.Duration,
) (*progressorv1.FetchResultResponse, error) {
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

// Cancel asks a job to end. A waiting job is CANCELLED immediately. The worker of a running job
// learns of the request with its next heartbeat.
func (q *Jobs) Cancel(
	ctx context.Context, key process.Key, reason string, by process.Actor,
) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	if row.Status.Ended() || row.Status == process.StatusError {
		return nil, q.byState(ctx, key, &process.WrongStatusError{
			Key: key, Status: row.Status, Reason: "the job has ended",
		})
	}
	options, err := wire.JobOptions(row.Options)
	if err != nil {
		return nil, err
	}
	grace := process.DefaultCancelGrace
	if g := options.GetCancelGrace(); g != nil {
		grace = g.AsDuration()
	}
	if _, err := q.engine.CancelProcess(ctx, engine.CancelParams{
		Key: key, Reason: reason, Grace: &grace, Actor: by,
	}); err != nil {
		return nil, err
	}
	q.groups.wake()
	q.admission.checkAll(key.Namespace)
	return q.Get(ctx, key, 0)
}

// byState replaces the process status in an error with the state of the job, which callers know.
func (q *Jobs) byState(ctx context.Context, key process.Key, err error) error {
	wrong, ok := errors.AsType[*process.WrongStatusError](err)
	if !ok {
		return err
	}
	if row, rowErr := q.row(ctx, key, 0); rowErr == nil {
		wrong.State = strings.TrimPrefix(wire.JobState(row).String(), "JOB_STATE_")
	}
	return wrong // without the wrapping error, whose text contains the old state
}

// Retry runs a job that has ended without success again, or starts the next attempt of a job in
// backoff now. by is the caller, if known.
func (q *Jobs) Retry(
	ctx context.Context, key process.Key, clearSuccesses bool, by ...process.Actor,
) (*progressorv1.Job, error) {
	row, err := q.row(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	options, err := wire.JobOptions(row.Options)
	if err != nil {
		return nil, err
	}
	// The unique key is computed from values that never change, so reading them needs no lock.
	unique := uniqueOf(options, row.Name, row.Args)
	if err := jobs.Retry(ctx, q.store, key, unique, clearSuccesses, by...); err != nil {
		return nil, q.byState(ctx, key, err)
	}
	return q.retried(ctx, key)
}
