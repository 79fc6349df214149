package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// PutConstraint creates or replaces a constraint. It also applies to jobs that already wait, and
// counts jobs that already run.
func (q *Jobs) PutConstraint(
	ctx context.Context, c *progressorv1.Constraint, by ...process.Actor,
) (*progressorv1.Constraint, error) {
	stored, err := storedConstraint(c)
	if err != nil {
		return nil, err
	}
	if err := q.engine.CheckNamespace(ctx, c.GetNamespace()); err != nil {
		return nil, err
	}
	var now *rules
	err = jobs.PutConstraint(ctx, q.store, c.GetNamespace(), stored, by, func(t *jobs.ConstraintTx) (err error) {
		now, err = changed(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.admission.follow(c.GetNamespace(), now)
	return constraintMessage(c.GetNamespace(), stored), nil
}

// DeleteConstraint removes a constraint.
func (q *Jobs) DeleteConstraint(ctx context.Context, namespace, name string, by ...process.Actor) error {
	if err := q.engine.CheckNamespace(ctx, namespace); err != nil {
		return err
	}
	var now *rules
	err := jobs.DeleteConstraint(ctx, q.store, namespace, name, by, func(t *jobs.ConstraintTx) (err error) {
		now, err = changed(t)
		return err
	})
	if err != nil {
		return err
	}
	q.admission.follow(namespace, now)
	return nil
}

// ListConstraints returns the constraints of a namespace by name, with their usage.
func (q *Jobs) ListConstraints(ctx context.Context, namespace string) ([]*progressorv1.ConstraintState, error) {
	if err := q.engine.CheckNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	all, err := jobs.ListConstraints(ctx, q.store, namespace)
	states := make([]*progressorv1.ConstraintState, len(all))
	for n, c := range all {
		states[n] = &progressorv1.ConstraintState{
			Constraint: constraintMessage(namespace, c.Constraint), Running: c.Running, Held: c.Held,
			Waiting: c.Waiting,
		}
		if !c.NextFreeTime.IsZero() {
			states[n].NextFreeTime = timestamppb.New(c.NextFreeTime)
		}
	}
	return states, err
}

func constraintMessage(namespace string, c jobs.Constraint) *progressorv1.Constraint {
	m := &progressorv1.Constraint{
		Namespace: namespace, Name: c.Name, Match: c.Match, Key: c.Key, MaxRunning: c.MaxRunning,
	}
	if c.RateCount > 0 {
		m.Rate = &progressorv1.RateLimit{Count: c.RateCount, Per: durationpb.New(c.RatePer), Burst: c.RateBurst}
	}
	return m
}

// maxBefore is the maximum count of the jobs ahead of a job in its key queue.
const maxBefore = 1000

// blockedOn describes the key that a job waits for, its holders, and the job's position in the key
// queue.
func (q *Jobs) blockedOn(ctx context.Context, r *jobs.Row) (string, error) {
	b, err := q.blocked(ctx, r)
	if err != nil || b == nil {
		return "constraint: its keys are being evaluated", err
	}
	return blockedText(b), nil
}

// blocked describes the key that a job waits for. It returns nil if the job has not been evaluated
// yet, or if the constraint of its key was deleted.
func (q *Jobs) blocked(ctx context.Context, r *jobs.Row) (*explain.Blocked, error) {
	if r.Line == "" {
		return nil, nil
	}
	at, constraints, err := jobs.ReadQueuePosition(ctx, q.store, r, maxBefore)
	if err != nil {
		return nil, err
	}
	name, key, _ := strings.Cut(r.Line, "=")
	n := slices.IndexFunc(constraints, func(c jobs.Constraint) bool { return c.Name == name })
	if n < 0 { // the constraint was deleted after the job was evaluated
		return nil, nil
	}
	c := constraints[n]
	b := &explain.Blocked{
		Constraint: name, Match: c.Match, Expression: c.Key, Key: key, MaxRunning: c.MaxRunning, Held: at.Held,
		Holders:   at.Holders,
		RateCount: c.RateCount, RatePer: c.RatePer, RateBurst: c.RateBurst, Before: at.Before,
		More:       at.Before == maxBefore,
		ReservedBy: reservedBy(r, at),
	}
	if c.RateCount > 0 && at.Unstarted >= int(c.RateBurst) {
		b.Unstarted = at.Unstarted // the time of the next start is not known until these are claimed
	} else if c.RateCount > 0 && !at.NextTime.IsZero() {
		b.NextStart = at.NextTime
		if !b.More {
			b.OwnStart = at.NextTime.Add(seconds(float64(at.Before) / perSecond(c)))
		}
	}
	return b, nil
}

// reservedBy returns the other job that has reserved the key that a job waits for, or "".
func reservedBy(r *jobs.Row, at jobs.QueuePosition) string {
	if at.ReservedBy == r.ProcessID {
		return ""
	}
	return at.ReservedBy
}

func blockedText(b *explain.Blocked) string {
	var text strings.Builder
	fmt.Fprintf(&text, "constraint %s", b.Constraint)
	if b.Expression != "" {
		fmt.Fprintf(&text, " key %s", b.Key)
	}
	text.WriteString(": ")
	if b.MaxRunning > 0 && b.Held >= int(b.MaxRunning) {
		fmt.Fprintf(&text, "%d of %d slots in use; ", b.Held, b.MaxRunning)
	}
	if b.ReservedBy != "" {
		fmt.Fprintf(&text, "reserved for job %s, which also needs other keys; ", b.ReservedBy)
	}
	before := fmt.Sprint(b.Before)
	if b.More {
		before = fmt.Sprintf("at least %d", b.Before)
	}
	if b.Unstarted > 0 {
		fmt.Fprintf(&text, "rate: %d granted, not yet claimed; ", b.Unstarted)
	}
	if !b.NextStart.IsZero() {
		fmt.Fprintf(&text, "rate: next at %s; ", b.NextStart.UTC().Format(time.RFC3339Nano))
	}
	if !b.OwnStart.IsZero() {
		fmt.Fprintf(&text, "this job not before %s; ", b.OwnStart.UTC().Format(time.RFC3339Nano))
	}
	fmt.Fprintf(&text, "%s before it", before)
	return text.String()
}

// explain adds what blocks a job: the key that it waits for, the pause of its name, the processor
// that was not reached, the workers that may run it, and the state of each member of a group.
func (q *Jobs) explain(ctx context.Context, p *progressorv1.Process, state *explain.State) error {
	if state.Job == nil || state.Running != nil || len(state.Waiting) == 0 {
		return nil
	}
	rows, err := jobs.Get(ctx, q.store, process.Key{Namespace: p.GetNamespace(), ProcessID: p.GetProcessId()})
	if err != nil || rows[0] == nil {
		return err // the job was removed in the meantime
	}
	row := rows[0]
	if waitsForKey(row) {
		if state.Job.Blocked, err = q.blocked(ctx, row); err != nil {
			return err
		}
	}
	job, err := wire.Job(row)
	if err != nil {
		return err
	}
	if state.Job.Paused, err = q.explainPause(ctx, row); err != nil {
		return err
	}
	state.Job.Unreached = wire.Unreached(row)
	group := job.GetOptions().GetWorkers()
	state.Job.WorkerIDs = group.GetWorkerIds()
	if group == nil || !row.Grouped {
		return nil
	}
	rules := groupRules(group)
	g := &explain.Group{Count: int(rules.Count), MaxFailures: int(rules.MaxFailures)}
	for _, run := range job.GetWorkerRuns() {
		state := strings.ToLower(strings.TrimPrefix(run.GetState().String(), "JOB_STATE_"))
		g.Members = append(g.Members, explain.Member{WorkerID: run.GetWorkerId(), State: state})
	}
	state.Job.Group = g
	return nil
}

// waitsForKey reports whether a job waits for a key of a constraint.
func waitsForKey(r *jobs.Row) bool {
	return r.StoredIn == "schedule" && process.WaitsFor(r.WaitsFor) == process.WaitsForConstraint
}
