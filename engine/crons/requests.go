package crons

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/crons"
)

// Update replaces the spec, policy, target and metadata of a cron. It does not change whether the
// cron is paused.
func (c *Crons) Update(
	ctx context.Context, r *progressorv1.UpdateCronRequest, by process.Actor,
) (*progressorv1.Cron, error) {
	def := r.GetCron()
	now, err := c.read(ctx, def.GetNamespace(), def.GetCronId())
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, def, now.Created); err != nil {
		return nil, err
	}
	if def, err = c.sealed(ctx, def); err != nil {
		return nil, err
	}
	return c.changed(ctx, def.GetNamespace(), def.GetCronId(), &command{
		Method: methodUpdate, Etag: def.GetEtag(),
	}, def, by)
}

// changed runs a command and returns the changed cron.
func (c *Crons) changed(
	ctx context.Context, namespace, cronID string, o *command, def *progressorv1.Cron, by process.Actor,
) (*progressorv1.Cron, error) {
	if _, err := c.runCommand(ctx, namespace, cronID, o, def, by); err != nil {
		return nil, err
	}
	return c.Get(ctx, namespace, cronID)
}

// Pause stops a cron from firing until Resume.
func (c *Crons) Pause(
	ctx context.Context, r *progressorv1.PauseCronRequest, by process.Actor,
) (*progressorv1.Cron, error) {
	return c.changed(ctx, r.GetNamespace(), r.GetCronId(), &command{Method: methodPause, Note: r.GetNote()}, nil, by)
}

// Resume ends a pause. The fire times during the pause are MISSED or, if catch_up is set, decided
// by the misfire policy. Resume also repairs a cron whose process went to ERROR because of an
// engine fault that lasted for a day. The misfire policy then decides the fire times that came due
// in the meantime.
func (c *Crons) Resume(
	ctx context.Context, r *progressorv1.ResumeCronRequest, by process.Actor,
) (*progressorv1.Cron, error) {
	o := &command{Method: methodResume, Note: r.GetNote(), SkipMissed: !r.GetCatchUp()}
	key := keyOf(r.GetNamespace(), r.GetCronId())
	p, err := c.engine.GetProcess(ctx, key, &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if err == nil && p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		_, err = c.engine.Repair(ctx, engine.RepairParams{Key: key, Simple: true, Actor: by})
	}
	if err != nil {
		return nil, refused(err)
	}
	return c.changed(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by)
}

// Trigger starts a run now if the overlap action and the concurrency policy allow it.
func (c *Crons) Trigger(
	ctx context.Context, r *progressorv1.TriggerCronRequest, by process.Actor,
) (*progressorv1.Fire, error) {
	o := &command{Method: methodTrigger, Overlap: cron.OverlapAction(r.GetOverlapAction())}
	a, err := c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by)
	if err != nil {
		return nil, err
	}
	return c.fire(ctx, r.GetNamespace(), r.GetCronId(), a.Fire)
}

// CancelFire removes a waiting fire from the queue, or cancels the run of a fire. It returns the
// row of the fire, which is RUNNING until the run has ended.
func (c *Crons) CancelFire(
	ctx context.Context, r *progressorv1.CancelFireRequest, by process.Actor,
) (*progressorv1.Fire, error) {
	fire, err := c.existingFire(ctx, r.GetNamespace(), r.GetCronId(), r.GetFireTime())
	if err != nil {
		return nil, err
	}
	o := &command{Method: methodCancel, Fire: fire, Note: r.GetReason()}
	if _, err = c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by); err != nil {
		return nil, err
	}
	return c.fire(ctx, r.GetNamespace(), r.GetCronId(), fire)
}

// RerunFire starts a run for a fire that was skipped, or whose run did not succeed. It returns the
// row of the fire.
func (c *Crons) RerunFire(
	ctx context.Context, r *progressorv1.RerunFireRequest, by process.Actor,
) (*progressorv1.Fire, error) {
	fire, err := c.existingFire(ctx, r.GetNamespace(), r.GetCronId(), r.GetFireTime())
	if err != nil {
		return nil, err
	}
	o := &command{Method: methodRerun, Fire: fire, Note: r.GetReason()}
	if _, err = c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by); err != nil {
		return nil, err
	}
	return c.fire(ctx, r.GetNamespace(), r.GetCronId(), fire)
}

// fire reads the row of a fire.
func (c *Crons) fire(ctx context.Context, namespace, cronID string, fire time.Time) (*progressorv1.Fire, error) {
	row, err := crons.Get(ctx, c.store, namespace, cronID, fire)
	if err != nil {
		return nil, err
	}
	return fireOf(cronID, &row), nil
}

// existingFire returns the fire time that a request names. For the fire of a trigger, the request
// may omit the microseconds. It returns an error if the cron has no row for that time.
func (c *Crons) existingFire(
	ctx context.Context, namespace, cronID string, at *timestamppb.Timestamp,
) (time.Time, error) {
	fire := timeOf(at)
	if fire.IsZero() {
		return fire, invalid("fire_time", "is required")
	}
	s, err := c.read(ctx, namespace, cronID)
	if err != nil {
		return fire, err
	}
	row, err := crons.Get(ctx, c.store, namespace, cronID, fire)
	if errors.Is(err, process.ErrTaskNotFound) {
		var times []time.Time
		if times, err = crons.Times(ctx, c.store, namespace, cronID, fire,
			fire.Add(time.Millisecond)); len(times) == 1 {
			row, err = crons.Get(ctx, c.store, namespace, cronID, times[0])
		}
	}
	switch {
	case err != nil:
		return fire, err
	case row.FireTime.IsZero() || row.DecidedTime.Before(s.Created):
		return fire, invalid("fire_time", "the cron has no fire at this time: see ListFires")
	}
	return row.FireTime, nil
}

// deleteTime limits how long a request deletes rows of the ledger. The remaining rows are deleted
// when their retention is over.
const deleteTime = 10 * time.Second

// Delete deletes a cron and its ledger. Its runs continue.
func (c *Crons) Delete(ctx context.Context, r *progressorv1.DeleteCronRequest, by process.Actor) error {
	a, err := c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), &command{Method: methodDelete}, nil, by)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < deleteTime; {
		more, err := crons.Delete(ctx, c.store, r.GetNamespace(), r.GetCronId(), a.Now)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Backfill requests runs for the past fire times that have no row in the ledger, and returns their
// number. Any node runs the backfill later, in parts.
func (c *Crons) Backfill(ctx context.Context, r *progressorv1.BackfillCronRequest, by process.Actor) (int32, error) {
	from, to := timeOf(r.GetFromTime()), timeOf(r.GetToTime())
	switch {
	case from.IsZero():
		return 0, invalid("from_time", "is required")
	case to.IsZero():
		return 0, invalid("to_time", "is required")
	case !from.Before(to):
		return 0, invalid("to_time", "must be after from_time")
	case r.GetMaxConcurrency() > 0 && r.GetOverlapAction() != progressorv1.OverlapAction_OVERLAP_ACTION_UNSPECIFIED:
		return 0, invalid("max_concurrency", "must not be set together with overlap_action")
	}
	s, err := c.read(ctx, r.GetNamespace(), r.GetCronId())
	if err != nil {
		return 0, err
	}
	compiled, err := s.compile()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	if to.After(now) {
		to = now
	}
	past := compiled.Schedule.Past()
	if past.Count(from.Add(-time.Second), to, maxBackfillFires+1) > maxBackfillFires {
		return 0, invalid("to_time", "the period has more than %d fire times: split it", maxBackfillFires)
	}
	known, err := c.decidedTimes(ctx, r.GetNamespace(), r.GetCronId(), from, to)
	if err != nil {
		return 0, err
	}
	fires := int32(0)
	for fire := range past.Between(from, to) {
		if !known[fire.Unix()] {
			fires++
		}
	}
	if fires == 0 {
		return 0, nil
	}
	o := &command{
		Method: methodBackfill, Overlap: cron.OverlapAction(r.GetOverlapAction()), Concurrency: r.GetMaxConcurrency(),
		From: from, To: to,
	}
	if r.GetOverlapAction() == progressorv1.OverlapAction_OVERLAP_ACTION_UNSPECIFIED {
		o.Concurrency = max(o.Concurrency, 1)
	}
	_, err = c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by)
	return fires, err
}

// StopBackfills drops the remaining fire times of all backfills of a cron, and returns the number
// of backfills. Runs that they have started continue.
func (c *Crons) StopBackfills(
	ctx context.Context, r *progressorv1.StopBackfillsRequest, by process.Actor,
) (int32, error) {
	o := &command{Method: methodStop, Note: r.GetReason()}
	a, err := c.runCommand(ctx, r.GetNamespace(), r.GetCronId(), o, nil, by)
	return a.Backfills, err
}

// The default and the maximum number of fire times in a preview.
const (
	defaultPreview = 10
	maxPreview     = 1000
)

// Preview returns fire times and a description of a cron, or of a spec that is not stored.
func (c *Crons) Preview(
	ctx context.Context, r *progressorv1.PreviewCronRequest,
) (fires []time.Time, words string, err error) {
	now := time.Now()
	var schedule *cron.Schedule
	if ref := r.GetCron(); ref != nil {
		s, err := c.read(ctx, ref.GetNamespace(), ref.GetCronId())
		if err != nil {
			return nil, "", err
		}
		compiled, err := s.compile()
		if err != nil {
			return nil, "", err
		}
		schedule = compiled.Schedule
	} else {
		created := now
		if from := timeOf(r.GetFromTime()); !from.IsZero() && from.Before(now) {
			created = from.Add(-time.Second) // a cron created now would have no past fire times
		}
		if schedule, err = cron.Compile(specOf(r.GetSpec(), created)); err != nil {
			return nil, "", invalidOf(err, "")
		}
	}
	from, to := now, lastTime
	if r.GetFromTime() != nil {
		from = timeOf(r.GetFromTime())
	}
	if r.GetToTime() != nil {
		to = timeOf(r.GetToTime())
	}
	if !from.Before(to) {
		return nil, "", invalid("to_time", "must be after from_time (default: now)")
	}
	limit := defaultPreview
	if r.GetLimit() > 0 {
		limit = min(int(r.GetLimit()), maxPreview)
	}
	for fire := range schedule.Between(from, to) {
		if fires = append(fires, fire); len(fires) == limit {
			break
		}
	}
	return fires, schedule.Words(), nil
}
