package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// PutConstraint sets a limit of jobs. It holds for jobs that wait, too, and counts those that run.
func (q *Jobs) PutConstraint(ctx context.Context, c *progressorv1.Constraint) (*progressorv1.Constraint, error) {
	stored, err := storedConstraint(c)
	if err != nil {
		return nil, err
	}
	if _, err := q.engine.GetNamespace(ctx, c.GetNamespace()); err != nil {
		return nil, err
	}
	var now *rules
	err = jobs.PutConstraint(ctx, q.store, c.GetNamespace(), stored, func(t *jobs.Turn) (err error) {
		now, err = changed(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.admission.follow(c.GetNamespace(), now)
	return constraintMessage(c.GetNamespace(), stored), nil
}

// DeleteConstraint takes a limit away.
func (q *Jobs) DeleteConstraint(ctx context.Context, namespace, name string) error {
	if _, err := q.engine.GetNamespace(ctx, namespace); err != nil {
		return err
	}
	var now *rules
	err := jobs.DeleteConstraint(ctx, q.store, namespace, name, func(t *jobs.Turn) (err error) {
		now, err = changed(t)
		return err
	})
	if err != nil {
		return err
	}
	q.admission.follow(namespace, now)
	return nil
}

// ListConstraints gives the constraints of a namespace, by name, with how much of each is in use.
func (q *Jobs) ListConstraints(ctx context.Context, namespace string) ([]*progressorv1.ConstraintState, error) {
	if _, err := q.engine.GetNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	all, err := jobs.ListConstraints(ctx, q.store, namespace)
	states := make([]*progressorv1.ConstraintState, len(all))
	for n, c := range all {
		states[n] = &progressorv1.ConstraintState{Constraint: constraintMessage(namespace, c.Constraint), Running: c.Running, Waiting: c.Waiting}
		if !c.NextFreeTime.IsZero() {
			states[n].NextFreeTime = timestamppb.New(c.NextFreeTime)
		}
	}
	return states, err
}

func constraintMessage(namespace string, c jobs.Constraint) *progressorv1.Constraint {
	m := &progressorv1.Constraint{Namespace: namespace, Name: c.Name, Match: c.Match, Key: c.Key, MaxRunning: c.MaxRunning}
	if c.RateCount > 0 {
		m.Rate = &progressorv1.RateLimit{Count: c.RateCount, Per: durationpb.New(c.RatePer), Burst: c.RateBurst}
	}
	return m
}

// maxBefore is up to how many jobs are counted that stand before one in its line.
const maxBefore = 1000

// blockedOn says which key a job waits for, who has it, and where it stands in line.
func (q *Jobs) blockedOn(ctx context.Context, r *jobs.Row) (string, error) {
	if r.Line == "" {
		return "constraint: its keys are being found", nil
	}
	at, constraints, err := jobs.PlaceInLine(ctx, q.store, r, maxBefore)
	if err != nil {
		return "", err
	}
	name, key, _ := strings.Cut(r.Line, "=")
	for _, c := range constraints {
		if c.Name == name {
			return blockedText(c, key, at), nil
		}
	}
	return "constraint: its keys are being found", nil // that one is gone since it was evaluated
}

func blockedText(c jobs.Constraint, key string, at jobs.InLine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "constraint %s", c.Name)
	if c.Key != "" {
		fmt.Fprintf(&b, " key %s", key)
	}
	b.WriteString(": ")
	if c.MaxRunning > 0 && at.Held >= int(c.MaxRunning) {
		fmt.Fprintf(&b, "%d of %d running; ", at.Held, c.MaxRunning)
	}
	before := fmt.Sprint(at.Before)
	if at.Before == maxBefore {
		before = fmt.Sprintf("at least %d", at.Before)
	}
	if c.RateCount > 0 && !at.NextTime.IsZero() {
		fmt.Fprintf(&b, "rate: next at %s; ", at.NextTime.UTC().Format(time.RFC3339Nano))
		if at.Before < maxBefore {
			own := at.NextTime.Add(seconds(float64(at.Before) / perSecond(c)))
			fmt.Fprintf(&b, "this one not before %s; ", own.UTC().Format(time.RFC3339Nano))
		}
	}
	fmt.Fprintf(&b, "%s before it", before)
	return b.String()
}

// waitsForKey tells whether a job waits for a key.
func waitsForKey(r *jobs.Row) bool {
	return r.Place == "schedule" && process.WaitsFor(r.WaitsFor) == process.WaitsForConstraint
}
